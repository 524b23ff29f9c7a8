"""Samples of weights for figures: of which rounds, at which places, of whom, and that they change nothing."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from prowd.config.files import read_pairs
from prowd.config.schema import Rounds, load_config
from prowd.errors import ConfigError, RunError
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.runs.snapshots import (
    BLOCKS,
    MODEL,
    Snapshots,
    client_files,
    read_snapshot,
    server_files,
)
from tests.unit.scenes import floats, same

# Of which rounds


def kept(rounds: Rounds, last: int, until: int = 6000) -> list[int]:
    given = Snapshots(Path("nowhere"), rounds, last)
    return [round_ for round_ in range(until) if given.wants(round_)]


def test_auto_keeps_early_rounds_then_ever_fewer_and_the_last() -> None:
    assert kept("auto", 3) == [0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert kept("auto", 777, until=778) == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 777]
    assert kept("auto", 1, until=2) == [0, 1]


def test_a_list_keeps_what_it_says() -> None:
    assert kept((0, 50, 7, 400), 1000) == [0, 7, 50, 400], "and not the last if it is not there"
    assert kept((), 1000) == kept("none", 20) == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("snapshots=0, 50", (0, 50)),
        ("snapshots= 3 ,1,1000000", (3, 1, 1_000_000)),
        ("snapshots=[0, 50]", (0, 50)),
        ("snapshots=50", (50,)),
        ('snapshots="7"', (7,)),
        ("snapshots=[]", ()),
        ("snapshots=none", "none"),
        ('snapshots="auto"', "auto"),
    ],
)
def test_rounds_read_as_people_write_them(written: str, read: Rounds, tmp_path: Path) -> None:
    config = load_config("quick", read_pairs([written]))
    assert config.snapshots == read
    (tmp_path / "config.toml").write_text(config.toml(), "utf-8")
    assert load_config(tmp_path / "config.toml") == config, "it survives being written and read"


def test_rounds_may_be_given_in_python() -> None:
    assert load_config("quick", {"snapshots": range(0, 30, 10)}).snapshots == (0, 10, 20)
    assert load_config("quick", {"snapshots": (4, 2)}).snapshots == (4, 2)
    assert (load_config("quick").snapshots, load_config("quick").snapshot_entries) == ("auto", 2048)


@pytest.mark.parametrize(
    "value",
    [
        *(-1, 10**6 + 1, 1.0, True, None, {}, "soon", "", "0,,1", "0; 1", "-1", "²", "1" * 5000, " auto"),
        *([-1], [0, 10**9], [0, 1.5], [True], [[0]], ["auto"]),
    ],
    ids=lambda value: str(value)[:12],
)
def test_rounds_that_cannot_be_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^snapshots: [^\n]*$"):
        load_config("quick", {"snapshots": value})


@pytest.mark.parametrize("value", [0, 2.5, "many", 2**63])
def test_a_sample_has_a_number_of_entries(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^snapshot_entries: "):
        load_config("quick", {"snapshot_entries": value})


# At which places


def sampled(folder: Path, size: int, name: str = "a.weight", entries: int = 100) -> list[int]:
    """The places at which a client's tensor is sampled: entry n of it is n."""
    Snapshots(folder, "auto", 1, entries).keep_client(1, 0, {name: floats(*range(size))})
    return [int(value) for value in read_snapshot(client_files(folder)[1][0]).values[name]]


def test_places_are_the_same_for_every_client_round_and_method(tmp_path: Path) -> None:
    places, ramp = sampled(tmp_path, 5000), torch.arange(5000.0)
    given = Snapshots(tmp_path / "others", "auto", 9, 100)
    for round_, client in itertools.product((1, 2), (0, 7)):
        given.keep_client(round_, client, {"a.weight": QTensor(ramp, FLOAT32)})
    stages = [{"a.weight": -ramp}, {"a.weight": ramp}]
    given.keep_server(1, {"a.weight": ramp, "int8/a.weight": ramp.reshape(50, 100), "b/a.weight": ramp}, stages, 7)
    for files in client_files(tmp_path / "others").values():
        for path in files.values():
            assert read_snapshot(path).values["a.weight"].tolist() == places
    server = read_snapshot(server_files(tmp_path / "others")[1]).values
    assert server[f"{MODEL}a.weight"].tolist() == places
    assert server[f"{MODEL}int8/a.weight"].tolist() == places, "also of a group's model"
    assert server[f"{MODEL}b/a.weight"].tolist() == sampled(tmp_path / "b", 5000, "b/a.weight") == places
    assert server[f"{BLOCKS}0/a.weight"].tolist() == [-place for place in places]
    assert server[f"{BLOCKS}1/a.weight"].tolist() == places


def test_places_are_spread_over_the_tensor(tmp_path: Path) -> None:
    places = sampled(tmp_path, 5000)
    assert len(places) == 100
    assert places == sorted(places)
    assert min(places) >= 0
    assert max(places) < 5000
    assert all(10 < sum(low <= place < low + 1250 for place in places) < 40 for low in range(0, 5000, 1250))
    assert sampled(tmp_path, 5000, "b.weight") != places, "every tensor has its own"
    assert sampled(tmp_path, 5000) == places


def test_a_small_tensor_is_kept_whole(tmp_path: Path) -> None:
    for size in (1, 99, 100):
        assert sampled(tmp_path, size) == list(range(size))
    places = sampled(tmp_path, 101)
    assert len(places) == 100
    assert places != list(range(100)), "one more, and it is not"


# What is kept, exactly


@pytest.mark.parametrize(
    ("bits", "dtype"),
    [(2, torch.int8), (3, torch.int8), (8, torch.int8), (9, torch.int16), (16, torch.int16), (32, torch.float32)],
)
@pytest.mark.parametrize("entries", [50, 2048])
def test_codes_keep_their_values(bits: int, dtype: torch.dtype, entries: int, tmp_path: Path) -> None:
    width = Bitwidth(bits)
    if width.is_float:
        tensor = torch.randn(8, 9, 3, generator=torch.Generator().manual_seed(1)) * 1e-3
    else:
        top = width.max_code
        tensor = torch.randint(-top, top + 1, (8, 9, 3), generator=torch.Generator().manual_seed(1)).to(torch.int16)
        tensor[0, 0] = torch.tensor([top, 0, -top])
    weights = {"a.weight": QTensor(tensor, width), "b.weight": QTensor(tensor[0, 0], width)}
    Snapshots(tmp_path, "auto", 20, entries).keep_client(20, 3, weights)
    (path,) = tmp_path.iterdir()
    found = read_snapshot(path)
    assert (found.round, found.client, found.width) == (20, 3, width)
    assert found.shapes == {"a.weight": [8, 9, 3], "b.weight": [3]}
    places = sampled(tmp_path / "places", 216, entries=entries)
    assert found.values["a.weight"].tolist() == weights["a.weight"].value().flatten()[places].tolist()
    assert torch.equal(found.values["b.weight"], weights["b.weight"].value())
    with safe_open(path, "pt") as file:
        assert {file.get_tensor(name).dtype for name in ("a.weight", "b.weight")} == {dtype}, "as little as there is"


def test_weights_that_diverged_are_kept_as_they_are(tmp_path: Path) -> None:
    odd = floats(math.nan, math.inf, -math.inf, -0.0, 1e-45)
    Snapshots(tmp_path).keep_client(1, 0, {"a.weight": odd})
    found = read_snapshot(client_files(tmp_path)[1][0]).values["a.weight"]
    assert torch.equal(found.view(torch.int32), odd.codes.view(torch.int32))


def test_the_server_s_weights_are_floats_and_say_whose_were_lifted(tmp_path: Path) -> None:
    given = Snapshots(tmp_path, "auto", 9)
    model = {"a.weight": torch.rand(2, 3).double(), "a.gain": torch.rand(2)}
    given.keep_server(5, model)
    given.keep_server(9, model, [{"a.weight": torch.zeros(2, 3)}], 4)
    plain, lifted = (read_snapshot(path) for path in server_files(tmp_path).values())
    assert (plain.round, plain.client, lifted.round, lifted.client) == (5, -1, 9, 4)
    assert plain.width == lifted.width == FLOAT32
    assert same(plain.values, {f"{MODEL}{name}": model[name].float().flatten() for name in model})
    assert plain.shapes == {f"{MODEL}a.weight": [2, 3], f"{MODEL}a.gain": [2]}
    assert set(lifted.values) - set(plain.values) == {f"{BLOCKS}0/a.weight"}


def test_files_are_found_by_round_and_client(tmp_path: Path) -> None:
    given = Snapshots(tmp_path / "snapshots")
    assert (server_files(given.folder), client_files(given.folder)) == ({}, {}), "before there are any"
    for round_ in (10, 2, 1_000_000):
        given.keep_server(round_, {"a.weight": torch.zeros(1)})
    for round_, client in ((2, 12345), (2, 0), (10, 3)):
        given.keep_client(round_, client, {"a.weight": floats(1)})
    for name in ("round-best.safetensors", "round-1-client-x.safetensors", "round-2 (copy).safetensors", "notes.txt"):
        (given.folder / name).write_text("somebody else's", "utf-8")
    assert list(server_files(given.folder)) == [2, 10, 1_000_000]
    assert {round_: list(files) for round_, files in client_files(given.folder).items()} == {2: [0, 12345], 10: [3]}
    assert all(read_snapshot(path).round == round_ for round_, path in server_files(given.folder).items())


SOUND: dict[str, Any] = {"width": "int8", "shapes": {"a": [2]}, "client": 3}
UNSOUND: dict[str, list[Any]] = {
    "width": ["int99", 8, None],
    "shapes": [[], {"b": [2]}, {"a": 2}, {"a": ["b"]}, {"a": [math.inf]}],
    "client": ["nobody", None, [], math.inf],
}


@pytest.mark.parametrize(
    "facts",
    [
        *("", "[", "[" * 100_000, "[]", "{}", '{"width": "int8"}', '{"shapes": {"a": [2]}}'),
        *(json.dumps({**SOUND, key: value}) for key, values in UNSOUND.items() for value in values),
    ],
    ids=lambda facts: facts[:60],
)
def test_a_file_without_sense_is_an_error_that_can_be_expected(facts: str, tmp_path: Path) -> None:
    path = tmp_path / "round-000001.safetensors"
    path.write_bytes(save({"a": torch.zeros(2)}, {"facts": json.dumps(SOUND)}))
    assert (read_snapshot(path).client, read_snapshot(path).values["a"].tolist()) == (3, [0, 0])
    path.write_bytes(save({"a": torch.zeros(2)}, {"facts": facts}))
    with pytest.raises(ValueError, match=r"round-000001\.safetensors is damaged: "):
        read_snapshot(path)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"half", b"\xff" * 100, save({"a": torch.zeros(9)})[:-1]])
def test_a_damaged_file_is_an_error_that_can_be_expected(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "round-000001.safetensors"
    with pytest.raises(OSError, match="round-000001"):
        read_snapshot(path)
    path.write_bytes(data)
    with pytest.raises((ValueError, OSError, SafetensorError)):
        read_snapshot(path)
    with pytest.raises(ValueError, match="is not named as a file of samples is"):
        read_snapshot(path.rename(tmp_path / "best.safetensors"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("a file", "utf-8")
    given = Snapshots(tmp_path / "snapshots")
    message = rf"^{tmp_path / 'snapshots'} cannot be written: "
    with pytest.raises(RunError, match=message):
        given.keep_client(1, 0, {"a.weight": floats(1)})
    with pytest.raises(RunError, match=message):
        given.keep_server(1, {"a.weight": torch.zeros(1)})
