"""Pickled arrays of numpy, read without pickle's power: no name in a file is looked up but those of plain arrays."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prowd.errors import DataError

__all__ = ["read_pickle"]

KNOWN: dict[str, np.dtype[Any]] = {"u1": np.dtype("u1"), "i8": np.dtype("<i8"), "f8": np.dtype("<f8")}
OBJECT = "O8"


def read_pickle(data: bytes, dtypes: Collection[str]) -> Any:
    """The value of a pickle of plain values and of arrays of some types; every other name in it is a DataError.

    Where the value holds an array there is a stand-in, the elements of which are its ``values``: those of an array of
    objects (O8) are the list of them.
    """

    class Dtype(_Dtype):
        accepted = dtypes

    admitted: Mapping[tuple[str, str], Callable[..., Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): Dtype,
        ("_codecs", "encode"): _latin1,
    }

    class Reader(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Callable[..., Any]:
            if (module_name, global_name) not in admitted:
                found = f"a pickle that asks for {module_name}.{global_name}"
                raise DataError(f"{found}; accepted: arrays of type {', '.join(dtypes)}")
            return admitted[module_name, global_name]

    return Reader(io.BytesIO(data), encoding="bytes").load()


class _Dtype:
    """Stands in for numpy's dtype."""

    accepted: Collection[str] = ()

    def __init__(self, code: str | bytes, *_flags: object) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code
        if self.code not in self.accepted:
            raise DataError(f"a pickled array of type {self.code!r}; accepted: {', '.join(self.accepted)}")

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if state[1] in (">", b">"):
            raise DataError("a pickled array with the highest byte first; accepted: the lowest first")


class _Array:
    """Stands in for numpy's array while unpickling: keeps the bytes, runs none of numpy's own unpickling."""

    values: NDArray[Any] | list[Any]

    def __init__(self, *_arguments: object) -> None:
        pass

    def __setstate__(self, state: tuple[object, tuple[int, ...], _Dtype, bool, Any]) -> None:
        _version, shape, dtype, fortran, raw = state
        if dtype.code == OBJECT:
            self.values = list(raw)
        else:
            flat = np.frombuffer(raw, KNOWN[dtype.code])
            self.values = flat.reshape(shape, order="F" if fortran else "C")


def _latin1(text: str, _encoding: str) -> bytes:
    """Python 3 writes bytes as ``_codecs.encode(text, 'latin1')`` in pickles that Python 2 can read."""
    return text.encode("latin1")
