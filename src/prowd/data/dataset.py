"""A data set in memory: images and labels, checked once on the way in so that nothing later has to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prowd.errors import ConfigError, DataError
from prowd.files import sha256

__all__ = ["ARRAYS", "CLIENT", "Dataset", "from_arrays"]

CLIENT = "client"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
RESIZE_BATCH = 1024


@dataclass(frozen=True)
class Dataset:
    """Images (N, C, H, W), uint8 or int8 codes, and int64 labels below ``classes``; see from_arrays.

    Where the data says of whom it is, ``client`` has the person of each training example, ``test_client`` that of each
    test example, if they are known, and ``people`` those whose examples client 0, 1, … holds in a natural partition.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    client: Tensor | None = None
    test_client: Tensor | None = None
    people: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.x_train.shape[1:]
        return channels, height, width

    def digest(self) -> str:
        """Hash of what the arrays hold, whatever the data set is called: the same data twice gives the same digest."""
        digest = hashlib.sha256(f"classes {self.classes}".encode())
        for name in (*ARRAYS, *((CLIENT,) if self.client is not None else ())):
            array = getattr(self, name).numpy()
            digest.update(f"\n{name} {array.dtype.name} {array.shape} {sha256(array)}".encode())
        return digest.hexdigest()

    def parts(self) -> dict[str, Any]:
        """All that it is, tensors as arrays, which reach another process as they are; ``of`` puts it together."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in held.items()}

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Dataset:
        """The data set of some parts, which have been checked before."""
        held = {name: torch.from_numpy(one) if isinstance(one, np.ndarray) else one for name, one in parts.items()}
        return cls(**cast("dict[str, Any]", held))

    def resized(self, size: int) -> Dataset:
        """Shrink every image to size × size by averaging the area each new pixel covers."""
        _, height, width = self.image_shape
        if not 1 <= size <= min(height, width):
            most = min(height, width)
            raise ConfigError(f"input_size: {size} for images of {height}×{width}; accepted: 1 to {most}")
        if size == height == width:
            return self
        return replace(self, x_train=_shrink(self.x_train, size), x_test=_shrink(self.x_test, size))


def from_arrays(
    x_train: NDArray[Any] | Tensor,
    y_train: NDArray[Any] | Tensor,
    x_test: NDArray[Any] | Tensor | None = None,
    y_test: NDArray[Any] | Tensor | None = None,
    name: str = "arrays",
    classes: int | None = None,
    *,
    client: NDArray[Any] | Tensor | None = None,
    class_names: tuple[str, ...] = (),
) -> Dataset:
    """Check arrays and make a data set of them; arrays already in the right form are shared, not copied.

    Images are uint8, or int8 codes c that stand for c/128. Floats x in [−1, 1] become such codes, round(128·x).
    ``client`` has the person of each training example. Test examples may be missing only from data that has it: there
    the examples of some people can take their place.
    Where ``classes`` is given, as by a run to the data of one of its devices, some may lack examples. Where it is not,
    it is counted, and a class without an example is taken for a slip.
    """
    if x_test is None and y_test is None and client is not None:
        x_test, y_test = x_train[:0], y_train[:0]
    train, test = _images("x_train", x_train), _images("x_test", x_test, or_none=client is not None)
    if (train.dtype, train.shape[1:]) != (test.dtype, test.shape[1:]):
        _refuse("x_test", f"{test.dtype} images {test.shape[1:]}", f"as in x_train, {train.dtype} {train.shape[1:]}")
    labels, test_labels = _labels("y_train", y_train, len(train)), _labels("y_test", y_test, len(test))
    tensors = dict(zip(ARRAYS, map(torch.from_numpy, (train, labels, test, test_labels)), strict=True))
    if classes is None:
        classes = _count_classes(labels)
        _check_below(test_labels, "y_test", f"classes that x_train has examples of, 0 to {classes - 1}", classes)
    for array, values in (("y_train", labels), ("y_test", test_labels)):
        _check_below(values, array, f"0 to {classes - 1}, the classes of the run", classes)
    holders = None if client is None else torch.from_numpy(_labels(CLIENT, client, len(train)))
    people = () if holders is None else tuple(torch.unique(holders).tolist())
    return Dataset(name=name, **tensors, classes=classes, client=holders, people=people, class_names=class_names)


def _refuse(array: str, found: str, accepted: str) -> NoReturn:
    raise DataError(f"{array}: {found}; accepted: {accepted}")


def _as_numpy(array: str, values: object) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    if not isinstance(values, np.ndarray):
        _refuse(array, f"a {type(values).__name__}", "a numpy array or a torch tensor")
    return values


def _owned(values: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Native, contiguous and writable, as torch wants memory it shares; copies only what is not."""
    return np.require(values, dtype, ["C", "W"])


def _images(array: str, values: NDArray[Any] | Tensor | None, *, or_none: bool = False) -> NDArray[Any]:
    images = _as_numpy(array, values)
    if images.ndim != 4 or 0 in images.shape[1 if or_none else 0 :]:
        _refuse(array, f"an array of shape {images.shape}", "(N, C, H, W), none of them 0")
    if images.dtype in (np.uint8, np.int8):
        return _owned(images, images.dtype.type)
    if not np.issubdtype(images.dtype, np.floating):
        _refuse(array, f"elements of type {images.dtype}", "uint8, int8, or floats within [-1, 1]")
    outside = ~(np.abs(images) <= 1)  # so that NaN is outside too
    if outside.any():
        _refuse(array, f"the value {images[outside][0]}", "finite floats within [-1, 1], uint8 or int8")
    codes: NDArray[np.int8] = np.clip(np.rint(images * images.dtype.type(128)), -127, 127).astype(np.int8)
    return codes


def _labels(array: str, values: NDArray[Any] | Tensor | None, count: int) -> NDArray[np.int64]:
    """Whole numbers from 0 up, one an image: labels, or people."""
    what, accepted = ("person", "0 or more") if array == CLIENT else ("label", "0 to classes − 1")
    labels = _as_numpy(array, values)
    if labels.shape != (count,):
        _refuse(array, f"an array of shape {labels.shape}", f"one {what} an image, ({count},)")
    if not np.issubdtype(labels.dtype, np.integer):
        _refuse(array, f"elements of type {labels.dtype}", f"integers from {accepted}")
    if count and (labels.min() < 0 or labels.max() > np.iinfo(np.int64).max):
        _refuse(array, f"the {what} {labels.min() if labels.min() < 0 else labels.max()}", accepted)
    return _owned(labels, np.int64)


def _check_below(labels: NDArray[np.int64], array: str, accepted: str, classes: int) -> None:
    if len(labels) and labels.max() >= classes:
        _refuse(array, f"the label {labels.max()}", accepted)


def _count_classes(y_train: NDArray[np.int64]) -> int:
    present = np.unique(y_train)
    gaps = np.flatnonzero(present != np.arange(len(present)))
    if len(gaps):
        _refuse("y_train", f"label {present[-1]} but no example of class {gaps[0]}", "an example of every class")
    if len(present) < 2:
        _refuse("y_train", "the single class 0", "at least 2 classes")
    return len(present)


def _shrink(images: Tensor, size: int) -> Tensor:
    """Average in exact integers before one division, so that ties really are ties: round half to even."""
    height, width = images.shape[2:]
    small = 255 * height * width < 2**24  # every sum is exact in float32 too
    exact = torch.float32 if small else torch.float64
    rows, columns = _overlaps(height, size).to(exact), _overlaps(width, size).to(exact)
    shrunk = torch.empty((*images.shape[:2], size, size), dtype=images.dtype)
    for start in range(0, len(images), RESIZE_BATCH):
        batch = images[start : start + RESIZE_BATCH].to(exact)
        sums = ((batch @ columns.T).mT @ rows.T).mT
        mean = sums.to(torch.float64) / (height * width)
        shrunk[start : start + RESIZE_BATCH] = mean.round()
    return shrunk


def _overlaps(length: int, size: int) -> Tensor:
    """(size, length): how much of old pixel j lies under new pixel i, in units of 1/size of an old pixel."""
    new = torch.arange(size, dtype=torch.float64)[:, None] * length
    old = torch.arange(length, dtype=torch.float64)[None, :] * size
    return (torch.minimum(new + length, old + size) - torch.maximum(new, old)).clamp(min=0)
