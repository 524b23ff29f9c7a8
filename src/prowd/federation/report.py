"""The report of a round: the one schema of a line of rounds.jsonl, as it is written, read back, shown and exported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from prowd.device.scene import ClientSpec
from prowd.errors import ConfigError, harmless
from prowd.numbers.bits import Bitwidth

__all__ = ["Absence", "Accuracy", "Attendance", "Limit", "RoundReport", "Traffic", "by_width", "totals"]

Key = TypeVar("Key", str, int)
Value = TypeVar("Value", int, float)


def _measured(found: dict[str, float]) -> dict[str, float]:
    """Accuracies of widths; what is none, as that of a network that diverged, was not measured."""
    return {width: value for width, value in found.items() if 0 <= value <= 1 and _is_width(width)}


def _is_width(text: str) -> bool:
    try:
        return str(Bitwidth.parse(text)) == text
    except ConfigError:
        return False


def _shares(found: dict[Key, float]) -> dict[Key, float]:
    """Accuracies and shares of anything; what is none was not measured."""
    return {key: value for key, value in found.items() if 0 <= value <= 1}


Accuracies = Annotated[dict[str, float], AfterValidator(_measured)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Shares = Annotated[dict[Count, float], AfterValidator(_shares)]
Pairs = Annotated[dict[Annotated[str, Field(pattern=r"^\d{1,9}_\d{1,9}$")], float], AfterValidator(_shares)]
Sizes = dict[str, Count]


@dataclass(frozen=True)
class Absence:
    """A client whose work is missing from a round, and why; the reason may be a device's own words, made harmless."""

    client: Count
    width: str
    reason: str = ""
    attempt: Count = 0
    """The attempt at a round, below the quorum, that it was missing from; 0: the round itself."""

    def __post_init__(self) -> None:
        for name in ("width", "reason"):
            object.__setattr__(self, name, harmless(getattr(self, name)))

    def text(self, round_: int) -> str:
        """In words."""
        when = f"round {round_}, attempt {self.attempt}" if self.attempt else f"round {round_}"
        return f"{when}: client {self.client} ({self.width}) left out: {self.reason}"


@dataclass(frozen=True)
class Limit:
    """A client whose update was held to a bound and counts within it, or does not count."""

    client: Count
    width: str
    what: str
    """clipped: it moved too far; capped: it claims too many examples; trimmed: others are nearer to each other."""
    reason: str = ""

    def text(self, round_: int) -> str:
        """In words."""
        return f"round {round_}: client {self.client} ({self.width}) {self.what}: {self.reason}"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Accuracy(_Part):
    """Test accuracy per width, where it was measured; and that of single clients after training.

    What clients received and what they made of it is what they say themselves. The model that the server made of the
    round is measured by the server, on test data of its own, at every width of the federation. ``own`` is that of a
    client on examples of its own. ``classes`` and ``people`` are by width; so is ``confusion``: of examples of class t
    the share that is taken for class u, as ``t_u``.
    """

    received: Accuracies = {}
    trained: Accuracies = {}
    server: Accuracies = {}
    clients: Shares = {}
    own: Shares = {}
    classes: dict[str, Shares] = {}
    people: dict[str, Shares] = {}
    confusion: dict[str, Pairs] = {}

    @property
    def balanced(self) -> dict[str, float]:
        """The mean over the classes, by width: every class counts the same, however many examples it has."""
        return {width: fmean(found.values()) for width, found in self.classes.items() if found}


class Traffic(_Part):
    """Bytes per width; and by client, up and down, which runs of older versions lack."""

    up: Sizes
    down: Sizes
    clients: dict[int, tuple[Count, Count]] = {}


class Attendance(_Part):
    """How many clients were asked, who was missing, and whose update was held to a bound."""

    asked: Count = 0
    lost: list[Absence] = []
    refused: list[Absence] = []
    limited: list[Limit] = []

    @property
    def missing(self) -> list[Absence]:
        """All whose work was not used."""
        return [*self.lost, *self.refused]


class RoundReport(_Part):
    """Measurements of a round, per width; an accuracy that was not measured is absent."""

    model_config = ConfigDict(extra="allow")  # what observers remark on a round

    round: Annotated[int, Field(ge=1)]
    accuracy: Accuracy
    loss: dict[str, float] = {}
    traffic: Traffic = Field(validation_alias="bytes", serialization_alias="bytes")
    clients: Attendance = Attendance()
    notes: dict[str, Any] = {}
    """What the method noted down to explain the round."""
    seconds: float = 0.0

    @property
    def devices(self) -> list[Any]:
        """What real devices did in the round; empty where clients are simulated."""
        found = (self.model_extra or {}).get("devices", [])
        return found if isinstance(found, list) else [found]

    def left_out(self) -> list[str]:
        """Whose work is missing, and why, in words."""
        return [absence.text(self.round) for absence in self.clients.missing]

    def held(self) -> list[str]:
        """Whose update was held to a bound, and to which, in words."""
        return [limit.text(self.round) for limit in self.clients.limited]

    def line(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        line = self.model_dump(mode="json", by_alias=True)
        for key in ("clients", "own", "classes", "people", "confusion"):
            if not line["accuracy"][key]:
                del line["accuracy"][key]
        if balanced := self.accuracy.balanced:
            line["accuracy"]["balanced"] = balanced
        for absence in (*line["clients"]["lost"], *line["clients"]["refused"]):
            if not absence["attempt"]:
                del absence["attempt"]
        return line

    def after(self, attempts: Sequence[RoundReport]) -> RoundReport:
        """The report with earlier attempts at the round: who was missing from them, and what they cost."""
        lost, refused = (
            [replace(one, attempt=n) for n, attempt in enumerate(attempts, 1) for one in getattr(attempt.clients, kind)]
            for kind in ("lost", "refused")
        )
        missing = {"lost": [*lost, *self.clients.lost], "refused": [*refused, *self.clients.refused]}
        moved = [report.traffic for report in (*attempts, self)]
        up, down = (totals({n: pair[way] for n, pair in one.clients.items()} for one in moved) for way in (0, 1))
        traffic = Traffic(
            up=totals(one.up for one in moved),
            down=totals(one.down for one in moved),
            clients={client: (up[client], down[client]) for client in up},
        )
        seconds = round(sum(attempt.seconds for attempt in attempts) + self.seconds, 3)
        clients = self.clients.model_copy(update=missing)
        return self.model_copy(update={"clients": clients, "traffic": traffic, "seconds": seconds})


def totals(counts: Iterable[Mapping[Key, int]]) -> dict[Key, int]:
    """For each key the sum of its counts."""
    found = Counter[Key]()
    for one in counts:
        found.update(one)
    return dict(found)


def by_width(fold: Callable[[list[Value]], Value], values: Iterable[tuple[ClientSpec, Value]]) -> dict[str, Value]:
    """The clients' values for each width, low widths first, as their sum or their mean."""
    groups: dict[str, list[Value]] = {}
    for client, value in sorted(values, key=lambda pair: (pair[0].width, pair[0].id)):
        groups.setdefault(str(client.width), []).append(value)
    return {width: fold(found) for width, found in groups.items()}
