"""What tests of figures share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .directories import unrendered


@pytest.fixture
def unrendered_figures() -> Iterator[None]:
    """The report's own style; figures are looked at as they are before anything is rendered."""
    with unrendered():
        yield
