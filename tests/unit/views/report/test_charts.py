"""What the charts show is what rounds.jsonl says: every line is compared with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection

from prowd.views.report import charts
from prowd.views.report.groups import Group
from prowd.views.report.style import Drawing, look

from .directories import line, lines, only_group, write

pytestmark = pytest.mark.usefixtures("unrendered_figures")


def panels(drawing: Drawing | None) -> list[Axes]:
    """The panels of a figure that there is."""
    assert drawing is not None
    return [axes for axes in drawing.figure.axes if axes.axison]


def points(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """The points of every line, by its name."""
    found = {str(drawn.get_label()): np.asarray(drawn.get_xydata()) for drawn in axes.get_lines()}
    return {label: [(round(float(x), 9), round(float(y), 9)) for x, y in values] for label, values in found.items()}


def legend(drawing: Drawing | None) -> list[str]:
    """The names in the legend below."""
    assert drawing is not None
    return [text.get_text() for one in drawing.figure.legends for text in one.get_texts()]


def two_methods(folder: Path, seeds: int = 1) -> Group:
    """FedAvg from 20 to 40 %, ProWD from 30 to 60 % (Int8) and 50 to 80 % (Float32); a MB a round each way."""
    moved = {"int8": 10**6 // 2, "float32": 10**6 // 2}
    for seed in range(seeds):
        more = 0.01 * seed
        write(
            folder / f"fedavg-{seed}",
            [line(n, {"int8": 0.2 * n + more, "float32": 0.2 * n + more}, up=moved, down=moved) for n in (1, 2)],
            seed=seed,
        )
        write(
            folder / f"prowd-{seed}",
            [line(n, {"int8": 0.3 * n + more, "float32": 0.2 + 0.3 * n + more}, up=moved, down=moved) for n in (1, 2)],
            seed=seed,
            method="prowd",
        )
    return only_group(folder)


@pytest.mark.parametrize(("against", "places"), [("rounds", (1, 2)), ("megabytes", (2, 4))])
def test_curves_per_width_and_of_all_clients(against: str, places: tuple[int, int], tmp_path: Path) -> None:
    drawing = charts.accuracy_curves(two_methods(tmp_path), against)
    int8, float32, average = panels(drawing)
    assert [axes.get_title() for axes in (int8, float32, average)] == ["int8", "float32", "all clients"]
    assert legend(drawing) == ["fedavg", "prowd"]
    for axes, values in ((int8, (30, 60)), (float32, (50, 80)), (average, (40, 70))):
        assert points(axes)["prowd"] == list(zip(places, values, strict=True))
        assert points(axes)["fedavg"] == list(zip(places, (20, 40), strict=True))


def test_a_method_that_sends_nothing_is_a_level_line(tmp_path: Path) -> None:
    two_methods(tmp_path)
    write(tmp_path / "local", lines(0.1, 0.55, sent=20), method="local")
    drawing = charts.accuracy_curves(only_group(tmp_path), "megabytes")
    for axes in panels(drawing):
        assert points(axes)["local"] == [(0, 55), (1, 55)], "across the whole panel"
        assert len(points(axes)["prowd"]) == 2
    assert drawing is not None
    assert "level line" in drawing.caption
    *_, axes = panels(charts.accuracy_curves(only_group(tmp_path), "rounds"))
    assert points(axes)["local"] == [(1, 10), (2, 55)]


def test_of_a_single_run_the_models_as_received_are_shown_too(tmp_path: Path) -> None:
    rounds = [line(n, {"int8": 0.5, "float32": 0.7}, received={"int8": 0.1 * n, "float32": 0.3 * n}) for n in (1, 2)]
    group = only_group(write(tmp_path / "a", rounds))
    int8, float32, axes = panels(charts.accuracy_curves(group, "rounds"))
    assert points(int8) == {
        "fedavg": [(1, 50), (2, 50)],
        "as received": [(1, 10), (2, 20)],
    }
    assert points(float32)["as received"] == [(1, 30), (2, 60)]
    assert points(axes)["as received"] == [(1, 20), (2, 40)]


@pytest.mark.parametrize("seeds", [2, 3])
def test_bands_are_drawn_from_three_seeds_on(seeds: int, tmp_path: Path) -> None:
    drawing = charts.accuracy_curves(two_methods(tmp_path, seeds), "rounds")
    axes = panels(drawing)[-1]
    bands = [one for one in axes.collections if isinstance(one, FillBetweenPolyCollection)]
    assert len(bands) == (2 if seeds == 3 else 0)
    if bands:
        corners = bands[0].get_paths()[0].vertices
        assert isinstance(corners, np.ndarray)
        half = 4.302653 * 1.0 / math.sqrt(3)  # t of two degrees of freedom; 20, 21 and 22 % in round 1
        assert corners[:, 1].min() == pytest.approx(21 - half, abs=1e-4)


def test_rounds_that_did_not_measure_leave_no_point(tmp_path: Path) -> None:
    rounds = [line(1, {"int8": 0.1, "float32": 0.1}), line(2, {}), line(3, {"int8": 0.3}), *lines(0, 0, 0, 0.4)[3:]]
    rounds[1]["accuracy"]["trained"] = {"int8": math.nan, "float32": math.nan}
    group = only_group(write(tmp_path / "a", rounds))
    int8, float32, axes = panels(charts.accuracy_curves(group, "rounds"))
    assert points(int8)["fedavg"] == [(1, 10), (3, 30), (4, 40)]
    assert points(float32)["fedavg"] == [(1, 10), (4, 40)]
    assert points(axes)["fedavg"] == [(1, 10), (4, 40)], "an average is of all widths"


def test_a_name_that_begins_with_an_underscore_is_in_the_legend(tmp_path: Path) -> None:
    for method in ("_mine", "_yours", "local"):
        write(tmp_path / method, lines(0.5, sent=10 if method == "local" else 1000), method=method)
    group = only_group(tmp_path)
    for drawing in (charts.accuracy_curves(group, against) for against in ("rounds", "megabytes")):
        assert [text.strip() for text in legend(drawing)] == ["local", "_mine", "_yours"]


@pytest.mark.parametrize("made", [[], [line(1, {})]], ids=["no rounds", "no accuracy"])
def test_without_anything_measured_there_is_no_figure(made: list[dict[str, Any]], tmp_path: Path) -> None:
    group = only_group(write(tmp_path / "a", made, clients="many", rounds=3, finished=False))
    assert charts.accuracy_curves(group, "rounds") is None
    assert charts.accuracy_curves(group, "megabytes") is None


def test_no_two_series_look_alike() -> None:
    looks = {(*map(str, look(n).values()), charts.MARKS[n % len(charts.MARKS)]) for n in range(24)}
    assert len(looks) == 24
