"""Figures of the weights, from samples that are known to the last entry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import StepPatch
from safetensors.torch import save
from torch import Tensor

from prowd.numbers.bits import Bitwidth
from prowd.runs.snapshots import Snapshot
from prowd.views.report import weights
from prowd.views.report.style import Drawing
from prowd.views.report.weights import cosine_distances

from .directories import keep_clients, keep_server, lines, only_group, spread, write

pytestmark = pytest.mark.usefixtures("unrendered_figures")


def panels(drawing: Drawing | None) -> dict[str, Axes]:
    """The panels of a figure that there is, by their titles."""
    assert drawing is not None
    return {axes.get_title(): axes for axes in drawing.figure.axes if axes.get_title()}


def outlines(axes: Axes) -> dict[str, dict[float, float]]:
    """The histograms of a panel by name: the share of each bin that is not empty, by its middle."""
    found: dict[str, dict[float, float]] = {}
    for patch in axes.patches:
        assert isinstance(patch, StepPatch)
        values, edges, _ = patch.get_data()
        middles = (np.asarray(edges)[1:] + np.asarray(edges)[:-1]) / 2
        shares = {round(float(x), 6): float(y) for x, y in zip(middles, values, strict=True) if y}
        found[str(patch.get_label())] = shares
    return found


def row(*values: float) -> Tensor:
    """A convolution with these weights."""
    return torch.tensor(values).reshape(-1, 1, 1, 1)


# Histograms


def test_histograms_count_the_weights_of_each_width_and_of_the_server(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1, 0.2))
    low = {"conv": row(0.0, 0.0, 0.5, -0.25), "fc": spread(shape=(2, 3))}
    high = {"conv": row(0.125, 0.125, 0.125, 1.0), "fc": spread(shape=(2, 3))}
    keep_clients(path, 2, {0: ("int8", low), 1: ("int8", low), 2: ("float32", high), 3: ("float32", high)})
    keep_server(path, 2, {"conv": row(0.5, -0.5), "fc": spread(shape=(2, 3))})
    keep_server(path, 0, {"conv": row(0.0, 0.0)})
    found = panels(weights.histograms(only_group(path)))
    assert list(found) == ["fedavg, start", "fedavg, round 2"]
    assert outlines(found["fedavg, start"]) == {"server": {0.0: 1.0}}
    assert outlines(found["fedavg, round 2"]) == {
        "int8 clients": {-0.25: 0.25, 0.0: 0.5, 0.5: 0.25},
        "float32 clients": {0.125: 0.75, 1.0: 0.25},
        "server": {-0.5: 0.5, 0.5: 0.5},
    }


def test_weights_that_are_no_numbers_are_neither_counted_nor_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1))
    keep_server(path, 1, {"conv": row(math.nan, math.inf, 0.5, 0.5)})
    keep_clients(path, 1, dict.fromkeys((2, 3), ("float32", {"conv": row(math.nan, -math.inf)})))
    found = outlines(panels(weights.histograms(only_group(path)))["fedavg, round 1"])
    assert found == {"float32 clients": {}, "server": {0.5: 1.0}}
    assert list(panels(weights.distances(only_group(path)))) == ["fedavg"]


def test_the_samples_of_the_server_or_of_one_client_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1))
    keep_server(path, 1, {"conv": spread()})
    assert list(outlines(panels(weights.histograms(only_group(path)))["fedavg, round 1"])) == ["server"]
    keep_clients(path, 1, {0: ("int8", {"conv": spread()})})
    assert weights.distances(only_group(path)) is None, "one client has nobody to differ from"
    assert weights.blocks(only_group(path)) is None, "and there is no dequantizer"


def test_of_many_rounds_the_first_the_last_and_some_between_are_shown(tmp_path: Path) -> None:
    kept = [0, 1, 2, 5, 10, 20, 50]
    for method in ("fedavg", "prowd"):
        path = write(tmp_path / method, lines(0.1), method=method)
        for round_ in kept:
            keep_server(path, round_, {"conv": row(0.5)})
    titles = list(panels(weights.histograms(only_group(tmp_path))))
    rounds = ["start", "round 2", "round 10", "round 50"]
    assert titles == [f"{method}, {round_}" for method in ("fedavg", "prowd") for round_ in rounds]


# Blocks of φ


def stages(*middles: float) -> list[dict[str, Tensor]]:
    """A tensor after each block, each time at another value."""
    return [{"conv2": row(middle, middle)} for middle in middles]


def test_the_blocks_of_the_last_round_with_stages_are_shown_with_their_rungs(tmp_path: Path) -> None:
    write(tmp_path / "fedavg", lines(0.1))
    path = write(tmp_path / "prowd", lines(0.1), method="prowd", options={"ladder": "int2, int4, int8, int16, float32"})
    model = {"conv2": row(0.9)}
    keep_server(path, 1, model, stages(0, 0, 0, 0, 0), 1)
    keep_server(path, 2, model, stages(-0.5, -0.25, 0.0, 0.25, 0.5), 0)
    keep_server(path, 5, model)
    drawing = weights.blocks(only_group(tmp_path))
    found = {title: list(outlines(axes).values()) for title, axes in panels(drawing).items()}
    assert found == {
        "as received, int2": [{-0.5: 1.0}],
        "after φ to int4": [{-0.25: 1.0}],
        "after φ to int8": [{0.0: 1.0}],
        "after φ to int16": [{0.25: 1.0}],
        "after φ to float32": [{0.5: 1.0}],
    }


@pytest.mark.parametrize("options", [{}, {"ladder": "int8"}, "ladder", {"ladder": 3}], ids=str)
def test_without_a_ladder_blocks_are_numbered(options: object, tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1), method="mine", options=options)
    keep_server(path, 1, {"conv2": row(0.9)}, stages(0, 0), 3)
    assert list(panels(weights.blocks(only_group(path)))) == ["as received, 0", "after φ to 1"]


# Distances


def snapshots(clients: Sequence[Mapping[str, Tensor]], shapes: Mapping[str, Sequence[int]]) -> list[Snapshot]:
    """Clients with these samples of tensors of these shapes."""
    return [Snapshot(1, values, Bitwidth(32), shapes, number) for number, values in enumerate(clients)]


def test_a_layer_counts_by_its_whole_size() -> None:
    """Of 144 weights of the convolution 16 are kept: each stands for nine."""
    clients = [{"conv": spread(seed, (16,)), "fc": spread(seed + 9, (20,))} for seed in range(4)]
    found = cosine_distances(snapshots(clients, {"conv": (8, 2, 3, 3), "fc": (4, 5)}))
    whole = torch.stack([torch.cat([one["conv"].repeat(9), one["fc"]]) for one in clients])
    expected = 1 - torch.cosine_similarity(whole[:, None], whole[None], dim=2)
    assert found == pytest.approx(expected.numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ([1.0, 2.0], [-1.0, -2.0], 2),
        ([1.0, 2.0], [2.0, -1.0], 1),
        ([0.0, 0.0], [2.0, -1.0], 1),
        ([1.0, 2.0], [2.0, 4.0], 0),
        ([1.0, 2.0], [1.0, math.nan], math.nan),
        ([1.0, 2.0], [math.inf, 1.0], math.nan),
    ],
)
def test_distances_by_hand(first: list[float], second: list[float], distance: float) -> None:
    found = cosine_distances(snapshots([{"a": torch.tensor(first)}, {"a": torch.tensor(second)}], {"a": (2,)}))
    assert found[0, 1] == pytest.approx(distance, nan_ok=True)


def test_clients_are_compared_by_what_they_share() -> None:
    values = [
        {"a": torch.ones(2), "gain": torch.ones(1)},
        {"a": torch.ones(2)},
        {"b": torch.ones(9), "a": -torch.ones(2)},
    ]
    found = cosine_distances(snapshots(values, {"a": (2,), "b": (9,), "gain": (1,)}))
    assert np.round(found[0], 12).tolist() == [0, 0, 2]
    nothing = snapshots([values[0], {"b": torch.ones(9)}], {"a": (2,), "b": (9,)})
    assert cosine_distances(nothing).tolist() == [[1, 1], [1, 1]]


def test_a_matrix_for_every_method_from_its_last_round(tmp_path: Path) -> None:
    clients = "int8:1, float32:2, int8:1"
    for method, sign in (("fedavg", 1), ("prowd", -1)):
        path = write(tmp_path / method, lines(0.1, clients=clients), method=method, clients=clients)
        first, last = {"conv": row(0.5, 0.5)}, {"conv": row(0.5, -0.5 * sign)}
        keep_clients(path, 1, dict.fromkeys(range(4), ("float32", first)))
        widths = ("int8", "float32", "float32", "int8")
        keep_clients(path, 2, {c: (width, first if c % 2 else last) for c, width in enumerate(widths)})
    drawing = weights.distances(only_group(tmp_path))
    found = panels(drawing)
    assert list(found) == ["fedavg", "prowd"]
    for method, far in (("fedavg", 1), ("prowd", 0)):
        (image,) = found[method].images
        assert isinstance(image, AxesImage)
        matrix = np.asarray(image.get_array())
        assert np.round(matrix, 9).tolist() == [[far * ((one + two) % 2) for one in range(4)] for two in range(4)]
        assert image.get_clim() == (0, 1), "the same colours everywhere"
    assert drawing is not None
    assert "Clients in order: 1 int8, then 2 float32, then 1 int8." in drawing.caption


# Damage

FACTS = '{{"width": "{width}", "shapes": {shapes}}}'


def file_of(tensors: Mapping[str, Tensor], shapes: str, width: str = "float32") -> bytes:
    """A file of samples that says of itself what it likes."""
    return save(dict(tensors), {"facts": FACTS.format(width=width, shapes=shapes)})


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 100,
        save({"a": torch.ones(2)}),
        file_of({"a": torch.ones(2, 2)}, '{"a": [4]}'),
        file_of({"a": torch.ones(2)}, '{"a": [1]}'),
        file_of({"a": torch.ones(2)}, f'{{"a": [{10**400}]}}'),
        file_of({"a": torch.ones(2)}, '{"a": [2]}', width="int99"),
        file_of({"a": torch.ones(2)}, '{"b": [2]}'),
    ],
    ids=["noise", "no facts", "matrix", "too many", "huge", "width", "names"],
)
def test_damaged_samples_are_left_out(data: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1))
    (path / "snapshots").mkdir()
    for name in ("round-000001-client-0000", "round-000001-client-0001", "round-000001"):
        (path / "snapshots" / f"{name}.safetensors").write_bytes(data)
    group = only_group(path)
    assert (weights.histograms(group), weights.blocks(group), weights.distances(group)) == (None, None, None)


def test_beside_damaged_samples_the_sound_ones_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.1))
    keep_clients(path, 1, {c: ("int8", {"conv": spread(c)}) for c in (0, 1)})
    keep_server(path, 1, {"conv": spread()}, stages(0.5, 0.5), 0)
    for name in ("round-000001-client-0000", "round-000002-client-0001", "round-000002"):
        (path / "snapshots" / f"{name}.safetensors").write_bytes(b"")
    group = only_group(path)
    assert list(panels(weights.histograms(group))) == ["fedavg, round 1", "fedavg, round 2"]
    assert weights.distances(group) is None
    assert weights.blocks(group) is not None, "of the last round that can be read"
    (said,) = weights.unreadable(group)
    assert said.startswith("3 of 5 files of samples in ")
