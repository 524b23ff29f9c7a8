from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.flower.fakes import Clock, FakeGrid


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    from tests.unit.flower.federations import jumping  # imports Flower, which may not be installed

    return jumping(monkeypatch)


@pytest.fixture
def grid(clock: Clock, tmp_path: Path) -> FakeGrid:
    """Four nodes that do not remember."""
    from tests.unit.flower.federations import make_grid

    return make_grid(clock, tmp_path, thrifty=True)
