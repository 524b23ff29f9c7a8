"""Nodes that join a run, and those that come back to one that is resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import RecordDict

import prowd
from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, RunError
from prowd.flower.records import introduce
from prowd.runs.read import read_sessions
from prowd.runs.run import Session
from tests.runs import run_tiny
from tests.unit.flower.fakes import FIRST, Clock, FakeGrid, fails, sends, silent
from tests.unit.flower.federations import devices, expected, make_grid, resume, run, weights
from tests.unit.scenes import INT4, INT8

# Resuming


@pytest.mark.parametrize("method", ["fedavg", "fedcomgate"])
def test_a_resumed_run_comes_to_the_same_weights(method: str, clock: Clock, tmp_path: Path) -> None:
    run(make_grid(clock, tmp_path), tmp_path / "run", {"method": method})
    result = resume(make_grid(clock, tmp_path), tmp_path / "run", settings="rounds=4")
    assert weights(result) == expected(method=method, rounds=4)
    assert [line["round"] for line in result.rounds] == [1, 2, 3, 4]
    assert [session["round"] for session in read_sessions(result.path / "provenance.json")] == [0, 2]


def test_a_round_that_a_crash_undid_is_made_again(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "fedcomgate", "rounds": 3}
    run(make_grid(clock, tmp_path), tmp_path / "run", settings)
    for file in (tmp_path / "run" / "checkpoints").glob("round-000003*"):
        file.unlink()
    result = resume(make_grid(clock, tmp_path), tmp_path / "run")
    assert weights(result) == expected(method="fedcomgate", rounds=3)


def test_memories_are_of_a_run_and_a_client(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path)
    for node in grid.nodes.values():
        node["state"] = str(tmp_path / "shared")
    for name in ("one", "two"):
        run(grid, tmp_path / name, {"method": "fedcomgate"})
    runs = [json.loads((tmp_path / name / "devices.json").read_text("utf-8"))["run"] for name in ("one", "two")]
    assert len(set(runs)) == 2
    files = {path.relative_to(tmp_path / "shared").as_posix() for path in (tmp_path / "shared").rglob("*.bin")}
    assert files == {
        f"{run}/client-{n:04d}/round-{round_:06d}.bin" for run in runs for n in range(4) for round_ in (1, 2)
    }
    assert all(re.fullmatch("[0-9a-f]{16}", run) for run in runs)


def test_a_damaged_memory_is_a_lost_client(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "fedcomgate", "rounds": 1}
    run(make_grid(clock, tmp_path), tmp_path / "run", settings)
    (memory,) = (tmp_path / "3").rglob("round-000001.bin")
    memory.write_bytes(memory.read_bytes()[:-1])
    result = resume(make_grid(clock, tmp_path), tmp_path / "run", settings="rounds=2")
    assert weights(result) == expected((3, 2), method="fedcomgate", rounds=2)
    status, reason = devices(result.rounds[1])[3]
    assert status == "lost"
    assert re.search(r"node 103: failed: .*RunError.*is damaged", reason)


def test_a_node_that_is_not_back_yet_is_lost_until_it_is(grid: FakeGrid, tmp_path: Path) -> None:
    run(grid, tmp_path / "run", {"rounds": 1})
    late = grid.nodes.pop(FIRST + 2)

    def returns(message: object, answer: object) -> None:
        grid.nodes[FIRST + 2] = late

    grid.tricks = {(FIRST + 3, 2): [returns]}
    result = resume(grid, tmp_path / "run", settings="rounds=3", quorum=2)
    assert weights(result) == expected((2, 2), (3, 2), rounds=3)
    assert [status for status, _ in devices(result.rounds[1]).values()] == ["ok", "ok", "lost", "lost"]
    assert set(devices(result.rounds[2]).values()) == {("ok", "")}
    assert result.rounds[1]["devices"][2]["node"] == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"width": "int4"}, "client 1 is int4 with 358 examples; accepted: int8 with 358 examples"),
        ({"client": 0}, "client 0 belongs to node 100"),
        ({"client": 4}, "client is 4"),
    ],
)
def test_a_resumed_run_holds_nodes_to_their_word(
    change: dict[str, object], reason: str, grid: FakeGrid, tmp_path: Path
) -> None:
    run(grid, tmp_path / "run", {"rounds": 1})
    grid.nodes[FIRST + 1] |= change
    result = resume(grid, tmp_path / "run", settings="rounds=2")
    assert weights(result) == expected((1, 2))
    grid.nodes = {FIRST: grid.nodes[FIRST], FIRST + 1: grid.nodes[FIRST + 1]}
    with pytest.raises(RunError, match=f"^1 of the 2 devices .*; missing: 1, 2, 3; node 101: .*{reason}"):
        resume(grid, tmp_path / "run", settings="rounds=3", quorum=2)


def test_a_number_of_examples_is_held_to(grid: FakeGrid, tmp_path: Path) -> None:
    run(grid, tmp_path / "run", {"rounds": 1})
    grid.tricks = {(FIRST + 1, 0): [sends(introduce(ClientSpec(1, INT8, 7)))] * 9}
    grid.nodes = {FIRST + 1: grid.nodes[FIRST + 1]}
    with pytest.raises(RunError, match=r"client 1 is int8 with 7 examples; accepted: int8 with 358 examples"):
        resume(grid, tmp_path / "run", settings="rounds=2", quorum=1, join=3.0)


def test_runs_of_devices_and_simulated_ones_are_not_mistaken(grid: FakeGrid, tmp_path: Path) -> None:
    run_tiny(tmp_path / "simulated")
    with pytest.raises(RunError, match="a run of simulated clients"):
        resume(grid, tmp_path / "simulated")
    run(grid, tmp_path / "run", {"rounds": 1})
    with pytest.raises(RunError, match="a run of real devices"):
        Session.resume(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="steps: "):
        resume(grid, tmp_path / "run", settings="steps=3")
    assert weights(resume(grid, tmp_path / "run")) == expected(rounds=1)


@pytest.mark.parametrize("text", ["", "{", '{"format": 2}', '{"format": 1, "run": "x", "devices": []}'])
def test_a_damaged_roster_stops_a_resume(text: str, grid: FakeGrid, tmp_path: Path) -> None:
    run(grid, tmp_path / "run", {"rounds": 1})
    (tmp_path / "run" / "devices.json").write_text(text, "utf-8")
    for _ in range(2):  # the directory is let go of
        with pytest.raises(RunError, match=r"devices\.json"):
            resume(grid, tmp_path / "run")


# Joining


def test_a_run_waits_for_its_devices(grid: FakeGrid, clock: Clock, tmp_path: Path) -> None:
    late = grid.nodes.pop(FIRST + 3)

    def joins(seconds: float) -> None:
        Clock.sleep(clock, seconds)
        if clock.now > 20:
            grid.nodes[FIRST + 3] = late

    clock.sleep = joins  # type: ignore[method-assign]
    assert weights(run(grid, tmp_path / "run")) == expected()
    assert 20 < clock.now < 40
    assert [node for node, round_ in grid.asked if not round_] == [100, 101, 102, 103], "nobody is asked twice"


def test_devices_that_do_not_come(grid: FakeGrid, clock: Clock, tmp_path: Path) -> None:
    del grid.nodes[FIRST + 3]
    grid.nodes[FIRST]["widht"] = grid.nodes[FIRST].pop("width")
    grid.tricks = {(FIRST + 1, 0): [silent] * 99, (FIRST + 2, 0): [fails(5, None)] * 99}
    with pytest.raises(RunError) as caught:
        run(grid, tmp_path / "run")
    assert re.search("^0 of the 4 .*; missing: 0, 1, 2, 3; node 100: it .*'widht'.*; node 102: it ", str(caught.value))
    assert 30 <= clock.now < 32
    assert not (tmp_path / "run").exists()


def test_a_node_that_was_turned_away_may_mend_its_ways(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST, 0): [silent, fails(2, "no data yet"), sends(RecordDict())]}
    assert weights(run(grid, tmp_path / "run", join=300.0)) == expected()
    grid.tricks = {(FIRST, 0): [fails(2, "no data yet")], (FIRST + 1, 0): [fails(2, "no luck")] * 99}
    with pytest.raises(RunError, match=r"; missing: 1; node 101: .*no luck$"):
        run(grid, tmp_path / "other")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ClientSpec(4, INT8, 9), "node 101: client is 4"),
        (ClientSpec(0, INT4, 9), "node 101: client 0 is node 100 already"),
    ],
)
def test_a_client_number_is_one_s_own(spec: ClientSpec, reason: str, grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST + 1, 0): [sends(introduce(spec))] * 99}
    with pytest.raises(RunError, match=f"^3 of the 4 devices .*; missing: 1; {reason}"):
        run(grid, tmp_path / "run")


def test_a_number_belongs_to_a_registered_key(grid: FakeGrid, tmp_path: Path) -> None:
    """A thief that is there first is turned away, and the owner let in; a resume knows the owners by itself."""
    thief = FIRST - 1
    grid.nodes = {thief: {**grid.nodes[FIRST], "state": str(tmp_path / "thief")}, **grid.nodes}
    owners = ", ".join(str(FIRST + n) for n in range(4))
    result = run(grid, tmp_path / "run", owners=owners)
    assert weights(result) == expected()
    assert {(thief, 0), (FIRST, 0), (FIRST, 1)} <= set(grid.asked)
    assert weights(resume(grid, tmp_path / "run", settings="rounds=3")) == expected(rounds=3)
    assert (thief, 1) not in grid.asked, "a hello is all that it is asked"


def test_without_its_owner_a_number_is_nobody_s(grid: FakeGrid, tmp_path: Path) -> None:
    run(grid, tmp_path / "run")
    stolen = grid.nodes.pop(FIRST)
    grid.nodes[FIRST + 9] = {**stolen, "state": str(tmp_path / "thief")}
    lines = resume(grid, tmp_path / "run", settings="rounds=3").rounds
    assert devices(lines[2])[0][0] == "lost"
    owners = ", ".join(str(node) for node in (FIRST + 9, FIRST + 1, FIRST + 2, FIRST + 3))
    lines = resume(grid, tmp_path / "run", settings="rounds=4", owners=owners).rounds
    assert devices(lines[3])[0][0] == "ok", "the operator says whose it is now"


@pytest.mark.parametrize("owners", ["1,2,3", "1,2,3,3", "1,2,3,x", "1,2,3,4,5"])
def test_owners_are_one_for_each_client(owners: str, grid: FakeGrid, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"owners is .*; accepted: the numbers of 4 nodes"):
        run(grid, tmp_path / "run", owners=owners)


def test_a_reason_does_not_fill_the_page(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST + 1, 0): [fails(2, "x" * 10**6)] * 99}
    with pytest.raises(RunError, match="xxx") as caught:
        run(grid, tmp_path / "run")
    assert len(str(caught.value)) < 700


def test_a_method_of_one_s_own_is_no_method_for_devices(grid: FakeGrid, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method: prowd\.methods:FedProx is not built in"):
        run(grid, tmp_path / "run", {"method": "prowd.methods:FedProx"})


def test_devices_begin_with_the_weights_that_the_server_starts_from(grid: FakeGrid, tmp_path: Path) -> None:
    first = run(grid, tmp_path / "first")
    again = run(grid, tmp_path / "again", {"init": str(first.path)})
    alone = prowd.run(again.path / "config.toml", out=tmp_path / "alone", workers=1)
    assert again.summary["weights_sha256"] == alone.summary["weights_sha256"] != first.summary["weights_sha256"]
    with pytest.raises(ConfigError, match=r"^init: .*/first, but local sends devices no weights; accepted: random"):
        run(grid, tmp_path / "local", {"init": str(first.path), "method": "local"})


def test_messages_live_no_longer_than_they_are_waited_for(grid: FakeGrid, tmp_path: Path) -> None:
    run(grid, tmp_path / "run", deadline=45.0, join=20.0)
    assert grid.ttls == [20.0] * 4 + [45.0] * 8
