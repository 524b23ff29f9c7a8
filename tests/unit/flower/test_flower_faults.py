"""Nodes that do not answer, and rounds below their quorum: the server goes on, counts it, and tries again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import httpx
from flwr.app import Message

from prowd.errors import ConfigError, RunError
from tests.unit.flower.fakes import FIRST, Clock, FakeGrid, Honest, Trick, fails, silent, spoils
from tests.unit.flower.federations import WIDTHS, absences, devices, expected, make_grid, resume, run, weights

# Nodes that do not answer


@pytest.mark.parametrize(
    ("trick", "reason"),
    [
        (silent, "node 101: no reply in 60 s"),
        (fails(2, "<class 'ValueError'>:<'out of luck'>"), "node 101: failed: <class 'ValueError'>:<'out of luck'>"),
        (fails(3, "expired"), "node 101: no reply in time"),
        (fails(4, "expired"), "node 101: no reply in time"),
        (fails(5, "Node 101 is offline"), "node 101: failed: Node 101 is offline"),
        (fails(8, "killed"), "node 101: failed: killed"),
    ],
    ids=["silent", "2", "3", "4", "5", "8"],
)
def test_a_node_that_fails_is_lost(trick: Trick, reason: str, grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST + 1, 1): [trick]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected((1, 1), rounds=1)
    (line,) = result.rounds
    assert absences(line, "lost") == {1: reason}
    assert absences(line, "refused") == {}
    assert devices(line) == {n: ("lost", reason) if n == 1 else ("ok", "") for n in range(4)}
    assert line["devices"][1]["node"] == "101"
    assert "seconds" not in line["devices"][1]


def test_a_straggler_is_waited_for_until_the_deadline_and_no_longer(grid: FakeGrid, tmp_path: Path) -> None:
    grid.slow = {(FIRST + 1, 1): 60.0, (FIRST + 2, 2): 61.0}
    result = run(grid, tmp_path / "run", {"rounds": 3})
    assert weights(result) == expected((2, 2), rounds=3)
    assert [list(absences(line, "lost")) for line in result.rounds] == [[], [2], []]
    assert result.rounds[0]["devices"][1]["seconds"] == 60.0
    assert result.rounds[1]["seconds"] == 60.0
    assert "reply" not in result.rounds[2]["clients"]["refused"]


def test_a_node_that_is_killed_is_lost_from_then_on(grid: FakeGrid, tmp_path: Path) -> None:

    def dies(message: Message, answer: Honest) -> None:
        del grid.nodes[FIRST + 1]

    grid.tricks = {(FIRST + 1, 1): [dies]}
    result = run(grid, tmp_path / "run")
    assert weights(result) == expected((1, 1), (1, 2))
    assert [list(absences(line, "lost")) for line in result.rounds] == [[1], [1]]


@dataclass
class Away(FakeGrid):
    """A SuperLink that does not answer some calls."""

    looks: list[httpx.HTTPError] = field(default_factory=list)
    pushes: list[httpx.HTTPError | None] = field(default_factory=list)

    def get_node_ids(self) -> list[int]:
        if self.looks:
            raise self.looks.pop()
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        error = self.pushes.pop(0) if self.pushes else None
        if error:
            raise error
        return super().push_messages(messages)


def test_a_superlink_that_is_away_costs_an_attempt(clock: Clock, tmp_path: Path) -> None:
    grid = Away(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    grid.looks = [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")]
    grid.pushes = [httpx.ReadTimeout("slow"), None, httpx.ReadTimeout("slow")]
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected(rounds=1)
    assert attempts(result.rounds[0]) == [(n, 1) for n in range(4)]


@dataclass
class Shy(FakeGrid):
    """What it returns of messages of which some are not taken: Flower's versions differ."""

    numbers_of: Callable[[list[str]], list[str]] = list

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return self.numbers_of(super().push_messages(messages))


@pytest.mark.parametrize("numbers_of", [list, lambda numbers: [number for number in numbers if number]])
def test_a_message_that_flower_does_not_take_is_a_lost_client(
    numbers_of: Callable[[list[str]], list[str]], clock: Clock, tmp_path: Path
) -> None:
    grid = Shy(clock, make_grid(clock, tmp_path).nodes, thrifty=True, numbers_of=numbers_of)
    grid.refuses = {(FIRST + 1, 1)}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected((1, 1), rounds=1)
    assert list(absences(result.rounds[0], "lost")) == [1]
    assert clock.now < 20, "there is nothing to wait for"


def test_messages_of_which_none_is_taken(clock: Clock, tmp_path: Path) -> None:
    grid = Shy(clock, make_grid(clock, tmp_path).nodes, thrifty=True)
    grid.refuses = {(node, 1) for node in grid.nodes}
    with pytest.raises(RunError, match="round 1: no client's update could be used: client 0"):
        run(grid, tmp_path / "run", {"rounds": 1}, attempts=2)


# The quorum


def attempts(line: Mapping[str, Any]) -> list[tuple[int, int | None]]:
    """Who was lost in which attempt; the last one has no number."""
    return [(entry["client"], entry.get("attempt")) for entry in line["clients"]["lost"]]


def test_a_round_below_its_quorum_is_tried_again(grid: FakeGrid, clock: Clock, tmp_path: Path) -> None:
    grid.tricks = {(FIRST + 1, 2): [silent, fails(8, "killed")], (FIRST + 2, 2): [silent]}
    result = run(grid, tmp_path / "run", quorum=4, attempts=3)
    assert weights(result) == expected()
    (first, second) = result.rounds
    assert first["clients"]["lost"] == []
    assert attempts(second) == [(1, 1), (2, 1), (1, 2)]
    assert devices(second) == dict.fromkeys(range(4), ("ok", ""))
    assert second["bytes"]["down"] == {width: 3 * size for width, size in first["bytes"]["down"].items()}
    assert clock.naps.count(5.0) == 2
    assert [grid.asked.count((FIRST + n, 2)) for n in range(4)] == [3] * 4


def test_who_was_refused_before_may_count_after(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST, 1): [spoils(lambda data: b"garbage" * 9)], (FIRST + 1, 1): [silent]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected(rounds=1)
    (line,) = result.rounds
    assert [entry["attempt"] for entry in (*line["clients"]["lost"], *line["clients"]["refused"])] == [1, 1]
    assert devices(line) == dict.fromkeys(range(4), ("ok", ""))


def test_the_last_attempt_counts_with_those_that_are_there(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST, 1): [silent], (FIRST + 1, 1): [silent, silent]}
    result = run(grid, tmp_path / "run", {"rounds": 1})
    assert weights(result) == expected((1, 1), rounds=1)
    assert attempts(result.rounds[0]) == [(0, 1), (1, 1), (1, None)]
    assert devices(result.rounds[0])[1][0] == "lost"


def test_a_run_below_its_quorum_stops_and_can_go_on(grid: FakeGrid, clock: Clock, tmp_path: Path) -> None:
    grid.tricks = {
        (FIRST, 2): [spoils(lambda data: b"garbage" * 9)] * 2,
        (FIRST + 1, 2): [silent] * 2,
    }
    with pytest.raises(RunError) as caught:
        run(grid, tmp_path / "run", attempts=2)
    assert str(caught.value).startswith("round 2: 2 of the 3 updates it needs: client 1 (int8): node 101: no reply")
    assert clock.naps.count(5.0) == 1
    last = json.loads((tmp_path / "run" / "server.jsonl").read_text("utf-8").splitlines()[-1])
    assert (last["event"], last["level"], last["reason"]) == ("stopped", "error", str(caught.value))
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("*.json"))] == ["round-000001.json"]
    assert not (tmp_path / "run" / "summary.json").exists()
    result = resume(grid, tmp_path / "run")
    assert weights(result) == expected()
    assert [line["round"] for line in result.rounds] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "least"), [({}, 3), ({"clients": "int8:3"}, 2), ({"cohort": 2}, 2), ({"cohort": 1}, 1)]
)
def test_a_quorum_is_more_than_half_of_those_asked(
    settings: dict[str, object], least: int, clock: Clock, tmp_path: Path
) -> None:
    grid = make_grid(clock, tmp_path, ("int8",) * 3 if "clients" in settings else WIDTHS)
    used = int(str(settings.get("cohort", len(grid.nodes))))
    asked: list[int] = []

    def some(message: Message, answer: Honest) -> Message | None:
        asked.append(message.metadata.dst_node_id)
        return answer() if len(asked) % used < least - 1 else None

    grid.tricks = {(node, 1): [some] for node in grid.nodes}
    with pytest.raises(RunError, match=rf"round 1: ({least - 1} of the {least} updates it needs|no client's update)"):
        run(grid, tmp_path / "run", settings, attempts=1)


def test_a_quorum_that_cannot_be_reached_is_refused(grid: FakeGrid, clock: Clock, tmp_path: Path) -> None:
    for cohort, quorum in (("all", 5), (2, 3)):
        with pytest.raises(ConfigError, match=f"quorum is {quorum}; accepted: 0 to {quorum - 1}"):
            run(grid, tmp_path / "run", {"cohort": cohort}, quorum=quorum)
    assert list(tmp_path.iterdir()) == [], "which is found before anything is made"
    assert clock.now == 0, "or anybody waited for"
