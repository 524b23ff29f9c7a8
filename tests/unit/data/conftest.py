from __future__ import annotations

from pathlib import Path

import pytest

from prowd.data import cifar10, sources
from prowd.data.cache import Store

from . import fakes


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Expect the fake CIFAR-10, in an empty cache, with neither network nor npm; returns the cache folder."""
    monkeypatch.setattr(cifar10, "STORE", Store(cifar10.NAME, fakes.contents()))
    monkeypatch.setattr(cifar10, "LOCAL", tmp_path / "data")
    monkeypatch.setattr(sources, "OFFICIAL", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("PROWD_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
