"""A device of its own: what its operator says, its data, and how little it believes the server."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import numpy as np
import tomli_w
import torch
from flwr.app import Context, Message, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from platformdirs import user_state_path

from prowd.config.schema import RunConfig
from prowd.errors import ConfigError, DataError, ProwdError, WireError
from prowd.flower.client_app import app
from prowd.flower.node import Node, read_run
from prowd.flower.records import HELLO, TRAIN, Brief, Introduction, unpack_update
from prowd.flower.server_app import told
from prowd.methods.common import MEASURE_RECEIVED, MEASURE_TRAINED
from prowd.nets.architecture import Flatten, Linear
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor
from prowd.runs.build import assemble, load_data, make_architecture
from prowd.runs.build import prepare as prepare_run
from prowd.wire import Parcel, Task, decode_update, encode_task
from tests.runs import arrays
from tests.unit.flower.fakes import TINY, jumping, logging_as_before
from tests.unit.scenes import INT8, INT16

RUN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _flower(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    jumping(monkeypatch)
    with logging_as_before():
        yield


@functools.cache
def text_of(method: str = "fedavg") -> str:
    """The settings of a tiny run on the digits, as devices are told them."""
    config, dataset = prepare_run("quick", {**TINY, "method": method})
    return told(config, make_architecture(config, dataset))


def config_with(**changes: Any) -> RunConfig:
    return read_run(tomli_w.dumps({**tomllib.loads(text_of()), **changes}))


@functools.cache
def plain() -> RunConfig:
    return read_run(text_of())


def says(**changes: Any) -> dict[str, Any]:
    """What an operator says of a node."""
    return {"client": 1, "width": "int8", "data": "digits", **changes}


def own_data(folder: Path, *, classes: int = 3, size: int = 8, channels: int = 1) -> str:
    """A file of one's own."""
    made = arrays()
    for part in ("train", "test"):
        made[f"y_{part}"] = made[f"y_{part}"] * 0 + np.arange(len(made[f"y_{part}"])) % classes
        images = np.resize(made[f"x_{part}"], (len(made[f"y_{part}"]), channels, size, size))
        made[f"x_{part}"] = images.astype(np.uint8)
    path = folder / "mine.NPZ"
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **made)
    return str(path)


# What the operator says


def test_a_node_is_what_its_operator_says(tmp_path: Path) -> None:
    node = Node.read(says(state=str(tmp_path), device="cpu", kernel="simulated"), plain())
    assert node == Node(1, INT8, "digits", tmp_path, "cpu", "simulated", shared=True)
    assert Node.read(says(width="Int8", data="a.npz"), plain()) == Node(
        1, INT8, "a.npz", user_state_path("prowd"), "cpu", "auto", shared=False
    )
    assert Node.read(says(state="~/prowd"), plain()).state == Path("~/prowd").expanduser()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "node-config: client is None; accepted: its number in the federation, 0 or more"),
        (says(client=-1), "client is -1; accepted"),
        (says(client=True), "client is True; accepted"),
        (says(client="1"), "client is '1'; accepted"),
        (says(client=1.0), r"client is 1\.0; accepted"),
        ({"client": 1, "data": "digits"}, 'width is None; accepted: a text, as in width="int8"'),
        ({"client": 1, "width": "int8"}, r'data is None; accepted: a text, as in data="/path/of/mine\.npz"'),
        (says(width=8), "width is 8; accepted: a text"),
        (says(width=""), "width is ''; accepted: a text"),
        (says(width="int99"), "'int99' is not a bitwidth; accepted: int2 to int16, or float32"),
        (says(state=3), "state is 3; accepted: a text"),
        (says(kernel=False), "kernel is False; accepted: a text"),
        (says(widht="int8"), r"'widht' is unknown; accepted: client, .*kernel \(did you mean 'width'\?\)"),
        (says(seed=3), r"'seed' is unknown; accepted: client, width, data, state, device, kernel$"),
        ({"partition-id": 4, "num-partitions": 4}, "partition-id is 4; accepted: 0 to 3, the clients of the run"),
        ({"partition-id": -1}, "partition-id is -1; accepted: 0 to 3"),
        ({"partition-id": "0"}, "partition-id is '0'; accepted: 0 to 3"),
    ],
)
def test_what_an_operator_gets_wrong_is_named(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Node.read(given, plain())


def test_a_simulated_node_is_the_client_of_its_partition() -> None:
    node = Node.read({"partition-id": 2, "num-partitions": 4, "kernel": "simulated"}, plain())
    assert (node.client, str(node.width), node.data, node.kernel, node.shared) == (
        2, "float32", "digits", "simulated", True,
    )  # fmt: skip
    assert Node.read({"partition-id": 2, "data": "mine.npz"}, plain()).shared, "a share, whatever its name"


# Its data


def test_a_share_is_that_of_the_simulation() -> None:
    federation = assemble(plain(), load_data(plain())).federation
    for client in federation.scene.clients:
        node = Node.read(says(client=client.id, width=str(client.width)), plain())
        assert node.introduce(plain()) == client


def test_a_share_is_of_the_run_s_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a share of digits in a run on cifar10; accepted: cifar10, or a \.npz file"):
        Node.read(says(), plain()).introduce(config_with(data="cifar10"))
    with pytest.raises(DataError, match=r"digits has content hash .*; accepted: 0000"):
        Node.read(says(), plain()).introduce(config_with(data_sha256="0000"))
    with pytest.raises(ConfigError, match="node-config: client is 4 of a data set in 4 parts; accepted: 0 to 3"):
        Node.read(says(client=4), plain()).introduce(plain())


def test_data_of_its_own_is_all_its_own(tmp_path: Path) -> None:
    node = Node.read(says(client=3, data=own_data(tmp_path), state=str(tmp_path)), plain())
    assert node.introduce(plain()) == replace(node.introduce(plain()), id=3, num_examples=90)
    device = node.runtime(plain(), RUN).device
    assert (len(device.train.labels), len(device.test.labels)) == (90, 18), "not as many as the run says of its own"


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [
        ({"classes": 11}, DataError, "data: 11 classes for 10 logits; accepted: labels below 10"),
        ({"size": 12}, ConfigError, "accepted"),
        ({"channels": 3}, ConfigError, "accepted"),
    ],
)
def test_data_that_does_not_fit_the_network(
    form: dict[str, int], error: type[ProwdError], message: str, tmp_path: Path
) -> None:
    node = Node.read(says(data=own_data(tmp_path, **form)), plain())
    for attempt in (lambda: node.introduce(plain()), lambda: node.runtime(plain(), RUN)):
        with pytest.raises(error, match=message):
            attempt()


def test_data_of_its_own_may_have_fewer_classes(tmp_path: Path) -> None:
    for classes in (2, 10):
        node = Node.read(says(data=own_data(tmp_path, classes=classes)), plain())
        assert node.introduce(plain()).num_examples == 90


@pytest.mark.parametrize("name", ["gone.npz", "bad.npz", "digit"])
def test_data_that_is_not_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 no zip")
    where = str(tmp_path / name) if name.endswith("npz") else name
    with pytest.raises(ProwdError, match=name):
        Node.read(says(data=where), plain()).introduce(plain())


# What the server says


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"method: 'NoneType' is not built in; accepted: local, fedavg"),
        ('method = "evil.py:X"', r"method: 'evil\.py:X' is not built in"),
        ('method = "/tmp/evil.py:X"', "is not built in"),
        ('method = "prowd.methods:FedAvg"', "is not built in"),
        ('method = "os:system"', "is not built in"),
        ("method = 3", "is not built in"),
        ("method = []", "is not built in"),
        ("method = {}", "is not built in"),
        ("method = 0x" + "f" * 4000, "is not built in"),
        (f'method = "{"x" * 10_000}"', "is not built in"),
        ('method = "fedavg"', "layers: none; accepted: the network, layer by layer"),
        ('method = "fedavg"\nlayers = []', "layers: none"),
        ('method = "fedavg"\nlayers = [{kind = "evil"}]', "layers"),
        ('method = "fedavg"\nextends = "quick"', "extends: as a key is wrong"),
        ('method = "fedavg"\ndata_path = "x"', "data_path: as a key is wrong"),
        ('method = "fedavg"\nclients = "int8:9999999"', "clients: "),
        ("x = " + "[" * 100_000, "config: not TOML"),
        ("=", "config: not TOML"),
        ("\0", "config: not TOML"),
        ("x = 1" + "0" * 10_000, "config: not TOML"),
    ],
)
def test_a_server_that_sends_nonsense_is_told_so(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_run(text)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("key", ["device", "kernel"])
def test_what_a_server_computes_on_is_no_business_of_a_device(key: str) -> None:
    found = config_with(**{key: {"device": "cuda:7", "kernel": "int8"}[key]})
    assert (found.device, found.kernel) == ("cpu", "auto")


@settings(max_examples=150, deadline=None)
@given(st.text() | st.text(st.characters(codec="ascii")).map(lambda text: f'method = "fedavg"\n{text}'))
def test_any_text_is_a_run_or_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        read_run(text)


VALUES = st.recursive(
    st.integers() | st.floats() | st.booleans() | st.text(max_size=9) | st.sampled_from(["all", "native", "int8:2"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*RunConfig.model_fields]), VALUES)
def test_any_value_in_a_run_is_a_run_or_a_prowd_error(key: str, value: Any) -> None:
    """A whole hello, so that whatever a server says ends in an answer or in words."""
    text = tomli_w.dumps({**tomllib.loads(text_of()), key: value})
    try:
        config = read_run(text)
        Node.read(says(client=0), config).introduce(config)
    except ProwdError:
        return


@pytest.mark.parametrize("key", ["rounds", "seed", "alpha"])
def test_a_number_of_too_many_digits(key: str) -> None:
    rest = tomli_w.dumps({k: v for k, v in tomllib.loads(text_of()).items() if k != key})
    with pytest.raises(ConfigError, match=key):
        read_run(f"{key} = 0x{'f' * 4000}\n{rest}")


# The app


def ask(kind: str, content: RecordDict, node: dict[str, Any]) -> RecordDict:
    """Ask a node, and return what it says."""
    return app(Message(content, 7, kind), Context(1, 7, node, RecordDict(), {})).content


def task(method: str = "fedavg", client: int = 0, round_: int = 1, **changes: Any) -> Parcel:
    """The first task of a run."""
    config = read_run(text_of(method))
    federation = assemble(config, load_data(config)).federation
    scene = federation.scene
    weights = federation.method.dispatch(scene, federation.method.init(scene), scene.clients[client])
    made = Task(round_, config.seed, client, weights, {MEASURE_RECEIVED: 1.0, MEASURE_TRAINED: 1.0})
    return encode_task(replace(made, **changes))


def content(parcel: Parcel, *, method: str = "fedavg", run: str = RUN) -> RecordDict:
    return Brief(run, text_of(method)).task(parcel)


def test_a_node_says_who_it_is(tmp_path: Path) -> None:
    found = Introduction.read(ask(HELLO, Brief(RUN, text_of()).hello(), says(state=str(tmp_path))))
    assert (found.spec.id, found.spec.width, found.spec.num_examples) == (1, INT8, 358)
    assert list(tmp_path.iterdir()) == [], "nothing is written before there is something to remember"


def test_a_node_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reply = ask(TRAIN, content(task()), says(client=0, state=str(tmp_path)))
    update = decode_update(unpack_update(reply, 2**20))
    assert (update.round, update.client, update.width, update.num_examples) == (1, 0, INT8, 358)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["run"], line["client"]) == ("trained", RUN, 0)
    assert line["bytes_in"] == len(task())
    assert line["bytes_out"] == len(unpack_update(reply, 2**20))


def test_the_operator_chooses_the_kernel(tmp_path: Path) -> None:
    node = Node.read(says(state=str(tmp_path), kernel="simulated"), plain())
    assert node.runtime(plain(), RUN).scene.kernel == "simulated"
    with pytest.raises(ConfigError, match="kernel: 'fast' is wrong"):
        Node.read(says(kernel="fast"), plain()).runtime(plain(), RUN)
    with pytest.raises(ConfigError, match="device: 'tpu' is not a torch device"):
        Node.read(says(device="tpu"), plain()).runtime(plain(), RUN)


@pytest.mark.parametrize(
    "run", ["../../../etc", "0123456789abcde", "0123456789ABCDEF", f"{RUN}\n", f"/{RUN}", "", "." * 16]
)
def test_a_run_s_name_is_no_path(run: str, tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    with pytest.raises(WireError, match=r"run is .*; accepted: 16 hexadecimal digits"):
        ask(TRAIN, content(task("fedcomgate"), method="fedcomgate", run=run), says(client=0, state=str(state)))
    assert list(tmp_path.iterdir()) == []


def test_a_memory_is_in_the_folder_of_its_run(tmp_path: Path) -> None:
    ask(TRAIN, content(task("fedcomgate"), method="fedcomgate"), says(client=0, state=str(tmp_path)))
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [f"{RUN}/client-0000/round-000001.bin"]


@pytest.mark.parametrize(
    ("parcel", "message"),
    [
        (lambda: task(client=1), "client 0 of seed 0 received a task for client 1 of seed 0"),
        (lambda: task(seed=1), "received a task for client 0 of seed 1"),
        (lambda: task(client=2), "received a task for client 2"),
        (lambda: Parcel(b"PRWD", b""), "message of 4 bytes"),
        (lambda: Parcel(task().head, task().body[:-1]), "its header declares"),
        (lambda: Parcel(task().head, task().body[:-1] + b"\7"), "damaged"),
        (lambda: Parcel(b"", b""), "message of 0 bytes"),
    ],
)  # fmt: skip
def test_a_task_that_is_not_for_this_device(parcel: Callable[[], Parcel], message: str, tmp_path: Path) -> None:
    with pytest.raises(WireError, match=message):
        ask(TRAIN, content(parcel()), says(client=0, state=str(tmp_path)))


def test_a_device_is_sent_no_more_bits_than_it_can_hold(tmp_path: Path) -> None:
    wide = {"conv1.weight": QTensor(torch.zeros(4, 1, 3, 3, dtype=torch.int16), INT16)}
    with pytest.raises(WireError, match=r"'conv1\.weight' is int16; accepted: what an int8 device can hold"):
        ask(TRAIN, content(task(weights=wide)), says(client=0, state=str(tmp_path)))


def test_a_message_that_is_none_of_ours(tmp_path: Path) -> None:
    for kind in (HELLO, TRAIN):
        with pytest.raises(WireError, match=r"no record 'prowd\.facts'; found: \[\]"):
            ask(kind, RecordDict(), says())
    with pytest.raises(WireError, match=r"no array 'head' in record 'prowd\.bytes'"):
        ask(TRAIN, Brief(RUN, text_of()).hello(), says(client=0, state=str(tmp_path)))


Weights = Mapping[str, QTensor]


def first() -> Weights:
    config = plain()
    federation = assemble(config, load_data(config)).federation
    scene = federation.scene
    return federation.method.dispatch(scene, federation.method.init(scene), scene.clients[0])


def reshaped(change: Callable[[torch.Tensor], torch.Tensor]) -> Weights:
    return {name: replace(tensor, codes=change(tensor.codes)) for name, tensor in first().items()}


@pytest.mark.parametrize(
    "change",
    [torch.flatten, lambda codes: codes[:1], lambda codes: torch.cat([codes, codes])],
    ids=["flat", "fewer", "more"],
)
def test_a_task_of_another_network(change: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"'conv1\.weight' has shape \(.*\); accepted: \(4, 1, 3, 3\)"):
        ask(TRAIN, content(task(weights=reshaped(change))), says(client=0, state=str(tmp_path)))


@pytest.mark.parametrize(
    ("name", "shape"), [("mean/conv1.weight", (7,)), ("mean/conv1.weight", (1,)), ("conv1.gain", (5,))]
)
def test_other_tensors_of_another_network(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    odd = QTensor(torch.zeros(shape, dtype=torch.int16), Bitwidth(2))
    with pytest.raises(WireError, match=rf"'{name}' has shape .*; accepted: \(4,"):
        ask(TRAIN, content(task(weights={**first(), name: odd})), says(client=0, state=str(tmp_path)))


def test_a_network_that_would_fill_a_device_is_refused() -> None:
    huge = Linear("logits", 64, 2**36, relu=False)
    config = plain().model_copy(update={"layers": (Flatten(), huge)})
    with pytest.raises(ConfigError, match=r"^layers: 4398046511104 weights; accepted: up to 268435456$"):
        Node.read(says(), config).introduce(config)


@pytest.mark.parametrize("weights", [dict, lambda: dict(list(first().items())[1:])], ids=["none", "one missing"])
def test_a_task_that_lacks_weights(weights: Callable[[], Weights], tmp_path: Path) -> None:
    with pytest.raises(ProwdError, match=r"conv1\.weight"):
        ask(TRAIN, content(task(weights=weights())), says(client=0, state=str(tmp_path)))


def test_a_task_without_what_a_method_needs(tmp_path: Path) -> None:
    node = says(client=0, state=str(tmp_path))
    for round_ in (1, 2):  # of which the second comes without the mean movement
        parcel = task("fedcomgate", round_=round_)
        if round_ == 1:
            ask(TRAIN, content(parcel, method="fedcomgate"), node)
        else:
            with pytest.raises(ProwdError, match=r"mean/conv1\.weight"):
                ask(TRAIN, content(parcel, method="fedcomgate"), node)


@pytest.mark.parametrize("change", [{"kernel": "fast"}, {"device": "cuda:99"}])
def test_a_node_that_cannot_compute_does_not_say_hello(change: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        Node.read(says(**change), plain()).introduce(plain())
