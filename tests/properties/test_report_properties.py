"""Whatever a run directory holds: its report is made, or it is said in a sentence why not."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from prowd.errors import ProwdError
from prowd.views.report import Report, weights
from prowd.views.report.weights import Samples, cosine_distances
from tests.properties.test_fuzzing import SPLICES, spliced
from tests.unit.views.report.directories import (
    SESSION,
    absent,
    keep_clients,
    keep_server,
    line,
    only_group,
    quick_report,
    spread,
    unrendered,
    write,
)

FEW = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
MORE = settings(FEW, max_examples=14)
MANY = settings(FEW, max_examples=60)  # of what draws nothing

CONFIG: dict[str, Any] = {
    "name": "hand", "seed": 0, "method": "prowd", "clients": "int8:1, float32:1", "rounds": 2, "data": "digits",
    "uplink": "ternary", "cohort": "all", "lowbit": {"rate": 1.0}, "options": {"ladder": "int2, float32", "tau": 0.5},
}  # fmt: skip
LINE = line(
    2, {"int8": 0.5, "float32": 0.6}, up={"int8": 10}, down={"float32": 20}, clients={0: (10, 0), 1: (0, 20)}, asked=2,
    lost=[absent(1, "float32", attempt=1)], refused=[absent(0)],
)  # fmt: skip
SUMMARY: dict[str, Any] = {"method": "prowd", "rounds": 2, "weights_sha256": "00"}
SESSIONS: dict[str, Any] = {"sessions": [SESSION]}
PLAN: dict[str, Any] = {
    "runs": [{"folder": "a", "method": "prowd", "seed": 0}], "baseline": "prowd", "failures": {"b": "no power"},
}  # fmt: skip
FILES = ["a/config.toml", "a/rounds.jsonl", "a/summary.json", "a/provenance.json", "comparison.json"]
SAMPLES = ["round-000002.safetensors", "round-000002-client-0001.safetensors"]

HUGE = 10**400
NUMBERS = st.sampled_from([HUGE, -HUGE, 2**63, -1, 0, 0.5, 1e308, float("nan"), float("-inf")]) | st.integers()
WORDS = st.sampled_from(["", "int8", "float32", "int99", "a\ud800", "\x00", "$x_{", "../..", "_", "日本", "x" * 300])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | WORDS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of one run, sound and whole, but without samples of weights."""
    path = tmp_path_factory.mktemp("sound")
    write(path / "a", [{**LINE, "round": 1}, LINE], sessions=[SESSION], **CONFIG)
    (path / "comparison.json").write_text(json.dumps(PLAN), "utf-8")
    return path


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with samples of weights."""
    run = write(tmp_path_factory.mktemp("sampled") / "a", [{**LINE, "round": 1}, LINE], **CONFIG)
    keep_clients(run, 2, {c: (w, {"conv": spread(c)}) for c, w in ((0, "int8"), (1, "float32"))})
    keep_server(run, 2, {"conv": spread(2)}, [{"conv": spread(3)}, {"conv": spread(4)}], 0)
    return run


@contextlib.contextmanager
def holding(path: Path, data: bytes) -> Iterator[None]:
    """Other contents of a file, for a while."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def report(folder: Path, file: str, data: bytes) -> Report | None:
    """The report with other contents of a file; None where it is refused in words."""
    with holding(folder / file, data), contextlib.suppress(ProwdError):
        made = quick_report([folder], folder / "report")
        made.page.read_text("utf-8")
        return made
    return None


def places(value: object, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(place for key, found in inner for place in places(found, (*here, key)))]


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A document with something else in one of its places."""
    place, value = draw(st.sampled_from(places(document))), draw(VALUES)
    if not place:
        return value
    made = copy.deepcopy(document)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return made


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def test_the_sound_run_has_everything(folder: Path) -> None:
    made = report(folder, "comparison.json", dumped(PLAN))
    assert made is not None
    assert made.problems == [f"{folder / 'b'} failed: no power"]
    assert made.groups[0].baseline == "prowd"
    text = made.page.read_text("utf-8")
    assert (text.count("<figure>"), "55.00 %" in text) == (2, True)


@FEW
@given(st.sampled_from(FILES), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example("a/rounds.jsonl", b"")
@example("a/summary.json", b"[" * 100_000)
@example("a/provenance.json", b"[" * 100_000)
@example("a/config.toml", b"a = " + b"[" * 3000)
def test_any_bytes(folder: Path, file: str, data: bytes) -> None:
    report(folder, file, data)


@MORE
@given(changed(LINE), st.booleans())
@example({**LINE, "bytes": {"up": {"int8": HUGE}, "down": {}}}, False)
@example({**LINE, "accuracy": {"trained": {"int8": 1e308}, "received": {"int8": float("-inf")}}}, False)
@example({**LINE, "clients": {"lost": [absent(HUGE), absent(-7, "\x00")], "asked": HUGE}}, True)
def test_any_line(folder: Path, found: object, alone: bool) -> None:
    first = {**LINE, "round": 1}
    made = [first, found] if not alone else [found | {"round": 1}] if isinstance(found, dict) else [found]
    report(folder, "a/rounds.jsonl", b"".join(dumped(one) + b"\n" for one in made))


@FEW
@given(st.sampled_from(["summary", "provenance", "comparison"]), st.data())
def test_any_facts(folder: Path, name: str, data: st.DataObject) -> None:
    document = {"summary": SUMMARY, "provenance": SESSIONS, "comparison": PLAN}[name]
    found = data.draw(changed(document))
    assert report(folder, f"{'' if name == 'comparison' else 'a/'}{name}.json", dumped(found)) is not None


@FEW
@given(changed(CONFIG))
@example({**CONFIG, "name": "a/../../\x00"})
@example({**CONFIG, "clients": "int8:999999999999"})
@example({**CONFIG, "rounds": 2**1023})
@example({**CONFIG, "rounds": -5, "seed": True, "options": {"ladder": ["\x00"]}})
def test_any_settings(folder: Path, found: object) -> None:
    text = b""
    with contextlib.suppress(TypeError, ValueError, AttributeError):  # what TOML has no words for
        text = tomli_w.dumps(found).encode()  # type: ignore[arg-type]
    report(folder, "a/config.toml", text)


FACTS: dict[str, Any] = {"width": "float32", "shapes": {"conv": [4, 2, 3, 3], "phi/0/conv": [2]}, "client": 0}


def samples_with(facts: object) -> bytes:
    """Samples that say of themselves what they like."""
    return save({"conv": torch.ones(72), "phi/0/conv": torch.ones(2)}, {"facts": json.dumps(facts)})


ANY_SAMPLES = st.builds(samples_with, changed(FACTS)) | st.builds(spliced, st.just(samples_with(FACTS)), SPLICES)


@MANY
@given(st.sampled_from(SAMPLES), ANY_SAMPLES)
@example(SAMPLES[0], samples_with({**FACTS, "shapes": {"conv": [HUGE], "phi/0/conv": [2]}}))
@example(SAMPLES[1], samples_with({**FACTS, "shapes": {}}))
def test_samples_that_are_read_are_sound(sampled: Path, file: str, data: bytes) -> None:
    with holding(sampled / "snapshots" / file, data):
        samples = Samples(only_group(sampled).first)
        found = [*samples.of_clients(2), *filter(None, [samples.of_server(2)])]
    assert all(values.dim() == 1 for one in found for values in one.values.values())
    assert cosine_distances(found).shape == (len(found), len(found))


@FEW
@given(st.sampled_from(SAMPLES), ANY_SAMPLES)
@example(SAMPLES[0], samples_with({**FACTS, "shapes": {"phi/0/conv": [2]}}))
@example(SAMPLES[1], samples_with({**FACTS, "shapes": {"phi/0/conv": [2]}}))
def test_any_samples_are_drawn(sampled: Path, file: str, data: bytes) -> None:
    with holding(sampled / "snapshots" / file, data), unrendered():
        for draw in (weights.histograms, weights.blocks, weights.distances):
            draw(only_group(sampled))
