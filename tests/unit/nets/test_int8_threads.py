"""A layer of the compiled part is one thread's at a time: its memory is one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kernels import make_layer, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "another thread" in str(error)
    return False


def test_a_second_thread_is_refused() -> None:
    """Until it is done, a layer and the one that it writes to belong to the thread that computes."""
    large: dict[str, Any] = {"images": 64, "inputs": 64, "outputs": 64, "image": (32, 32)}
    following = make_layer(**large)
    layer = make_layer(following=following, **large)
    calls = (lambda: layer.forward(1, False), layer.pack, lambda: following.backward(1), following.pack)
    refused: set[int] = set()
    with ThreadPoolExecutor(1) as threads:
        for _ in range(100):  # once is enough where the other thread comes first
            busy = threads.submit(is_refused, lambda: layer.forward(64, True))
            while not busy.done():
                refused |= {number for number, call in enumerate(calls) if is_refused(call)}
            if len(refused) == len(calls):
                break
    assert len(refused) == len(calls)
    assert not any(is_refused(call) for call in calls)
