"""Where a result comes from: which code, on what machine, by what command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from prowd import __version__

__all__ = ["command_line", "provenance", "without_home"]

HERE = Path(__file__).parent.parent  # the package


def provenance() -> dict[str, Any]:
    """Facts about this process, as plain JSON values; the home directory of whoever started it is ~."""
    return {
        "version": __version__,
        "commit": _commit(),
        "command": command_line(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "instructions": torch.backends.cpu.get_cpu_capability(),  # which decide the last bits of float sums
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
    }


def command_line(arguments: list[str]) -> str:
    """The command line as it would be typed, but for the secret that Flower starts its apps with."""
    name = Path(arguments[0]).name if arguments else ""
    hidden = [re.sub(r"^--token=.*", "--token=HIDDEN", text, flags=re.DOTALL) for text in arguments]
    shown = [without_home("HIDDEN" if before == "--token" else text) for before, text in pairwise(hidden)]
    package = _package(Path(arguments[0]).parent) if name == "__main__.py" else ""
    python = ["python", "-m", package] if package else ["python", name]
    return shlex.join([*(python if name.endswith(".py") or name == "-c" else [name]), *shown])


def _package(folder: Path) -> str:
    """The dotted name of the package that a folder is; empty if it is none."""
    if not (folder / "__init__.py").is_file():
        return ""
    return f"{_package(folder.parent)}.{folder.name}".lstrip(".")


def without_home(text: str) -> str:
    """A text without the name of the user's home directory."""
    home = str(Path.home())
    return re.sub(rf"{re.escape(home)}(?=/|\\|$|\W)", "~", text) if len(home) > 1 else text


@cache
def _commit() -> str | None:
    """The commit of the code that runs, with "+" where files differ from it; None where it is not known."""
    try:
        installed = json.loads(importlib.metadata.distribution("prowd").read_text("direct_url.json") or "")
        return str(installed["vcs_info"]["commit_id"])
    except (importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        pass  # not installed from a repository
    if not _git("ls-files", "--error-unmatch", "__init__.py"):
        return None  # not a checkout of prowd, but perhaps an environment inside somebody's own repository
    commit = _git("rev-parse", "HEAD")
    return f"{commit}+" if commit and _git("status", "--porcelain", "--untracked-files=no", ".") else commit


def _git(*arguments: str) -> str | None:
    """What git says of this folder; None where it says nothing."""
    try:
        answer = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "--no-optional-locks", *arguments],  # noqa: S607 - whichever git the user has
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
