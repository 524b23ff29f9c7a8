"""What came back in a round: which replies count, which are refused, and what the round reports of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prowd.device.scene import ClientSpec, Scene
from prowd.errors import WireError
from prowd.federation.admission import admit
from prowd.federation.report import Absence, Accuracy, Attendance, RoundReport, Traffic, mean_by_width, sum_by_width
from prowd.federation.transport import Refusal, Reply, Silence
from prowd.methods import Method
from prowd.wire import Parcel, Update

__all__ = ["LONGEST_REASON", "Admitted", "Inbox", "admit_all", "sum_up"]

LONGEST_REASON = 500  # characters: a refused update is not to fill the report with its own words


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
    """The updates of a round that can be used, in client order, and those that were refused."""

    updates: list[Update]
    refused: list[Absence]


def admit_all(scene: Scene, method: Method, round_: int, cohort: Iterable[ClientSpec], inbox: Inbox) -> Admitted:
    """Decode and check the replies; what is refused is counted and the round goes on."""
    admitted = Admitted([], [])
    for client in cohort:
        if client.id in inbox.unreadable:
            admitted.refused.append(Absence(client.id, str(client.width), inbox.unreadable[client.id]))
        if client.id in inbox.repeated:
            again = f"{inbox.repeated[client.id]} more replies than the one that was asked for; the first counts"
            admitted.refused.append(Absence(client.id, str(client.width), again))
        if client.id in inbox.replies:
            try:
                update = admit(scene, method, round_, client, inbox.replies[client.id])
            except WireError as error:
                admitted.refused.append(Absence(client.id, str(client.width), str(error)[:LONGEST_REASON]))
            else:
                admitted.updates.append(update)
    return admitted


def sum_up(
    round_: int,
    cohort: Sequence[ClientSpec],
    parcels: Mapping[int, Parcel],
    inbox: Inbox,
    admitted: Admitted,
    measurers: Mapping[int, int],
) -> RoundReport:
    """Report a round by width; only the client that was asked to measure a received model speaks for it."""
    replies = inbox.replies
    metrics = {update.client: update.metrics for update in admitted.updates}
    present = [client for client in cohort if client.id in metrics]

    def mean(name: str, source: Mapping[int, int] | None = None) -> dict[str, float]:
        values = [(client, metrics.get(source[client.id] if source else client.id, {}).get(name)) for client in present]
        return mean_by_width((client, value) for client, value in values if value is not None)

    up = {client: len(replies[client.id]) for client in cohort if client.id in replies}
    down = {client: len(parcels[client.id]) for client in cohort}
    lost = [
        Absence(client.id, str(client.width), inbox.silent.get(client.id, "no reply"))
        for client in cohort
        if client.id not in replies and client.id not in inbox.unreadable
    ]
    return RoundReport(
        round=round_,
        accuracy=Accuracy(received=mean("accuracy_received", measurers), trained=mean("accuracy_trained")),
        loss=mean("loss"),
        traffic=Traffic(
            up=sum_by_width(up.items()),
            down=sum_by_width(down.items()),
            clients={client.id: (up.get(client, 0), size) for client, size in down.items()},
        ),
        clients=Attendance(asked=len(cohort), lost=lost, refused=admitted.refused),
    )
