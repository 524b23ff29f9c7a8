"""What clients say in detail: gathered by client and by width, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prowd.device.scene import ClientSpec
from prowd.errors import WireError
from prowd.federation.details import MOST_PEOPLE, check_metrics, gather
from prowd.federation.engine import Federation, dispatch
from prowd.federation.report import Accuracy, RoundReport, Traffic
from prowd.methods import FedAvg
from prowd.numbers.bits import FLOAT32
from prowd.wire import decode_task
from tests.unit.scenes import INT8, scene

LOW, OTHER, HIGH = ClientSpec(0, INT8, 5), ClientSpec(2, INT8, 5), ClientSpec(1, FLOAT32, 5)


def test_means_are_over_the_clients_of_a_width() -> None:
    said = {
        0: {"accuracy_trained": 0.5, "accuracy_own": 0.25, "accuracy_class_0": 0.5, "confusion_0_1": 0.5},
        2: {"accuracy_trained": 1.0, "accuracy_class_0": 1.0, "accuracy_class_1": 0.5, "confusion_0_0": 1.0},
        1: {"accuracy_trained": 0.75, "accuracy_person_4": 0.125, "loss": 3.0},
    }
    assert gather(2, [LOW, HIGH, OTHER], said) == {
        "clients": {0: 0.5, 1: 0.75, 2: 1.0},
        "own": {0: 0.25},
        "classes": {"int8": {0: 0.75, 1: 0.5}},
        "people": {"float32": {4: 0.125}},
        "confusion": {"int8": {"0_1": 0.25, "0_0": 0.5}},
    }


def test_classes_that_the_network_does_not_have_are_nobodys() -> None:
    said = {0: {"accuracy_class_2": 1.0, "confusion_0_2": 1.0, "accuracy_class_-1": 1.0, "accuracy_person_x": 1.0}}
    assert gather(2, [LOW], said) == {"clients": {}, "own": {}, "classes": {}, "people": {}, "confusion": {}}


@pytest.mark.parametrize("name", ["accuracy_own", "accuracy_class_1", "accuracy_person_1", "confusion_0_1"])
@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_what_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(WireError, match=f"metric '{name}' is {value}; accepted: 0 to 1"):
        check_metrics({"loss": 9.0, name: value})


def test_nobody_speaks_of_a_crowd() -> None:
    check_metrics({f"accuracy_person_{n}": 1.0 for n in range(MOST_PEOPLE)})
    with pytest.raises(WireError, match=f"accuracies of {MOST_PEOPLE + 1} people; accepted: up to {MOST_PEOPLE}"):
        check_metrics({f"accuracy_person_{n}": 1.0 for n in range(MOST_PEOPLE + 1)})


def test_balanced_accuracy_counts_every_class_the_same() -> None:
    assert Accuracy(classes={"int8": {0: 1.0, 1: 0.0}, "float32": {}}).balanced == {"int8": 0.5}


def test_a_line_says_only_what_was_measured_and_reads_back() -> None:
    accuracy = Accuracy(clients={3: 0.5}, classes={"int8": {1: 0.25}}, confusion={"int8": {"1_0": 0.75}})
    line = RoundReport(round=1, accuracy=accuracy, traffic=Traffic(up={}, down={})).line()
    measured = {"clients", "classes", "confusion", "balanced"}
    assert set(line["accuracy"]) == {"received", "trained", "server", *measured}
    assert RoundReport.model_validate(line).accuracy == accuracy
    line["accuracy"]["clients"]["4"] = 7.0
    assert RoundReport.model_validate(line).accuracy.clients == {3: 0.5}, "what is none was not measured"


@pytest.mark.parametrize(("in_detail", "expected"), [(False, [None, None, None]), (True, [1.0, None, 2.0])])
def test_devices_are_asked_for_detail_where_it_is_wanted(in_detail: bool, expected: list[float | None]) -> None:
    given = Federation(scene(INT8, FLOAT32), FedAvg(), 3, 2, evaluate_every=3, in_detail=in_detail)
    state = FedAvg().init(given.scene)
    found = []
    for round_ in range(3):
        parcels, *_ = dispatch(given, replace(state, round=round_), given.scene.clients)
        task = decode_task(parcels[0].join(), 2**20)
        found.append(task.settings.get("measure_in_detail"))
    assert found == expected
