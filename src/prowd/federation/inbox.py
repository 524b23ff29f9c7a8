"""What came back in a round: which replies count, which are refused, and what the round reports of them.

Bytes are hostile: whatever is not exactly as agreed is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import WireError
from prowd.federation.details import check_metrics, gather
from prowd.federation.report import Absence, Accuracy, Attendance, Limit, RoundReport, Traffic, by_width
from prowd.federation.transport import Refusal, Reply, Silence
from prowd.methods import Method, Slot
from prowd.wire import Parcel, Update, decode_update
from prowd.wire.packing import packed_size

__all__ = ["LONGEST_REASON", "Admitted", "Inbox", "admit", "admit_all", "sum_up"]

LONGEST_REASON = 500  # characters: a refused update is not to fill the report with its own words
ALLOWANCE = 65_536  # bytes for everything in an update that is not weights
LARGEST_FLOAT = 2.0**60  # far beyond any weight that learns, and far below what a server's sums and steps can hold


@dataclass(frozen=True)
class Inbox:
    """What came back in a round. The first reply of a client counts; whatever it sends after it is refused."""

    replies: dict[int, bytes] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    repeated: dict[int, int] = field(default_factory=dict)

    def take(self, client: int, reply: Reply) -> None:
        """Put a reply where it belongs."""
        if isinstance(reply, Silence):
            self.silent.setdefault(client, reply.reason[:LONGEST_REASON])
        elif client in self.replies or client in self.unreadable:
            self.repeated[client] = self.repeated.get(client, 0) + 1
        elif isinstance(reply, Refusal):
            self.unreadable[client] = reply.reason[:LONGEST_REASON]
        else:
            self.replies[client] = reply


class Admitted(NamedTuple):
    """The updates of a round that can be used, in client order, those that were refused, and those held to a bound."""

    updates: list[Update]
    refused: list[Absence]
    limited: list[Limit]
    trimmed: frozenset[int] = frozenset()
    """Clients whose updates are reported, but not aggregated."""

    @property
    def used(self) -> list[Update]:
        """What the method aggregates."""
        return [update for update in self.updates if update.client not in self.trimmed]


def admit_all(scene: Scene, method: Method, round_: int, cohort: Iterable[ClientSpec], inbox: Inbox) -> Admitted:
    """Decode and check the replies; what is refused is counted and the round goes on."""
    admitted = Admitted([], [], [])
    for client in cohort:
        reasons = [inbox.unreadable[client.id]] if client.id in inbox.unreadable else []
        if client.id in inbox.repeated:
            reasons.append(f"{inbox.repeated[client.id]} more replies than the one asked for; the first counts")
        if client.id in inbox.replies:
            try:
                admitted.updates.append(admit(scene, method, round_, client, inbox.replies[client.id]))
            except WireError as error:
                reasons.append(str(error)[:LONGEST_REASON])
        admitted.refused.extend(Absence(client.id, str(client.width), reason) for reason in reasons)
    return admitted


def sum_up(
    round_: int,
    cohort: Sequence[ClientSpec],
    parcels: Mapping[int, Parcel],
    inbox: Inbox,
    admitted: Admitted,
    measurers: Mapping[int, int],
    classes: int = 0,
) -> RoundReport:
    """Report a round by width; only the client that was asked to measure a received model speaks for it."""
    replies = inbox.replies
    metrics = {update.client: update.metrics for update in admitted.updates}
    present = [client for client in cohort if client.id in metrics]

    def mean(name: str, source: Mapping[int, int] | None = None) -> dict[str, float]:
        values = [(client, metrics.get(source[client.id] if source else client.id, {}).get(name)) for client in present]
        return by_width(fmean, ((client, value) for client, value in values if value is not None))

    up = {client: len(replies[client.id]) for client in cohort if client.id in replies}
    down = {client: len(parcels[client.id]) for client in cohort}
    lost = [
        Absence(client.id, str(client.width), inbox.silent.get(client.id, "no reply"))
        for client in cohort
        if client.id not in replies and client.id not in inbox.unreadable
    ]
    return RoundReport(
        round=round_,
        accuracy=Accuracy(
            received=mean("accuracy_received", measurers),
            trained=mean("accuracy_trained"),
            **gather(classes, present, metrics),
        ),
        loss=mean("loss"),
        traffic=Traffic(
            up=by_width(sum, up.items()),
            down=by_width(sum, down.items()),
            clients={client.id: (up.get(client, 0), size) for client, size in down.items()},
        ),
        clients=Attendance(asked=len(cohort), lost=lost, refused=admitted.refused, limited=admitted.limited),
    )


def admit(scene: Scene, method: Method, round_: int, client: ClientSpec, message: bytes) -> Update:
    """Decode a client's reply and hold it to what was agreed, or raise WireError with the reason."""
    slots = method.expects(scene, client)
    weights = sum(packed_size(math.prod(slot.shape), slot.width) for slot in slots.values())
    update = decode_update(message, ALLOWANCE + weights)
    _same("round", update.round, round_)
    _same("client", update.client, client.id)
    _same("width", str(update.width), str(client.width))
    _same("number of examples", update.num_examples, client.num_examples)
    _check_weights(update, slots)
    check_metrics(update.metrics)
    return update


def _check_weights(update: Update, slots: Mapping[str, Slot]) -> None:
    _same("tensors", sorted(update.weights), sorted(slots))
    for name, tensor in update.weights.items():
        _same(f"shape of {name!r}", tensor.shape, slots[name].shape)
        _same(f"width of {name!r}", str(tensor.width), str(slots[name].width))
        size = float(tensor.codes.abs().amax()) if tensor.width.is_float and tensor.codes.numel() else 0.0
        if size > LARGEST_FLOAT:
            raise WireError(f"{name!r} has a value of size {size:g}; accepted: to {LARGEST_FLOAT:g}")
        largest = slots[name].largest_scale
        if tensor.scale != 1.0 and (largest is None or tensor.scale > largest):
            accepted = "1" if largest is None else f"above 0, to {largest:g}"
            raise WireError(f"{name!r} has scale {tensor.scale}; accepted: {accepted}")


def _same(what: str, found: object, accepted: object) -> None:
    if found != accepted:
        raise WireError(f"{what} is {found}; accepted: {accepted}")
