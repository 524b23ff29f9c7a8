"""Settings as they are written: what a file extends, and what it suggests to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowd.config.files import Suggestion, presets, read_pairs, read_settings, read_suggestion
from prowd.config.options import make_method
from prowd.config.schema import load_config
from prowd.errors import ConfigError
from prowd.methods import METHODS


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_file_extends_a_preset(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine.toml", 'extends = "table1-50-50"\nrounds = 3\n[float32]\nclip = 1.0\n')
    config, base = load_config(mine), load_config("table1-50-50")
    assert (config.name, config.rounds, config.float32.clip, config.float32.lr) == ("mine", 3, 1.0, base.float32.lr)
    assert config.steps == base.steps


def test_a_file_extends_the_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", "rounds = 7\nsteps = 5\n")
    assert read_settings(write(tmp_path, "mine.toml", 'extends = "base.toml"\nrounds = 3\n')) == {
        "rounds": 3,
        "steps": 5,
        "name": "mine",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "mine.toml"', "^extends: 'mine.toml' "),
        ("extends = 3", "^extends: 3 "),
        ('extends = "tabel1-50-50"', "did you mean 'table1-50-50'"),
        ('extends = "gone.toml"', "gone.toml cannot be read"),
        ('extends = "a\\u0000.toml"', "cannot be read: embedded null byte"),
        ("rounds = 3\nsteps = \n", "mine.toml is not valid TOML: .*line 2"),
        ("rounds = " + "1" * 5000, "is not valid TOML"),
        ("rounds = " + "[" * 5000, "is not valid TOML"),
    ],
    ids=lambda value: value[:20],
)
def test_what_cannot_be_read_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, "mine.toml", text))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b'name = "\xff\xfe"\n')
    for name in ("missing.toml", "folder.toml", "binary.toml"):
        with pytest.raises(ConfigError, match=f"{name} cannot be read"):
            load_config(tmp_path / name)


def test_a_file_of_another_suffix_can_be_read(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "mine.conf", "rounds = 7")).rounds == 7


def test_a_file_suggests_what_to_compare(tmp_path: Path) -> None:
    mine = write(tmp_path, "mine.toml", '[compare]\nmethods = ["local"]\nseeds = [4, 5]\n')
    assert read_suggestion(mine) == Suggestion(("local",), (4, 5))
    assert read_suggestion("quick") == Suggestion(("fedavg", "prowd"), (0, 1, 2))
    assert load_config(mine).method == "fedavg", "which is no setting of a run"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compare = 3", r"^compare: 3 "),
        ("[compare]\nmethod = []", r"^compare\.method: .*did you mean 'methods'"),
        ('[compare]\nseeds = ["x"]', r"^compare\.seeds\.0: 'x' "),
    ],
)
def test_a_bad_suggestion_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read_suggestion(write(tmp_path, "mine.toml", text))


@pytest.mark.parametrize("name", presets())
def test_presets_suggest_methods_that_their_options_fit(name: str) -> None:
    for method in read_suggestion(name).methods:
        assert method in METHODS
        config = load_config(name, {"method": method})
        assert make_method(config.method, config.options).name == method


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("x=5", 5),
        ("x = 0.5", 0.5),
        ("x=true", True),
        ('x="int8:2, float32:1"', "int8:2, float32:1"),
        ("x=int8:2, float32:1", "int8:2, float32:1"),
        ("x=[1, 2]", [1, 2]),
        ("x={a = 1}", {"a": 1}),
        ("x=a=b", "a=b"),
        ("x=", ""),
        ("x=  crop, flip ", "crop, flip"),
        ("x=" + "[" * 5000, "[" * 5000),
        ("x=1\ny=2", "1\ny=2"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_value_is_toml_where_it_is_toml(pair: str, value: object) -> None:
    assert read_pairs([pair]) == {"x": value}


def test_pairs_are_settings_the_last_of_a_name_counts() -> None:
    assert read_pairs(["a=1", " b.c = x", "a=2"]) == {"a": 2, "b.c": "x"}
    assert read_pairs([]) == {}


@pytest.mark.parametrize("pair", ["rounds", "", "=5", "  = 5"])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(ConfigError, match=f"^'{pair}' .*accepted: KEY=VALUE"):
        read_pairs([pair])
