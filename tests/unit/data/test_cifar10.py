from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from prowd.data import cache, catalogue, cifar10, fetch, formats, load, verify
from prowd.data.cache import Arrays, Expected, Store
from prowd.errors import DataError

from . import fakes


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(fakes.folder(tmp_path / "batches", fakes.binary_files()))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_sound(root: Path) -> None:
    assert names(root) <= {"cifar10", "cifar10.lock"}, "no leftovers"
    assert names(root / "cifar10") == {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"}
    assert all(check.ok for check in verify("cifar10"))


def test_fetch_stores_what_load_maps(tiny: Path, source: str) -> None:
    steps: list[str] = []
    assert fetch("cifar10", source, lambda what, _done, _total: steps.append(what)) == tiny / "cifar10"
    assert steps == ["decoding", "checking"]
    assert_sound(tiny)
    data = load("cifar10")
    assert (data.name, data.classes, data.image_shape) == ("cifar10", 10, fakes.IMAGE)
    assert np.array_equal(data.x_train.numpy(), fakes.arrays()["x_train"])
    assert data.y_test.tolist() == fakes.arrays()["y_test"].tolist()
    assert load("cifar10", verify=False).digest() == data.digest()
    data.x_train.zero_()
    assert all(check.ok for check in verify("cifar10")), "writing to the tensors does not touch the cache"
    assert catalogue()[1].cached


@pytest.mark.parametrize("files", [fakes.python_files(), fakes.binary_files(), fakes.png_files()])
@pytest.mark.parametrize("form", ["folder", "tar", "zip", "parent"])
def test_any_form_in_any_container(tiny: Path, tmp_path: Path, files: Mapping[str, bytes], form: str) -> None:
    files = {**files, "readme.html": b"not wanted"}
    match form:
        case "folder":
            path = fakes.folder(tmp_path / "given", files)
        case "parent":
            path = fakes.folder(tmp_path / "given" / "cifar-10-batches-py", files).parent
        case "tar":
            path = fakes.tar(tmp_path / "given.tgz", files, prefix="package/")
        case _:
            path = fakes.zipped(tmp_path / "given.zip", files)
    fetch("cifar10", str(path))
    assert_sound(tiny)


@pytest.mark.parametrize("folder", ["cache", "data"])
def test_local_copies_are_found_without_being_named(tiny: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    fakes.tar(tmp_path / folder / "cifar-10-python.tar.gz", fakes.python_files())
    assert load("cifar10").digest()
    assert all(check.ok for check in verify("cifar10"))


def test_other_contents_are_refused_and_not_kept(tiny: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for array, shape in (("y_test", (6,)), ("x_test", (7, 3, 4, 4))):
        contents = {**fakes.contents(), array: Expected(shape, "f" * 64)}
        monkeypatch.setattr(cifar10, "STORE", Store(cifar10.NAME, contents))
        with pytest.raises(DataError, match=rf"{array} .*; expected "):
            fetch("cifar10", source)
        assert names(tiny) == {"cifar10.lock"}


def test_all_failures_are_listed(tiny: Path) -> None:
    tiny.mkdir()
    (tiny / "cifar-10-python.tar.gz").write_bytes(b"damaged")
    with pytest.raises(DataError) as caught:
        load("cifar10")
    for failure in ("cifar-10-python.tar.gz: cannot be read", "(2) http://127.0.0.1:9/", "(3) npm: "):
        assert failure in str(caught.value)


def test_unfetched_data_cannot_be_verified(tiny: Path) -> None:
    with pytest.raises(DataError, match=r"cifar10 is not in .*prowd data fetch cifar10"):
        verify("cifar10")


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    match how:
        case "flipped":
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "truncated":
            path.write_bytes(whole[:-1])
        case "emptied":
            path.write_bytes(b"")
        case "reshaped":
            np.save(path, np.load(path).reshape(-1))
        case _:
            path.unlink()


@pytest.mark.parametrize("how", ["flipped", "truncated", "emptied", "reshaped", "removed"])
def test_damage_is_seen_and_mended(tiny: Path, source: str, caplog: pytest.LogCaptureFixture, how: str) -> None:
    folder = fetch("cifar10", source)
    damage(folder / "x_test.npy", how)
    assert [check.array for check in verify("cifar10") if not check.ok] == ["x_test"]
    assert catalogue()[1].cached == (how == "flipped"), "the catalogue looks at shapes only"
    fakes.folder(tiny / "cifar-10-batches-bin", fakes.binary_files())
    with caplog.at_level(logging.WARNING):
        assert load("cifar10").x_test.numpy().tolist() == fakes.arrays()["x_test"].tolist()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "damaged" in caplog.text
    assert all(check.ok for check in verify("cifar10"))


def test_damage_that_cannot_be_mended_is_an_error_and_stays(tiny: Path, source: str) -> None:
    folder = fetch("cifar10", source)
    damage(folder / "y_train.npy", "flipped")
    with pytest.raises(DataError, match="cifar10 could not be fetched"):
        load("cifar10")
    assert names(folder) == {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"}


def test_unwritable_cache_names_folder_and_variable(
    tmp_path: Path, tiny: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("PROWD_DATA", str(place))
        with pytest.raises(DataError, match=f"cannot use the data folder {place}: .*; set PROWD_DATA to a folder"):
            fetch("cifar10", source)
        assert not catalogue()[1].cached


def test_full_disk_leaves_nothing(tiny: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match="No space left on device; set PROWD_DATA"):
        fetch("cifar10", source)
    assert names(tiny) == {"cifar10.lock"}


def test_reading_needs_no_write_permission(tiny: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("cifar10", source)

    def refused(_store: Store) -> None:
        raise AssertionError("reading must not take the lock")

    monkeypatch.setattr(Store, "lock", refused)
    assert load("cifar10").classes == 10
    assert fetch("cifar10") == tiny / "cifar10"


def test_leftovers_of_a_killed_process_are_cleared(tiny: Path, source: str) -> None:
    for name in (".cifar10-abc", ".cifar10.0123.tmp"):
        fakes.folder(tiny / name, {"half": b"written"})
    fetch("cifar10", source)
    assert_sound(tiny)


def test_cache_is_the_users_own_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROWD_DATA", "~/elsewhere")
    assert cache.root() == Path.home() / "elsewhere"
    monkeypatch.delenv("PROWD_DATA")
    assert cache.root().name == "prowd"


WORKER = """
import sys
from pathlib import Path
from prowd.data import cifar10, fetch
from prowd.data.cache import Store
from tests.unit.data import fakes
from tests.unit.data.test_cifar10 import slow_decode

cifar10.STORE, cifar10.decode = Store(cifar10.NAME, fakes.contents()), slow_decode(Path(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
fetch("cifar10", sys.argv[1])
"""


def slow_decode(tally: Path) -> Callable[[Mapping[str, bytes], tuple[int, ...]], Arrays]:
    """Decode so slowly that two fetches overlap, and leave a line in ``tally``."""

    def decode(files: Mapping[str, bytes], image: tuple[int, ...]) -> Arrays:
        with tally.open("a") as file:
            file.write("fetched\n")
        time.sleep(0.5)
        return formats.decode(files, image)

    return decode


def test_two_processes_fetch_once(
    tiny: Path, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tally, pipe = tmp_path / "tally", subprocess.PIPE
    monkeypatch.setattr(cifar10, "decode", slow_decode(tally))
    command, top = [sys.executable, "-c", WORKER, source, str(tally)], Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=top, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("\n")
        other.stdin.flush()
        fetch("cifar10", source)
        _, errors = other.communicate(timeout=60)
    assert other.returncode == 0, errors
    assert tally.read_text() == "fetched\n"
    assert ("waiting for another" in errors) != ("waiting for another" in caplog.text), "one waited for the other"
    assert_sound(tiny)
