"""Worker processes that stop, that are killed before they begin, and that say what is wrong."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prowd.errors import DiskError, RunError
from prowd.federation import pool as pools
from prowd.federation.pool import ProcessPool

from .test_pool import make_stage, play, processes


def make_trouble() -> Any:
    raise RunError("the memory is damaged")


def make_no_room() -> Any:
    raise DiskError("there is no room")


@contextmanager
def pool_of(workers: int, make: Callable[[], Any] = make_stage) -> Iterator[ProcessPool]:
    pool = ProcessPool(workers, make)
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [(make_trouble, RunError, "client 4: the memory is damaged"), (make_no_room, DiskError, "there is no room")],
)
def test_an_error_on_purpose_is_one_line(make: Any, kind: type[Exception], text: str) -> None:
    with pool_of(1, make) as pool, pytest.raises(kind) as caught:
        play(pool, {4: "echo"})
    assert (type(caught.value), str(caught.value)) == (kind, text)


def test_a_worker_that_freezes_is_replaced_and_one_that_is_slow_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(2) as pool:
        play(pool, dict.fromkeys(range(4), "wait 0.2"))
        monkeypatch.setattr(pools, "SILENCE", 2.5 * pools.BEAT)
        before = {process.pid for process in processes(pool)}
        replies = play(pool, {0: f"freeze-once {tmp_path / 'froze'}", 1: f"wait {4 * pools.BEAT}"})
        assert set(replies) == {0, 1}
        assert len({process.pid for process in processes(pool)} - before) == 1
    assert "client 0 gave no sign" in caplog.text
    assert "client 1" not in caplog.text


def test_a_worker_killed_before_it_began_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with pool_of(1) as pool:
        processes(pool)[0].kill()
        assert set(play(pool, {0: "echo"})) == {0}
    assert f"client 0 died (killed by {signal.SIGKILL.name})" in caplog.text


def test_workers_that_never_begin_are_an_error_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    start = pools._start

    def stillborn() -> Any:
        worker = start()
        worker.process.kill()
        return worker

    monkeypatch.setattr(pools, "_start", stillborn)
    with (
        pool_of(1) as pool,
        pytest.raises(RunError, match=r"^5 worker processes in a row ended before they began.*SIGKILL$"),
    ):
        play(pool, {0: "echo"})
