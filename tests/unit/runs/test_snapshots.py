"""Samples of weights for figures: of which rounds, at which places, of whom, and that they change nothing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

import prowd
from prowd.config.files import read_pairs
from prowd.config.schema import Rounds, load_config
from prowd.device.scene import Scene
from prowd.errors import ConfigError, RunError
from prowd.federation.client import ClientRuntime
from prowd.federation.engine import Federation, run_round
from prowd.methods import METHODS, FedAvg, Local
from prowd.methods.common import initial_state
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.numbers.quantize import QTensor, ternarize
from prowd.runs import snapshots
from prowd.runs.build import as_used, assemble, load_data
from prowd.runs.directory import RunDir
from prowd.runs.snapshots import (
    BLOCKS,
    MODEL,
    MOST_CLIENTS,
    Snapshot,
    Snapshots,
    client_files,
    read_snapshot,
    server_files,
)
from prowd.wire import Task, decode_update, encode_task
from tests.runs import outcome, run_tiny, samples
from tests.unit.scenes import INT2, INT4, INT8, INT16, Answer, FakeTransport, device, floats, same, scene

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
    assert kept((), 1000) == []


def test_none_keeps_nothing() -> None:
    assert kept("none", 20) == []


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
        *(-1, 10**6 + 1, 10**9, 1.0, True, None, {}),
        *("soon", "", "0,,1", "0; 1", "-1", "1000000000", "²", "1" * 5000, " auto"),
        *([-1], [0, 10**9], [0, 1.5], [True], [[0]], ["auto"], ["0"]),
    ],
    ids=lambda value: str(value)[:12],
)
def test_rounds_that_cannot_be_are_refused_in_one_line(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("quick", {"snapshots": value})
    accepted = "'auto', 'none', or rounds from 0 to 1000000, as in 0, 50, 400"
    assert str(caught.value) == f"snapshots: {value!r} is wrong; accepted: {accepted}"


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", 2**63])
def test_a_sample_has_a_number_of_entries(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^snapshot_entries: .* is wrong; accepted: [^\n]*$"):
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
    given.keep_server(1, {"a.weight": ramp, "int8/a.weight": ramp.reshape(50, 100)}, stages, 7)
    for files in client_files(tmp_path / "others").values():
        for path in files.values():
            assert read_snapshot(path).values["a.weight"].tolist() == places
    server = read_snapshot(server_files(tmp_path / "others")[1]).values
    assert server[f"{MODEL}a.weight"].tolist() == places
    assert server[f"{MODEL}int8/a.weight"].tolist() == places, "also of a group's model"
    assert server[f"{BLOCKS}0/a.weight"].tolist() == [-place for place in places]
    assert server[f"{BLOCKS}1/a.weight"].tolist() == places


def test_places_are_the_same_for_a_layer_with_a_slash_in_its_name(tmp_path: Path) -> None:
    places = sampled(tmp_path, 5000, "block/a.weight")
    Snapshots(tmp_path, "auto", 1, 100).keep_server(1, {"block/a.weight": torch.arange(5000.0)})
    assert read_snapshot(server_files(tmp_path)[1]).values[f"{MODEL}block/a.weight"].tolist() == places


def test_places_are_spread_over_the_tensor(tmp_path: Path) -> None:
    places = sampled(tmp_path, 5000)
    assert len(places) == 100
    assert places == sorted(places)
    assert min(places) >= 0
    assert max(places) < 5000
    assert all(10 < sum(low <= place < low + 1250 for place in places) < 40 for low in range(0, 5000, 1250))
    assert sampled(tmp_path, 5000, "b.weight") != places, "every tensor has its own"
    assert sampled(tmp_path, 5000) == places


@pytest.mark.parametrize("size", [1, 99, 100])
def test_a_small_tensor_is_kept_whole(size: int, tmp_path: Path) -> None:
    assert sampled(tmp_path, size) == list(range(size))


def test_a_tensor_of_one_entry_more_is_not(tmp_path: Path) -> None:
    places = sampled(tmp_path, 101)
    assert len(places) == 100
    assert places != list(range(100))


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


def test_a_later_file_takes_the_place_of_an_earlier(tmp_path: Path) -> None:
    given = Snapshots(tmp_path)
    for value in (1.0, 2.0):
        given.keep_client(1, 0, {"a.weight": floats(value)})
        given.keep_server(1, {"a.weight": torch.tensor([value])})
    assert len(list(tmp_path.iterdir())) == 2
    assert float(read_snapshot(client_files(tmp_path)[1][0]).values["a.weight"]) == 2
    assert float(read_snapshot(server_files(tmp_path)[1]).values[f"{MODEL}a.weight"]) == 2


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


def test_a_file_of_somebody_else_is_an_error_that_can_be_expected(tmp_path: Path) -> None:
    path = tmp_path / "round-000001.safetensors"
    path.write_bytes(save({"a": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"round-000001\.safetensors is damaged: "):
        read_snapshot(path)
    with pytest.raises(ValueError, match="is not named as a file of samples is"):
        read_snapshot(path.rename(tmp_path / "best.safetensors"))


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"half", b"\xff" * 100])
def test_a_damaged_file_is_an_error_that_can_be_expected(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "round-000001.safetensors"
    with pytest.raises(OSError, match="round-000001"):
        read_snapshot(path)
    path.write_bytes(data)
    with pytest.raises((ValueError, OSError, SafetensorError)):
        read_snapshot(path)


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    Snapshots(tmp_path).keep_server(1, {"a.weight": torch.zeros(9)})
    path = server_files(tmp_path)[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SafetensorError):
        read_snapshot(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshots").write_text("a file", "utf-8")
    given = Snapshots(tmp_path / "snapshots")
    message = rf"^{tmp_path / 'snapshots'} cannot be written: "
    with pytest.raises(RunError, match=message):
        given.keep_client(1, 0, {"a.weight": floats(1)})
    with pytest.raises(RunError, match=message):
        given.keep_server(1, {"a.weight": torch.zeros(1)})


# Of whom


@pytest.mark.parametrize("clients", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 12345])
def test_a_large_federation_keeps_those_of_some_clients(clients: int) -> None:
    given = Snapshots(Path("nowhere"), (3,), cohort=clients)
    chosen = [client for client in range(clients) if given.wants_client(client)]
    assert len(chosen) <= MOST_CLIENTS
    assert len(chosen) >= min(clients, MOST_CLIENTS // 2)
    assert chosen[0] == 0
    assert len({b - a for a, b in itertools.pairwise(chosen)}) <= 1, "evenly spread"
    few = Snapshots(Path("nowhere"), (3,), cohort=min(clients, 10))
    assert all(few.wants_client(client) for client in range(clients)), "of a small cohort all"


def watched(given: Scene, name: str, folder: Path, snapshots: Snapshots | None) -> Answer:
    """Simulated clients that do what they are asked, and of whose weights samples are kept."""
    method = METHODS[name]()

    def answer(client: int, message: bytes) -> bytes:
        own = replace(device(given.clients[client], folder / "memories"), snapshots=snapshots)
        return ClientRuntime(given, method, own).handle(message)

    return answer


MIXED = replace(scene(INT4, INT16, FLOAT32, steps=4), buffer=torch.zeros(2, 2, 8, 8))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_leaves_samples_of_its_clients(name: str, tmp_path: Path) -> None:
    given, snapshots = Federation(MIXED, METHODS[name](), rounds=3, cohort=3), Snapshots(tmp_path / "s", (0, 2))
    states = []
    for kept_in in (snapshots, None):
        state = given.method.init(MIXED)
        transport = FakeTransport(watched(MIXED, name, tmp_path / str(kept_in is None), kept_in))
        for _ in range(3):
            _, state = run_round(given, state, transport)
        states.append(state)
    assert same(states[0].model, states[1].model), "and nothing comes of it"
    assert same(states[0].memory, states[1].memory)
    assert list(states[0].model) == list(given.method.init(MIXED).model), "the server's are in the network's order too"
    assert {round_: list(files) for round_, files in client_files(tmp_path / "s").items()} == {2: [0, 1, 2]}
    for client, path in client_files(tmp_path / "s")[2].items():
        found = read_snapshot(path)
        assert found.width == MIXED.clients[client].width
        assert found.shapes == {"conv.weight": [4, 2, 3, 3], "fc.weight": [3, 64]}
        assert {key: len(values) for key, values in found.values.items()} == {"conv.weight": 72, "fc.weight": 192}
        assert all(len(set(values.tolist())) > 3 for values in found.values.values()), "weights as they are held"


def trained(given: Scene, client: int, folder: Path) -> tuple[Snapshot, Mapping[str, QTensor]]:
    """What is kept of a client's round, and what it sends."""
    method, spec = FedAvg(), given.clients[client]
    task = Task(1, given.seed, client, method.dispatch(given, method.init(given), spec))
    own = replace(device(spec, folder), snapshots=Snapshots(folder, (1,)))
    update = decode_update(ClientRuntime(given, method, own).handle(encode_task(task).join()))
    return read_snapshot(client_files(folder)[1][client]), update.weights


def flat(weights: Mapping[str, QTensor]) -> dict[str, Tensor]:
    """Values without the gains."""
    return {name: tensor.value().flatten() for name, tensor in weights.items() if name.endswith(".weight")}


@pytest.mark.parametrize("width", [INT4, INT8, INT16, FLOAT32])
def test_a_sample_is_what_the_client_holds_after_training(width: Bitwidth, tmp_path: Path) -> None:
    found, sent = trained(replace(scene(width, steps=4), uplink="native"), 0, tmp_path)
    assert same(found.values, flat(sent))


def test_a_sample_is_not_what_an_uplink_of_two_bits_makes_of_it(tmp_path: Path) -> None:
    found, sent = trained(scene(INT8, steps=4), 0, tmp_path)
    assert {tensor.width for tensor in sent.values()} == {INT2}
    held = {name: QTensor((values * INT8.steps).to(torch.int16), INT8) for name, values in found.values.items()}
    assert same({name: ternarize(tensor).value() for name, tensor in held.items()}, flat(sent))
    assert not same(found.values, flat(sent))


def test_local_keeps_what_it_remembers(tmp_path: Path) -> None:
    given, method = scene(INT8), Local()
    own = replace(device(given.clients[0], tmp_path / "memory"), snapshots=Snapshots(tmp_path / "s", (1,)))
    method.train(given, Task(1, given.seed, 0, {}), own)
    remembered = own.memory.load(2)
    assert remembered is not None
    assert same(read_snapshot(client_files(tmp_path / "s")[1][0]).values, flat(remembered))


# Whole runs

PROWD: dict[str, Any] = {
    "method": "prowd",
    "rounds": 3,
    "clients": "float32:1, int8:2",
    "options": {"dequantizer": {"module": 4, "depth": 1, "growth": 1, "epochs": 1, "images": 2}},
}


def test_a_run_keeps_its_server_s_and_its_clients_samples(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", **PROWD, snapshot_entries=64).path / "snapshots"
    assert list(server_files(path)) == [0, 1, 2, 3]
    assert {round_: list(files) for round_, files in client_files(path).items()} == {
        round_: [0, 1, 2] for round_ in (1, 2, 3)
    }
    assert len(list(path.iterdir())) == 4 + 9, "and nothing else"
    first, *others = (read_snapshot(file) for file in server_files(path).values())
    assert first.client == -1
    assert not any(name.startswith(BLOCKS) for name in first.values)
    layers = [f"{layer}.weight" for layer in ("conv1", "conv2", "conv3", "fc1", "fc2")]
    for found in others:
        assert found.client == 1, "the first of the low-bit clients"
        assert [name for name in found.values if name.startswith(BLOCKS)] == [
            f"{BLOCKS}{block}/conv3.weight" for block in range(5)
        ], "as it came, and after each of four blocks"
        assert {f"{MODEL}{name}" for name in layers} < set(found.values)
        assert found.values[f"{MODEL}conv3.weight"].shape == (64,)
        came = found.values[f"{BLOCKS}0/conv3.weight"]
        assert set(came.tolist()) <= {-0.5, 0.0, 0.5}
        held = read_snapshot(client_files(path)[found.round][1])
        assert set(held.values) == set(layers)
        codes = QTensor((held.values["conv3.weight"] * INT8.steps).to(torch.int16), INT8)
        assert torch.equal(ternarize(codes).value(), came), "at the same places"


def test_the_first_sample_is_the_model_all_begin_with(tmp_path: Path) -> None:
    path = run_tiny(tmp_path / "run", rounds=1, snapshots="0").path
    config = load_config(path / "config.toml")
    federation = assemble(config, as_used(config, load_data(config))).federation
    begun = initial_state(federation.scene).model
    assert list(samples(path)) == ["round-000000"], "and of no client"
    found = read_snapshot(server_files(path / "snapshots")[0])
    assert found.shapes == {f"{MODEL}{name}": list(tensor.shape) for name, tensor in begun.items()}
    assert list(found.values) == list(found.shapes), "in the network's order"
    small = {name: tensor.flatten() for name, tensor in begun.items() if tensor.numel() <= 2048}
    assert len(small) > 5
    assert same(small, {name: found.values[f"{MODEL}{name}"] for name in small})


@pytest.mark.parametrize("settings", [PROWD, {"method": "local", "rounds": 2}], ids=["prowd", "local"])
def test_samples_do_not_change_the_outcome(settings: dict[str, Any], tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"snapshots": "none"}, {"snapshots": "1", "snapshot_entries": 1}]
    made = [outcome(run_tiny(tmp_path / f"run{n}", **settings, **change).path) for n, change in enumerate(changes)]
    clients, rounds = len(made[0]["rounds"][0]["bytes"]["clients"]), settings["rounds"]
    assert [len(found.pop("samples")) for found in made] == [(clients + 1) * rounds + 1, 0, clients + 1]
    assert made[0] == made[1] == made[2]
    assert not (tmp_path / "run1" / "snapshots").exists()


class Killed(BaseException):
    """What ends a run in the middle."""


@pytest.mark.parametrize("moment", ["append", "checkpoint"])
def test_a_run_that_was_killed_has_the_same_samples_in_the_end(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: RunDir, given: Any) -> None:
        raise Killed

    path = tmp_path / "run"
    run_tiny(path, **{**PROWD, "rounds": 1})
    with monkeypatch.context() as patch:
        patch.setattr(RunDir, moment, killed)
        with pytest.raises(Killed):
            prowd.run(resume=path, rounds=3, workers=1)
    assert "round-000002-client-0001" in samples(path), "of the round that has to be made again"
    for file in (path / "snapshots").glob("round-000002*"):
        file.write_bytes(b"half")
    prowd.run(resume=path, workers=1)
    assert samples(path) == samples(run_tiny(tmp_path / "whole", **PROWD).path)


def test_selection_alone_lifts_nothing(tmp_path: Path) -> None:
    settings = {key: value for key, value in PROWD.items() if key != "options"}
    path = run_tiny(tmp_path / "run", **{**settings, "method": "prowd-swa", "rounds": 1}).path / "snapshots"
    found = read_snapshot(server_files(path)[1])
    assert found.client == -1
    assert all(name.startswith(MODEL) for name in found.values)


def test_a_run_that_was_begun_without_goes_on_with_samples(tmp_path: Path) -> None:
    """As those are that an earlier version began: their config.toml does not know the setting."""
    path = run_tiny(tmp_path / "run", rounds=1, snapshots="none").path
    config = path / "config.toml"
    lines = [line for line in config.read_text("utf-8").splitlines(keepends=True) if not line.startswith("snapshot")]
    config.write_text("".join(lines), "utf-8")
    prowd.run(resume=path, rounds=2, workers=1)
    assert load_config(config).snapshots == "auto"
    assert list(server_files(path / "snapshots")) == [2], "what is past is past"


def test_a_disk_that_is_full_ends_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshots, "atomic_write", full)
    for when in ("0", "1"):
        path = tmp_path / f"run{when}"
        with pytest.raises(RunError, match=rf"^{path}/snapshots cannot be written: .*No space left on device$"):
            run_tiny(path, rounds=1, snapshots=when)
