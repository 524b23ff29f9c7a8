"""What a clinic would ask: how well it works for a person, what it mistakes for what, what it costs a day.

And who holds what: the examples of each class by client, for every partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from prowd.comparison.formats import kilobytes
from prowd.runs.holdings import Holdings, read_holdings
from prowd.runs.read import Record
from prowd.runs.summary import in_detail
from prowd.views.report.cells import PageTable, bytes_a_client
from prowd.views.report.groups import Group
from prowd.views.report.style import Drawing, panels

__all__ = [
    "a_day",
    "by_class",
    "by_client",
    "by_person",
    "confusion",
    "held",
    "in_order",
    "never_seen",
    "of_clients",
    "of_people",
    "owners",
]

ROUNDS_A_DAY = 24
MOST_NAMED = 24  # rows or columns of a picture that are named, and whose numbers are written into it
LONGEST = 36  # letters of a name
Values = Mapping[str, float]


def never_seen(group: Group) -> PageTable | None:
    """Accuracy for each test person: the mean over all clients' models, and over the seeds in which they are one."""

    def found(record: Record, measured: Mapping[str, Any]) -> Values:
        return of_people(record, measured.get("people", {}))

    caption = "Accuracy in % for people whom no client has seen: mean over the clients' models and over seeds"
    return _by_method(group, "person", caption, found, total="all of them")


def by_person(group: Group) -> PageTable | None:
    """Accuracy of each client's model on examples of its own: the mean over the seeds."""

    caption = "Accuracy in % of a client's model for its owner, on examples that it held out; mean over seeds"
    return _by_method(group, "client", caption, partial(_of_clients, "own"), total="all of them")


def by_client(group: Group) -> PageTable | None:
    """Accuracy of each client's model on the test set that all have in common: the mean over the seeds."""
    caption = "Accuracy in % of each client's model after local training, on the common test set; mean over seeds"
    return _by_method(group, "client", caption, partial(_of_clients, "clients"), total="all of them")


def by_class(group: Group) -> PageTable | None:
    """Accuracy for each class, and balanced: the mean over classes."""

    def found(record: Record, measured: Mapping[str, Any]) -> Values:
        return {_class(record, label): value for label, value in _mixed(record, measured.get("classes", {})).items()}

    caption = "Accuracy in % by class after local training: mean over the clients and over seeds"
    return _by_method(group, "class", caption, found, total="balanced: the mean of these")


def a_day(group: Group) -> PageTable:
    """Bytes of one device in a day of a round an hour."""
    rows: list[list[str]] = []
    for method, records in group.shown.items():
        for width in group.widths:
            up, down = (ROUNDS_A_DAY * bytes_a_client(records, width, way) for way in ("up", "down"))
            rows.append([method, width, kilobytes(up), kilobytes(down), kilobytes(up + down)])
    caption = "Bytes of one device a day, at one round an hour, measurements included"
    return PageTable(caption, ["method", "width", "up a day", "down a day", "both"], rows, range(2, 5))


def confusion(group: Group) -> Drawing | None:
    """What is taken for what: a matrix for each method, the mean over clients and seeds of the last round."""
    found: dict[str, NDArray[np.float64]] = {}
    for method, records in group.shown.items():
        matrices = [matrix for record in records if (matrix := _matrix(record)) is not None]
        same = [one for one in matrices if one.shape == matrices[0].shape]
        if same:
            found[method] = 100 * np.mean(same, axis=0)
    if not found:
        return None
    names = _names(group.first, max(len(one) for one in found.values()))
    figure, grid = panels(len(found), columns=2, width=4.2, height=3.6)
    for number, (axes, (method, matrix)) in enumerate(zip(grid, found.items(), strict=True)):
        _picture(axes, matrix, names, names if number % 2 == 0 else None, "{:.0f}", top=100.0)
        axes.set_title(method)
    caption = (
        "What is taken for what, in % of the test examples of a class (rows: what it is; columns: what it is taken "
        "for); mean over the clients after local training and over seeds."
    )
    reading = (
        "A model without mistakes has 100 all along the diagonal; a dark cell elsewhere is a mix-up of two classes."
    )
    return Drawing("confusion", caption, figure, reading=reading)


def held(group: Group) -> Drawing | None:
    """Who holds what: the training examples of each class by client, in the first run."""
    record = min(group.records, key=lambda one: one.seed)
    found = read_holdings(record.path)
    if found is None:
        return None
    counts = np.array([one.examples for one in found.clients], float)
    rows = [f"{_who(one.client, one.person)}, {one.width}" for one in found.clients]
    figure, (axes,) = panels(1, width=5.6, height=min(1.6 + 0.22 * len(rows), 8.0))
    _picture(axes, counts, found.classes, rows, "{:.0f}", top=max(counts.max(), 1.0))
    reading = (
        "Rows that look alike are clients with alike data; a row of few dark cells is a client that knows few classes."
    )
    return Drawing("holdings", f"{_caption(found)} Seed {record.seed}.", figure, reading=reading)


def _caption(found: Holdings) -> str:
    text = "Who holds what: training examples of each class by client."
    if any(one.own for one in found.clients):
        text += f" {sum(one.own for one in found.clients)} more are held out by their owners."
    people = ", ".join(map(str, found.test_people[:MOST_NAMED]))
    return text + (f" The {sum(found.test)} test examples are of people {people}." if people else "")


def _who(client: int, person: int | None) -> str:
    return f"client {client}" if person is None else f"client {client}: person {person}"


def owners(record: Record) -> Mapping[int, str]:
    """The names of clients that are people: with other seeds the same person is another client."""
    held = read_holdings(record.path)
    known = {} if held is None else {one.client: one.person for one in held.clients}
    return {client: f"person {who}" for client, who in known.items() if who is not None}


def of_clients(names: Mapping[int, str], values: Mapping[int, float]) -> Values:
    """What was measured of each client, by the person that it is."""
    return {names.get(client, f"client {client}"): value for client, value in values.items()}


def of_people(record: Record, values: Mapping[str, Mapping[int, float]]) -> Values:
    """What was measured for each test person, by all clients together."""
    return {f"person {person}": value for person, value in _mixed(record, values).items()}


def _of_clients(kind: str, record: Record, measured: Mapping[str, Any]) -> Values:
    return of_clients(owners(record), measured.get(kind, {}))


def _by_method(
    group: Group,
    heading: str,
    caption: str,
    find: Callable[[Record, Mapping[str, Any]], Values],
    total: str,
) -> PageTable | None:
    """A row for each of something, a column for each method; the total is the mean of all rows."""
    values: dict[str, dict[str, list[float]]] = {}
    for method, records in group.shown.items():
        for record in records:
            for name, value in find(record, in_detail(record.lines).get("measured", {})).items():
                values.setdefault(name, {}).setdefault(method, []).append(100 * value)
    if not values:
        return None
    methods = list(group.shown)
    names = sorted(values, key=in_order) if heading in ("person", "client") else list(values)
    rows = [[name, *(_mean(values[name].get(method, ())) for method in methods)] for name in names]
    means = [[fmean(values[name][method]) for name in names if method in values[name]] for method in methods]
    numbers = range(1, len(methods) + 1)
    return PageTable(caption, [heading, *methods], rows, numbers, total=[total, *map(_mean, means)], has_bars=True)


def in_order(name: str) -> tuple[str, int]:
    """A key by which people and clients are in the order of their numbers."""
    word, _, number = name.rpartition(" ")
    return word, int(number)


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" if values else "–"


def _mixed(record: Record, by_width: Mapping[str, Mapping[Any, float]]) -> dict[Any, float]:
    """Means over all clients, from means over those of each width."""
    keys = dict.fromkeys(key for found in by_width.values() for key in found)
    mixed: dict[Any, float] = {}
    for key in keys:
        pairs = [(record.mix.get(width, 1), found[key]) for width, found in by_width.items() if key in found]
        mixed[key] = sum(count * value for count, value in pairs) / sum(count for count, _ in pairs)
    return mixed


def _matrix(record: Record) -> NDArray[np.float64] | None:
    """Rows are what it is, columns what it is taken for; a class without test examples has a row of zeros."""
    by_width = in_detail(record.lines).get("measured", {}).get("confusion", {})
    names = {pair for found in by_width.values() for pair in found}
    full = {width: dict.fromkeys(names, 0.0) | found for width, found in by_width.items()}
    cells = {pair.partition("_")[::2]: value for pair, value in _mixed(record, full).items()}
    size = 1 + max((int(label) for pair in cells for label in pair), default=-1)
    held_by = read_holdings(record.path)
    size = max(size, len(held_by.classes)) if held_by and size else size
    if not 0 < size <= 1000:
        return None
    matrix = np.zeros((size, size))
    for (true, taken), value in cells.items():
        matrix[int(true), int(taken)] = value
    return matrix


def _class(record: Record, label: int) -> str:
    return _names(record, label + 1)[label]


def _names(record: Record, count: int) -> Sequence[str]:
    found = read_holdings(record.path)
    return found.classes if found is not None and len(found.classes) >= count else tuple(map(str, range(count)))


def _picture(
    axes: Axes,
    values: NDArray[np.float64],
    columns: Sequence[str],
    rows: Sequence[str] | None,
    show: str,
    top: float,
) -> None:
    """A matrix as shades, its numbers in the cells where there is room for them."""
    axes.imshow(values, cmap="Blues", vmin=0.0, vmax=1.25 * top, aspect="auto", interpolation="nearest")
    axes.grid(visible=False)
    _ticks(axes.set_xticks, columns if len(columns) <= MOST_NAMED else (), rotation=40, ha="right")
    _ticks(axes.set_yticks, rows if rows is not None and len(rows) <= 2 * MOST_NAMED else ())
    if max(values.shape) > MOST_NAMED:
        return
    for (y, x), value in np.ndenumerate(values):
        if value >= 0.5:
            shade = "#ffffff" if value > 0.75 * top else "#111111"
            axes.text(x, y, show.format(value), ha="center", va="center", fontsize=7, color=shade)


def _ticks(put: Callable[..., Any], names: Iterable[str], **look: Any) -> None:
    texts = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    put(range(len(texts)), texts, fontsize=7, **look)
