"""What the page's script is handed: the numbers of rounds.jsonl, and nothing that a browser could run."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prowd.comparison import Estimate
from prowd.views.report import charts
from prowd.views.report.followed import followed
from prowd.views.report.groups import Curve
from prowd.views.report.live import MOST_POINTS, Chart, Line, Panel, look_of
from prowd.views.report.page import LIMIT

from .directories import line, only_group, quick_report, write

pytestmark = pytest.mark.usefixtures("unrendered_figures")
PACKAGE = resources.files("prowd.views.report")
HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 ' \" \\"


def panels(chart: Chart | None) -> dict[str, dict[str, dict[str, Any]]]:
    """Lines by panel and name, as the script reads them."""
    assert chart is not None
    found = json.loads(chart.data())
    return {panel["title"]: {line["name"]: line for line in panel["lines"]} for panel in found}


def three_seeds(folder: Path) -> None:
    """FedAvg over three seeds at 20, 21 and 22 %, then twice that; ProWD once. A MB a round each way and width."""
    moved = {"int8": 10**6, "float32": 10**6}
    for method, seeds in (("fedavg", 3), ("prowd", 1)):
        for seed in range(seeds):
            share = 0.2 + 0.01 * seed
            rounds = [line(n, {"int8": share * n, "float32": share * n}, up=moved, down=moved) for n in (1, 2)]
            write(folder / f"{method}-{seed}", rounds, method=method, seed=seed)


def test_lines_are_means_with_half_their_interval_by_round_and_megabyte(tmp_path: Path) -> None:
    three_seeds(tmp_path)
    drawing = charts.accuracy_curves(only_group(tmp_path), "rounds")
    assert drawing is not None
    found = panels(drawing.live)
    assert list(found) == ["int8", "float32", "all clients"]
    fedavg, prowd = found["int8"]["fedavg"], found["int8"]["prowd"]
    assert (fedavg["round"], fedavg["mb"], fedavg["mean"]) == ([1, 2], [4.0, 8.0], [21.0, 42.0])
    half = 4.302653 / math.sqrt(3)  # t of two degrees of freedom; a standard deviation of 1 and of 2
    assert fedavg["half"] == pytest.approx([half, 2 * half], rel=1e-5)
    assert (fedavg["seeds"], prowd["seeds"], prowd["half"]) == (3, 1, None)
    assert [line["colour"] for line in found["int8"].values()] == [0, 1]


def test_the_figure_for_paper_and_the_script_have_the_same_numbers(tmp_path: Path) -> None:
    three_seeds(tmp_path)
    for against in ("rounds", "megabytes"):
        drawing = charts.accuracy_curves(only_group(tmp_path), against)
        assert drawing is not None
        for axes in drawing.figure.axes:
            for drawn in axes.get_lines():
                handed = panels(drawing.live)[axes.get_title()][str(drawn.get_label())]
                places = handed["round" if against == "rounds" else "mb"]
                xs, ys = np.asarray(drawn.get_xydata()).T.tolist()
                assert (xs, ys) == (pytest.approx(places), pytest.approx(handed["mean"]))


def test_hostile_names_stay_text() -> None:
    curve = Curve([1], [0.1], [Estimate(1.0, None, 1)])
    chart = Chart([Panel(HOSTILE, [Line(HOSTILE, 0, curve)])])
    text = chart.data()
    assert not set("<>&\u2028") & set(text)
    assert list(panels(chart)) == list(panels(chart)[HOSTILE]) == [HOSTILE]


def test_what_is_no_number_is_none_and_a_line_without_points_is_left_out() -> None:
    values = [Estimate(math.nan, math.inf, 2), Estimate(12.34567891, 0.5, 2)]
    chart = Chart(
        [Panel("int8", [Line("a", 0, Curve([1, 2], [math.inf, 2.0], values)), Line("b", 1, Curve([], [], []))])]
    )
    (found,) = panels(chart)["int8"].values()
    assert (found["mean"], found["half"], found["mb"]) == ([None, 12.3457], [None, 0.5], [None, 2.0])


def test_of_very_many_rounds_some_are_kept_the_first_and_the_last_among_them() -> None:
    count = 10 * MOST_POINTS
    curve = Curve(list(range(1, count + 1)), [0.0] * count, [Estimate(float(n), None, 1) for n in range(count)])
    found = panels(Chart([Panel("int8", [Line("a", 0, curve)])]))["int8"]["a"]
    assert (len(found["round"]), found["round"][0], found["round"][-1]) == (MOST_POINTS, 1, count)
    assert all(mean == number - 1 for mean, number in zip(found["mean"], found["round"], strict=True))


def test_no_two_of_24_lines_look_alike_but_for_their_markers() -> None:
    assert len({look_of(number) for number in range(8)}) == 8
    assert all(look_of(number) != look_of(number + 8) for number in range(16))


def test_masks_are_means_over_the_tensors(tmp_path: Path) -> None:
    def noted(number: int, *kept: float) -> dict[str, Any]:
        masks = {f"conv{n}": {"kept": one, "cosine_before": -0.5, "cosine_after": "?"} for n, one in enumerate(kept)}
        return {**line(number, {"int8": 0.5}), "notes": {"masks": masks}}

    write(tmp_path / "a", [noted(1), noted(2, 0.2, 0.4), noted(3, 0.5, math.nan)], method="prowd")
    drawing = charts.mask_curves(only_group(tmp_path))
    assert drawing is not None
    found = panels(drawing.live)
    assert list(found) == ["share that is kept", "cosine before the mask"], "words are no cosine"
    kept = found["share that is kept"]["prowd"]
    assert (kept["round"], kept["mean"]) == ([2], [pytest.approx(0.3)]), "nothing but whole means"
    write(tmp_path / "b", [line(1, {"int8": 0.5})])
    assert charts.mask_curves(only_group(tmp_path / "b")) is None


def test_a_person_is_followed_over_the_seeds_in_which_they_are_measured(tmp_path: Path) -> None:
    for seed, people in ((0, {"3": 0.2, "10": 0.5}), (1, {"10": 0.7})):
        widths = {"int8": people, "float32": people}
        rounds = [line(n, {}, accuracy={"people": widths}) for n in (1, 2)]
        write(tmp_path / f"run-{seed}", rounds, seed=seed)
    group = only_group(tmp_path)
    chart = followed(group, "people")
    found = panels(chart)
    assert chart is not None
    assert chart.chosen_by == "person"
    assert list(found) == ["person 3", "person 10"], "in the order of numbers"
    assert (found["person 3"]["fedavg"]["mean"], found["person 3"]["fedavg"]["seeds"]) == ([20.0, 20.0], 1)
    assert (found["person 10"]["fedavg"]["mean"], found["person 10"]["fedavg"]["seeds"]) == ([60.0, 60.0], 2)
    assert followed(group, "own") is None


def test_two_charts_of_the_same_lines_share_them(tmp_path: Path) -> None:
    three_seeds(tmp_path)
    text = quick_report([tmp_path], tmp_path / "report").page.read_text("utf-8")
    assert text.count('data-lines="lines-0"') == 2
    assert text.count('type="application/json"') == 1


# The library


def test_the_library_is_what_its_package_has() -> None:
    origin = tomllib.loads((PACKAGE / "vendor/uplot/origin.toml").read_text("utf-8"))
    for name, digest in origin["files"].items():
        assert hashlib.sha256((PACKAGE / "vendor/uplot" / name).read_bytes()).hexdigest() == digest, name
    assert f"(v{origin['version']})" in (PACKAGE / "vendor/uplot/uPlot.iife.min.js").read_text("utf-8")


def test_the_page_has_the_licence_of_the_library_and_nothing_that_ends_its_script(tmp_path: Path) -> None:
    text = quick_report([write(tmp_path / "a", [line(1, {"int8": 0.5})])], tmp_path / "report").page.read_text("utf-8")
    for words in ("Copyright (c) 2022 Leon Sorokin", "THE SOFTWARE IS PROVIDED"):
        assert words in text
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    assert "matchMedia" in script
    assert script.rstrip().endswith("})();")
    assert "<!--" not in script


def test_the_library_is_in_the_wheel() -> None:
    root = Path(__file__).parents[4]
    data = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]["prowd"]
    package = root / "src/prowd"
    packed = {path for pattern in data for path in package.glob(pattern)}
    for folder in ("templates", "vendor/uplot"):
        files = set((package / "views/report" / folder).iterdir())
        assert files, folder
        assert files <= packed, f"pyproject.toml leaves out some of {folder}"


# Its size


def test_a_page_that_would_be_too_large_leaves_out_the_figures_that_its_script_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_seeds(tmp_path)
    assert LIMIT == 1_500_000
    whole = quick_report([tmp_path], tmp_path / "report").page.read_text("utf-8")
    monkeypatch.setattr("prowd.views.report.page.LIMIT", len(whole) - 1)
    small = quick_report([tmp_path], tmp_path / "report").page.read_text("utf-8")
    assert (whole.count("<svg>"), small.count("<svg>")) == (2, 0)
    assert small.count("<noscript>") == 2


def test_if_that_is_not_enough_points_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", [line(n, {"int8": 0.5, "float32": 0.5}) for n in range(1, 301)])
    monkeypatch.setattr("prowd.views.report.page.LIMIT", 1)
    text = quick_report([tmp_path], tmp_path / "report").page.read_text("utf-8")
    panels = json.loads(text.partition('type="application/json" id="lines-0">')[2].partition("</script>")[0])
    assert {len(one["round"]) for panel in panels for one in panel["lines"]} == {100}


def test_in_the_page_a_figure_of_many_rounds_has_fewer_points_than_its_files(tmp_path: Path) -> None:
    write(tmp_path / "a", [line(n, {"int8": n / 400}) for n in range(1, 401)], clients="int8:1")
    drawing = charts.accuracy_curves(only_group(tmp_path), "rounds")
    assert drawing is not None
    assert drawing.small is not None
    counts = [len(np.asarray(figure.axes[0].get_lines()[0].get_xydata())) for figure in (drawing.figure, drawing.small)]
    assert counts == [400, charts.MOST_ON_PAGE]
