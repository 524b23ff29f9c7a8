"""The federation itself: Algorithm 1 over any transport, with any method."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from prowd.device.measures import CLASSES, CONFUSION
from prowd.device.scene import ClientSpec, Scene
from prowd.device.training import Examples, accuracy, build_model
from prowd.errors import RunError
from prowd.federation.background import begin
from prowd.federation.client import one_thread
from prowd.federation.defence import defend
from prowd.federation.inbox import Inbox, admit_all, sum_up
from prowd.federation.report import RoundReport
from prowd.federation.transport import Transport
from prowd.methods import Method, Notes, ScalesRates, ServerState, WorksMeanwhile
from prowd.methods.common import MEASURE_IN_DETAIL, MEASURE_RECEIVED, MEASURE_TRAINED
from prowd.numbers.quantize import Weights
from prowd.numbers.seeds import generator
from prowd.wire import Parcel, Task, Update, encode_task, encode_weights

__all__ = ["Federation", "Observer", "QuorumError", "run", "run_round"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Federation:
    """A method on a scene, and how long and with how many clients it runs."""

    scene: Scene
    method: Method
    rounds: int
    cohort: int
    evaluate_every: int = 1
    in_detail: bool = False
    """Whether clients measure their models by class and person too, and in the last round by pairs of classes."""
    quorum: int = 1
    """Updates without which a round does not count."""
    attempts: int = 1
    """How often a round that stays below the quorum is tried before the run stops."""
    pause: float = 0.0
    """Seconds between attempts."""
    holdout: Examples | None = field(default=None, repr=False, compare=False)
    """Test examples of the server's own, on which it measures what it has made of a round."""


class QuorumError(RunError):
    """Too few of a round's updates could be used."""

    def __init__(self, report: RoundReport, used: int, quorum: int) -> None:
        wanted = "no client's update could be used" if used == 0 else f"{used} of the {quorum} updates it needs"
        missing = [f"client {one.client} ({one.width}): {one.reason}" for one in report.clients.missing]
        more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
        super().__init__(f"round {report.round}: {wanted}: {'; '.join(missing[:3])}{more}")
        self.report = report


class Observer:
    """Is notified of a run's rounds; nothing it does can change the results. This one does nothing."""

    def replied(self, round_: int, done: int, asked: int) -> None:
        """A client's reply came in."""

    def aggregated(self, state: ServerState, updates: Sequence[Update]) -> None:
        """A round's updates have become the next state."""

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """A round is over."""


def run(federation: Federation, state: ServerState, transport: Transport, observer: Observer) -> ServerState:
    """Run the remaining rounds, reporting each one as it ends."""
    with one_thread():
        while state.round < federation.rounds:
            report, state = run_until_quorum(federation, state, transport, observer)
            observer.finished(report, state)
    return state


def run_until_quorum(
    federation: Federation, state: ServerState, transport: Transport, observer: Observer
) -> tuple[RoundReport, ServerState]:
    """Try a round until enough clients take part; its report includes the attempts that failed."""
    missing: list[QuorumError] = []
    while True:
        try:
            report, state = run_round(federation, state, transport, observer)
        except QuorumError as error:
            missing.append(error)
            if len(missing) >= federation.attempts:
                raise
            left = federation.attempts - len(missing)
            log.warning("%s; trying again in %g s, %d attempts left", error, federation.pause, left)
            time.sleep(federation.pause)
        else:
            return report.after([error.report for error in missing]), state


def run_round(
    federation: Federation, state: ServerState, transport: Transport, observer: Observer | None = None
) -> tuple[RoundReport, ServerState]:
    """One round of Algorithm 1; the line numbers are the paper's."""
    observer = observer or Observer()
    began = time.perf_counter()
    round_ = state.round + 1
    cohort = sample(federation, round_)  # 2: C^(r) ⊆ C, |C^(r)| = M
    parcels, measurers, tasks = dispatch(federation, state, cohort)  # 3, 5: Q_{s_n}(w_G) to every n
    inbox = Inbox()
    with server_at_work(federation, state, transport) as worked:
        for client, reply in transport.exchange(parcels):
            inbox.take(client, reply)  # 4, 6-8: LocalUpdate on every client in parallel
            observer.replied(round_, len(inbox.replies), len(cohort))
        state = worked()
    admitted = admit_all(federation.scene, federation.method, round_, cohort, inbox)
    admitted = defend(federation.scene, federation.method, tasks, admitted)
    classes = federation.scene.architecture.classes
    report = sum_up(round_, cohort, parcels, inbox, admitted, measurers, classes)
    if len(admitted.updates) < federation.quorum:
        report = report.model_copy(update={"seconds": round(time.perf_counter() - began, 3)})
        raise QuorumError(report, len(admitted.updates), federation.quorum)
    state = federation.method.aggregate(federation.scene, state, admitted.used)  # 9-11: the method's own lines
    notes, state = _plain(federation.method, state), replace(state, round=round_, notes={})
    if is_measured(federation, round_):
        measured = report.accuracy.model_copy(update={"server": measure(federation, state)})
        report = report.model_copy(update={"accuracy": measured})
    seconds = round(time.perf_counter() - began, 3)
    observer.aggregated(state, admitted.used)
    return report.model_copy(update={"notes": notes, "seconds": seconds}), state


def sample(federation: Federation, round_: int) -> list[ClientSpec]:
    """Choose the round's clients without replacement, in client order."""
    scene = federation.scene
    random = generator(scene.seed, "cohort", round_)
    chosen = torch.randperm(len(scene.clients), generator=random)[: federation.cohort]
    return [scene.clients[index] for index in chosen.sort().values.tolist()]


class Dispatched(NamedTuple):
    """A round's tasks as bytes and as they are, by client, and who measures the model that each client receives."""

    parcels: dict[int, Parcel]
    measurers: dict[int, int]
    tasks: dict[int, Task]


def dispatch(federation: Federation, state: ServerState, cohort: Sequence[ClientSpec]) -> Dispatched:
    """Encode a task for every client; clients that are sent the same weights share them."""
    round_, scene, method = state.round + 1, federation.scene, federation.method
    shared: dict[bytes, tuple[bytes, Weights]] = {}
    sent: dict[int, tuple[bytes, Weights]] = {}
    for client in cohort:
        weights = method.dispatch(scene, state, client)
        body = encode_weights(weights)
        sent[client.id] = shared.setdefault(body, (body, weights))
    measures = is_measured(federation, round_)
    measurers = measured_by(scene, cohort, {client: body for client, (body, _) in sent.items()})
    parcels: dict[int, Parcel] = {}
    tasks: dict[int, Task] = {}
    for client in cohort:
        body, weights = sent[client.id]
        receives = measures and measurers[client.id] == client.id
        settings = {MEASURE_RECEIVED: float(receives), MEASURE_TRAINED: float(measures)}
        if measures and federation.in_detail:
            settings[MEASURE_IN_DETAIL] = CONFUSION if round_ == federation.rounds else CLASSES
        work = scene.work(client.width, round_, method.rate(scene, client) if isinstance(method, ScalesRates) else 1.0)
        tasks[client.id] = Task(round_, scene.seed, client.id, weights, settings, work)
        parcels[client.id] = encode_task(tasks[client.id], body)
    return Dispatched(parcels, measurers, tasks)


def is_measured(federation: Federation, round_: int) -> bool:
    """Whether accuracies are measured in a round."""
    return round_ % federation.evaluate_every == 0 or round_ in (1, federation.rounds)


def measure(federation: Federation, state: ServerState) -> dict[str, float]:
    """Accuracy of the server's model at every width of the federation, as a client would receive it.

    A width whose clients compute with something that the server does not have, as gains of their own, is left out.
    """
    scene, found = federation.scene, dict[str, float]()
    for width, client in scene.firsts.items():
        weights = federation.method.dispatch(scene, state, client)
        own_gains = width.is_float and scene.local.float32.gains == "local"
        if federation.holdout is not None and not own_gains and set(scene.architecture.shapes) <= set(weights):
            model = build_model(scene, width, weights, Task(state.round, scene.seed, client.id, weights))
            found[str(width)] = accuracy(model, federation.holdout, scene.device)
    return found


def measured_by(scene: Scene, cohort: Sequence[ClientSpec], bodies: Mapping[int, bytes]) -> dict[int, int]:
    """Who measures the model each client receives: the first that does, unless devices add something of their own."""
    first: dict[bytes, int] = {}
    nothing = encode_weights({})
    measurers: dict[int, int] = {}
    for client in cohort:
        own_gains = client.width.is_float and scene.local.float32.gains == "local"
        alone = own_gains or bodies[client.id] == nothing
        measurers[client.id] = client.id if alone else first.setdefault(bodies[client.id], client.id)
    return measurers


@contextmanager
def server_at_work(
    federation: Federation, state: ServerState, transport: Transport
) -> Iterator[Callable[[], ServerState]]:
    """What the server does while clients train: in a thread where it would be idle, before they begin where it is not.

    Either way it begins from the same state and computes on one thread, so the result is the same.
    """
    method = federation.method
    if not isinstance(method, WorksMeanwhile):
        yield lambda: state
    elif transport.remote:

        def work() -> ServerState:
            torch.set_num_threads(1)
            return method.meanwhile(federation.scene, state)

        yield begin(work).result
    else:
        done = method.meanwhile(federation.scene, state)
        yield lambda: done


def _plain(method: Method, state: ServerState) -> Notes:
    """A method's notes as plain JSON values."""
    try:
        notes: Notes = json.loads(json.dumps(state.notes, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"notes of {method.name}: {error}; accepted: numbers, texts, lists and dicts of them") from error
    return notes
