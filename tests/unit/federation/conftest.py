"""What the tests of the engine begin with."""

from __future__ import annotations

import time

import pytest

from prowd.methods import FedAvg, ServerState
from tests.unit.federation.rounds import MIX
from tests.unit.scenes import scene


@pytest.fixture
def start() -> ServerState:
    return FedAvg().init(scene(*MIX))


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found
