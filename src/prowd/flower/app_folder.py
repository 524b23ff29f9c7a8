"""The app directory that ``flwr run`` takes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from prowd.errors import RunError
from prowd.files import atomic_write

__all__ = ["write_app"]


def write_app(folder: Path) -> Path:
    """Write the app directory; one that holds something is left alone."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not an empty directory; accepted: a new one")
    folder.mkdir(parents=True, exist_ok=True)
    text = (resources.files("prowd") / "flower" / "app" / "pyproject.toml").read_bytes()
    atomic_write(folder / "pyproject.toml", text)
    return folder
