"""Work in the background, for which nobody need wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["begin"]

Result = TypeVar("Result")


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begin some work in a thread that holds no process up: neither after Ctrl-C, nor if it never ends."""
    future: Future[Result] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return future
