"""What surrounds a federation: settings, keys, logs, status, the app directory, the commands."""

from __future__ import annotations

import builtins
import io
import json
import logging
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

import prowd.flower
from prowd.cli import main
from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, RunError
from prowd.flower import keys as key_making
from prowd.flower.demo import Teller, follow, run_config
from prowd.flower.keys import make_certificates, make_node_key
from prowd.flower.logs import event, log_to, log_to_stderr
from prowd.flower.settings import ServerSettings, write_app
from prowd.flower.status import read_status
from prowd.numbers.bits import FLOAT32
from prowd.runs.roster import Roster
from tests.unit.flower.fakes import logging_as_before
from tests.unit.scenes import INT8


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with logging_as_before():
        yield


# Settings


def test_settings_have_defaults_that_the_app_writes_out() -> None:
    found = ServerSettings.read({})
    assert (found.preset, found.quorum, found.attempts, found.limit, found.path) == ("quick", 0, 5, 2**28, None)
    written = tomllib.loads((Path(key_making.__file__).parent / "app" / "pyproject.toml").read_text("utf-8"))
    assert ServerSettings.read(written["tool"]["flwr"]["app"]["config"]) == found
    assert list(written["tool"]["flwr"]["app"]["config"]) == list(ServerSettings.model_fields)


def test_settings_of_the_run_are_pairs() -> None:
    found = ServerSettings.read({"settings": ' rounds=5; clients="int8:2, float32:1" ;method=prowd;; float32.lr = 0.5'})
    assert found.overrides() == {"rounds": 5, "clients": "int8:2, float32:1", "method": "prowd", "float32.lr": 0.5}
    assert ServerSettings.read({}).overrides() == {}
    with pytest.raises(ConfigError, match="'rounds' is not a setting; accepted: KEY=VALUE"):
        ServerSettings.read({"settings": "rounds"}).overrides()


def test_paths_may_be_in_one_s_home() -> None:
    assert ServerSettings.read({"out": "~/x"}).path == Path("~/x").expanduser()
    assert ServerSettings.read({"resume": "x"}).path == Path("x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"qourum": 2}, r"run-config: qourum: as a key is wrong; accepted: preset, .* \(did you mean 'quorum'\?\)"),
        ({"quorum": -1}, "run-config: quorum: -1 is wrong; accepted: greater than or equal to 0"),
        ({"quorum": 1.5}, r"run-config: quorum: 1\.5 is wrong; accepted: a valid integer"),
        ({"quorum": "many"}, "run-config: quorum: 'many' is wrong; accepted: a valid integer"),
        ({"attempts": 0}, "run-config: attempts: 0 is wrong; accepted: greater than or equal to 1"),
        ({"deadline": 0.0}, r"run-config: deadline: 0\.0 is wrong; accepted: greater than 0"),
        ({"deadline": float("inf")}, "run-config: deadline: inf is wrong; accepted: a finite number"),
        ({"deadline": float("nan")}, "run-config: deadline: nan is wrong"),
        ({"pause": -1.0}, r"run-config: pause: -1\.0 is wrong; accepted: greater than or equal to 0"),
        ({"join": -3}, "run-config: join: -3 is wrong; accepted: greater than 0"),
        ({"limit": 10}, "run-config: limit: 10 is wrong; accepted: greater than or equal to 1024"),
        ({"preset": 3}, "run-config: preset: 3 is wrong; accepted: a valid string"),
        ({"settings": True}, "run-config: settings: True is wrong; accepted: a valid string"),
        ({"out": "a", "resume": "b"}, "run-config: out is 'a' beside resume; accepted: one of them"),
    ],
)
def test_settings_that_are_wrong(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServerSettings.read(values)


# Keys


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificates_are_a_chain(tmp_path: Path) -> None:
    make_certificates(tmp_path / "keys", ["fl.example.org", "10.0.0.7", "::1"], days=30)
    ca, server = certificate(tmp_path / "keys" / "ca.pem"), certificate(tmp_path / "keys" / "server.pem")
    server.verify_directly_issued_by(ca)
    ca.verify_directly_issued_by(ca)
    store = x509.verification.Store([ca])
    for subject in (x509.DNSName("fl.example.org"), x509.IPAddress(ip_address("10.0.0.7"))):
        builder = x509.verification.PolicyBuilder().store(store).time(datetime.now(UTC))
        assert builder.build_server_verifier(subject).verify(server, []) == [server, ca]
    with pytest.raises(x509.verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("other.example.org")).verify(server, [])
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("10.0.0.7"), ip_address("::1")]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    assert ca.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_certificates_run_out(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"], days=30)
    for name in ("ca.pem", "server.pem"):
        found, now = certificate(tmp_path / name), datetime.now(UTC)
        assert timedelta(days=29) < found.not_valid_after_utc - now <= timedelta(days=30)
        assert found.not_valid_before_utc < now - timedelta(minutes=30), "clocks differ"


def test_private_keys_are_private(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["localhost"])
    make_node_key(tmp_path, "node-0")
    assert {path.name: oct(mode(path)) for path in tmp_path.iterdir()} == {
        "ca.pem": "0o644", "server.pem": "0o644", "server.key": "0o600", "node-0": "0o600", "node-0.pub": "0o644",
    }  # fmt: skip
    private = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == certificate(tmp_path / "server.pem").public_key()
    assert private.public_key() != certificate(tmp_path / "ca.pem").public_key(), "whose key is thrown away"


def test_a_node_key_is_a_pair(tmp_path: Path) -> None:
    path = make_node_key(tmp_path / "new", "node-0")
    assert path == tmp_path / "new" / "node-0"
    private = serialization.load_ssh_private_key(path.read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "new" / "node-0.pub").read_bytes())
    assert isinstance(private, EllipticCurvePrivateKey)
    assert private.public_key() == public
    assert private.curve.name == "secp384r1", "as Flower wants it"
    other = make_node_key(tmp_path, "node-1")
    assert other.read_bytes() != path.read_bytes()


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server.key", "node", "node.pub"])
def test_keys_are_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious", "utf-8")
    certificates: Callable[[], object] = partial(make_certificates, tmp_path, ["localhost"])
    make = partial(make_node_key, tmp_path, "node") if name.startswith("node") else certificates
    with pytest.raises(ConfigError, match=f"{name} exists and is not overwritten; accepted: another folder or name"):
        make()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text("utf-8") == "precious"


def test_a_long_host_name_is_one(tmp_path: Path) -> None:
    host = f"{'a' * 60}.{'b' * 60}.example.org"
    make_certificates(tmp_path, [host])
    names = certificate(tmp_path / "server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [host]


@pytest.mark.parametrize("host", ["münchen.de", ""])
def test_what_a_certificate_cannot_hold_is_named(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"host: .*{host}.*; accepted: "):
        make_certificates(tmp_path / "keys", ["localhost", host])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["", "a/b", "../a", "/a", "."])
def test_a_node_key_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"name: .*; accepted: the name of a file in "):
        make_node_key(tmp_path / "keys", name)
    assert list(tmp_path.iterdir()) == []


# Logs


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_is_a_line_of_json_for_each_event(tmp_path: Path) -> None:
    handler = log_to(tmp_path / "log.jsonl")
    log = logging.getLogger("prowd.somewhere")
    event(log, "replied", {"node": "7", "seconds": 0.5, "path": tmp_path})
    log.warning("two\nlines of %s", "text")
    log.debug("not said")
    try:
        raise RunError("out of luck")
    except RunError:
        log.exception("failed")
    handler.close()
    first, second, third = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").splitlines()]
    assert list(first) == ["time", "level", "event", "node", "seconds", "path"]
    assert (first["level"], first["event"], first["seconds"], first["path"]) == ("info", "replied", 0.5, str(tmp_path))
    assert datetime.fromisoformat(first["time"]).utcoffset() == timedelta(0)
    assert (second["level"], second["event"]) == ("warning", "two\nlines of text")
    assert third["level"] == "error"
    assert third["traceback"].endswith("RunError: out of luck")


def test_stderr_is_logged_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log_to_stderr()
    log_to_stderr()
    event(logging.getLogger("prowd.x"), "hello", {}, logging.WARNING)
    (line,) = logged(stream)
    assert (line["event"], line["level"]) == ("hello", "warning")


# Status

LINE: dict[str, Any] = {
    "round": 1,
    "bytes": {"up": {"int8": 5}, "down": {"int8": 7}},
    "devices": [
        {"client": 0, "node": "9", "status": "ok", "up": 5, "down": 7, "seconds": 1.5},
        {"client": 1, "node": "8", "status": "refused", "up": 6, "down": 7, "seconds": 2.5, "reason": "garbage"},
    ],
}
LATER = {**LINE, "round": 2, "devices": [{"client": 1, "node": "", "status": "lost", "down": 7, "reason": "asleep"}]}


def run_directory(folder: Path, *lines: Mapping[str, Any], roster: bytes | None = None) -> Path:
    known = Roster("0" * 16, (ClientSpec(0, INT8, 10), ClientSpec(1, FLOAT32, 12)))
    (folder / "devices.json").write_bytes(known.encode() if roster is None else roster)
    (folder / "rounds.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return folder


def test_status_is_of_all_rounds(tmp_path: Path) -> None:
    (first, second), lines = read_status(run_directory(tmp_path, LINE, LATER))
    assert [line["round"] for line in lines] == [1, 2]
    assert (first.client, first.width, first.node, first.asked, first.used) == (0, "int8", "9", 1, 1)
    assert (first.up, first.down, first.seconds, first.trouble) == (5, 7, 1.5, "")
    assert (second.width, second.node, second.asked, second.used) == ("float32", "8", 2, 0)
    assert (second.lost, second.refused, second.up, second.down, second.seconds) == (1, 1, 6, 14, 2.5)
    assert second.trouble == "round 2: asleep"


def test_status_before_the_first_round(tmp_path: Path) -> None:
    run_directory(tmp_path)
    (tmp_path / "rounds.jsonl").unlink()
    devices, lines = read_status(tmp_path)
    assert ([device.asked for device in devices], lines) == ([0, 0], [])


def test_status_of_a_run_that_is_being_written(tmp_path: Path) -> None:
    path = run_directory(tmp_path, LINE) / "rounds.jsonl"
    path.write_text(path.read_text("utf-8") + '{"round": 2, "dev', "utf-8")
    assert len(read_status(tmp_path)[1]) == 1


def test_status_of_what_is_no_run_of_devices(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no devices\.json; accepted: the directory of a run on Flower"):
        read_status(tmp_path)
    for roster in (b"", b"{}", b"[]"):
        with pytest.raises(RunError, match=r"devices\.json cannot be read"):
            read_status(run_directory(tmp_path, LINE, roster=roster))


# The demonstration, as far as it is not processes


def test_a_demonstration_tells_each_round_once(tmp_path: Path) -> None:
    said: list[str] = []
    teller = Teller(tmp_path, 3, said.append)
    teller()
    line = {
        "round": 1,
        "accuracy": {"trained": {"int8": 0.5}},
        "devices": [{"status": s} for s in ("ok", "lost", "ok")],
    }
    (tmp_path / "rounds.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    teller()
    teller()
    (only,) = said
    assert only.startswith("round 1/3")
    assert only.endswith("2 devices")


def test_a_demonstration_passes_its_settings_on() -> None:
    given = {"clients": "int8:2, float32:1", "rounds": 3, "float32.lr": 0.5, "augment": ["crop"], "method": "prowd"}
    found = ServerSettings.read(run_config(given, out="/x", deadline=120.0, attempts=1))
    assert found.overrides() == given
    assert (found.path, found.deadline, found.attempts) == (Path("/x"), 120.0, 1)


class FakeControl:
    """A Flower run that goes through some states."""

    def __init__(self, *states: tuple[str, str, str]) -> None:
        self.states = list(states)

    def status(self, run: int) -> Any:
        from prowd.flower.control import RunStatus

        return RunStatus(*self.states.pop(0))


class FakeFederation:
    def check(self) -> None: ...


def test_a_run_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prowd.flower.demo.time.sleep", lambda _: None)
    looks: list[int] = []
    federation: Any = FakeFederation()
    good: Any = FakeControl(("pending", "", ""), ("running", "", ""), ("finished", "completed", ""))
    follow(federation, good, 1, lambda: looks.append(1))
    assert len(looks) == 3, "and once more at the end"
    bad: Any = FakeControl(("finished", "failed", "out of luck"))
    with pytest.raises(RunError, match="the run ended as failed: out of luck"):
        follow(federation, bad, 1)


# The app directory and the commands


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["flower", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_app_directory_is_an_app(tmp_path: Path) -> None:
    done = call("app", tmp_path / "app")
    assert done.exit_code == 0
    assert f"flwr run {tmp_path / 'app'}" in done.output
    found = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text("utf-8"))
    assert found["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "prowd.flower.server_app:app",
        "clientapp": "prowd.flower.client_app:app",
    }
    assert write_app(tmp_path / "deep" / "app").is_dir()


def test_the_app_directory_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        done = call("app", tmp_path / name)
        assert done.exit_code == 1
        assert f"error: {tmp_path / name} is not an empty directory; accepted: a new one" in done.output
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("command", ["", "demo", "status", "app", "certificates", "key"])
def test_help(command: str) -> None:
    done = call(*command.split(), "--help")
    assert done.exit_code == 0
    assert done.output.startswith(f"Usage: main flower{' ' * bool(command)}{command} ")
    if not command:
        assert all(name in done.output for name in ("demo", "status", "app", "certificates", "key"))


def test_status_is_a_table(tmp_path: Path) -> None:
    done = call("status", run_directory(tmp_path, LINE, LATER))
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()[1:3]
    assert first.split()[:6] == ["0", "int8", "9", "1/1", "0", "0"]
    assert second.split()[:6] == ["1", "float32", "8", "0/2", "1", "1"]
    assert second.endswith("round 2: asleep")
    assert "2 rounds, " in done.output
    missing = call("status", tmp_path / "gone")
    assert missing.exit_code == 1
    assert "has no devices.json" in missing.output


def test_keys_by_command(tmp_path: Path) -> None:
    assert call("certificates", tmp_path, "--host", "localhost", "--host", "127.0.0.1").exit_code == 0
    done = call("key", tmp_path, "node-0")
    assert done.exit_code == 0
    assert "flwr supernode register node-0.pub" in done.output
    assert {path.name for path in tmp_path.iterdir()} == {"ca.pem", "server.pem", "server.key", "node-0", "node-0.pub"}
    again = call("key", tmp_path, "node-0")
    assert again.exit_code == 1
    assert "exists and is not overwritten" in again.output
    assert call("certificates", tmp_path / "other").exit_code == 2, "a host is needed"
    assert call("certificates", tmp_path / "other", "--host", "x", "--days", "0").exit_code == 2


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("flwr", ["demo"]),
        ("cryptography", ["key", "keys", "n"]),
        ("cryptography", ["certificates", "k", "--host", "x"]),
    ],
)
def test_without_flower_the_commands_say_what_to_install(
    package: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("prowd.flower.")]:
        monkeypatch.setattr(prowd.flower, name.rpartition(".")[2], sys.modules[name], raising=False)  # put back after
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    done = call(*arguments)
    assert done.exit_code == 1
    assert f"error: prowd flower needs {package}" in done.output
    assert "pip install 'prowd[flower]'" in done.output
    assert call("--help").exit_code == call("app", tmp_path / "app").exit_code == 0, "which do without"
    assert call("status", run_directory(tmp_path, LINE)).exit_code == 0


def test_another_module_that_is_missing_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise ModuleNotFoundError("No module named 'prowd.gone'", name="prowd.gone")

    monkeypatch.setattr("prowd.flower.status.read_status", fails)
    assert isinstance(call("status", tmp_path).exception, ModuleNotFoundError)
