"""The three forms CIFAR-10 comes in, decoded to the same arrays: pickled batches, binary batches, and PNG strips."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from prowd.data.cache import Arrays
from prowd.data.pickles import read_pickle
from prowd.errors import DataError

__all__ = ["FILES", "decode"]

Bytes = NDArray[np.uint8]
Shape = tuple[int, ...]

TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"  # spelt as in the package


def decode(files: Mapping[str, bytes], image: Shape) -> Arrays:
    """Arrays out of the files of whichever form is complete; ``image`` is (channels, height, width)."""
    for form, (names, decoder) in FORMS.items():
        if names <= files.keys():
            try:
                return decoder(files, image)
            except DataError:
                raise
            except Exception as error:  # damaged files surface in pickle, Pillow, json or numpy, each in its own type
                raise DataError(f"damaged {form} files: {error or type(error).__name__}") from error
    wanted = "; or ".join(f"{', '.join(sorted(names))} ({form})" for form, (names, _) in FORMS.items())
    raise DataError(f"holds {', '.join(sorted(files)) or 'none'} of the files of CIFAR-10; accepted: {wanted}")


def _batches(suffix: str, reader: Callable[[bytes, Shape], tuple[Bytes, Bytes]]) -> Callable[..., Arrays]:
    """Decoder of a form whose files each hold images and their labels."""

    def decoder(files: Mapping[str, bytes], image: Shape) -> Arrays:
        arrays: Arrays = {}
        for part, names in (("train", TRAIN), ("test", TEST)):
            pairs = [reader(files[name + suffix], image) for name in names]
            arrays[f"x_{part}"] = np.concatenate([images for images, _ in pairs])
            arrays[f"y_{part}"] = np.concatenate([labels for _, labels in pairs])
        return arrays

    return decoder


def _binary(data: bytes, image: Shape) -> tuple[Bytes, Bytes]:
    """A record is one label byte and then the pixels, channel by channel."""
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + int(np.prod(image)))
    return records[:, 1:].reshape(-1, *image), records[:, 0]


def _python(data: bytes, image: Shape) -> tuple[Bytes, Bytes]:
    """A pickled dict of Python 2: ``data`` (N, pixels) and a list ``labels``."""
    batch = read_pickle(data, ("u1",))
    fields = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    return fields["data"].values.reshape(-1, *image), np.array(fields["labels"], np.uint8)


def _strips(files: Mapping[str, bytes], image: Shape) -> Arrays:
    """PNG: an image a row, its pixels in reading order."""
    return {
        "x_train": np.concatenate([_strip(files[f"{name}.png"], image) for name in TRAIN]),
        "y_train": np.array(json.loads(files[TRAIN_LABELS]), np.uint8),
        "x_test": np.concatenate([_strip(files[f"{name}.png"], image) for name in TEST]),
        "y_test": np.array(json.loads(files[TEST_LABELS]), np.uint8),
    }


def _strip(data: bytes, image: Shape) -> Bytes:
    from PIL import Image

    channels, height, width = image
    with Image.open(io.BytesIO(data), formats=["PNG"]) as strip:
        if strip.mode != "RGB" or strip.width != height * width:
            raise DataError(f"a {strip.mode} strip {strip.width} pixels wide; accepted: RGB, {height * width} wide")
        pixels = np.asarray(strip)
    return np.ascontiguousarray(pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))


FORMS: dict[str, tuple[frozenset[str], Callable[[Mapping[str, bytes], Shape], Arrays]]] = {
    "python": (frozenset(TRAIN + TEST), _batches("", _python)),
    "binary": (frozenset(f"{name}.bin" for name in TRAIN + TEST), _batches(".bin", _binary)),
    "PNG": (frozenset([*(f"{name}.png" for name in TRAIN + TEST), TRAIN_LABELS, TEST_LABELS]), _strips),
}
FILES = frozenset[str]().union(*(names for names, _ in FORMS.values()))
"""Every file name of any form."""
