"""How rounds become scalars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from prowd.federation.report import Accuracy, RoundReport
from prowd.views.trackers.scalars import SECTIONS, Scalars
from tests.unit.views.trackers.rounds import report


def scalars(*reports: RoundReport, clients: str = "int8:3, float32:1") -> list[dict[str, float]]:
    found = Scalars(clients)
    return [found.of(one) for one in reports]


def notes(found: Mapping[Any, Any]) -> dict[str, float]:
    """The scalars that notes become."""
    with_notes, without = scalars(report(notes=json.loads(json.dumps(found))), report())
    return {tag: value for tag, value in with_notes.items() if tag not in without}


def test_a_round_becomes_scalars_in_sections() -> None:
    found, second = scalars(report(), report(2))
    assert second["megabytes so far/up"] == pytest.approx(0.001), "of both rounds"
    expected = {
        "accuracy after training/int8": 0.5,
        "accuracy after training/average": 0.5625,
        "accuracy as received/average": 0.3125,
        "accuracy by client/3": 0.75,
        "own accuracy by client/0": 0.625,
        "accuracy by class · int8/1": 0.75,
        "accuracy by test person · float32/7": 0.125,
        "balanced accuracy/int8": 0.5,
        "loss/float32": 1.0,
        "bytes down/float32": 600,
        "clients/lost": 1,
        "clients/refused": 0,
        "round/seconds": 1.5,
    }
    assert {tag: found[tag] for tag in expected} == expected


def test_every_section_is_known() -> None:
    by_width = {"accuracy by class · int8", "accuracy by test person · float32"}
    assert {tag.partition("/")[0] for tag in scalars(report())[0]} == set(SECTIONS) | by_width


def test_the_average_takes_the_last_accuracy_of_every_width() -> None:
    changes: list[dict[str, float]] = [{"int8": 0.5}, {"float32": 1.0}, {}, {"int8": 0.25}]
    found = scalars(
        *(report(number, accuracy=Accuracy(trained=accuracy)) for number, accuracy in enumerate(changes, 1))
    )
    averages = [one.get("accuracy after training/average") for one in found]
    assert averages == [0.5, (3 * 0.5 + 1.0) / 4, None, (3 * 0.25 + 1.0) / 4]
    assert not [tag for tag in found[2] if tag.startswith("accuracy after training/")]


def test_notes_have_a_section_for_each_figure_and_a_chart_for_each_tensor() -> None:
    assert notes(
        {
            "phi": {"recon": [0.3, 0.2, 0.1], "distill": []},
            "zeros": {"int4": {"conv1.weight": 0.4}},
            "drift": {"conv1.weight": 0.2, "fc1.weight": 0.3},
            "masks": {"conv1.weight": {"kept": 0.8, "cosine": -0.1}},
            "momentum": 0.9,
        }
    ) == {
        "phi/recon": 0.1,
        "zeros · int4/conv1.weight": 0.4,
        "drift/conv1.weight": 0.2,
        "drift/fc1.weight": 0.3,
        "masks · kept/conv1.weight": 0.8,
        "masks · cosine/conv1.weight": -0.1,
        "notes/momentum": 0.9,
    }


def test_a_method_of_ones_own_may_note_what_it_likes() -> None:
    odd = {"a text": "x", "nothing": None, "huge": 10**400, "yes": True, "deep": {"er": [{"still": 1}, {"still": 2}]}}
    assert notes(odd) == {"notes/yes": 1, "deep · er/still": 2}
    assert notes({"loss": {"int8": 9.0}, "round": {"seconds": 9.0}, 7: {8: 0.5}, "loss/int8": 9.0}) == {
        "notes · loss/int8": 9.0,
        "notes · round/seconds": 9.0,
        "7/8": 0.5,
        "notes/loss/int8": 9.0,
    }
