"""Accuracy by class and by person, and what is taken for what, against counting by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prowd.device.measures import CLASSES, CONFUSION, MOST_CLASSES, in_detail
from prowd.device.training import EVALUATION_BATCH, Examples, accuracy
from prowd.numbers.quantize import QTensor

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Says:
    """A model that says of an image what its first pixel is."""

    classes: int

    def logits(self, images: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(images[:, 0, 0, 0].long(), self.classes).float()

    def step(self, *_: object) -> None: ...

    def loss(self) -> float:
        return 0.0

    def weights(self) -> dict[str, QTensor]:
        return {}


def examples(said: list[int], labels: list[int], people: list[int] | None = None) -> Examples:
    images = torch.tensor(said, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return Examples(images, torch.tensor(labels), None if people is None else torch.tensor(people))


def test_by_hand() -> None:
    given = examples([0, 1, 1, 2, 0], [0, 0, 1, 1, 1], [7, 3, 7, 7, 3])
    by_group = {"accuracy_class_0": 1 / 2, "accuracy_class_1": 1 / 3, "accuracy_person_3": 0.0}
    by_group["accuracy_person_7"] = 2 / 3
    assert in_detail(Says(3), given, 3, CLASSES, CPU) == pytest.approx(by_group)
    pairs = {"confusion_0_0": 1 / 2, "confusion_0_1": 1 / 2}
    pairs |= {f"confusion_1_{taken}": 1 / 3 for taken in range(3)}
    assert in_detail(Says(3), given, 3, CONFUSION, CPU) == pytest.approx(by_group | pairs)


def test_of_many_classes_no_pairs_are_said() -> None:
    given = examples([0, 1], [1, 1])
    assert not [name for name in in_detail(Says(25), given, MOST_CLASSES + 1, CONFUSION, CPU) if "confusion" in name]
    assert [name for name in in_detail(Says(25), given, MOST_CLASSES, CONFUSION, CPU) if "confusion" in name]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
def test_the_parts_make_the_whole(rows: list[tuple[int, int, int]]) -> None:
    said, labels, people = (list(column) for column in zip(*rows, strict=True))
    given = examples(said, labels, people)
    found, whole = in_detail(Says(5), given, 5, CONFUSION, CPU), accuracy(Says(5), given, CPU)
    for what, of in (("accuracy_class", labels), ("accuracy_person", people)):
        assert sum(of.count(one) * found[f"{what}_{one}"] for one in set(of)) / len(rows) == pytest.approx(whole)
    for label in set(labels):
        shares = {name: value for name, value in found.items() if name.startswith(f"confusion_{label}_")}
        assert sum(shares.values()) == pytest.approx(1.0)
        assert shares.get(f"confusion_{label}_{label}", 0.0) == pytest.approx(found[f"accuracy_class_{label}"])


def test_every_batch_is_counted() -> None:
    count = EVALUATION_BATCH + 3
    given = examples([0] * count, [0] * EVALUATION_BATCH + [1] * 3)
    assert accuracy(Says(2), given, CPU) == EVALUATION_BATCH / count
    assert in_detail(Says(2), given, 2, CLASSES, CPU) == {"accuracy_class_0": 1.0, "accuracy_class_1": 0.0}
