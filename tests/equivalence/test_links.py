"""Clients at the end of a link, in any share and on any number of workers, come to the bits of the pure simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import prowd
from tests import board
from tests.runs import config_file, expected, summary


def boards(config: Path, *clients: int) -> dict[str, str]:
    return {str(client): f"exec:{sys.executable} {board.__file__} {config} {client}" for client in clients}


def test_a_run_with_boards_has_the_weights_of_the_pure_run(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": "prowd-plus"}
    pure = expected(**settings)
    config = config_file(tmp_path, **settings)
    path = tmp_path / "linked"
    first = prowd.run(config, links=boards(config, 0, 2), rounds=2, out=path, workers=2)
    assert [line["clients"] for line in first.rounds] == [{"asked": 4, "lost": [], "refused": [], "limited": []}] * 2
    assert [line["loss"] for line in first.rounds] == [line["loss"] for line in pure["rounds"][:2]]
    assert first.rounds[-1]["accuracy"]["received"]["int8"] == pure["rounds"][1]["accuracy"]["received"]["int8"]
    again = prowd.run(resume=path, rounds=3, links=boards(config, 1), workers=1)
    assert again.summary["weights_sha256"] == pure["weights"] == summary(path)["weights_sha256"]
