"""The local training loop: which batches, which randomness, and counting what is right."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.device.training import EVALUATION_BATCH, Correction, Examples, accuracy, batches, build_model, fit
from prowd.methods.common import initial_state, quantized_model
from prowd.nets.float32 import FloatModel
from prowd.nets.lowbit.model import LowBitModel
from prowd.numbers.bits import FLOAT32
from prowd.numbers.quantize import QTensor
from prowd.numbers.streams import Stream
from prowd.wire import Task
from tests.reference import integer_client as oracle
from tests.unit.scenes import INT8, asked, blobs, scene

CPU = torch.device("cpu")


def rows(count: int, batch: int, steps: int, seed: int = 0) -> list[list[int]]:
    found: list[list[int]] = batches(count, batch, steps, Stream.of(seed)).tolist()
    return found


@pytest.mark.parametrize(("count", "batch", "steps"), [(10, 4, 9), (10, 10, 3), (7, 3, 1), (5, 1, 12), (64, 64, 2)])
def test_every_example_comes_before_any_comes_again(count: int, batch: int, steps: int) -> None:
    found = rows(count, batch, steps)
    assert [len(row) for row in found] == [batch] * steps
    stream = [index for row in found for index in row]
    for start in range(0, len(stream), count):
        epoch = stream[start : start + count]
        assert len(set(epoch)) == len(epoch)
        assert set(epoch) <= set(range(count))
    most, least = max(Counter(stream).values()), min(Counter(stream)[index] for index in range(count))
    assert most - least <= 1


def test_a_batch_larger_than_the_data_is_all_of_it() -> None:
    found = rows(5, 64, 3)
    assert [sorted(row) for row in found] == [[0, 1, 2, 3, 4]] * 3
    assert len({tuple(row) for row in rows(5, 64, 30)}) > 10, "epochs are not reshuffled"
    assert rows(20, 4, 6, seed=1) == rows(20, 4, 6, seed=1) != rows(20, 4, 6, seed=2)


@dataclass
class Stub:
    """Calls class i for an image whose first pixel is code i; remembers what it was given."""

    sizes: list[int] = field(default_factory=list)
    seen: list[Tensor] = field(default_factory=list)
    labels: list[list[int]] = field(default_factory=list)

    def step(self, images: Tensor, labels: Tensor, correction: Correction | None = None) -> None:
        self.seen.append(images)
        self.labels.append(labels.tolist())

    def loss(self) -> float:
        return len(self.seen) / 8

    def logits(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return torch.nn.functional.one_hot(images[:, 0, 0, 0].long(), 3).float()

    def weights(self) -> dict[str, QTensor]:
        return {}


def marked(places: list[int], labels: list[int]) -> Examples:
    images = torch.zeros(len(places), 1, 1, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.tensor(places)
    return Examples(images, torch.tensor(labels))


def test_accuracy_by_hand() -> None:
    assert accuracy(Stub(), marked([0, 1, 2, 2, 1], [0, 1, 2, 1, 0]), CPU) == 3 / 5


@pytest.mark.parametrize("extra", [0, 1, 7])
def test_accuracy_counts_a_ragged_last_batch_once(extra: int) -> None:
    count = 2 * EVALUATION_BATCH + extra
    model = Stub()
    wrong = {0, EVALUATION_BATCH - 1, EVALUATION_BATCH, count - 1}  # at every seam
    labels = [1 if index in wrong else 0 for index in range(count)]
    assert accuracy(model, marked([0] * count, labels), CPU) == (count - 4) / count
    assert model.sizes == [EVALUATION_BATCH] * 2 + ([extra] if extra else [])


def trained(given: Scene, round_: int = 1, client: int = 0, examples: Examples | None = None) -> Stub:
    model, task = Stub(), Task(round_, given.seed, client, {}, work=given.work(FLOAT32, round_))
    assert fit(model, examples or blobs(12), given, task) == given.local.steps / 8
    return model


def test_fit_returns_the_model_s_loss_and_gives_each_image_its_label() -> None:
    given, examples = scene(FLOAT32, steps=7), blobs(12)
    model = trained(given, examples=examples)
    assert len(model.seen) == 7
    whole = Stream.of(given.seed, "batches", 1, 0)
    for chosen, images, labels in zip(batches(12, 4, 7, whole), model.seen, model.labels, strict=True):
        assert torch.equal(images, examples.images[chosen])
        assert labels == examples.labels[chosen].tolist()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_images_stay_bytes(dtype: torch.dtype) -> None:
    images = torch.tensor([0, 51, 127]).to(dtype).reshape(3, 1, 1, 1)
    model = trained(scene(FLOAT32, steps=1), examples=Examples(images, torch.tensor([0, 1, 2])))
    assert model.seen[0].dtype == dtype
    assert sorted(model.seen[0].flatten().tolist()) == [0, 51, 127]


def test_the_task_says_how_many_steps_and_how_large_the_batches() -> None:
    given, model = scene(FLOAT32, steps=7, batch=4), Stub()
    fit(model, blobs(12), given, Task(1, given.seed, 0, {}, work=replace(given.work(FLOAT32, 1), steps=3, batch=5)))
    assert [len(labels) for labels in model.labels] == [5, 5, 5]


def test_batches_are_those_of_the_oracle() -> None:
    for count, batch, steps in ((10, 4, 9), (5, 64, 3), (1, 1, 2), (33, 8, 20)):
        assert rows(count, batch, steps, seed=3) == oracle.batches(oracle.stream_key(3), count, batch, steps)


def test_what_is_drawn_depends_on_seed_round_and_client_only() -> None:
    given = scene(INT8, steps=4)
    first = trained(given)
    assert trained(given).labels == first.labels
    assert all(torch.equal(a, b) for a, b in zip(trained(given).seen, first.seen, strict=True))
    for other in (trained(given, round_=2), trained(given, client=1), trained(replace(given, seed=6))):
        assert not all(torch.equal(a, b) for a, b in zip(other.seen, first.seen, strict=True))


OPERATIONS: list[Literal["crop", "flip", "rotate"]] = ["crop", "flip", "rotate"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_augmentation_is_keyed_and_leaves_the_choice_of_batches_alone(
    operation: Literal["crop", "flip", "rotate"],
) -> None:
    plain = scene(INT8, steps=4)
    given = replace(plain, local=replace(plain.local, augment=(operation,)))
    first, again, bare = trained(given), trained(given), trained(plain)
    assert first.labels == again.labels == bare.labels
    assert all(torch.equal(a, b) for a, b in zip(first.seen, again.seen, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.seen, bare.seen, strict=True))
    # With a single example there is nothing to shuffle: only the augmentation can differ.
    alone = Examples(blobs(1).images, blobs(1).labels)
    many = replace(given, local=replace(given.local, steps=40))
    turns = [torch.cat(trained(many, *key, examples=alone).seen) for key in ((1, 0), (1, 1), (2, 0), (1, 0))]
    assert torch.equal(turns[0], turns[3])
    assert not torch.equal(turns[0], turns[1]), "two clients augment alike"
    assert not torch.equal(turns[0], turns[2]), "two rounds augment alike"


def test_models_are_built_at_the_clients_width() -> None:
    given = scene(INT8, FLOAT32)
    state = initial_state(given)
    low, high = (
        build_model(given, spec.width, task.weights, task)
        for spec in given.clients
        for task in [asked(given, spec, quantized_model(given, state.model, spec))]
    )
    assert isinstance(low, LowBitModel)
    assert isinstance(high, FloatModel)
    assert low.width == INT8


def test_rounding_is_keyed_by_round_and_client() -> None:
    given = scene(INT8)
    weights = quantized_model(given, initial_state(given).model, given.clients[0])
    made = []
    for round_, client in ((1, 0), (1, 0), (2, 0), (1, 1)):
        task = Task(round_, given.seed, client, weights, work=given.work(INT8, round_))
        model, examples = build_model(given, INT8, weights, task), blobs(12)
        model.step(examples.images, examples.labels)
        made.append(model.weights()["fc.weight"].codes)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert not torch.equal(made[0], made[3])
