"""Rounds that are tried again, and what the server does while clients train."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from prowd.device.scene import Scene
from prowd.errors import RunError
from prowd.federation.engine import Federation, QuorumError, run, run_round
from prowd.methods import FedAvg, ServerState
from prowd.numbers.bits import FLOAT32
from tests.unit.federation.rounds import Diary, Flaky, answers, federation, spoiled, timeless, without
from tests.unit.scenes import INT8, FakeTransport, honest, same, scene


@pytest.mark.parametrize(("quorum", "lost", "enough"), [(3, 2, True), (3, 3, False), (5, 1, False), (1, 4, True)])
def test_a_round_needs_its_quorum(quorum: int, lost: int, enough: bool, tmp_path: Path, start: ServerState) -> None:
    given = replace(federation(), quorum=quorum)
    for missing in (without, spoiled):
        transport = FakeTransport(missing(answers(given, tmp_path), *range(lost)))
        if enough:
            report, state = run_round(given, start, transport)
            assert (len(report.clients.missing), state.round) == (lost, 1)
        else:
            with pytest.raises(QuorumError, match=f"^round 1: {5 - lost} of the {quorum} updates") as caught:
                run_round(given, start, transport)
            assert len(caught.value.report.clients.missing) == lost


def test_a_round_is_tried_until_its_quorum_is_there(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given, diary = replace(federation(rounds=1), quorum=4, attempts=3, pause=7.0), Diary()
    whole = answers(given, tmp_path)
    transport = Flaky([without(whole, 0, 1), spoiled(without(whole, 0), 4), without(whole, 3)])
    state = run(given, start, transport, diary)
    _, expected = run_round(given, start, FakeTransport(without(whole, 3)))
    assert same(state.model, expected.model)
    assert naps == [7.0, 7.0]
    (report,) = diary.reports
    assert [(a.attempt, a.client, a.reason) for a in report.clients.lost] == [
        (1, 0, "no reply"), (1, 1, "no reply"), (2, 0, "no reply"), (0, 3, "no reply"),
    ]  # fmt: skip
    assert [(a.attempt, a.client) for a in report.clients.refused] == [(2, 4)]
    assert report.clients.asked == 5


def test_what_failed_attempts_cost_is_counted(tmp_path: Path, start: ServerState, naps: list[float]) -> None:
    given = replace(federation(rounds=1), quorum=5, attempts=2)
    whole, diary, plain = answers(given, tmp_path), Diary(), Diary()
    run(given, start, FakeTransport(whole), plain)
    run(given, start, Flaky([without(whole, 0, 2, 4), whole]), diary)
    once, twice = plain.reports[0], diary.reports[0]
    assert twice.traffic.down == {width: 2 * size for width, size in once.traffic.down.items()}
    assert twice.traffic.up == {**once.traffic.up, "float32": 2 * once.traffic.up["float32"]}
    assert twice.traffic.clients == {
        n: (up * (2 if n in (1, 3) else 1), 2 * down) for n, (up, down) in once.traffic.clients.items()
    }
    assert len(once.traffic.clients) == 5
    same_but = {"traffic": once.traffic, "clients": once.clients}
    assert timeless(once) == timeless(twice.model_copy(update=same_but))


def test_a_client_that_answered_a_failed_attempt_only_is_counted(
    tmp_path: Path, start: ServerState, naps: list[float]
) -> None:
    given, diary = replace(federation(rounds=1), quorum=4, attempts=2), Diary()
    whole = answers(given, tmp_path)
    run(given, start, Flaky([without(whole, 1, 2), without(whole, 0)]), diary)
    traffic = diary.reports[0].traffic
    up, down = ({n: moved[way] for n, moved in traffic.clients.items()} for way in (0, 1))
    assert sorted(up) == [0, 1, 2, 3, 4]
    assert (up[0], up[1], up[3]) == (249, 1341, 2 * 1315), "in the first attempt only, in the second only, in both"
    assert sum(up.values()) == sum(traffic.up.values())
    assert sum(down.values()) == sum(traffic.down.values())


def test_attempts_come_to_an_end(
    tmp_path: Path, start: ServerState, naps: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    given, diary = replace(federation(), quorum=5, attempts=3, pause=2.5), Diary()
    whole = answers(given, tmp_path)
    transport = Flaky([whole, *[without(whole, 1)] * 3, whole])
    with pytest.raises(QuorumError, match=r"^round 2: "):
        run(given, start, transport, diary)
    assert naps == [2.5, 2.5]
    assert [report.round for report in diary.reports] == [1]
    assert [message.rpartition(", ")[2] for message in caplog.messages] == ["2 attempts left", "1 attempts left"]


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
