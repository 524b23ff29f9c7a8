"""Whole federations over Flower's messages, in one process: to the bit what a simulation comes to."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from flwr.app import Context, Message, RecordDict

from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, RunError
from prowd.flower import server_app
from prowd.flower.records import Brief, Introduction
from prowd.flower.status import read_status
from prowd.runs.read import read_sessions
from prowd.runs.run import Session
from tests.runs import ROUND_KEYS, rounds, run_tiny
from tests.unit.flower.fakes import (
    FIRST,
    TINY,
    WIDTHS,
    Clock,
    Honest,
    devices,
    expected,
    fails,
    jumping,
    logging_as_before,
    make_grid,
    sends,
    serve,
    server,
    silent,
    weights,
)
from tests.unit.scenes import INT4, INT8


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return jumping(monkeypatch)


# To the bit


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "fedcomgate", "rounds": 3},
        {"method": "local"},
        {"method": "prowd", "rounds": 1, "options.dequantizer.epochs": 1, "options.dequantizer.depth": 1},
        {"clients": "int4:1, int8:1, float32:2", "cohort": 3, "evaluate_every": 2, "partition": "dirichlet"},
    ],
    ids=lambda settings: settings.get("method", settings.get("clients", "fedavg")),
)
def test_devices_come_to_the_weights_of_a_simulation(settings: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    widths = ("int4", "int8", "float32", "float32") if "clients" in settings else WIDTHS
    result = serve(make_grid(clock, tmp_path, widths), server(tmp_path / "run", settings))
    assert weights(result) == expected(**settings)
    assert [line["round"] for line in result.rounds] == list(range(1, len(result.rounds) + 1))
    for line in result.rounds:
        assert line["clients"]["lost"] == line["clients"]["refused"] == []
        assert set(devices(line).values()) == {("ok", "")}
        assert len(line["devices"]) == settings.get("cohort", 4)


def test_what_is_reported_is_that_of_a_simulation(clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path), server(tmp_path / "run"))
    Session.start("quick", TINY, out=tmp_path / "simulated").run(workers=1)
    found = rounds(tmp_path / "run")
    assert [{key: line[key] for key in line if key != "devices"} for line in found] == rounds(tmp_path / "simulated")
    assert set(found[0]) == ROUND_KEYS[""] - {"seconds"} | {"devices"}
    assert [(entry["client"], entry["node"], entry["seconds"]) for entry in found[0]["devices"]] == [
        (n, str(FIRST + n), 2.0) for n in range(4)
    ]
    for line in found:
        for way in ("up", "down"):
            assert sum(line["bytes"][way].values()) == sum(entry[way] for entry in line["devices"])


def test_the_server_keeps_samples_of_weights_and_the_devices_none(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "local", "snapshots": "auto"}  # a method whose devices write to their disks
    serve(make_grid(clock, tmp_path), server(tmp_path / "run", settings))
    found = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.safetensors"))
    assert [path.name for path in found if "checkpoints" not in path.parts] == [
        f"round-{round_:06d}.safetensors" for round_ in range(3)
    ]
    assert {path.parts[0] for path in found} == {"run"}
    assert list(tmp_path.glob("?/*/*/*.bin")), "though they have a disk"


def test_a_run_of_devices_says_where_it_comes_from(clock: Clock, tmp_path: Path) -> None:
    result = serve(make_grid(clock, tmp_path), server(tmp_path / "run"))
    longer = server(run={}, resume=str(result.path), settings="rounds=3")
    serve(make_grid(clock, tmp_path), longer)
    assert [session["round"] for session in read_sessions(result.path / "provenance.json")] == [0, 2]


def test_widths_are_those_the_nodes_state(clock: Clock, tmp_path: Path) -> None:
    widths, told = ("float32", "int4", "int8", "int8"), list[str]()

    def listen(message: Message, answer: Honest) -> Message:
        told.append(tomllib.loads(Brief.read(message.content).config)["clients"])
        return answer()

    grid = make_grid(clock, tmp_path, widths)
    grid.tricks = {(FIRST, round_): [listen] for round_ in (0, 1)}
    result = serve(grid, server(tmp_path / "run"))
    assert told == [TINY["clients"], "float32:1, int4:1, int8:2"], "and so they are told"
    assert weights(result) == expected(clients="float32:1, int4:1, int8:2")
    assert result.summary["clients"] == "float32:1, int4:1, int8:2"
    assert json.loads((tmp_path / "run" / "devices.json").read_text("utf-8"))["devices"][1]["width"] == "int4"


def test_nodes_in_any_order(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.nodes = dict(reversed(grid.nodes.items()))
    grid.slow = {(FIRST + n, round_): 9.0 - 2 * n for n in range(4) for round_ in (1, 2)}
    result = serve(grid, server(tmp_path / "run"))
    assert weights(result) == expected()
    assert [entry["seconds"] for entry in result.rounds[0]["devices"]] == [9.0, 7.0, 5.0, 3.0]


def test_a_simulation_of_flower_has_partitions(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path)
    for n in range(4):
        state = grid.nodes[FIRST + n]["state"]
        grid.nodes[FIRST + n] = {"partition-id": n, "num-partitions": 4, "state": state}
    assert weights(serve(grid, server(tmp_path / "run", {"method": "fedcomgate"}))) == expected(method="fedcomgate")


def test_more_nodes_than_clients(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.nodes[7] = {**grid.nodes[FIRST], "client": 4}
    grid.nodes[8] = {**grid.nodes[FIRST]}
    assert weights(serve(grid, server(tmp_path / "run"))) == expected()
    assert {node for node, round_ in grid.asked if round_} == {FIRST + n for n in range(4)}


def test_a_run_writes_down_what_happened(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 2): [silent]}
    serve(grid, server(tmp_path / "run"))
    found = [json.loads(line) for line in (tmp_path / "run" / "server.jsonl").read_text("utf-8").splitlines()]
    events = [line["event"] for line in found]
    assert (events[0], events[-1]) == ("began", "finished")
    assert events.count("replied") == 7
    assert [line["lost"] for line in found if line["event"] == "round"] == [0, 1]
    assert {"time", "level", "node", "client", "seconds", "bytes"} <= set(found[events.index("replied")])
    statuses, lines = read_status(tmp_path / "run")
    assert len(lines) == 2
    assert [(s.client, s.width, s.node, s.asked, s.used, s.lost, s.refused) for s in statuses] == [
        (n, WIDTHS[n], str(FIRST + n), 2, 2 - (n == 1), int(n == 1), 0) for n in range(4)
    ]
    assert [s.trouble for s in statuses] == ["", "round 2: node 101: no reply in 60 s", "", ""]
    assert [s.seconds for s in statuses] == [4.0, 2.0, 4.0, 4.0]


def test_the_app_itself(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = server(tmp_path / "run").model_dump()
    with logging_as_before():
        server_app.main(make_grid(clock, tmp_path), Context(1, 1, {}, RecordDict(), settings))
    assert "fedavg" in capsys.readouterr().out.lower()
    grid = make_grid(clock, tmp_path)
    with logging_as_before(), pytest.raises(RunError, match="holds another run"):
        server_app.main(grid, Context(1, 1, {}, RecordDict(), settings))
    assert grid.asked == [], "which is found before anybody is waited for"


def test_what_was_begun_is_let_go_of(clock: Clock, tmp_path: Path) -> None:
    handlers = list(logging.getLogger("prowd").handlers)
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + n, 2): [silent] for n in range(4)}
    with pytest.raises(RunError, match="no client's update could be used"):
        serve(grid, server(tmp_path / "run", attempts=1))
    assert logging.getLogger("prowd").handlers == handlers
    assert weights(serve(grid, server(resume=str(tmp_path / "run")))) == expected()


# Resuming


@pytest.mark.parametrize("method", ["fedavg", "fedcomgate"])
def test_a_resumed_run_comes_to_the_same_weights(method: str, clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path), server(tmp_path / "run", {"method": method}))
    result = serve(make_grid(clock, tmp_path), server(resume=str(tmp_path / "run"), settings="rounds=4"))
    assert weights(result) == expected(method=method, rounds=4)
    assert [line["round"] for line in result.rounds] == [1, 2, 3, 4]


def test_a_round_that_a_crash_undid_is_made_again(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "fedcomgate", "rounds": 3}
    serve(make_grid(clock, tmp_path), server(tmp_path / "run", settings))
    for file in (tmp_path / "run" / "checkpoints").glob("round-000003*"):
        file.unlink()
    result = serve(make_grid(clock, tmp_path), server(resume=str(tmp_path / "run")))
    assert weights(result) == expected(method="fedcomgate", rounds=3)


def test_memories_are_of_a_run_and_a_client(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path)
    for node in grid.nodes.values():
        node["state"] = str(tmp_path / "shared")
    for name in ("one", "two"):
        serve(grid, server(tmp_path / name, {"method": "fedcomgate"}))
    runs = [json.loads((tmp_path / name / "devices.json").read_text("utf-8"))["run"] for name in ("one", "two")]
    assert len(set(runs)) == 2
    files = {path.relative_to(tmp_path / "shared").as_posix() for path in (tmp_path / "shared").rglob("*.bin")}
    assert files == {
        f"{run}/client-{n:04d}/round-{round_:06d}.bin" for run in runs for n in range(4) for round_ in (1, 2)
    }
    assert all(re.fullmatch("[0-9a-f]{16}", run) for run in runs)


def test_a_damaged_memory_is_a_lost_client(clock: Clock, tmp_path: Path) -> None:
    settings = {"method": "fedcomgate", "rounds": 1}
    serve(make_grid(clock, tmp_path), server(tmp_path / "run", settings))
    (memory,) = (tmp_path / "3").rglob("round-000001.bin")
    memory.write_bytes(memory.read_bytes()[:-1])
    result = serve(make_grid(clock, tmp_path), server(resume=str(tmp_path / "run"), settings="rounds=2"))
    assert weights(result) == expected((3, 2), method="fedcomgate", rounds=2)
    status, reason = devices(result.rounds[1])[3]
    assert status == "lost"
    assert "node 103: failed: <class 'prowd.errors.RunError'>" in reason
    assert "its memory" in reason
    assert "is damaged" in reason


def test_a_node_that_is_not_back_yet_is_lost_until_it_is(clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}))
    grid = make_grid(clock, tmp_path, thrifty=True)
    late = grid.nodes.pop(FIRST + 2)

    def returns(message: object, answer: object) -> None:
        grid.nodes[FIRST + 2] = late

    grid.tricks = {(FIRST + 3, 2): [returns]}
    result = serve(grid, server(resume=str(tmp_path / "run"), settings="rounds=3", quorum=2))
    assert weights(result) == expected((2, 2), (3, 2), rounds=3)
    assert devices(result.rounds[1]) == {
        0: ("ok", ""),
        1: ("ok", ""),
        2: ("lost", "its node has not come back since the run was resumed"),
        3: ("lost", "node 103: no reply in 60 s"),
    }
    assert set(devices(result.rounds[2]).values()) == {("ok", "")}
    assert result.rounds[1]["devices"][2]["node"] == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"width": "int4"}, "client 1 is int4 with 358 examples; accepted: int8 with 358 examples, as it said when"),
        ({"client": 0}, "client 0 is node 100 already; accepted: a number of its own"),
        ({"client": 4}, "client is 4 of a data set in 4 parts; accepted: 0 to 3"),
    ],
)
def test_a_resumed_run_holds_nodes_to_their_word(
    change: dict[str, object], reason: str, clock: Clock, tmp_path: Path
) -> None:
    serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}))
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.nodes[FIRST + 1] |= change
    result = serve(grid, server(resume=str(tmp_path / "run"), settings="rounds=2"))
    assert weights(result) == expected((1, 2))
    grid.nodes = {FIRST: grid.nodes[FIRST], FIRST + 1: grid.nodes[FIRST + 1]}
    with pytest.raises(RunError, match=re.escape(reason)) as caught:
        serve(grid, server(resume=str(tmp_path / "run"), settings="rounds=3", quorum=2))
    assert "1 of the 2 devices that are needed introduced themselves in 30 s; missing: 1, 2, 3; node 101: " in str(
        caught.value
    )


def test_a_number_of_examples_is_held_to(clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}))
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 0): [sends(Introduction(ClientSpec(1, INT8, 7)).reply())] * 9}
    grid.nodes = {FIRST + 1: grid.nodes[FIRST + 1]}
    with pytest.raises(RunError, match=r"client 1 is int8 with 7 examples; accepted: int8 with 358 examples"):
        serve(grid, server(resume=str(tmp_path / "run"), settings="rounds=2", quorum=1, join=3.0))


def test_a_simulated_run_is_not_one_of_devices(clock: Clock, tmp_path: Path) -> None:
    run_tiny(tmp_path / "run")
    with pytest.raises(RunError, match="a run of simulated clients; accepted: prowd run --resume"):
        serve(make_grid(clock, tmp_path, thrifty=True), server(resume=str(tmp_path / "run")))


def test_a_run_of_devices_is_not_simulated(clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}))
    with pytest.raises(RunError, match="a run of real devices; accepted: to go on with it on Flower"):
        Session.resume(tmp_path / "run", {})
    with pytest.raises(ConfigError, match="steps: cannot be changed on resume; accepted: rounds"):
        serve(make_grid(clock, tmp_path, thrifty=True), server(resume=str(tmp_path / "run"), settings="steps=3"))
    assert weights(serve(make_grid(clock, tmp_path, thrifty=True), server(resume=str(tmp_path / "run")))) == expected(
        rounds=1
    )


@pytest.mark.parametrize("text", ["", "{", '{"format": 2}', '{"format": 1, "run": "x", "devices": []}'])
def test_a_damaged_roster_stops_a_resume(text: str, clock: Clock, tmp_path: Path) -> None:
    serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"rounds": 1}))
    (tmp_path / "run" / "devices.json").write_text(text, "utf-8")
    for _ in range(2):  # the directory is let go of
        with pytest.raises(RunError, match=r"devices\.json"):
            serve(make_grid(clock, tmp_path, thrifty=True), server(resume=str(tmp_path / "run")))


# Joining


def test_a_run_waits_for_its_devices(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    late = grid.nodes.pop(FIRST + 3)

    def joins(seconds: float) -> None:
        Clock.sleep(clock, seconds)
        if clock.now > 20:
            grid.nodes[FIRST + 3] = late

    clock.sleep = joins  # type: ignore[method-assign]
    assert weights(serve(grid, server(tmp_path / "run"))) == expected()
    assert 20 < clock.now < 40
    assert [node for node, round_ in grid.asked if not round_] == [100, 101, 102, 103], "nobody is asked twice"


def test_devices_that_do_not_come(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    del grid.nodes[FIRST + 3]
    grid.nodes[FIRST]["widht"] = grid.nodes[FIRST].pop("width")
    grid.tricks = {(FIRST + 1, 0): [silent] * 99, (FIRST + 2, 0): [fails(5, None)] * 99}
    with pytest.raises(RunError) as caught:
        serve(grid, server(tmp_path / "run"))
    assert re.fullmatch(
        r"0 of the 4 devices that are needed introduced themselves in 30 s; missing: 0, 1, 2, 3; "
        r"node 100: it .*node-config: 'widht' is unknown; accepted: client, width, .* "
        r"\(did you mean 'width'\?\).*; node 102: it .*",
        str(caught.value),
    )
    assert 30 <= clock.now < 32
    assert not (tmp_path / "run").exists()


def test_a_node_that_was_turned_away_may_mend_its_ways(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST, 0): [silent, fails(2, "no data yet"), sends(RecordDict())]}
    assert weights(serve(grid, server(tmp_path / "run", join=300.0))) == expected()
    grid.tricks = {(FIRST, 0): [fails(2, "no data yet")], (FIRST + 1, 0): [fails(2, "no luck")] * 99}
    with pytest.raises(RunError, match=r"; missing: 1; node 101: .*no luck$"):
        serve(grid, server(tmp_path / "other"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (ClientSpec(4, INT8, 9), "node 101: client is 4; accepted: 0 to 3"),
        (ClientSpec(0, INT4, 9), "node 101: client 0 is node 100 already; accepted: a number of its own"),
    ],
)
def test_a_client_number_is_one_s_own(spec: ClientSpec, reason: str, clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 0): [sends(Introduction(spec).reply())] * 99}
    with pytest.raises(RunError, match=f"^3 of the 4 devices .*; missing: 1; {reason}$"):
        serve(grid, server(tmp_path / "run"))


def test_a_reason_does_not_fill_the_page(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    grid.tricks = {(FIRST + 1, 0): [fails(2, "x" * 10**6)] * 99}
    with pytest.raises(RunError, match="xxx") as caught:
        serve(grid, server(tmp_path / "run"))
    assert len(str(caught.value)) < 700


def test_a_method_of_one_s_own_is_no_method_for_devices(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"method: prowd\.methods:FedProx is not built in; accepted on devices: "):
        serve(make_grid(clock, tmp_path, thrifty=True), server(tmp_path / "run", {"method": "prowd.methods:FedProx"}))


def test_messages_live_no_longer_than_they_are_waited_for(clock: Clock, tmp_path: Path) -> None:
    grid = make_grid(clock, tmp_path, thrifty=True)
    serve(grid, server(tmp_path / "run", deadline=45.0, join=20.0))
    assert grid.ttls == [20.0] * 4 + [45.0] * 8
