"""The weights themselves, from the samples that runs keep: how they spread, how φ lifts them, how clients differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from numpy.typing import NDArray
from safetensors import SafetensorError

from prowd.errors import ProwdError
from prowd.runs.read import Record
from prowd.runs.snapshots import BLOCKS, MODEL, Snapshot, client_files, read_snapshot, server_files
from prowd.views.report.groups import Group
from prowd.views.report.style import LINES, Drawing, legend_below, look, panels

__all__ = ["blocks", "cosine_distances", "distances", "histograms", "unreadable"]

Array = NDArray[np.float64]
BIN = 1 / 16  # a whole number of steps of every width from Int5 on, so that bins do not beat with fixed-point values
SHOWN_ROUNDS = 4
MOST_BLOCKS = 20  # of φ; a ladder has one rung more


class Samples:
    """The files of samples that a run has kept, by round, those of clients by client too; damaged ones are skipped."""

    def __init__(self, record: Record) -> None:
        self.record, self.folder = record, record.path / "snapshots"
        self.server, self.clients = server_files(self.folder), client_files(self.folder)

    def of_clients(self, round_: int) -> list[Snapshot]:
        """The clients of a round, in their order."""
        found = [_read(path) for path in self.clients.get(round_, {}).values()]
        return [snapshot for snapshot in found if snapshot is not None]

    def of_server(self, round_: int) -> Snapshot | None:
        """The server after a round."""
        return _read(self.server[round_]) if round_ in self.server else None


def samples_of(group: Group) -> list[tuple[str, Samples]]:
    """What the first run of each method has kept, if it has kept something."""
    kept = [(method, Samples(records[0])) for method, records in group.shown.items()]
    return [(method, samples) for method, samples in kept if samples.server or samples.clients]


def unreadable(group: Group) -> list[str]:
    """What is to be said of samples that are there and cannot be read."""
    found: list[str] = []
    for _, samples in samples_of(group):
        paths = [*samples.server.values(), *(path for files in samples.clients.values() for path in files.values())]
        damaged = [path.name for path in paths if _read(path) is None]
        if damaged:
            count = f"{len(damaged)} of {len(paths)} files of samples in {samples.folder}"
            found.append(f"{count} cannot be read and are left out, {damaged[0]} among them.")
    return found


def histograms(group: Group) -> Drawing | None:
    """Figure 2: the last convolution's weights of low-bit and high-bit clients, and of the server, over the rounds."""
    kept = samples_of(group)
    if not kept:
        return None
    rounds = _some_rounds(sorted({r for _, samples in kept for r in (*samples.server, *samples.clients)}))
    figure, grid = panels(len(kept) * len(rounds), columns=len(rounds), width=2.0, height=1.35)
    layer = ""
    for number, axes in enumerate(grid):
        (method, samples), round_ = kept[number // len(rounds)], rounds[number % len(rounds)]
        layer = _spread_of(axes, samples, round_) or layer
        axes.set_title(fill(f"{method}, {'start' if round_ == 0 else f'round {round_}'}", 30), fontsize=8)
        axes.set_yticks([])
        axes.set_xlim(-1.05, 1.05)
    if not layer:  # all that was kept is damaged
        return None
    legend_below(figure, *reversed(grid))  # the last panels show most
    what = f"Distribution of the weights of {layer} (sampled, one seed; v, before the weight normalisation of Float32"
    caption = f"{what} clients; within ±1): clients of each width after local training, and the server's model."
    note = "As Figure 2 of the paper, where FedAvg's weights collapse into three peaks"
    reading = (
        "Each panel says which share of the weights has which value: three separate peaks are weights of three levels, "
        "one broad hill is weights that use the whole range."
    )
    return Drawing("fig2-weights", caption, figure, note, reading)


def blocks(group: Group) -> Drawing | None:
    """Figure 6: a low-bit client's weights as they came, and after each block of φ."""
    for method, samples in samples_of(group):
        for round_ in sorted(samples.server, reverse=True):
            snapshot = samples.of_server(round_)
            stages = _stages(snapshot) if snapshot else []
            if snapshot and stages:
                return _blocks(method, samples.record, snapshot, stages)
    return None


def _blocks(method: str, record: Record, snapshot: Snapshot, stages: Sequence[Array]) -> Drawing:
    options = record.config.get("options", {})
    named = str(options.get("ladder", "")) if isinstance(options, Mapping) else ""
    ladder = [rung.strip() for rung in named.split(",") if rung.isprintable()]
    rungs = ladder[-len(stages) :] if len(ladder) >= len(stages) else [str(block) for block in range(len(stages))]
    figure, grid = panels(len(stages), columns=5, width=1.7, height=1.6)
    for number, (axes, values) in enumerate(zip(grid, stages, strict=True)):
        _histogram(axes, values, min(number, 1), rungs[number])
        axes.set_title(f"as received, {rungs[0]}" if number == 0 else f"after φ to {rungs[number]}", fontsize=8)
        axes.set_yticks([])
    caption = (
        f"{method}: weights of client {snapshot.client} in round {snapshot.round} (last convolution that φ lifts, "
        f"sampled), as they were received and after each block of the dequantizer."
    )
    reading = (
        "From left to right each block of φ is to move the weights of few levels towards those of a wider client; "
        "where two panels look alike, the block between them changes little."
    )
    return Drawing("fig6-dequantizer", caption, figure, "As Figure 6 of the paper", reading)


def distances(group: Group) -> Drawing | None:
    """Figures 7 and 8: cosine distances between the clients' weights, for every method."""
    found: list[tuple[str, list[Snapshot], Array]] = []
    for method, samples in samples_of(group):
        clients = samples.of_clients(max(samples.clients, default=0))
        if len(clients) > 1:
            found.append((method, clients, cosine_distances(clients)))
    if not found:
        return None
    figure, grid = panels(len(found), columns=5, width=1.75, height=1.75)
    federated = [matrix for method, _, matrix in found if method != "local"] or [matrix for *_, matrix in found]
    top = max(float(matrix[np.isfinite(matrix)].max(initial=0.0)) for matrix in federated) or 1.0
    for axes, (method, clients, matrix) in zip(grid, found, strict=True):
        image = axes.imshow(matrix, cmap="viridis", norm=PowerNorm(0.5, 0, top, clip=True), interpolation="nearest")
        axes.set_title(fill(method, 22), fontsize=8)
        axes.grid(visible=False)
        _name_clients(axes, clients)
    marks = [top * share for share in (0.0, 0.05, 0.25, 0.5, 1.0)]
    figure.colorbar(image, ax=grid, label="1 − cos", shrink=0.8, ticks=marks, format="%.2g")
    rounds = sorted({clients[0].round for _, clients, _ in found})
    order = [(width, len(list(those))) for width, those in groupby(str(client.width) for client in found[0][1])]
    caption = (
        f"Cosine distance between the weights of every two clients after local training in round "
        f"{' or '.join(map(str, rounds))} (all layers, sampled, one seed). "
        f"Clients in order: {', then '.join(f'{count} {width}' for width, count in order)}. "
        f"Darker: more alike; the scale ends with the methods that share weights."
    )
    reading = (
        "A cell is a pair of clients; two dark squares along the diagonal with lighter corners beside them are two "
        "widths that have grown apart."
    )
    return Drawing("fig7-distances", caption, figure, "As Figures 7 and 8 of the paper", reading)


def _name_clients(axes: Axes, clients: Sequence[Snapshot]) -> None:
    """Numbers of clients along both sides, and a line between one width and the next."""
    places = range(0, len(clients), max(1, -(-len(clients) // 5)))
    axes.set_xticks(places, [str(clients[place].client) for place in places])
    axes.set_yticks(places, [str(clients[place].client) for place in places])
    for place in range(1, len(clients)):
        if clients[place].width != clients[place - 1].width:
            axes.axhline(place - 0.5, color=LINES, linewidth=0.7)
            axes.axvline(place - 0.5, color=LINES, linewidth=0.7)


def cosine_distances(clients: Sequence[Snapshot]) -> Array:
    """1 − cos of every two clients; each layer counts by its whole size, of which the sample is a part.

    Weights that are all zero have no direction: they are at 1 from all. Those that are no numbers are at no distance.
    """
    first = clients[0].values.items()
    names = [n for n, v in first if all(n in one.values and len(one.values[n]) == len(v) for one in clients)]
    rows: list[Array] = []
    for client in clients:
        sizes = {name: math.prod(client.shapes[name]) / max(len(client.values[name]), 1) for name in names}
        parts = [client.values[name].double().numpy() * math.sqrt(size) for name, size in sizes.items()]
        rows.append(np.concatenate([np.zeros(0), *parts]))
    matrix = np.stack(rows)
    with np.errstate(invalid="ignore"):
        norms = np.linalg.norm(matrix, axis=1)
        norms[norms == 0] = 1.0
        unit = matrix / norms[:, None]
        return np.asarray(np.clip(1 - unit @ unit.T, 0.0, 2.0))


def _spread_of(axes: Axes, samples: Samples, round_: int) -> str:
    """Draw one panel; returns the layer that it shows."""
    layer = ""
    by_width: dict[str, list[Array]] = {}
    for client in samples.of_clients(round_):
        layer = _last_convolution(client.shapes)
        by_width.setdefault(str(client.width), []).append(client.values[layer].double().numpy())
    widths = list(samples.record.mix)
    for width, found in by_width.items():
        _histogram(axes, np.concatenate(found), widths.index(width) if width in widths else 0, f"{width} clients")
    server = samples.of_server(round_)
    if server is not None:
        names = {name: shape for name, shape in server.shapes.items() if name.startswith(MODEL)}
        layer = layer or _last_convolution({name.rpartition("/")[2]: shape for name, shape in names.items()})
        own = [name for name in names if name.rpartition("/")[2] == layer]
        for number, name in enumerate(own):
            group = name.removeprefix(MODEL).rpartition("/")[0]  # a method may have a model for each width
            label = f"server, {group}" if group else "server"
            place = len(widths) + (number + 1 if group else 0)
            _histogram(axes, server.values[name].double().numpy(), place, label)
    return layer


def _histogram(axes: Axes, values: Array, number: int, label: str) -> None:
    """The outline of a histogram; bins are centred on zero."""
    finite = values[np.isfinite(values)]
    reach = math.ceil(min(max(1.0, float(np.abs(finite).max(initial=0.0))), 8.0) / BIN)
    edges = (np.arange(-reach, reach + 2) - 0.5 - 1e-9) * BIN
    counts, _ = np.histogram(finite, edges)
    axes.stairs(counts / max(counts.sum(), 1), edges, linewidth=1.1, label=label, **look(number))


def _stages(snapshot: Snapshot) -> list[Array]:
    """The weights of the tensor that φ lifts, block by block."""
    named = [f"{BLOCKS}{number}/" for number in range(MOST_BLOCKS)]
    found = [[v.double().numpy() for n, v in snapshot.values.items() if n.startswith(name)] for name in named]
    return [np.concatenate(parts) for parts in takewhile(bool, found)]


def _last_convolution(shapes: Mapping[str, Sequence[int]]) -> str:
    """The name of the last convolution, or of the last layer where there is none; empty without any."""
    convolutions = [name for name, shape in shapes.items() if len(shape) == 4]
    weights = [name for name, shape in shapes.items() if len(shape) >= 2]
    return (convolutions or weights or list(shapes) or [""])[-1]


def _some_rounds(rounds: Sequence[int]) -> list[int]:
    """The first, the last, and a few between, evenly among those that there are."""
    chosen = np.linspace(0, len(rounds) - 1, min(len(rounds), SHOWN_ROUNDS)).round().astype(int)
    return [rounds[index] for index in chosen.tolist()]


def _read(path: Path) -> Snapshot | None:
    """A file of samples, if it is sound: some samples in a row of each tensor, no more than the tensor has."""
    try:
        found = read_snapshot(path)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, ProwdError):
        return None
    pairs = [(values, math.prod(found.shapes[name])) for name, values in found.values.items()]
    return found if pairs and all(v.dim() == 1 and len(v) <= size < 2**63 for v, size in pairs) else None
