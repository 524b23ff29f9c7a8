"""--track tensorboard: event files as TensorBoard itself reads them, beside what the runs wrote down."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
    TENSORS,
    EventAccumulator,
)
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout  # type: ignore[import-untyped]

from prowd.config.schema import load_config
from prowd.runs.read import read_record
from prowd.views.trackers.scalars import SECTIONS, Scalars
from tests.runs import (
    ask,
    config_file,
    expected,
    finish,
    outcome,
    start,
    summary,
    wait_for_rounds,
)

METHOD = {"method": "prowd", "clients": "int4:1, int8:1, float32:2", "options": {"dequantizer": {"module": 4}}}


def read(folder: Path) -> EventAccumulator:
    """All that a folder of event files holds."""
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, TENSORS: 0})
    return found.Reload()


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """All scalars, by tag and round."""
    found = read(folder)
    events = {tag: found.Scalars(tag) for tag in found.Tags()["scalars"]}
    for tag, curve in events.items():
        assert [one.step for one in curve] == sorted({one.step for one in curve}), tag
    return {tag: {one.step: one.value for one in curve} for tag, curve in events.items()}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with event files, and what was printed."""
    folder = tmp_path_factory.mktemp("made")
    source = config_file(folder, **METHOD)
    done = ask("run", source, "--track", "tensorboard", "--out", "my run", "--workers", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder / "my run", done.stdout


def test_a_run_tells_how_to_look_at_it(made: tuple[Path, str]) -> None:
    assert made[1].endswith("\ntensorboard --logdir 'my run/tensorboard'\n")
    assert len(list((made[0] / "tensorboard").iterdir())) == 1


def test_event_files_say_what_the_rounds_say(made: tuple[Path, str]) -> None:
    path, _ = made
    found, scalars = curves(path / "tensorboard"), Scalars(load_config(path / "config.toml").clients)
    said = {report.round: scalars.of(report) for report in read_record(path).lines}
    assert {"phi/recon", "zeros · int4/conv1.weight", "drift/fc1.weight", "masks · kept/fc1.weight"} <= set(found)
    assert set(found) == {tag for one in said.values() for tag in one}
    for tag, curve in found.items():
        assert curve == pytest.approx({number: one[tag] for number, one in said.items() if tag in one}), tag
    for when, section in (("trained", "accuracy after training"), ("received", "accuracy as received")):
        assert found[f"{section}/average"][3] == pytest.approx(summary(path)["average_accuracy"][when])


def test_times_are_those_of_the_rounds(made: tuple[Path, str]) -> None:
    path, _ = made
    times = [one.wall_time for one in read(path / "tensorboard").Scalars("round/seconds")]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps == pytest.approx([line["seconds"] for line in lines(path)[1:]], abs=1e-3)


def test_the_configuration_and_the_layout_are_there(made: tuple[Path, str]) -> None:
    path, _ = made
    found = read(path / "tensorboard")
    (text,) = found.Tensors("configuration/text_summary")
    shown = text.tensor_proto.string_val[0].decode()
    config = (path / "config.toml").read_text("utf-8")
    assert [line.removeprefix("    ") for line in shown.splitlines()] == config.splitlines()
    (layout,) = found.Tensors("custom_scalars__config__")
    groups = Layout.FromString(layout.tensor_proto.string_val[0]).category
    assert {chart.title for group in groups for chart in group.chart} == {*SECTIONS} - {
        "round",
        "own accuracy by client",
        "balanced accuracy",
    }
    for chart in (chart for group in groups for chart in group.chart):
        (tag,) = chart.multiline.tag
        shared = [one for one in found.Tags()["scalars"] if re.match(tag, one)]
        assert len(shared) > 1, chart.title
        assert {one.partition("/")[0] for one in shared} == {chart.title}


def test_the_results_are_the_same_without(made: tuple[Path, str], tmp_path: Path) -> None:
    source = config_file(tmp_path, **METHOD)
    assert ask("run", source, "--out", "run", "--workers", "1", cwd=tmp_path).returncode == 0
    assert outcome(made[0]) == outcome(tmp_path / "run")
    assert not (tmp_path / "run" / "tensorboard").exists()


@pytest.mark.parametrize("before", [["--track", "tensorboard"], []], ids=["with", "without"])
def test_a_resumed_run_looks_as_if_never_stopped(before: list[str], made: tuple[Path, str], tmp_path: Path) -> None:
    source = config_file(tmp_path, **METHOD)
    first = ask("run", source, "-s", "rounds=1", *before, "--out", "run", "--workers", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    board = tmp_path / "run" / "tensorboard"
    old = set(board.iterdir()) if before else set()
    for again in (["-s", "rounds=3"], []):  # the second time there is nothing left to run
        done = ask("run", "--resume", "run", *again, "--track", "tensorboard", "--workers", "1", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (new,) = board.iterdir()
        assert new not in old
        straight, resumed = curves(made[0] / "tensorboard"), curves(board)
        assert list(resumed) == list(straight)
        assert list(resumed.pop("round/seconds")) == [1, 2, 3]
        straight.pop("round/seconds")
        assert resumed == straight
        times = [one.wall_time for one in read(board).Scalars("round/seconds")]
        assert times == sorted(times)
        old.add(new)
    assert load_config(tmp_path / "run" / "config.toml").rounds == 3


def test_a_stopped_run_has_its_rounds_and_tells_how_to_go_on(tmp_path: Path) -> None:
    source, run = config_file(tmp_path, rounds=10_000), tmp_path / "run"
    process = start("run", source, "--track", "tensorboard", "--out", "run", "--workers", "1", cwd=tmp_path)
    wait_for_rounds(run, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = finish(process)
    assert (process.returncode, err) == (130, "")
    assert out.endswith("Continue with: prowd run --resume run --track tensorboard\n")
    written = list(curves(run / "tensorboard")["round/seconds"])
    assert written in ([line["round"] for line in rounds] for rounds in (lines(run), lines(run)[:-1]))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, one of them made before anybody thought of TensorBoard."""
    folder = tmp_path_factory.mktemp("compared")
    source = config_file(folder)
    arguments = ["compare", str(source), "--seeds", "0", "--workers", "1", "--out", "both"]
    done = ask(*arguments, "--methods", "fedavg", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (folder / "both" / "tensorboard").exists()
    done = ask(*arguments, "--methods", "fedavg,local", "--track", "tensorboard", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\ntensorboard --logdir both/tensorboard\n")
    kept = sorted((folder / "both" / "tensorboard").rglob("events*"))
    assert ask(*arguments, "--methods", "fedavg,local", "--track", "tensorboard", cwd=folder).returncode == 0
    assert sorted((folder / "both" / "tensorboard").rglob("events*")) == kept, "they need not be written again"
    return folder / "both"


def test_a_comparison_has_a_folder_for_each_run(compared: Path) -> None:
    assert sorted(path.name for path in (compared / "tensorboard").iterdir()) == ["fedavg-seed0", "local-seed0"]
    for method in ("fedavg", "local"):
        run = compared / f"{method}-seed0"
        assert not (run / "tensorboard").exists()
        assert outcome(run) == expected(method=method, seed=0)
        found = curves(compared / "tensorboard" / run.name)
        assert found["loss/int8"] == pytest.approx({line["round"]: line["loss"]["int8"] for line in lines(run)})
        average = summary(run)["average_accuracy"]["trained"]
        assert found["accuracy after training/average"][3] == pytest.approx(average)
