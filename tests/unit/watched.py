"""Run directories written by hand, and what somebody sees who watches them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from prowd.console.watch import watch
from prowd.console.watch.follower import Follower
from prowd.console.watch.loop import page

NOON = 1_700_000_000.0
HALF = '{"round": 3, "accuracy": {"recei'


class Hand:
    """A clock that is set by hand, and a writer of run directories whose files are as old as it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOON

    def __call__(self) -> float:
        return self.now

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        os.utime(path, (self.now, self.now))

    def run(
        self, folder: str, made: int, /, *, of: int = 10, tail: str = "", finished: bool = False, **changes: Any
    ) -> Path:
        """A run that has made so many rounds; ``seconds`` are those of a round."""
        path = self.folder / folder
        line = {"seconds": changes.pop("seconds", 12.0)} | changes.pop("line", {})
        config = {"name": "tiny", "method": "fedavg", "seed": 0, "clients": "int8:3, float32:1", "rounds": of}
        self.write(path / "config.toml", tomli_w.dumps(config | changes))
        lines = [json.dumps(a_line(number, **line)) + "\n" for number in range(1, made + 1)]
        self.write(path / "rounds.jsonl", "".join(lines) + tail)
        if finished:
            self.write(path / "summary.json", json.dumps({"rounds": made}))
        return path

    def plan(self, *runs: tuple[str, int], **failures: str) -> None:
        facts = [{"folder": f"{method}-seed{seed}", "method": method, "seed": seed} for method, seed in runs]
        reasons = {name.replace("_", "-"): reason for name, reason in failures.items()}
        text = json.dumps({"name": "tiny", "baseline": "fedavg", "runs": facts, "failures": reasons})
        self.write(self.folder / "comparison.json", text)


def a_line(number: int, **changes: Any) -> dict[str, Any]:
    """A round; accuracy goes up by 5 % a round."""
    share = 0.05 * number
    received, trained = {"int8": share, "float32": share + 0.1}, {"int8": share + 0.2, "float32": 0.7}
    up, down = {"int8": 1000, "float32": 4000}, {"int8": 2000, "float32": 4000}
    return {
        "round": number,
        "accuracy": {"received": received, "trained": trained},
        "loss": {"int8": 1.5, "float32": 0.25},
        "bytes": {"up": up, "down": down, "clients": {"0": [1000, 2000]}},
        "clients": {"asked": 4, "lost": [], "refused": []},
        "notes": {},
        "seconds": 12.0,
    } | changes  # fmt: skip


def seen(looker: Follower, *, width: int = 80, height: int | None = None) -> list[str]:
    """The page as it is now, line by line."""
    file = io.StringIO()
    console = Console(file=file, width=width, height=50, color_system=None, force_terminal=True)
    for part in page(looker.look(), console, height):
        console.print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def follow(hand: Hand, folder: Path, *events: Callable[[], object], terminal: bool = False, pause: float = 1.0) -> str:
    """Watch to the end while one thing after the other happens; who then still watches has failed."""
    left = iter(events)

    def sleep(seconds: float) -> None:
        assert seconds == 1.0
        hand.now += pause
        event = next(left, None)
        assert event is not None, "nothing more happens, and still it is watched"
        event()

    file = io.StringIO()
    console = Console(file=file, width=80, height=24, force_terminal=terminal, color_system=None)
    watch(folder, console, now=hand, sleep=sleep)
    assert next(left, None) is None, "the watching ended early"
    return file.getvalue()
