"""What a device says is shown as text: no escape code reaches a terminal, no bracket is markup, no line is broken."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from click.testing import CliRunner
from rich.console import Console

from prowd.cli import main
from prowd.errors import RunError
from prowd.federation.report import Absence, RoundReport
from prowd.flower import server_app
from prowd.methods import ServerState
from prowd.views.console import RunView
from prowd.wire import Update
from tests.unit.flower.fakes import FIRST, FakeGrid, alters, fails
from tests.unit.flower.federations import logging_as_before, run, server

EVIL = "[/red] [bold]\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202egnp\u200b<script>"
SHOWN = r"[/red] [bold]\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202egnp\u200b<script>"
"""As the views have it, whatever they are; a page writes the last bracket as HTML does."""


def renames(update: Update) -> Update:
    """A tensor's name goes into the reason why it is refused."""
    name, tensor = update.weights.popitem()  # type: ignore[attr-defined]
    return Update(
        update.round, update.client, update.width, update.num_examples,
        {**update.weights, f"{name}\x1b[31m[/]": tensor}, update.metrics,
    )  # fmt: skip


def is_plain(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


def evil_run(grid: FakeGrid, path: Path) -> Path:
    grid.tricks = {(FIRST + 1, 1): [fails(2, EVIL)], (FIRST + 2, 2): [alters(renames)]}
    run(grid, path)
    return path


def test_views_show_a_device_s_words_as_text(grid: FakeGrid, tmp_path: Path) -> None:
    path = evil_run(grid, tmp_path / "run")
    said = CliRunner().invoke(main, ["flower", "status", str(path)], env={"COLUMNS": "400"})
    assert said.exit_code == 0, said.exception
    assert SHOWN in said.output
    assert r"\x1b[31m[/]" in said.output
    assert is_plain(said.output)
    for name in ("server.jsonl", "rounds.jsonl"):
        assert is_plain((path / name).read_text("utf-8")), name
    made = CliRunner().invoke(main, ["report", str(path)])
    assert made.exit_code == 0, made.output
    page = (path / "report" / "index.html").read_text("utf-8")
    assert SHOWN.replace("<script>", "&lt;script&gt;") in page
    assert "\x1b" not in page


def test_a_terminal_is_not_steered(grid: FakeGrid, tmp_path: Path) -> None:
    written = io.StringIO()
    view = RunView(Console(file=written, force_terminal=False, width=400))

    class Showing(server_app.Diary):
        def began(self, *given: Any) -> None:
            view.began(*given)

        def finished(self, report: RoundReport, state: ServerState) -> None:
            view.finished(report, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_app, "Diary", Showing)
        evil_run(grid, tmp_path / "run")
    assert SHOWN in written.getvalue()
    assert is_plain(written.getvalue())


def test_nor_by_those_who_are_turned_away_or_are_too_few(grid: FakeGrid, tmp_path: Path) -> None:
    grid.tricks = {(FIRST, 0): [fails(2, EVIL)] * 99}
    with logging_as_before(), pytest.raises(RunError) as caught:
        server_app.serve(grid, server(tmp_path / "run"))  # type: ignore[arg-type]
    assert SHOWN in str(caught.value)
    grid.tricks = {(FIRST + n, 1): [fails(2, EVIL)] * 99 for n in range(4)}
    with pytest.raises(RunError) as stopped:
        run(grid, tmp_path / "other", attempts=1)
    assert SHOWN in str(stopped.value)
    assert all(is_plain(str(error.value)) for error in (caught, stopped))


def test_words_that_are_on_the_disk_already(tmp_path: Path) -> None:
    line = {"round": 1, "accuracy": {}, "bytes": {"up": {}, "down": {}}, "clients": {
        "asked": 1, "lost": [{"client": 0, "width": "int8\x1b[2J", "reason": EVIL}], "refused": [],
    }}  # fmt: skip
    (absence,) = RoundReport.model_validate(line).clients.lost
    assert (absence.width, absence.reason) == (r"int8\x1b[2J", SHOWN)
    assert len(Absence(0, "int8", "\x1b" * 10**6).reason) == 500
