"""The recordings of a smart watch: from seglearn's file to windows of codes."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prowd.data import Windows, fetch, load, verify, watch
from prowd.data.cache import Arrays, Expected, Store
from prowd.data.registry import catalogue
from prowd.errors import ConfigError, DataError
from prowd.files import sha256

from .test_pickles import Attack


def recordings() -> dict[str, Any]:
    """Two people, two exercises, in no order; the n-th recording has the value n/8 everywhere, in g."""
    lengths = (10, 12, 9, 8)
    return {
        "X": [np.full((length, 6), n / 8) for n, length in enumerate(lengths)],
        "y": np.array([1, 0, 0, 1]),
        "subject": np.array([4, 4, 2, 2]),
        "side": np.array([1.0, 0.0, 1.0, 0.0]),
        "y_labels": ["PEN", "ABD"],
    }


def written(path: Path, held: object) -> Path:
    """A file such as seglearn's: an array of no dimension that holds a dict."""
    whole = np.empty((), object)
    whole[()] = held
    with io.BytesIO() as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(whole))
        path.write_bytes(stream.getvalue() + pickle.dumps(whole, 2))
    return path


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Expect the fake recordings, in an empty store; returns their file."""
    path = written(tmp_path / "watch.npy", recordings())
    monkeypatch.setenv("PROWD_DATA", str(tmp_path / "store"))
    monkeypatch.setattr(watch, "_file", lambda: path)
    monkeypatch.setattr(watch, "SHA256", sha256(path.read_bytes()))
    converted = watch.convert(watch.read(path))
    contents = {name: Expected(one.shape, sha256(one), one.dtype.name) for name, one in converted.items()}
    monkeypatch.setattr(watch, "STORE", Store(watch.NAME, contents))
    return path


def test_recordings_are_kept_as_codes_by_person_exercise_and_side(tiny: Path) -> None:
    held = watch.convert(watch.read(tiny))
    assert held["subject"].tolist() == [2, 2, 4, 4]
    assert held["exercise"].tolist() == [0, 1, 0, 1]
    assert held["side"].tolist() == [1, 0, 0, 1]
    assert held["lengths"].tolist() == [9, 8, 12, 10]
    assert held["samples"].dtype == np.int8
    firsts = held["samples"][[0, 9, 17, 29]]
    assert firsts[:, 0].tolist() == [16, 24, 8, 0], "128 · (n/8) / 2 g"
    assert firsts[:, 5].tolist() == [6, 10, 3, 0], "128 · (n/8) / 5 rad/s, rounded"


def test_what_is_beyond_the_full_scale_is_clipped() -> None:
    codes = watch._codes(np.array([[2.0, -2.0, 1.99, -9.0, 5.1, 0.0]]))
    assert codes.tolist() == [[127, -127, 127, -127, 127, 0]]


def windows(held: Arrays, length: int, step: int) -> list[tuple[list[int], int, int]]:
    """The slow and obvious way."""
    found, begin = [], 0
    for number, count in enumerate(held["lengths"].tolist()):
        recording = held["samples"][begin : begin + count]
        begin += count
        for start in range(0, count - length + 1, step):
            values = recording[start : start + length].T.flatten().tolist()
            found.append((values, int(held["exercise"][number]), int(held["subject"][number])))
    return found


@pytest.mark.parametrize(("length", "step"), [(4, 2), (8, 8), (3, 1), (5, 7), (1, 1)])
def test_windows_are_cut_within_recordings(length: int, step: int) -> None:
    random = np.random.default_rng(3)
    held = {
        "samples": random.integers(-127, 128, (39, 6), np.int8),
        "lengths": np.array([9, 8, 12, 10], np.uint16),
        "subject": np.array([2, 2, 4, 4], np.uint8),
        "exercise": np.array([0, 1, 0, 1], np.uint8),
    }
    cut = watch.cut(held, Windows(length, step))
    found = [
        (image.flatten().tolist(), int(label), int(person))
        for image, label, person in zip(cut["x_train"], cut["y_train"], cut["client"], strict=True)
    ]
    assert found == windows(held, length, step)
    assert cut["x_train"].shape[1:] == (6, length, 1)


def test_a_window_is_no_longer_than_the_shortest_recording(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"^window: 9 samples of watch; accepted: 1 to 8"):
        load("watch", Windows(9, 1))


def test_it_is_converted_once_and_then_read_from_the_store(tiny: Path) -> None:
    assert not next(entry for entry in catalogue() if entry.name == "watch").cached
    with pytest.raises(DataError, match="prowd data fetch watch"):
        verify("watch")
    first = load("watch", Windows(4, 2))
    assert fetch("watch").name == "watch"
    tiny.unlink()
    again = load("watch", Windows(4, 2))
    assert again.digest() == first.digest()
    assert all(check.ok for check in verify("watch"))
    assert next(entry for entry in catalogue() if entry.name == "watch").size == 39 * 6 + 2 * 4 + 3 * 4
    assert (first.people, first.classes, len(first.y_test)) == ((2, 4), 2, 0)


def test_a_damaged_store_is_converted_again(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = load("watch", Windows(4, 2))
    samples = watch.STORE.folder / "samples.npy"
    samples.write_bytes(samples.read_bytes()[:-1] + b"\x55")
    assert load("watch", Windows(4, 2)).digest() == first.digest()
    assert "converting it again" in caplog.text


def test_a_file_of_another_hash_is_refused_before_it_is_read(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was unpickled")

    monkeypatch.setattr(watch, "read_pickle", never)
    tiny.write_bytes(tiny.read_bytes() + b"\x00")
    with pytest.raises(DataError, match=r"has sha256 \w+; expected \w+, as of seglearn 1.2.5"):
        load("watch")


def test_code_in_a_file_is_refused_even_with_the_right_hash(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = recordings()
    held["X"][2] = Attack(tmp_path / "made")
    monkeypatch.setattr(watch, "SHA256", sha256(written(tiny, held).read_bytes()))
    with pytest.raises(DataError, match=r"watch.npy: a pickle that asks for"):
        load("watch")
    assert not (tmp_path / "made").exists()


def test_without_seglearn_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROWD_DATA", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(DataError, match=r"seglearn, which is not installed; install it: .*'\.\[watch\]'"):
        load("watch")


def test_a_source_is_of_no_use(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"^from: '/there' is of no use"):
        fetch("watch", "/there")


def test_the_real_recordings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROWD_DATA", str(tmp_path))
    data = load("watch")
    assert data.x_train.shape == (3605, 6, 128, 1)
    assert data.people == tuple(range(1, 11))
    assert data.classes == len(data.class_names) == 7
    assert all(check.ok for check in verify("watch"))
    pairs = {
        (int(p), int(y)) for p, y in zip(data.client if data.client is not None else (), data.y_train, strict=True)
    }
    assert len(pairs) == 70, "everybody did every exercise"
