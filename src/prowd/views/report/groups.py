"""Runs that belong together: the same federation, with other methods and other seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from prowd.comparison import Estimate, Outcome, Row, estimate, tabulate
from prowd.comparison.outcomes import has_accuracy
from prowd.config.options import all_options
from prowd.config.schema import NO_MATTER, RunConfig
from prowd.config.tables import flat
from prowd.federation.report import RoundReport
from prowd.methods import METHODS
from prowd.numbers.bits import Bitwidth
from prowd.runs.read import Record, find_records, read_plan

__all__ = ["FREE", "OWN", "Curve", "Group", "curve", "default_options", "gather"]

OWN = {"method", "method_sha256", "options", "seed"}  # what may differ within a group, and stands in its labels
FREE = {"name", "device", *NO_MATTER}  # what may differ and leaves the results as they are
LONGEST = 60  # letters of a label


@dataclass(frozen=True)
class Group:
    """One federation: its runs by method, in the order of their seeds."""

    runs: Mapping[str, Sequence[Record]]
    preferred: str
    """The method that others are compared with, if it is there."""

    @property
    def records(self) -> list[Record]:
        """All runs."""
        return [record for records in self.runs.values() for record in records]

    @property
    def first(self) -> Record:
        """Some run: what all have in common can be read from it."""
        return self.records[0]

    @property
    def baseline(self) -> str:
        """The method that others are compared with: one that has something to compare."""
        there = self.counted or self.runs
        return self.preferred if self.preferred in there else next(iter(there))

    @property
    def title(self) -> str:
        """The name of the configuration."""
        return self.first.name

    @cached_property
    def counted(self) -> Mapping[str, Sequence[Record]]:
        """The runs that tables are made of: the finished ones; if none is, all that have begun, to the same round."""
        finished = _those(self.runs, lambda record: record.is_finished)
        if finished:
            return finished
        begun = _those(self.runs, lambda record: bool(record.lines))
        last = min((len(record.lines) for records in begun.values() for record in records), default=0)
        return {label: [replace(one, lines=one.lines[:last]) for one in records] for label, records in begun.items()}

    @cached_property
    def shown(self) -> Mapping[str, Sequence[Record]]:
        """The runs that figures are made of: of each method the finished ones, or else those that have begun."""
        begun = _those(self.runs, lambda record: bool(record.lines))
        return {label: [one for one in records if one.is_finished] or records for label, records in begun.items()}

    @property
    def is_finished(self) -> bool:
        """Whether what counts is finished."""
        return all(record.is_finished for records in self.counted.values() for record in records)

    @cached_property
    def outcomes(self) -> Sequence[Outcome]:
        """The outcomes of the runs that count, as far as they have measured something."""
        found = [_outcome(label, record) for label, records in self.counted.items() for record in records]
        return [outcome for outcome in found if outcome]

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The headline table."""
        return tabulate(self.outcomes, self.baseline)

    @cached_property
    def widths(self) -> Sequence[str]:
        """Widths of the federation, low ones first; those that were measured where nobody says which they are."""
        measured = {width for record in self.records for width in record.latest("trained")}
        return list(self.first.mix) or sorted(measured, key=Bitwidth.parse)


@dataclass(frozen=True)
class Curve:
    """A quantity over the rounds: its mean over seeds, and half its confidence interval where there are several."""

    rounds: Sequence[int]
    megabytes: Sequence[float]
    values: Sequence[Estimate]


def curve(records: Sequence[Record], value: Callable[[Record, RoundReport], float | None]) -> Curve:
    """Follow a quantity over the rounds in which every run has measured it."""
    found: dict[int, list[tuple[float, float]]] = {}
    for record in records:
        moved = 0
        for line in record.lines:
            moved += sum(line.traffic.up.values()) + sum(line.traffic.down.values())
            measured = value(record, line)
            if measured is not None:
                found.setdefault(line.round, []).append((moved / 1e6, measured))
    whole = {round_: pairs for round_, pairs in found.items() if len(pairs) == len(records)}
    return Curve(
        list(whole),
        [sum(megabytes for megabytes, _ in pairs) / len(pairs) for pairs in whole.values()],
        [estimate([measured for _, measured in pairs]) for pairs in whole.values()],
    )


def gather(folders: Iterable[Path]) -> tuple[list[Group], list[str]]:
    """All runs in some folders, group by group, and what is to be said of those that are left out."""
    records: dict[Path, Record] = {}
    problems: list[str] = []
    baselines: dict[str, str] = {}
    for given in folders:
        folder = given if given.name not in ("", "..") else given.resolve()  # figures bear the names of folders
        found, trouble = find_records(folder)
        problems += trouble
        for record in found:
            records.setdefault(record.path.resolve(), record)
        for place in dict.fromkeys([folder, *(record.path.parent for record in found)]):
            plan = read_plan(place)
            if plan is not None:
                reasons = {name: why.strip().rpartition("\n")[2] for name, why in plan.failures.items()}
                problems += [f"{place / name} failed: {why}" for name, why in reasons.items()]
                baselines |= {_key(record): plan.baseline for record in found if record.path.parent == place}
    together: dict[str, list[Record]] = {}
    for record in records.values():
        together.setdefault(_key(record), []).append(record)
    groups: list[Group] = []
    for key, members in together.items():
        kept, twice = _without_twins(members)
        problems += twice
        groups.append(Group(_labelled(kept), baselines.get(key, "fedavg")))
    return groups, list(dict.fromkeys(problems))


def _those(runs: Mapping[str, Sequence[Record]], wanted: Callable[[Record], bool]) -> dict[str, Sequence[Record]]:
    """The runs that are wanted, of the methods that have some."""
    found = {label: [record for record in records if wanted(record)] for label, records in runs.items()}
    return {label: records for label, records in found.items() if records}


def _key(record: Record) -> str:
    """What is the same for all runs of a group; settings that an older version did not have are at their defaults."""
    settings: dict[str, Any] = RunConfig.model_construct().model_dump(mode="json")
    for name, value in record.config.items():
        both = isinstance(value, Mapping) and isinstance(settings.get(name), Mapping)
        settings[name] = {**settings[name], **value} if both else value
    settings["data"] = Path(str(settings["data"])).name
    settings["clients"] = "".join(str(settings["clients"]).split()).lower()  # people put blanks where they like
    decisive = {key: value for key, value in settings.items() if key not in OWN | FREE}
    return json.dumps(decisive, sort_keys=True, default=str)


def _without_twins(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """Of runs with the same method, options and seed the one that has come farthest."""
    kept: dict[str, Record] = {}
    problems: list[str] = []
    for record in sorted(records, key=lambda record: (not record.is_finished, -len(record.lines))):
        same = json.dumps([record.method, _own(record), record.seed], sort_keys=True, default=str)
        if kept.setdefault(same, record) is not record:
            problems.append(f"{record.path} has the settings and the seed of {kept[same].path}; it is left out")
    return list(kept.values()), problems


def _labelled(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Runs by the name of their method, with the options in which two of it differ, unless they are the defaults."""
    own = {id(record): _own(record) for record in records}
    found: dict[str, list[Record]] = {}
    known = list(METHODS)
    for record in sorted(records, key=lambda one: (known.index(one.method) if one.method in known else 99, one.seed)):
        namesakes = [own[id(one)] for one in records if one.method == record.method]
        options = ", ".join(
            f"{name}={value}"
            for name, value in own[id(record)].items()
            if any(other.get(name) != value for other in namesakes)
            and value != default_options(record.method).get(name)
        )
        found.setdefault(f"{record.method} ({options})" if options else record.method, []).append(record)
    labels: dict[str, list[Record]] = {}
    for label, members in found.items():
        short = _short(label)
        labels[short if short not in labels else f"{short} #{len(labels) + 1}"] = members
    return labels


def default_options(method: str) -> dict[str, Any]:
    """The options of a built-in method at their defaults, by dotted names; of another method none are known."""
    return flat(all_options(METHODS[method]())) if method in METHODS else {}


def _short(label: str) -> str:
    """A label as it can be drawn: on one line, not too long, without letters that no font has.

    Legends leave out what begins with an underscore: a blank goes before it.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in label) or "?"
    text = f" {text}" if text.startswith("_") else text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _own(record: Record) -> dict[str, Any]:
    """What tells runs of the same method apart, seeds aside: its options, and its code if that is a file's."""
    code = str(record.config.get("method_sha256", ""))[:8]
    options = record.config.get("options")
    return (flat(options) if isinstance(options, Mapping) else {}) | ({"sha256": code} if code else {})


def _outcome(label: str, record: Record) -> Outcome | None:
    """The outcome of a run so far, if it has measured something."""
    accuracy = {when: record.latest(when) for when in ("received", "trained")}
    so_far = {
        "accuracy": accuracy,
        "average_accuracy": {when: record.average(found) for when, found in accuracy.items()},
        "bytes": {way: {"all": record.moved(way)} for way in ("up", "down")},
        "rounds": len(record.lines),
        "weights_sha256": str((record.summary or {}).get("weights_sha256", "")),
    }
    return Outcome.of(label, record.seed, so_far) if has_accuracy(so_far) else None
