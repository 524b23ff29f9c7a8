"""Federations of five clients over fake transports, for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prowd.device.scene import ClientSpec
from prowd.federation.engine import Federation, Observer
from prowd.federation.report import RoundReport
from prowd.federation.transport import Reply
from prowd.methods import FedAvg, Method, ServerState
from prowd.numbers.bits import FLOAT32
from prowd.wire import Parcel
from tests.unit.scenes import INT4, INT8, Answer, FakeTransport, honest, scene

MIX = (INT8, FLOAT32, INT8, FLOAT32, INT4)


def federation(method: Method | None = None, *, rounds: int = 3, evaluate_every: int = 1) -> Federation:
    return Federation(scene(*MIX), method or FedAvg(), rounds, len(MIX), evaluate_every)


def answers(given: Federation, folder: Path) -> Answer:
    return honest(given.scene, given.method, folder)


def timeless(report: RoundReport) -> RoundReport:
    return report.model_copy(update={"seconds": 0})


def without(answer: Answer, *lost: int) -> Answer:
    return lambda client, message: None if client in lost else answer(client, message)


def spoiled(answer: Answer, *bad: int, spoil: Callable[[bytes], bytes] = lambda reply: reply[:-1]) -> Answer:
    def spoil_some(client: int, message: bytes) -> bytes | None:
        reply = answer(client, message)
        return spoil(reply) if client in bad and reply is not None else reply

    return spoil_some


def ids(clients: list[ClientSpec]) -> list[int]:
    return [client.id for client in clients]


@dataclass
class Diary(Observer):
    reports: list[RoundReport] = field(default_factory=list)
    replies: list[tuple[int, int, int]] = field(default_factory=list)

    def replied(self, round_: int, done: int, asked: int) -> None:
        self.replies.append((round_, done, asked))

    def finished(self, report: RoundReport, state: ServerState) -> None:
        assert report.round == state.round
        self.reports.append(report)


@dataclass
class Flaky:
    """A transport whose n-th exchange is that of the n-th answer; the last goes on."""

    answers: list[Answer]
    remote: bool = False

    def exchange(self, parcels: Mapping[int, Parcel]) -> Iterator[tuple[int, Reply]]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return iter(list(FakeTransport(answer).exchange(parcels)))

    def close(self) -> None: ...
