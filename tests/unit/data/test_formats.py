from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from prowd.data import archives
from prowd.data.archives import read_members
from prowd.data.cache import Arrays
from prowd.data.formats import FILES, decode
from prowd.errors import DataError

from . import fakes


def equal(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("protocol", [0, 2, 3, 4])
def test_python_batches(protocol: int) -> None:
    assert equal(decode(fakes.python_files(protocol), fakes.IMAGE), fakes.arrays())


def test_python_batch_in_fortran_order() -> None:
    files = fakes.python_files()
    images = np.asfortranarray(fakes.arrays()["x_test"].reshape(6, -1))
    files["test_batch"] = pickle.dumps({"data": images, "labels": fakes.arrays()["y_test"].tolist()}, 2)
    assert equal(decode(files, fakes.IMAGE), fakes.arrays())


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_malicious_pickle_is_refused(tmp_path: Path) -> None:
    for protocol in range(5):
        data = pickle.dumps({b"data": Malicious(tmp_path / "owned"), b"labels": []}, protocol)
        files = {**fakes.python_files(), "data_batch_3": data}
        with pytest.raises(DataError, match=r"asks for \w+\.mkdir"):
            decode(files, fakes.IMAGE)
    assert not (tmp_path / "owned").exists()


def test_dotted_names_do_not_get_past() -> None:
    data = b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__class__\x93."
    with pytest.raises(DataError, match=r"numpy\.ndarray\.__class__"):
        decode({**fakes.python_files(), "test_batch": data.replace(b"\x0f", b"\x11")}, fakes.IMAGE)


def test_pickles_of_other_types_are_refused() -> None:
    data = pickle.dumps({"data": np.zeros((6, 48), np.int64), "labels": [0] * 6}, 2)
    with pytest.raises(DataError, match="accepted: u1"):
        decode({**fakes.python_files(), "test_batch": data}, fakes.IMAGE)


@pytest.mark.parametrize("cut", [0, 1, 40, 200])
def test_truncated_files_are_refused(cut: int) -> None:
    for form, files in (("python", fakes.python_files()), ("binary", fakes.binary_files()), ("PNG", fakes.png_files())):
        for name in files:
            if cut in (0, len(files[name])) and form == "binary":
                continue  # no records at all are an array of none, which its shape gives away later
            with pytest.raises(DataError, match=f"damaged {form} files"):
                decode({**files, name: files[name][: min(cut, len(files[name]) - 1)]}, fakes.IMAGE)


def test_png_of_another_shape_is_refused() -> None:
    for pixels in (np.zeros((4, 15, 3), np.uint8), np.zeros((4, 16), np.uint8)):
        with pytest.raises(DataError, match="accepted: RGB, 16 wide"):
            decode({**fakes.png_files(), "data_batch_2.png": fakes.png(pixels)}, fakes.IMAGE)


def test_incomplete_files_are_named() -> None:
    with pytest.raises(DataError, match=r"holds none of the files"):
        decode({}, fakes.IMAGE)
    files = fakes.png_files()
    del files["train_lables.json"]
    with pytest.raises(DataError, match=r"holds data_batch_1\.png, .*test_lables\.json of the files"):
        decode(files, fakes.IMAGE)


def test_archives_write_nothing_and_reach_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    path = tmp_path / "inner" / "evil.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for name, target in (("data_batch_1", "../secret"), ("data_batch_2", str(tmp_path / "secret"))):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name in ("../../data_batch_3", "/data_batch_4"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"data"))
    before = sorted(tmp_path.rglob("*"))
    assert read_members(path, FILES) == {"data_batch_3": b"data", "data_batch_4": b"data"}
    assert sorted(tmp_path.rglob("*")) == before


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"data_batch_1": bytes(2000)}
    monkeypatch.setattr(archives, "MAX_BYTES", 1000)
    for path in (
        fakes.tar(tmp_path / "a.tgz", large),
        fakes.zipped(tmp_path / "a.zip", large),
        fakes.folder(tmp_path / "a", large),
    ):
        with pytest.raises(DataError, match="data_batch_1 is too large; accepted: up to 1,000 bytes"):
            read_members(path, FILES)
    with pytest.raises(DataError, match="padding is too large"):
        read_members(fakes.tar(tmp_path / "b.tgz", {"padding": bytes(2000)}), FILES)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match="more than 3 members"):
        read_members(fakes.tar(tmp_path / "c.tgz", {f"file{i}": b"" for i in range(4)}), FILES)


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    for path in (
        fakes.tar(tmp_path / "a.tgz", fakes.python_files()),
        fakes.zipped(tmp_path / "a.zip", fakes.python_files()),
    ):
        whole = path.read_bytes()
        for broken in (b"", b"nonsense", whole[: len(whole) // 2], whole[:-100]):
            path.write_bytes(broken)
            with pytest.raises(DataError, match=r"cannot be read: .+"):
                read_members(path, FILES)
    with pytest.raises(DataError, match=r"cannot be read: .*No such file"):
        read_members(tmp_path / "none", FILES)
