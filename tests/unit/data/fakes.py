"""A CIFAR-10 of 26 images of 4×4 pixels, in every form in which the real one comes."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from prowd.data.cache import Arrays, Expected
from prowd.data.formats import TEST, TRAIN
from prowd.files import sha256

IMAGE = (3, 4, 4)


def arrays() -> Arrays:
    random = np.random.default_rng(7)
    return {
        "x_train": random.integers(0, 256, (20, *IMAGE), np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": random.integers(0, 256, (6, *IMAGE), np.uint8),
        "y_test": np.arange(6, dtype=np.uint8),
    }


def contents() -> dict[str, Expected]:
    return {name: Expected(values.shape, sha256(values)) for name, values in arrays().items()}


def python_files(protocol: int = 0) -> dict[str, bytes]:
    """Batches as Python 2 wrote them, or as today's pickle does with a given protocol."""
    if protocol == 0:
        return {name: _python2(images, labels) for name, (images, labels) in _batches().items()}
    return {
        name: pickle.dumps({b"data": images.reshape(len(images), -1), b"labels": labels.tolist()}, protocol)
        for name, (images, labels) in _batches().items()
    }


def binary_files() -> dict[str, bytes]:
    return {
        f"{name}.bin": np.concatenate([labels[:, None], images.reshape(len(images), -1)], 1).tobytes()
        for name, (images, labels) in _batches().items()
    }


def png_files() -> dict[str, bytes]:
    files = {
        "train_lables.json": json.dumps(arrays()["y_train"].tolist()).encode(),
        "test_lables.json": json.dumps(arrays()["y_test"].tolist()).encode(),
    }
    for name, (images, _) in _batches().items():
        strip = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(len(images), -1, 3)
        files[f"{name}.png"] = png(strip)
    return files


def png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    path.mkdir(parents=True)
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def tar(path: Path, files: Mapping[str, bytes], prefix: str = "cifar-10-batches-py/") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"somewhere/{name}", data)
    return path


def _batches() -> dict[str, tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], ...]]:
    held = arrays()
    batches = {
        name: (held["x_train"][4 * i : 4 * i + 4], held["y_train"][4 * i : 4 * i + 4]) for i, name in enumerate(TRAIN)
    }
    return {**batches, TEST[0]: (held["x_test"], held["y_test"])}


def _python2(
    images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], labels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
) -> bytes:
    """What cPickle of Python 2 wrote with protocol 2, opcode by opcode: its strings are bytes."""
    raw = images.tobytes()
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = bytes([ord("K"), len(images), ord("K"), images[0].size, 0x86])
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    data = empty + b"(K\x01" + shape + dtype + b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    numbers = b"".join(bytes([ord("K"), label]) for label in labels.tolist())
    return b"\x80\x02}(U\x04data" + data + b"U\x06labels](" + numbers + b"eu."
