"""A report from begin to end: its files, the same bytes every time, and every odd run there can be."""

from __future__ import annotations

import json
import math
import re
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from prowd.errors import RunError
from prowd.methods import METHODS
from prowd.numbers.bits import parse_mix
from prowd.views.report import Report, make_report, weights, whole
from prowd.views.report.charts import accuracy_curves
from prowd.views.report.groups import gather
from prowd.views.report.style import Drawing, save, styled

from .directories import (
    absent,
    keep_clients,
    keep_server,
    line,
    lines,
    only_group,
    quick_report,
    spread,
    write,
)

HALVES = "int8:5, float32:5"
NAMES = ["accuracy-megabytes", "accuracy-rounds", "fig2-weights", "fig6-dequantizer", "fig7-distances"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The whole report of two methods on the paper's data, and of a run that has not begun and has a nasty name."""
    folder = tmp_path_factory.mktemp("made")
    missing = [line(1, {"int8": 0.5, "float32": 0.6}, lost=[absent(1)]), *lines(0.6, 0.7, clients=HALVES)[1:]]
    settings: dict[str, Any] = {"name": "my run+1.5", "clients": HALVES, "data": "cifar10", "width": 0.125}
    write(folder / "x" / "my run+1.5", missing, **settings)
    path = write(folder / "y" / "my run+1.5", missing, **settings, method="prowd", options={"ladder": "int2, float32"})
    keep_clients(path, 2, {c: (width, {"conv": spread(c)}) for c, width in ((0, "int8"), (1, "int8"), (5, "float32"))})
    keep_server(path, 2, {"conv": spread(3)}, [{"conv": spread(4)}, {"conv": spread(5)}], 0)
    write(folder / "z", [], rounds=3, name="../../up/\x00.. ", finished=False)
    return make_report([folder], folder / "report")


def test_every_figure_is_there_in_every_format(made: Report) -> None:
    out = made.page.parent
    figures = sorted(path.name for path in (out / "figures" / "1-my run+1.5").iterdir())
    assert figures == sorted(f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "pdf"))
    assert sorted(made.files) == sorted(path for path in out.rglob("*") if path.is_file() and path != made.page)


def test_names_of_runs_do_not_lead_out_of_the_report(made: Report) -> None:
    out = made.page.parent
    assert sorted(path.name for path in (out / "figures").iterdir()) == ["1-my run+1.5", "2-.._.._up__"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["report", "x", "y", "z"]
    assert sorted(path.name for path in out.iterdir()) == ["figures", "index.html", "tables"]


def test_the_tables_of_the_paper_are_beside_ours(made: Report) -> None:
    tables = {path.name: path.read_text("utf-8") for path in made.files if path.parent.parent.name == "tables"}
    assert sorted(tables) == [f"table1-50-50.{kind}" for kind in ("csv", "md", "tex")]
    assert re.search(r"\| prowd +\| 70\.00 \| 82\.87 ± 0\.37 \|", tables["table1-50-50.md"])
    assert "width 0.125 instead of 1.0" in tables["table1-50-50.md"], "what is not as in the paper"
    assert "50 % Int8 and 50 % Float32 clients, with ours" in made.page.read_text("utf-8")


@pytest.mark.parametrize(
    "settings", [{"data": "digits"}, {"validation": 10}, {"clients": "int8:3, float32:1"}], ids=str
)
def test_another_federation_is_not_set_beside_the_paper(settings: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.5), **{"data": "cifar10", "clients": HALVES, **settings})
    assert "with ours" not in text_of(quick_report([path], tmp_path / "out"))


def test_the_page_links_to_every_figure(made: Report) -> None:
    links = re.findall(r'<a href="(figures/[^"]+)"', made.page.read_text("utf-8"))
    figures = [path for path in made.files if "figures" in path.parts]
    found = [made.page.parent / link.replace("%20", " ").replace("%2B", "+") for link in links]
    assert sorted(found) == sorted(figures)


def test_the_same_runs_give_the_same_bytes(made: Report, tmp_path: Path) -> None:
    group = gather([made.page.parent.parent / "x", made.page.parent.parent / "y"])[0][0]
    with styled():
        drawings = [accuracy_curves(group, "rounds"), weights.blocks(group), weights.distances(group)]
        again = [path for drawing in drawings if drawing for path in save(drawing, tmp_path)]
    assert len(again) == 9
    for path in again:
        (first,) = [one for one in made.files if one.name == path.name]
        assert first.read_bytes() == path.read_bytes(), path.name


# The largest there is


def sizes(drawing: Drawing) -> list[tuple[float, float]]:
    """How wide and how high each panel is, in inches."""
    wide, high = drawing.figure.get_size_inches()
    boxes = [axes.get_position() for axes in drawing.figure.axes if axes.get_label() != "<colorbar>"]
    return [(box.width * wide, box.height * high) for box in boxes]


def test_all_methods_with_four_widths_and_64_clients_are_drawn(tmp_path: Path) -> None:
    """Warnings are errors: none of panels that collapse, of empty legends or of numbers that are none."""
    clients = "int6:16, int8:16, int12:16, int16:16"
    widths = list(map(str, parse_mix(clients)))
    rounds = lines(0.1, 0.5, 0.7, clients=clients)
    sampled = write(tmp_path / "samples", rounds)
    keep_clients(sampled, 3, {c: (width, {"conv": spread(c)}) for c, width in enumerate(widths)})
    keep_server(sampled, 0, {"conv": spread(3)})
    keep_server(sampled, 3, {"conv": spread(3)}, [{"conv": spread(c)} for c in range(5)], 0)
    runs = tmp_path / "runs"
    for method in METHODS:
        for seed in range(3):
            write(runs / f"{method}-{seed}", rounds, method=method, seed=seed, clients=clients)
        shutil.copytree(sampled / "snapshots", runs / f"{method}-0" / "snapshots")
    rounds[1]["clients"]["lost"] = [absent(client, widths[client]) for client in range(64)]
    write(runs / "prowd-2", rounds, method="prowd", seed=2, clients=clients)
    group = only_group(runs)
    assert len(group.rows) == len(METHODS) >= 11
    with styled():
        found = {drawing.name: drawing for part in whole._parts(group) for drawing in part.drawings}
    assert sorted(found) == NAMES
    for name, drawing in found.items():
        assert drawing.figure.get_figwidth() <= 10
        assert min(chain.from_iterable(sizes(drawing))) > 0.5, name


# Odd runs: with empty frames for figures, which others have drawn


def text_of(report: Report) -> str:
    """What can be read on the page."""
    page = re.sub(r"<(script|style)>.*?</\1>", "", report.page.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_a_run_without_rounds(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [], rounds=3, finished=False)
    shown = text_of(quick_report([path], tmp_path / "out"))
    assert "no round is finished yet" in shown
    assert "No accuracy has been measured yet." in shown
    assert "No samples of weights were kept." in shown


def test_a_run_whose_training_diverged(tmp_path: Path) -> None:
    rounds = [
        line(1, {"int8": 0.5, "float32": 0.5}, loss={"int8": math.nan, "float32": math.inf}),
        line(2, {"int8": math.nan, "float32": math.nan}),
    ]
    path = write(tmp_path / "a", rounds)
    write(tmp_path / "b", rounds, seed=1)
    keep_server(path, 2, {"conv": spread() * math.nan})
    keep_clients(path, 2, dict.fromkeys((2, 3), ("float32", {"conv": spread() * math.nan})))
    shown = text_of(quick_report([tmp_path], tmp_path / "out"))
    assert "50.00 ± 0.00 % over all clients in 2 rounds" in shown
    assert not re.search(r"\b(nan|inf)\b", shown, flags=re.IGNORECASE)


def test_a_run_on_flower(tmp_path: Path) -> None:
    devices = [{"client": 0, "node": "77", "seconds": 1.5, "status": "ok"}]
    path = write(tmp_path / "a", [line(1, {"int8": 0.5, "float32": 0.5}, devices=devices, asked=2)])
    (path / "devices.json").write_text(json.dumps({"format": 1, "run": "r", "devices": []}))
    keep_server(path, 1, {"conv": spread()})
    shown = text_of(quick_report([path], tmp_path / "out"))
    assert "Every client that was asked (2 times in all) took part" in shown
    assert "The weights of real devices stay there" in shown
    assert "No samples of weights" not in shown


def test_an_older_run_without_anything_new(tmp_path: Path) -> None:
    made = lines(0.5, 0.6)
    for one in made:
        del one["bytes"]["clients"], one["clients"], one["notes"], one["seconds"], one["loss"]
    path = write(tmp_path / "a", made, options=None, uplink=None, version="0.1.0", sessions=[])
    report = quick_report([path], tmp_path / "out")
    shown = text_of(report)
    assert "an older version of prowd did" in shown
    assert "60.00 %" in shown


@pytest.mark.parametrize(
    "settings", [{"options": "all"}, {"options": [1]}, {"lowbit": 3}, {"clients": 5}, {"data": []}]
)
def test_settings_of_another_kind(settings: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "a", lines(0.5), **settings)
    assert "50.00 %" in text_of(quick_report([tmp_path], tmp_path / "out"))


# Errors


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_report_in_the_place_of_a_file(place: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.5))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"the report cannot be written to .*file.*; name another --out"):
        quick_report([path], tmp_path / place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_new_report_leaves_no_figure_of_the_former(tmp_path: Path) -> None:
    path = write(tmp_path / "a", lines(0.5))
    stranger = tmp_path / "mine"
    (stranger / "figures").mkdir(parents=True)
    (stranger / "figures" / "holiday.png").write_bytes(b"")
    make_report([path], stranger, files=False)
    assert (stranger / "figures" / "holiday.png").exists(), "what is not ours is left alone"
    out = tmp_path / "out"
    make_report([path], out, files=False)
    (out / "figures").mkdir()
    make_report([path], out, files=False)
    assert not (out / "figures").exists()
