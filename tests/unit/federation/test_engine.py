"""Rounds over a fake transport: who is asked, who counts, which bytes crossed, and what is measured."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Examples, Model
from prowd.errors import RunError
from prowd.federation import engine
from prowd.federation.engine import Federation, QuorumError, dispatch, run, run_round, sample
from prowd.federation.report import Absence, RoundReport
from prowd.federation.transport import Refusal, Reply, Silence
from prowd.methods import FedAvg, Local, Method, ServerState, common
from prowd.methods.common import MEASURE_RECEIVED, MEASURE_TRAINED
from prowd.nets.float32 import FloatSettings
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import Weights
from prowd.wire import Parcel, Update, decode_task, decode_update, encode_update
from tests.unit.scenes import INT4, INT8, Answer, FakeTransport, honest, same, scene

MIX = (INT8, FLOAT32, INT8, FLOAT32, INT4)


def federation(method: Method | None = None, *, rounds: int = 3, evaluate_every: int = 1) -> Federation:
    return Federation(scene(*MIX), method or FedAvg(), rounds, len(MIX), evaluate_every)


def answers(given: Federation, folder: Path) -> Answer:
    return honest(given.scene, given.method, folder)


def without(answer: Answer, *lost: int) -> Answer:
    return lambda client, message: None if client in lost else answer(client, message)


def spoiled(answer: Answer, *bad: int, spoil: Callable[[bytes], bytes] = lambda reply: reply[:-1]) -> Answer:
    def spoil_some(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return spoil(reply) if client in bad and reply is not None else reply

    return spoil_some


@pytest.fixture
def start() -> ServerState:
    return FedAvg().init(scene(*MIX))


# Who takes part


def test_a_whole_round_is_the_aggregate_in_client_order(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, state = run_round(given, start, transport)
    updates = [decode_update(transport.came[client]) for client in range(5)]
    assert same(state.model, FedAvg().aggregate(given.scene, start, updates).model)
    assert (report.round, state.round, report.asked, report.lost, report.refused) == (1, 1, 5, [], [])
    assert not same(state.model, start.model)


@pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_the_order_of_replies_changes_nothing(order: list[int], tmp_path: Path, start: ServerState) -> None:
    given = federation()
    plain = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    mixed = run_round(given, start, FakeTransport(answers(given, tmp_path), order=lambda _: order))
    assert same(plain[1].model, mixed[1].model)
    assert replace(plain[0], seconds=0) == replace(mixed[0], seconds=0)


def test_lost_clients_cost_their_bytes_down_but_none_up(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(without(answers(given, tmp_path), 0, 3))
    report, state = run_round(given, start, transport)
    assert report.asked == 5
    assert report.lost == [Absence(0, "int8", "no reply"), Absence(3, "float32", "no reply")]
    assert report.refused == []
    down, up = ({client: len(message) for client, message in way.items()} for way in (transport.sent, transport.came))
    assert report.bytes_down == {"int4": down[4], "int8": down[0] + down[2], "float32": down[1] + down[3]}
    assert report.bytes_up == {"int4": up[4], "int8": up[2], "float32": up[1]}
    assert report.line()["bytes"]["clients"] == {str(n): [up.get(n, 0), down[n]] for n in range(5)}
    assert set(up) == {1, 2, 4}
    updates = [decode_update(transport.came[client]) for client in (1, 2, 4)]
    assert same(state.model, FedAvg().aggregate(given.scene, start, updates).model)


def test_a_width_whose_clients_are_all_lost_is_absent(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    report, state = run_round(given, start, FakeTransport(without(answers(given, tmp_path), 1, 3)))
    assert list(report.trained) == list(report.loss) == list(report.received) == ["int4", "int8"]
    assert "float32" not in report.bytes_up
    assert same({"g": state.model["fc.gain"]}, {"g": start.model["fc.gain"]})


def test_a_refused_update_is_counted_and_left_out(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(spoiled(answers(given, tmp_path), 2))
    report, state = run_round(given, start, transport)
    (absence,) = report.refused
    assert (absence.client, absence.width) == (2, "int8")
    assert "its header declares" in absence.reason
    assert report.lost == []
    assert report.bytes_up["int8"] == len(transport.came[0]) + len(transport.came[2]), "the bytes did cross"
    _, expected = run_round(given, start, FakeTransport(without(answers(given, tmp_path), 2)))
    assert same(state.model, expected.model)


def test_a_client_cannot_speak_for_another(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    honestly = answers(given, tmp_path)

    def spoil(reply: bytes) -> bytes:
        return encode_update(replace(decode_update(reply), client=2))

    report, state = run_round(given, start, FakeTransport(spoiled(honestly, 0, spoil=spoil)))
    assert report.refused == [Absence(0, "int8", "client is 2; accepted: 0")]
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
    assert replace(report, seconds=0) == replace(again, seconds=0)


def test_a_round_without_a_single_update_stops_the_run(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    with pytest.raises(RunError, match=r"round 1: no client's update could be used: client 0 \(int8\): no reply"):
        run_round(given, start, FakeTransport(lambda client, message: None))
    bad = spoiled(without(answers(given, tmp_path), 0, 1, 2, 3), 4, spoil=lambda reply: b"?")
    with pytest.raises(RunError, match=r"client 0 \(int8\): no reply; client 1 \(float32\): no reply; client 2"):
        run_round(given, start, FakeTransport(bad))
    everyone = spoiled(answers(given, tmp_path), *range(5), spoil=lambda reply: b"?")
    with pytest.raises(RunError, match=r"client 0 \(int8\): message of 1 bytes"):
        run_round(given, start, FakeTransport(everyone))


# Sampling


def many(cohort: int, seed: int = 0) -> Federation:
    return Federation(replace(scene(*[INT8] * 20), seed=seed), FedAvg(), 100, cohort)


def ids(clients: list[ClientSpec]) -> list[int]:
    return [client.id for client in clients]


@pytest.mark.parametrize("cohort", [1, 7, 20])
def test_a_cohort_is_m_of_n_without_replacement_in_client_order(cohort: int) -> None:
    for round_ in range(1, 20):
        found = ids(sample(many(cohort), round_))
        assert len(found) == len(set(found)) == cohort
        assert found == sorted(found)
        assert set(found) <= set(range(20))


def test_sampling_follows_seed_and_round_only() -> None:
    rounds = [ids(sample(many(5), round_)) for round_ in range(1, 101)]
    assert rounds == [ids(sample(many(5), round_)) for round_ in range(1, 101)]
    assert rounds != [ids(sample(many(5, seed=1), round_)) for round_ in range(1, 101)]
    assert len({tuple(cohort) for cohort in rounds}) > 90
    # Each client is in a quarter of 100 rounds: 25, with a standard deviation of 4.3.
    times = Counter(client for cohort in rounds for client in cohort)
    assert min(times[client] for client in range(20)) >= 8
    assert max(times.values()) <= 42


def test_only_the_cohort_is_asked(tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), cohort=3)
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    assert list(transport.sent) == ids(sample(given, 1))
    assert report.asked == len(transport.sent) == 3


# Bytes


def test_bytes_are_the_lengths_of_the_messages(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    for counted, messages in ((report.bytes_down, transport.sent), (report.bytes_up, transport.came)):
        assert counted == {
            str(width): sum(len(messages[n]) for n in range(5) if MIX[n] == width) for width in (INT4, INT8, FLOAT32)
        }
    # From the drawing in prowd.wire. Down: header 24, head 16, two settings 2 + 25 + 24; body 6, rows of the weights 46
    # and 36, of the gains 32 and 30. 4·2·9 + 3·64 = 264 weights at 4 or 8 bits, or 271 floats with the gains.
    assert [len(transport.sent[n]) for n in range(5)] == [
        91 + 88 + 264,
        91 + 150 + 1084,
        91 + 88 + 264,
        91 + 150 + 1084,
        91 + 88 + 132,
    ]
    # Up: header 24, head 17, metrics 2 + 13 + 25, and 26 from those that measured what they received; the integer
    # widths send five weights a byte, 15 and 39 bytes.
    assert [len(transport.came[n]) for n in range(5)] == [
        81 + 26 + 88 + 54,
        81 + 26 + 150 + 1084,
        81 + 88 + 54,
        81 + 150 + 1084,
        81 + 26 + 88 + 54,
    ]


def test_bytes_are_counted_for_each_client_that_is_asked(tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), cohort=3)
    transport = FakeTransport(spoiled(answers(given, tmp_path), *range(2), spoil=lambda reply: reply + b"more"))
    report, _ = run_round(given, start, transport)
    assert report.refused, "whose bytes did cross"
    line = report.line()
    found = line["bytes"]["clients"]
    assert [int(client) for client in found] == ids(sample(given, 1))
    assert found == {str(n): [len(transport.came[n]), len(transport.sent[n])] for n in transport.sent}
    assert json.loads(json.dumps(line)) == line, "keys are texts, as JSON has them"
    for way, position in (("up", 0), ("down", 1)):
        by_width = Counter({str(MIX[int(client)]): 0 for client in found})
        for client, counts in found.items():
            by_width[str(MIX[int(client)])] += counts[position]
        assert line["bytes"][way] == by_width


def test_clients_of_a_width_share_one_body(start: ServerState) -> None:
    given = federation()
    parcels, _ = dispatch(given, start, given.scene.clients)
    bodies = {client: parcel.body for client, parcel in parcels.items()}
    assert bodies[0] is bodies[2]
    assert bodies[1] is bodies[3]
    assert len(set(bodies.values())) == 3
    for client in given.scene.clients:
        task = decode_task(parcels[client.id].join())
        assert (task.round, task.seed, task.client) == (1, given.scene.seed, client.id)
        assert same(
            {name: tensor.codes for name, tensor in task.weights.items()},
            {name: tensor.codes for name, tensor in FedAvg().dispatch(given.scene, start, client).items()},
        )


# Measuring


def asked(given: Federation, state: ServerState) -> list[tuple[float, float]]:
    tasks = [decode_task(parcel.join()) for parcel in dispatch(given, state, given.scene.clients)[0].values()]
    return [(task.settings[MEASURE_RECEIVED], task.settings[MEASURE_TRAINED]) for task in tasks]


def test_of_those_that_receive_the_same_model_the_first_measures_it(start: ServerState) -> None:
    # int8, float32, int8 again, float32 again, int4.
    assert asked(federation(), start) == [(1, 1), (1, 1), (0, 1), (0, 1), (1, 1)]
    assert asked(federation(Local()), start) == [(1, 1)] * 5, "alone, every client has a model of its own"


@pytest.mark.parametrize(
    ("every", "measured"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [1, 3, 6, 7]), (7, [1, 7]), (100, [1, 7])]
)
def test_rounds_that_are_measured(every: int, measured: list[int], start: ServerState) -> None:
    given = federation(rounds=7, evaluate_every=every)
    found = [round_ for round_ in range(1, 8) if asked(given, replace(start, round=round_ - 1))[0] == (1, 1)]
    silent = [round_ for round_ in range(1, 8) if asked(given, replace(start, round=round_ - 1)) == [(0, 0)] * 5]
    assert found == measured
    assert sorted(found + silent) == list(range(1, 8))


@dataclass
class Meter:
    """Stands in for ``accuracy``; its n-th measurement is n hundredths."""

    calls: int = 0

    def __call__(self, model: Model, examples: Examples, device: torch.device) -> float:
        self.calls += 1
        return self.calls / 100


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    stand_in = Meter()
    monkeypatch.setattr(common, "accuracy", stand_in)
    return stand_in


def test_a_shared_model_is_measured_once_and_counts_for_all(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation()
    report, _ = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    # In turn: client 0 measures 1 before and 2 after training, client 1 measures 3 and 4, clients 2 and 3 measure 5 and
    # 6 after it only, client 4 measures 7 and 8.
    assert meter.calls == 3 + 5
    assert report.received == pytest.approx({"int4": 0.07, "int8": 0.01, "float32": 0.03})
    assert report.trained == pytest.approx({"int4": 0.08, "int8": 0.035, "float32": 0.05})
    assert list(report.received) == ["int4", "int8", "float32"], "low widths first"


class TwoModels(FedAvg):
    """Client 2 receives another model than the rest."""

    def dispatch(self, scene: Scene, state: ServerState, client: ClientSpec) -> Weights:
        model = {name: -tensor if client.id == 2 else tensor for name, tensor in state.model.items()}
        return super().dispatch(scene, replace(state, model=model), client)


def test_a_measurement_counts_for_each_client_that_shares_the_model(tmp_path: Path, meter: Meter) -> None:
    given = Federation(scene(INT8, INT8, INT8), TwoModels(), rounds=1, cohort=3)
    start = TwoModels().init(given.scene)
    report, _ = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    # Client 0 measures 1 and 2, client 1 measures 3 after training, client 2 measures 4 and 5.
    assert report.received == pytest.approx({"int8": (0.01 + 0.01 + 0.04) / 3})
    assert report.trained == pytest.approx({"int8": (0.02 + 0.03 + 0.05) / 3})


def test_alone_every_client_measures_its_own(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation(Local())
    report, state = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    assert meter.calls == 5 + 5
    assert report.received == pytest.approx({"int4": 0.09, "int8": 0.03, "float32": 0.05})  # 9; 1 and 5; 3 and 7
    assert report.trained == pytest.approx({"int4": 0.10, "int8": 0.04, "float32": 0.06})
    assert same(state.model, start.model)
    assert state.round == 1


def test_a_round_that_is_not_measured_reports_the_loss_only(tmp_path: Path, start: ServerState, meter: Meter) -> None:
    given = federation(evaluate_every=2, rounds=9)
    report, _ = run_round(given, replace(start, round=2), FakeTransport(answers(given, tmp_path)))
    assert meter.calls == 0
    assert (report.round, report.received, report.trained) == (3, {}, {})
    assert list(report.loss) == ["int4", "int8", "float32"]
    assert report.line()["accuracy"] == {"received": {}, "trained": {}}


def test_losses_are_means_over_the_clients_of_a_width(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    transport = FakeTransport(answers(given, tmp_path))
    report, _ = run_round(given, start, transport)
    losses = [decode_update(transport.came[n]).metrics["loss"] for n in range(5)]
    assert report.loss == pytest.approx(
        {"int4": losses[4], "int8": (losses[0] + losses[2]) / 2, "float32": (losses[1] + losses[3]) / 2}
    )


# Whole runs


@dataclass
class Diary(engine.Observer):
    reports: list[RoundReport] = field(default_factory=list)
    replies: list[tuple[int, int, int]] = field(default_factory=list)

    def replied(self, round_: int, done: int, asked: int) -> None:
        self.replies.append((round_, done, asked))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        assert report.round == state.round
        self.reports.append(report)


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


def test_a_run_need_not_be_observed(tmp_path: Path, start: ServerState) -> None:
    given = federation(rounds=2)
    watched, alone = (
        run(given, start, FakeTransport(answers(given, tmp_path / str(n))), observer)
        for n, observer in enumerate([Witness(), engine.Observer()])
    )
    assert same(watched.model, alone.model)


def test_a_run_learns(tmp_path: Path, start: ServerState) -> None:
    given, diary = federation(rounds=4), Diary()
    given = replace(given, scene=replace(given.scene, local=replace(given.scene.local, steps=15)))
    run(given, start, FakeTransport(answers(given, tmp_path)), diary)
    for width in ("int4", "int8", "float32"):
        assert diary.reports[-1].loss[width] < 0.5 * diary.reports[0].loss[width]


def test_with_local_gains_no_two_float_clients_have_the_same_model(tmp_path: Path, start: ServerState) -> None:
    given = federation()
    local = replace(given.scene.local, float32=FloatSettings(gains="local"))
    given = replace(given, scene=replace(given.scene, local=local))
    _, second = run_round(given, start, FakeTransport(answers(given, tmp_path)))
    assert asked(given, second) == [(1, 1), (1, 1), (0, 1), (1, 1), (1, 1)]


@dataclass(frozen=True)
class Busy(FedAvg):
    """A method whose server notes down in which thread it worked, and from what."""

    seen: list[tuple[bool, int]] = field(default_factory=list)

    def meanwhile(self, scene: Scene, state: ServerState) -> ServerState:
        self.seen.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
        return replace(state, memory={"worked": torch.tensor(state.round)})


@pytest.mark.parametrize("remote", [False, True])
def test_the_server_works_while_clients_train(remote: bool, tmp_path: Path) -> None:
    given, method = scene(INT8, FLOAT32), Busy()
    transport = FakeTransport(honest(given, method, tmp_path), remote=remote)
    state = replace(method.init(given), round=3)
    _, after = run_round(Federation(given, method, rounds=4, cohort=2), state, transport)
    assert int(after.memory["worked"]) == 3
    (found,) = method.seen
    assert found[0] is not remote, "in a thread of its own where clients compute elsewhere"
    assert found[1] == 1 or not remote, "on one core, for the bits to be the same"
    plain = run_round(Federation(given, FedAvg(), rounds=4, cohort=2), state, transport)[1]
    assert same(plain.model, after.model)


@pytest.mark.parametrize("remote", [False, True])
def test_a_fault_in_the_server_s_own_work_is_not_lost(remote: bool, tmp_path: Path) -> None:
    class Broken(Busy):
        def meanwhile(self, scene: Scene, state: ServerState) -> ServerState:
            raise RunError("the fit diverged")

    given, method = scene(INT8, FLOAT32), Broken()
    transport = FakeTransport(honest(given, method, tmp_path), remote=remote)
    with pytest.raises(RunError, match="the fit diverged"):
        run_round(Federation(given, method, rounds=1, cohort=2), method.init(given), transport)


def test_an_interrupt_does_not_wait_for_the_server_s_own_work(tmp_path: Path) -> None:
    never, given = threading.Event(), scene(INT8, FLOAT32)

    class Slow(Busy):
        def meanwhile(self, scene: Scene, state: ServerState) -> ServerState:
            never.wait(60)
            return state

    def interrupted(client: int, message: bytes) -> bytes:
        raise KeyboardInterrupt

    method = Slow()
    began = time.monotonic()
    transport = FakeTransport(interrupted, remote=True)
    with pytest.raises(KeyboardInterrupt):
        run_round(Federation(given, method, rounds=1, cohort=2), method.init(given), transport)
    never.set()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("note", [torch.zeros(2), float("nan")])
def test_notes_that_cannot_be_written_down_are_refused(note: object, tmp_path: Path) -> None:
    class Scribbler(FedAvg):
        def aggregate(self, scene: Scene, state: ServerState, updates: Sequence[Update]) -> ServerState:
            return replace(super().aggregate(scene, state, updates), notes={"odd": note})

    given, method = scene(INT8, FLOAT32), Scribbler()
    transport = FakeTransport(honest(given, method, tmp_path))
    with pytest.raises(RunError, match=r"notes of fedavg: .*; accepted: numbers, texts"):
        run_round(Federation(given, method, rounds=1, cohort=2), method.init(given), transport)


def test_who_is_left_out_is_said_with_the_reason() -> None:
    report = RoundReport(
        7, {}, {}, {}, {}, {}, 3, lost=[Absence(1, "int8", "no reply")], refused=[Absence(2, "float32", "too long")]
    )
    assert report.left_out() == [
        "round 7: client 1 (int8) left out: no reply",
        "round 7: client 2 (float32) left out: too long",
    ]


# The quorum


@dataclass
class Flaky:
    """A transport whose n-th exchange is that of the n-th answer; the last goes on."""

    answers: list[Answer]
    remote: bool = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return iter(list(FakeTransport(answer).exchange(parcels)))

    def close(self) -> None: ...


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.mark.parametrize(("quorum", "lost", "enough"), [(3, 2, True), (3, 3, False), (5, 1, False), (1, 4, True)])
def test_a_round_needs_its_quorum(quorum: int, lost: int, enough: bool, tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), quorum=quorum)
    transport = FakeTransport(without(answers(given, tmp_path), *range(lost)))
    if enough:
        report, state = run_round(given, start, transport)
        assert (len(report.lost), state.round) == (lost, 1)
    else:
        message = rf"round 1: {5 - lost} of the {quorum} updates it needs: client 0 \(int8\): no reply"
        with pytest.raises(QuorumError, match=message) as caught:
            run_round(given, start, transport)
        assert len(caught.value.report.lost) == lost


def test_refused_updates_do_not_make_a_quorum(tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), quorum=5)
    with pytest.raises(QuorumError, match=r"4 of the 5 updates it needs: client 2 \(int8\): message of"):
        run_round(given, start, FakeTransport(spoiled(answers(given, tmp_path), 2)))


def test_a_round_is_tried_until_its_quorum_is_there(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given, diary = replace(federation(rounds=1), quorum=4, attempts=3, pause=7.0), Diary()
    whole = answers(given, tmp_path)
    transport = Flaky([without(whole, 0, 1), spoiled(without(whole, 0), 4), without(whole, 3)])
    state = run(given, start, transport, diary)
    _, expected = run_round(given, start, FakeTransport(without(whole, 3)))
    assert same(state.model, expected.model)
    assert naps == [7.0, 7.0]
    (report,) = diary.reports
    assert [(a.attempt, a.client, a.reason) for a in report.lost] == [
        (1, 0, "no reply"), (1, 1, "no reply"), (2, 0, "no reply"), (0, 3, "no reply"),
    ]  # fmt: skip
    assert [(a.attempt, a.client) for a in report.refused] == [(2, 4)]
    assert report.asked == 5


def test_what_vain_attempts_cost_is_counted(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given = replace(federation(rounds=1), quorum=5, attempts=2)
    whole, diary, plain = answers(given, tmp_path), Diary(), Diary()
    run(given, start, FakeTransport(whole), plain)
    run(given, start, Flaky([without(whole, 0, 2, 4), whole]), diary)
    once, twice = plain.reports[0], diary.reports[0]
    assert twice.bytes_down == {width: 2 * size for width, size in once.bytes_down.items()}
    assert twice.bytes_up == {**once.bytes_up, "float32": 2 * once.bytes_up["float32"]}
    assert twice.down_by_client == {client: 2 * size for client, size in once.down_by_client.items()}
    assert twice.up_by_client == {n: size * (2 if n in (1, 3) else 1) for n, size in once.up_by_client.items()}
    assert len(once.up_by_client) == len(once.down_by_client) == 5
    counts: dict[str, Any] = {"bytes_up": {}, "bytes_down": {}, "up_by_client": {}, "down_by_client": {}}
    assert replace(once, seconds=0, **counts) == replace(twice, seconds=0, lost=[], **counts)


def test_a_client_that_answered_in_vain_only_is_counted(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given, diary = replace(federation(rounds=1), quorum=4, attempts=2), Diary()
    whole = answers(given, tmp_path)
    run(given, start, Flaky([without(whole, 1, 2), without(whole, 0)]), diary)
    up, down = diary.reports[0].up_by_client, diary.reports[0].down_by_client
    assert sorted(up) == sorted(down) == [0, 1, 2, 3, 4]
    assert (up[0], up[1], up[3]) == (249, 1341, 2 * 1315), "in the first attempt only, in the second only, in both"
    assert sum(up.values()) == sum(diary.reports[0].bytes_up.values())
    assert sum(down.values()) == sum(diary.reports[0].bytes_down.values())


def test_attempts_come_to_an_end(
    tmp_path: Path, start: ServerState, naps: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    given, diary = replace(federation(), quorum=5, attempts=3, pause=2.5), Diary()
    whole = answers(given, tmp_path)
    transport = Flaky([whole, *[without(whole, 1)] * 3, whole])
    with pytest.raises(QuorumError, match=r"^round 2: 4 of the 5 updates it needs: client 1 \(float32\): no reply$"):
        run(given, start, transport, diary)
    assert naps == [2.5, 2.5]
    assert [report.round for report in diary.reports] == [1]
    assert [message.rpartition("; ")[2] for message in caplog.messages] == [
        "trying again in 2.5 s, 2 attempts left",
        "trying again in 2.5 s, 1 attempts left",
    ]


def test_a_silence_says_why(tmp_path: Path, start: ServerState) -> None:
    class Talking(FakeTransport):
        def exchange(self, parcels):  # type: ignore[no-untyped-def]
            yield from super().exchange(parcels)
            yield 0, Silence("its battery is empty")
            yield 1, Refusal("it sent a picture")

    given = federation()
    whole = answers(given, tmp_path)
    report, state = run_round(given, start, Talking(without(whole, 0, 1, 2)))
    assert report.lost == [Absence(0, "int8", "its battery is empty"), Absence(2, "int8", "no reply")]
    assert report.refused == [Absence(1, "float32", "it sent a picture")]
    assert same(state.model, run_round(given, start, FakeTransport(without(whole, 0, 1, 2)))[1].model)
