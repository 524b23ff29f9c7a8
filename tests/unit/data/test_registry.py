from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prowd.data import catalogue, digits, fetch, from_arrays, load, verify
from prowd.data.cache import Expected
from prowd.errors import ConfigError, DataError

from .test_dataset import arrays


def save(path: Path, values: dict[str, Any]) -> str:
    np.savez(path, allow_pickle=True, **values)
    return str(path)


def test_digits_are_stratified_grey_and_the_same_every_time() -> None:
    data = load("digits")
    assert (data.name, data.classes, data.image_shape) == ("digits", 10, (1, 8, 8))
    assert len(data.x_train) + len(data.x_test) == 1797
    assert (int(data.x_train.min()), int(data.x_train.max())) == (0, 255)
    train, test = data.y_train.bincount(), data.y_test.bincount()
    assert ((test / (train + test)) - 0.2).abs().max() < 0.005
    torch.manual_seed(12345)
    assert load("digits", verify=False).digest() == data.digest()


def test_digits_of_another_content_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Expected(digits.CONTENTS["y_test"].shape, "0" * 64)
    monkeypatch.setitem(digits.CONTENTS, "y_test", wrong)
    with pytest.raises(DataError, match="y_test has sha256"):
        load("digits")
    assert [check.array for check in verify("digits") if not check.ok] == ["y_test"]


def test_digits_need_no_fetching() -> None:
    assert all(check.ok and check.sha256 for check in verify("digits"))
    assert fetch("digits").is_dir()
    with pytest.raises(ConfigError, match=r"from: 'npm'.*scikit-learn"):
        fetch("digits", "npm")


def test_catalogue(tiny: Path) -> None:
    entries = {entry.name: entry for entry in catalogue()}
    assert list(entries) == ["digits", "cifar10", "watch"]
    assert entries["digits"].cached
    assert entries["digits"].size == 1797 * 65
    assert not entries["cifar10"].cached
    assert entries["cifar10"].where == tiny / "cifar10"


@pytest.mark.parametrize("function", [load, fetch, verify])
def test_unknown_names_are_refused_with_a_hint(function: Any) -> None:
    with pytest.raises(ConfigError, match=r"data: 'cifar-10' is unknown; .*did you mean 'cifar10'"):
        function("cifar-10")


def test_npz(tmp_path: Path) -> None:
    data = load(save(tmp_path / "mine.npz", arrays()))
    assert data.name == "mine.npz"
    assert data.digest() == from_arrays(**arrays()).digest()


def test_npz_of_people(tmp_path: Path) -> None:
    people = np.arange(6) // 2
    data = load(save(tmp_path / "mine.npz", arrays(client=people)))
    assert data.digest() == from_arrays(**arrays(client=people)).digest()
    train = {name: values for name, values in arrays(client=people).items() if "test" not in name}
    assert len(load(save(tmp_path / "mine.npz", train)).y_test) == 0


def test_npz_of_a_device_may_lack_classes(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", arrays(y_train=np.array([0, 1, 3, 0, 1, 3])))
    with pytest.raises(DataError, match=r"mine\.npz: y_train: label 3 but no example of class 2"):
        load(path)
    assert load(path, classes=5).classes == 5


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"client": np.zeros(6, int), **{k: v for k, v in arrays().items() if k != "y_test"}}, "lacks y_test; it"),
        ({name: values for name, values in arrays().items() if name.startswith("x")}, "lacks y_train, y_test"),
        (arrays(y_test=np.array([9, 9])), "y_test: the label 9"),
        (arrays(y_test=np.array([0, None])), "plain arrays"),
    ],
    ids=["half a test set", "lacking", "bad", "objects"],
)
def test_npz_of_the_wrong_arrays(held: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"mine\.npz.*{message}"):
        load(save(tmp_path / "mine.npz", held))


def test_npz_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        load(str(tmp_path / "none.npz"))


@pytest.mark.parametrize("cut", [0, 10, 200, -30])
def test_npz_truncated(tmp_path: Path, cut: int) -> None:
    path = Path(save(tmp_path / "mine.npz", arrays()))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="damaged"):
        load(str(path))


def test_npz_that_is_something_else(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    (tmp_path / "folder.npz").mkdir()
    for name, data in (("text", b"hello"), ("pickle", b"\x80\x04K\x01."), ("array", array.getvalue()), ("folder", b"")):
        if data:
            (tmp_path / f"{name}.npz").write_bytes(data)
        with pytest.raises(DataError, match="damaged"):
            load(str(tmp_path / f"{name}.npz"))


def test_npz_with_flipped_bytes(tmp_path: Path) -> None:
    path = Path(save(tmp_path / "mine.npz", arrays()))
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            data = load(str(path))
        except DataError:
            continue
        assert data.digest() == from_arrays(**arrays()).digest(), "what is loaded is what was saved"
