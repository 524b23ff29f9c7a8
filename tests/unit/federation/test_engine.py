"""Rounds over a fake transport: who is asked, who counts, which bytes crossed, and what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from prowd.device.scene import Scene
from prowd.errors import RunError
from prowd.federation import engine
from prowd.federation.engine import Federation, run, run_round, sample
from prowd.federation.report import Absence, Accuracy, Attendance, RoundReport, Traffic
from prowd.methods import FedAvg, ServerState
from prowd.numbers.bits import FLOAT32
from prowd.wire import Update, decode_update, encode_update
from tests.unit.federation.rounds import Diary, Flaky, answers, federation, spoiled, timeless, without
from tests.unit.scenes import INT8, FakeTransport, honest, same, scene


def test_a_whole_round_is_the_aggregate_in_client_order(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, state = run_round(given, start, transport)
    updates = [decode_update(transport.came[client]) for client in range(5)]
    assert same(state.model, FedAvg().aggregate(given.scene, start, updates).model)
    assert (report.round, state.round, report.clients) == (1, 1, Attendance(asked=5))
    assert not same(state.model, start.model)


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_the_order_of_replies_changes_nothing(order: list[int], tmp_path: Path, start: ServerState) -> None:
    given = federation()
    plain = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    mixed = run_round(given, start, FakeTransport(answers(given, tmp_path), order=lambda _: order))
    assert same(plain[1].model, mixed[1].model)
    assert timeless(plain[0]) == timeless(mixed[0])


def test_lost_clients_cost_their_bytes_down_but_none_up(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(without(answers(given, tmp_path), 0, 3))
    report, state = run_round(given, start, transport)
    assert report.clients.asked == 5
    assert report.clients.lost == [Absence(0, "int8", "no reply"), Absence(3, "float32", "no reply")]
    assert report.clients.refused == []
    down, up = ({client: len(message) for client, message in way.items()} for way in (transport.sent, transport.came))
    assert report.traffic.down == {"int4": down[4], "int8": down[0] + down[2], "float32": down[1] + down[3]}
    assert report.traffic.up == {"int4": up[4], "int8": up[2], "float32": up[1]}
    assert report.line()["bytes"]["clients"] == {str(n): [up.get(n, 0), down[n]] for n in range(5)}
    assert set(up) == {1, 2, 4}
    updates = [decode_update(transport.came[client]) for client in (1, 2, 4)]
    assert same(state.model, FedAvg().aggregate(given.scene, start, updates).model)


def test_a_width_whose_clients_are_all_lost_is_absent(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    report, state = run_round(given, start, FakeTransport(without(answers(given, tmp_path), 1, 3)))
    assert list(report.accuracy.trained) == list(report.loss) == list(report.accuracy.received) == ["int4", "int8"]
    assert "float32" not in report.traffic.up
    assert same({"g": state.model["fc.gain"]}, {"g": start.model["fc.gain"]})


def test_a_refused_update_is_counted_and_left_out(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(spoiled(answers(given, tmp_path), 2))
    report, state = run_round(given, start, transport)
    (absence,) = report.clients.refused
    assert (absence.client, absence.width) == (2, "int8")
    assert "its header declares" in absence.reason
    assert report.clients.lost == []
    assert report.traffic.up["int8"] == len(transport.came[0]) + len(transport.came[2]), "the bytes did cross"
    _, expected = run_round(given, start, FakeTransport(without(answers(given, tmp_path), 2)))
    assert same(state.model, expected.model)


def test_a_client_cannot_speak_for_another(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    honestly = answers(given, tmp_path)

    def spoil(reply: bytes) -> bytes:
        return encode_update(replace(decode_update(reply), client=2))

    report, state = run_round(given, start, FakeTransport(spoiled(honestly, 0, spoil=spoil)))
    assert report.clients.refused == [Absence(0, "int8", "client is 2; accepted: 0")]
    _, expected = run_round(given, start, FakeTransport(without(honestly, 0)))
    assert same(state.model, expected.model)


def test_replies_nobody_asked_for_are_not_used(tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), cohort=2)
    asked = [client.id for client in sample(given, 1)]
    stranger = next(client for client in range(5) if client not in asked)
    transport = FakeTransport(answers(given, tmp_path))
    report, state = run_round(given, start, transport)
    reply = encode_update(replace(decode_update(transport.came[asked[0]]), client=stranger))

    class Crowd(FakeTransport):
        def exchange(self, parcels):  # type: ignore[no-untyped-def]
            yield stranger, reply
            yield from super().exchange(parcels)

    again, expected = run_round(given, start, Crowd(answers(given, tmp_path)))
    assert same(state.model, expected.model)
    assert timeless(report) == timeless(again)


def test_a_round_without_a_single_update_stops_the_run(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    with pytest.raises(RunError, match=r"^round 1: no client's update .*client 0 \(int8\): no reply.*; and 2 more$"):
        run_round(given, start, FakeTransport(lambda client, message: None))
    everyone = spoiled(answers(given, tmp_path), *range(5), spoil=lambda reply: b"?")
    with pytest.raises(RunError, match=r"^round 1: no client's update .*client 0 \(int8\): message of 1 bytes"):
        run_round(given, start, FakeTransport(everyone))


def test_a_run_goes_through_the_rounds_that_are_left(tmp_path: Path, start: ServerState) -> None:
    given, diary = federation(rounds=3), Diary()
    final = run(given, start, FakeTransport(answers(given, tmp_path / "whole")), diary)
    assert [report.round for report in diary.reports] == [1, 2, 3]
    assert diary.replies == [(round_, done, 5) for round_ in (1, 2, 3) for done in (1, 2, 3, 4, 5)]
    assert final.round == 3
    # Stopped after the first round and taken up again, it comes to the same end.
    answer = answers(given, tmp_path / "parts")
    _, first = run_round(given, start, FakeTransport(answer))
    rest = Diary()
    assert same(run(given, first, FakeTransport(answer), rest).model, final.model)
    assert [report.round for report in rest.reports] == [2, 3]
    assert run(given, final, FakeTransport(answer), Diary()) is final


@dataclass
class Witness(engine.Observer):
    """Writes down what became of the updates, and whether the round was over by then."""

    seen: list[tuple[str, int, list[int]]] = field(default_factory=list)
    states: list[ServerState] = field(default_factory=list)

    def aggregated(self, state: ServerState, updates: Sequence[Update]) -> None:
        self.seen.append(("aggregated", state.round, [update.client for update in updates]))
        self.states.append(state)

    def finished(self, report: RoundReport, state: ServerState) -> None:
        self.seen.append(("finished", report.round, []))
        assert state is self.states[-1]
        assert report.notes
        assert not state.notes


def test_an_observer_is_told_what_became_of_the_updates(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given, witness = replace(federation(rounds=2), quorum=4, attempts=2), Witness()
    whole = answers(given, tmp_path)
    final = run(given, start, Flaky([without(whole, 0, 1), spoiled(whole, 2), without(whole, 4)]), witness)
    assert witness.seen == [
        ("aggregated", 1, [0, 1, 3, 4]), ("finished", 1, []), ("aggregated", 2, [0, 1, 2, 3]), ("finished", 2, []),
    ], "nothing of the vain attempt, and in client order"  # fmt: skip
    assert witness.states[-1] is final


@pytest.mark.parametrize("note", [torch.zeros(2), float("nan")])
def test_notes_that_cannot_be_written_down_are_refused(note: object, tmp_path: Path) -> None:
    class Scribbler(FedAvg):
        def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
            return replace(super().aggregate(scene, state, updates), notes={"odd": note})

    given, method = scene(INT8, FLOAT32), Scribbler()
    transport = FakeTransport(honest(given, method, tmp_path))
    with pytest.raises(RunError, match=r"^notes of fedavg: "):
        run_round(Federation(given, method, rounds=1, cohort=2), method.init(given), transport)


def test_who_is_left_out_is_said_with_the_reason() -> None:
    crowd = Attendance(lost=[Absence(1, "int8", "no reply")], refused=[Absence(2, "float32", "too long", attempt=3)])
    report = RoundReport(round=7, accuracy=Accuracy(), traffic=Traffic(up={}, down={}), clients=crowd)
    assert report.left_out() == [
        "round 7: client 1 (int8) left out: no reply",
        "round 7, attempt 3: client 2 (float32) left out: too long",
    ]
