"""A device of its own: what its operator says, its data, and how little it believes the server."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import numpy as np
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from platformdirs import user_state_path

from prowd.config.schema import RunConfig
from prowd.device.limits import Limits
from prowd.errors import ConfigError, DataError, ProwdError
from prowd.flower.node import Node, read_run
from prowd.nets.architecture import Conv, Flatten, Linear
from prowd.runs.build import assemble, load_data
from prowd.wire import Task, encode_task
from tests.runs import arrays
from tests.unit.flower.federations import RUN, config_with, plain, says, text_of
from tests.unit.scenes import INT8

pytestmark = pytest.mark.usefixtures("clock")


def own_data(folder: Path, *, classes: int = 3, size: int = 8, channels: int = 1, first: int = 0) -> str:
    """A file of one's own, of the classes from ``first`` up."""
    made = arrays()
    for part in ("train", "test"):
        made[f"y_{part}"] = made[f"y_{part}"] * 0 + np.arange(len(made[f"y_{part}"])) % classes + first
        images = np.resize(made[f"x_{part}"], (len(made[f"y_{part}"]), channels, size, size))
        made[f"x_{part}"] = images.astype(np.uint8)
    path = folder / "mine.NPZ"
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **made)
    return str(path)


# What the operator says


def test_a_node_is_what_its_operator_says(tmp_path: Path) -> None:
    node = Node.read(says(state=str(tmp_path), device="cpu", kernel="simulated"), plain())
    limits = Limits.of_this_machine()
    limits = replace(limits, memory=limits.memory // 10**6 * 10**6)
    assert node == Node(1, INT8, "digits", tmp_path, "cpu", "simulated", limits, shared=True)
    assert Node.read(says(width="Int8", data="a.npz"), plain()) == Node(
        1, INT8, "a.npz", user_state_path("prowd"), "cpu", "auto", limits, shared=False
    )
    assert Node.read(says(steps=7, memory=64), plain()).limits == Limits(7, 64 * 10**6)
    assert Node.read(says(state="~/prowd"), plain()).state == Path("~/prowd").expanduser()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *((says(client=client), "client is ") for client in (None, -1, True, "1", 1.0)),
        *((says(**{key: value}), f"{key} is ") for key in ("steps", "memory") for value in (0, -1, True, "1", 1.5)),
        *(({key: value for key, value in says().items() if key != lacking}, lacking) for lacking in says()),
        *((says(**{key: value}), f"{key} is ") for key, value in (("width", 8), ("width", ""), ("state", 3))),
        (says(width="int99"), "'int99' is not a bitwidth"),
        (says(widht="int8"), r"'widht' is unknown; accepted: client, .*did you mean 'width'"),
        *(({"partition-id": number}, "partition-id is .*; accepted: 0 to 3") for number in (4, -1, "0")),
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
        ({"classes": 11}, DataError, "y_train: the label 10; accepted: 0 to 9, the classes of the run"),
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


@pytest.mark.parametrize(("classes", "first"), [(2, 0), (10, 0), (1, 0), (1, 9), (3, 5)])
def test_data_of_its_own_may_lack_classes(classes: int, first: int, tmp_path: Path) -> None:
    node = Node.read(says(data=own_data(tmp_path, classes=classes, first=first)), plain())
    assert node.introduce(plain()).num_examples == 90
    found = set(node.runtime(plain(), RUN).device.train.labels.tolist())
    assert found == set(range(first, first + classes))


def test_a_network_that_gives_no_logits_is_the_server_s_fault(tmp_path: Path) -> None:
    config = plain().model_copy(update={"layers": (Linear("logits", 64, 10, relu=False), Flatten())})
    with pytest.raises(ConfigError, match=r"^layers: the last is Flatten"):
        Node.read(says(data=own_data(tmp_path)), config).introduce(config)


@pytest.mark.parametrize("name", ["gone.npz", "bad.npz", "digit"])
def test_data_that_is_not_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 no zip")
    where = str(tmp_path / name) if name.endswith("npz") else name
    with pytest.raises(ProwdError, match=name):
        Node.read(says(data=where), plain()).introduce(plain())


def test_the_operator_chooses_what_to_compute_on(tmp_path: Path) -> None:
    node = Node.read(says(state=str(tmp_path), kernel="simulated"), plain())
    assert node.runtime(plain(), RUN).scene.kernel == "simulated"
    for key, value in (("kernel", "fast"), ("device", "tpu"), ("device", "cuda:99")):
        node = Node.read(says(**{key: value}), plain())
        with pytest.raises(ConfigError, match=f"{key}: "):
            node.runtime(plain(), RUN)
        with pytest.raises(ConfigError, match=f"{key}: "):  # and it does not say hello
            node.introduce(plain())


# What the server says


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((f"method = {value}", "method: ") for value in ('"evil.py:X"', '"prowd.methods:FedAvg"', "3", "[]", "{}")),
        ("method = 0x" + "f" * 4000, "method: "),
        (f'method = "{"x" * 10_000}"', "method: "),
        ("", "method: "),
        ('method = "fedavg"', "layers: none"),
        ('method = "fedavg"\nlayers = []', "layers: none"),
        ('method = "fedavg"\nlayers = [{kind = "evil"}]', "layers"),
        ('method = "fedavg"\nextends = "quick"', "extends"),
        ('method = "fedavg"\nclients = "int8:9999999"', "clients: "),
        *((text, "config: not TOML") for text in ("x = " + "[" * 100_000, "=", "\0", "x = 1" + "0" * 10_000)),
    ],
)
def test_a_server_that_sends_nonsense_is_told_so(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_run(text)
    assert len(str(caught.value)) < 2000


def test_what_a_server_computes_on_is_no_business_of_a_device() -> None:
    found = config_with(device="cuda:7", kernel="int8")
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


WIDE = (Conv("a", 1, 4, padding=(3000, 3000)), Flatten(), Linear("b", 4 * 6006**2, 10, relu=False))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": (Flatten(), Linear("logits", 64, 2**36, relu=False))}, "^memory: "),
        ({"layers": WIDE}, "^memory: "),
        ({"steps": 2**62}, "^steps: 4611686018427387904; accepted: up to 100000, the limit of this device"),
        ({"layers": (Flatten(), Linear("logits", 64, -10, relu=False))}, "^layers: .*accepted: sizes from 1"),
    ],
    ids=["weights", "padding", "steps", "negative"],
)
def test_a_run_that_would_fill_a_device_is_refused(changes: dict[str, Any], message: str) -> None:
    config = plain().model_copy(update=changes)
    node = Node.read(says(), config)
    for attempt in (lambda: node.introduce(config), lambda: node.runtime(config, RUN)):
        with pytest.raises(ConfigError, match=message):
            attempt()


def test_a_task_is_held_to_the_limits_whatever_the_run_said() -> None:
    """A server may say one thing of the run and another in a task."""
    runtime = Node.read(says(), plain()).runtime(plain(), RUN)
    scene, method = runtime.scene, runtime.method
    weights = method.dispatch(scene, method.init(scene), runtime.device.spec)
    for steps, batch in ((2**32 - 1, 8), (100_000, 2**31)):
        task = Task(1, scene.seed, 1, weights, {}, replace(scene.work(INT8, 1), steps=steps, batch=batch))
        tight = replace(runtime, limits=Limits(100_000, 500 * 10**6))
        with pytest.raises(ConfigError, match=r"^(steps|memory): .*the limit of this device"):
            tight.handle(encode_task(task).join())
    with pytest.raises(ConfigError, match=r"a task of .* bytes"):
        replace(runtime, limits=Limits(1, 16)).handle(bytes(9))
