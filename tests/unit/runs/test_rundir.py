"""The directory of a run: one writer, whole checkpoints, and what a kill leaves of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from prowd.device.scene import ClientSpec
from prowd.errors import RunError
from prowd.methods import ServerState
from prowd.numbers.bits import FLOAT32
from prowd.runs.directory import KEPT, RunDir, weights_hash
from prowd.runs.roster import Roster

CONFIG = 'name = "test"\n'


@pytest.fixture
def rundir(tmp_path: Path) -> Iterator[RunDir]:
    made = RunDir.create(tmp_path / "run", CONFIG)
    yield made
    made.release()


def state(round_: int) -> ServerState:
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3) + round_ / 7
    return ServerState(round_, {"a.weight": values, "b.weight": -values.flatten()}, {"b.weight": values.double()})


def line(round_: int) -> dict[str, Any]:
    return {"round": round_, "accuracy": {}, "bytes": {"up": {}, "down": {}}, "loss": {"int8": 1 / round_}}


def after(rundir: RunDir, rounds: int) -> RunDir:
    """Let a run go through some rounds."""
    for round_ in range(1, rounds + 1):
        rundir.append(line(round_))
        rundir.checkpoint(state(round_))
    return rundir


def checkpoint(rundir: RunDir, round_: int, suffix: str = "safetensors") -> Path:
    return rundir.path / "checkpoints" / f"round-{round_:06d}.{suffix}"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def assert_same(found: ServerState | None, expected: ServerState) -> None:
    assert found is not None
    assert found.round == expected.round
    for ours, theirs in ((found.model, expected.model), (found.memory, expected.memory)):
        assert set(ours) == set(theirs)
        assert all(torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours)


def seen(rundir: RunDir) -> list[int]:
    return [report.round for report in rundir.lines()]


def test_a_new_directory_holds_its_configuration(rundir: RunDir) -> None:
    assert (rundir.path / "config.toml").read_text("utf-8") == CONFIG
    assert (rundir.path / "checkpoints").is_dir()
    assert rundir.lines() == []
    assert rundir.restore() is None


def test_a_directory_that_holds_a_run_is_left_alone(rundir: RunDir) -> None:
    after(rundir, 1).release()
    before = {path: path.read_bytes() for path in rundir.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"holds another run.*--resume"):
        RunDir.create(rundir.path, "other")
    assert {path: path.read_bytes() for path in rundir.path.rglob("*") if path.is_file()} == before


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious", "utf-8")
    with pytest.raises(RunError, match="not an empty directory"):
        RunDir.create(tmp_path / "file", CONFIG)
    with pytest.raises(RunError, match="cannot be written"):
        RunDir.create(tmp_path / "file" / "run", CONFIG)
    assert (tmp_path / "file").read_text("utf-8") == "precious"


def test_only_a_run_can_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RunError, match=f"{path} is not a run directory"):
            RunDir.open(path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_has_one_writer(rundir: RunDir) -> None:
    with pytest.raises(RunError, match="in use by another process"):
        RunDir.open(rundir.path)
    rundir.release()
    RunDir.open(rundir.path).release()


def test_a_transposed_tensor_is_saved_by_value(rundir: RunDir) -> None:
    turned = ServerState(1, {"a": torch.arange(6.0).reshape(2, 3).T}, {})
    rundir.append(line(1))
    rundir.checkpoint(turned)
    assert_same(rundir.restore(), turned)


def test_the_checkpoint_tells_the_hash_of_its_weights(rundir: RunDir) -> None:
    after(rundir, 1)
    facts = json.loads(checkpoint(rundir, 1, "json").read_text("utf-8"))
    assert facts["round"] == 1
    assert facts["weights_sha256"] == weights_hash(state(1).model)


def test_old_checkpoints_are_removed(rundir: RunDir) -> None:
    after(rundir, KEPT + 3)
    kept = sorted(path.name for path in (rundir.path / "checkpoints").glob("round-*"))
    newest = range(4, 4 + KEPT)
    assert kept == [f"round-{n:06d}.{suffix}" for n in newest for suffix in ("json", "safetensors")]
    assert seen(rundir) == list(range(1, KEPT + 4))


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_half_a_checkpoint_falls_back_to_the_one_before(
    rundir: RunDir, suffix: str, damage: Callable[[Path], None]
) -> None:
    after(rundir, 3)
    damage(checkpoint(rundir, 3, suffix))
    assert_same(rundir.restore(), state(2))
    assert seen(rundir) == [1, 2]


def test_one_flipped_bit_is_noticed(rundir: RunDir) -> None:
    after(rundir, 3)
    path = checkpoint(rundir, 3)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert_same(rundir.restore(), state(2))


def test_the_damage_of_all_checkpoints_is_an_error(rundir: RunDir) -> None:
    after(rundir, 3)
    for round_ in (2, 3):
        truncate(checkpoint(rundir, round_))
    with pytest.raises(RunError) as caught:
        rundir.restore()
    for round_ in (2, 3):
        assert str(checkpoint(rundir, round_)) in str(caught.value)
    assert seen(rundir) == [1, 2, 3], "nothing is cut when nothing can be resumed"


def test_a_checkpoint_of_a_later_format_is_not_misread(rundir: RunDir) -> None:
    after(rundir, 1)
    path = checkpoint(rundir, 1, "json")
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "format": 2}), "utf-8")
    with pytest.raises(RunError):
        rundir.restore()


def test_half_a_last_line_is_dropped(rundir: RunDir) -> None:
    after(rundir, 2)
    with (rundir.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"round": 3, "los')
    assert seen(rundir) == [1, 2]
    assert_same(rundir.restore(), state(2))
    rundir.append(line(3))
    assert seen(rundir) == [1, 2, 3]


def test_a_line_without_its_checkpoint_is_cut(rundir: RunDir) -> None:
    rundir.append(line(1))
    assert rundir.restore() is None
    assert seen(rundir) == []
    after(rundir, 2).append(line(3))
    assert_same(rundir.restore(), state(2))
    assert seen(rundir) == [1, 2]


def test_lines_that_are_missing_are_an_error(rundir: RunDir) -> None:
    after(rundir, 3)
    path = rundir.path / "rounds.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text(lines[0] + lines[2], "utf-8")
    with pytest.raises(RunError, match=r"rounds\.jsonl lacks"):
        rundir.restore()
    assert path.read_text("utf-8") == lines[0] + lines[2]


def test_what_is_left_of_an_unfinished_write_does_no_harm(rundir: RunDir) -> None:
    after(rundir, 2)
    (rundir.path / "checkpoints" / ".round-000003.json.0123.tmp").write_text("{", "utf-8")
    (rundir.path / "checkpoints" / "round-000003.safetensors").write_bytes(b"half")
    assert_same(rundir.restore(), state(2))


def test_the_hash_does_not_depend_on_order_or_layout() -> None:
    one, two = torch.arange(6.0).reshape(2, 3), torch.ones(2)
    assert weights_hash({"a": one, "b": two}) == weights_hash({"b": two, "a": one.T.contiguous().T})


def test_the_hash_sees_names_shapes_and_every_bit() -> None:
    weights = torch.arange(6.0).reshape(2, 3)
    flipped, negative = weights.clone(), weights.clone()
    flipped.view(torch.int32)[1, 2] ^= 1
    negative[0, 0] = -0.0
    singles = [weights, weights.reshape(3, 2), weights.flatten(), flipped, negative]
    pairs = [(weights, weights), (flipped, weights), (weights, flipped)]
    models = [{}, {"b": weights}, *({"a": one} for one in singles), *({"a": one, "b": two} for one, two in pairs)]
    assert len({weights_hash(model) for model in models}) == len(models)


def test_what_is_left_of_a_run_that_was_killed_before_it_began_will_do(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".config.toml.0123456789abcdef.tmp").write_text("half", "utf-8")
    with FileLock(tmp_path / ".lock"), pytest.raises(RunError, match="in use by another process"):
        RunDir.create(tmp_path, CONFIG)
    assert not (tmp_path / "config.toml").exists()
    RunDir.create(tmp_path, CONFIG).release()
    assert (tmp_path / "config.toml").read_text("utf-8") == CONFIG


@pytest.mark.parametrize("name", ["rounds.jsonl", "thesis.tex", "clients", "checkpoints/round-000009.json"])
def test_what_is_more_than_a_leftover_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / name).write_text("precious", "utf-8")
    with pytest.raises(RunError, match="not an empty directory"):
        RunDir.create(tmp_path, CONFIG)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", name.partition("/")[0]}
    assert (tmp_path / name).read_text("utf-8") == "precious"


def test_a_run_of_devices_knows_them(rundir: RunDir) -> None:
    assert rundir.roster() is None, "as long as its clients are simulated"
    roster = Roster("0123456789abcdef", (ClientSpec(0, FLOAT32, 7),))
    rundir.write_roster(roster)
    assert rundir.roster() == roster
    truncate(rundir.path / "devices.json")
    with pytest.raises(RunError, match=r"devices\.json cannot be read"):
        rundir.roster()
