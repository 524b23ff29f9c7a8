"""Processes of our own: started so that Ctrl-C is the parent's to handle, ended when the parent is gone."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

__all__ = ["FAILED_IMPORT", "GUARD", "available_cores", "be_a_child", "start_child"]

FAILED_IMPORT = 1
"""The exit code of a process that could not even import what it was to do."""

GUARD = 'A script that runs a federation must do so under `if __name__ == "__main__":`, which worker processes skip.'


def start_child(
    target: Callable[..., None], *arguments: object, daemon: bool = True
) -> tuple[SpawnProcess, Connection[Any, Any]]:
    """Start ``target(connection, *arguments)`` in a new process; returns it and our end of the connection.

    Large arguments belong into the connection, not here: should the process die before it reads them, which it does in
    a script without the guard, the start would wait for ever.
    """
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=daemon)
    with _ignoring_interrupts():
        process.start()
    theirs.close()
    return process, ours


def be_a_child() -> None:
    """Leave Ctrl-C to the parent, and end with it, however it went, in the middle of whatever is being done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from their first moment on."""
    if threading.current_thread() is not threading.main_thread():  # where signals cannot be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_the_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
