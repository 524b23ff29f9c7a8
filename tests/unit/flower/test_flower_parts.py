"""What surrounds a federation: settings, keys, logs, status, the app directory, the commands."""

from __future__ import annotations

import io
import json
import logging
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")


import prowd.flower
from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, RunError
from prowd.flower.control import RunStatus
from prowd.flower.demo import Teller, follow, run_config
from prowd.flower.logs import event, log_to, log_to_stderr
from prowd.flower.settings import ServerSettings
from prowd.flower.status import read_status
from prowd.numbers.bits import FLOAT32
from prowd.runs.roster import Roster
from tests.unit.flower.federations import logging_as_before
from tests.unit.scenes import INT8


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with logging_as_before():
        yield


# Settings


def test_settings_have_defaults_that_the_app_writes_out() -> None:
    found = ServerSettings.read({})
    assert (found.preset, found.quorum, found.attempts, found.limit, found.path) == ("quick", 0, 5, 2**28, None)
    written = tomllib.loads((Path(prowd.flower.__file__).parent / "app" / "pyproject.toml").read_text("utf-8"))
    assert ServerSettings.read(written["tool"]["flwr"]["app"]["config"]) == found
    assert list(written["tool"]["flwr"]["app"]["config"]) == list(ServerSettings.model_fields)


def test_settings_of_the_run_are_pairs() -> None:
    found = ServerSettings.read({"settings": ' rounds=5; clients="int8:2, float32:1" ;method=prowd;; float32.lr = 0.5'})
    assert found.overrides() == {"rounds": 5, "clients": "int8:2, float32:1", "method": "prowd", "float32.lr": 0.5}
    assert ServerSettings.read({}).overrides() == {}
    with pytest.raises(ConfigError, match="'rounds' is not a setting"):
        ServerSettings.read({"settings": "rounds"}).overrides()


def test_paths_may_be_in_one_s_home() -> None:
    assert ServerSettings.read({"out": "~/x"}).path == Path("~/x").expanduser()
    assert ServerSettings.read({"resume": "x"}).path == Path("x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"qourum": 2}, r"run-config: qourum: .*did you mean 'quorum'"),
        ({"out": "a", "resume": "b"}, "run-config: out is 'a' beside resume"),
        *(({"quorum": value}, "run-config: quorum: ") for value in (-1, 1.5, "many")),
        *(({"deadline": value}, "run-config: deadline: ") for value in (0.0, float("inf"), float("nan"))),
        *(({key: value}, f"{key}: ") for key, value in {"attempts": 0, "pause": -1.0, "join": -3, "limit": 10}.items()),
        *(({key: True}, f"{key}: ") for key in ("preset", "settings")),
    ],
)
def test_settings_that_are_wrong(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ServerSettings.read(values)


# Logs


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
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["level"]) == ("hello", "warning")


# Status

LINE: dict[str, Any] = {
    "round": 1,
    "accuracy": {},
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
    assert [line.round for line in lines] == [1, 2]
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


def test_status_of_what_is_no_run_of_devices(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no devices\.json"):
        read_status(tmp_path)
    for roster in (b"", b"{}", b"[]"):
        with pytest.raises(RunError, match=r"devices\.json cannot be read"):
            read_status(run_directory(tmp_path, LINE, roster=roster))


# The demonstration, as far as it is not processes


def test_a_demonstration_tells_each_round_once(tmp_path: Path) -> None:
    said: list[str] = []
    teller = Teller(tmp_path, 3, said.append)
    teller()
    devices = [{"status": status} for status in ("ok", "lost", "ok")]
    traffic: dict[str, Any] = {"up": {}, "down": {}}
    line = {"round": 1, "accuracy": {"trained": {"int8": 0.5}}, "bytes": traffic, "devices": devices}
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


def test_a_run_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prowd.flower.demo.time.sleep", lambda _: None)
    looks: list[int] = []
    stages = [RunStatus("pending", "", ""), RunStatus("running", "", ""), RunStatus("finished", "completed", "")]
    follow(Mock(), Mock(status=Mock(side_effect=stages)), 1, lambda: looks.append(1))
    assert len(looks) == 3, "and once more at the end"
    failed = Mock(status=Mock(return_value=RunStatus("finished", "failed", "out of luck")))
    with pytest.raises(RunError, match="the run ended as failed: out of luck"):
        follow(Mock(), failed, 1)
