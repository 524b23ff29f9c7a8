"""The app of a device: it trains what is meant for it, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

import torch
from flwr.app import Context, Message, RecordDict

from prowd.errors import ProwdError, WireError
from prowd.flower.client_app import app
from prowd.flower.node import read_run
from prowd.flower.records import HELLO, TRAIN, Brief, read_introduction, unpack_update
from prowd.methods.common import MEASURE_RECEIVED, MEASURE_TRAINED
from prowd.numbers.quantize import QTensor, Rate
from prowd.runs.build import assemble, load_data
from prowd.wire import Parcel, Task, decode_update, encode_task
from tests.unit.flower.fakes import Clock
from tests.unit.flower.federations import RUN, logging_as_before, says, text_of
from tests.unit.scenes import INT2, INT8, INT16

Weights = Mapping[str, QTensor]


@pytest.fixture(autouse=True)
def _quiet(clock: Clock) -> Iterator[None]:
    with logging_as_before():
        yield


def ask(kind: str, content: RecordDict, node: dict[str, Any]) -> RecordDict:
    """Ask a node, and return what it says."""
    return app(Message(content, 7, kind), Context(1, 7, node, RecordDict(), {})).content


def task(
    method: str = "fedavg",
    client: int = 0,
    round_: int = 1,
    change: Callable[[Weights], Weights] = lambda weights: weights,
    seed: int | None = None,
    **work: Any,
) -> Parcel:
    """The first task of a run."""
    config = read_run(text_of(method))
    federation = assemble(config, load_data(config)).federation
    scene = federation.scene
    spec = scene.clients[client]
    weights = change(federation.method.dispatch(scene, federation.method.init(scene), spec))
    measures = {MEASURE_RECEIVED: 1.0, MEASURE_TRAINED: 1.0}
    own = config.seed if seed is None else seed
    return encode_task(Task(round_, own, client, weights, measures, replace(scene.work(spec.width, round_), **work)))


def content(parcel: Parcel, *, method: str = "fedavg", run: str = RUN) -> RecordDict:
    return Brief(run, text_of(method)).task(parcel)


def test_a_node_says_who_it_is(tmp_path: Path) -> None:
    spec, _ = read_introduction(ask(HELLO, Brief(RUN, text_of()).hello(), says(state=str(tmp_path))))
    assert (spec.id, spec.width, spec.num_examples) == (1, INT8, 358)
    assert list(tmp_path.iterdir()) == [], "nothing is written before there is something to remember"


def test_a_node_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reply = ask(TRAIN, content(task()), says(client=0, state=str(tmp_path)))
    update = decode_update(unpack_update(reply, 2**20))
    assert (update.round, update.client, update.width, update.num_examples) == (1, 0, INT8, 358)
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["run"], line["client"]) == ("trained", RUN, 0)
    assert line["bytes_in"] == len(task())
    assert line["bytes_out"] == len(unpack_update(reply, 2**20))


@pytest.mark.parametrize("run", ["../../../etc", f"/{RUN}"])
def test_a_run_s_name_is_no_path(run: str, tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state"
    with pytest.raises(WireError, match=r"run is "):
        ask(TRAIN, content(task("fedcomgate"), method="fedcomgate", run=run), says(client=0, state=str(state)))
    assert list(tmp_path.iterdir()) == []


def reshaped(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Weights], Weights]:
    return lambda weights: {name: replace(tensor, codes=change(tensor.codes)) for name, tensor in weights.items()}


def with_zeros(name: str, *shape: int, width: Any = INT2) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: QTensor(torch.zeros(shape, dtype=torch.int16), width)}


@pytest.mark.parametrize(
    ("parcel", "message"),
    [
        (lambda: task(client=1), "client 0 of seed 0 received a task for client 1 of seed 0"),
        (lambda: task(seed=1), "received a task for client 0 of seed 1"),
        (lambda: Parcel(b"", b""), "message of 0 bytes"),
        (lambda: Parcel(task().head, task().body[:-1]), "its header declares"),
        (lambda: Parcel(task().head, task().body[:-1] + b"\7"), "damaged"),
        (lambda: task(change=with_zeros("conv1.weight", 4, 1, 3, 3, width=INT16)), r"'conv1\.weight' is int16"),
        (lambda: task(change=reshaped(torch.flatten)), r"'conv1\.weight' has shape"),
        (lambda: task(change=reshaped(lambda codes: codes[:1])), r"'conv1\.weight' has shape"),
        (lambda: task(change=with_zeros("mean/conv1.weight", 7)), r"'mean/conv1\.weight' has shape"),
        (lambda: task(change=with_zeros("conv1.gain", 5)), r"'conv1\.gain' has shape"),
        (lambda: task(change=lambda _: {}), r"conv1\.weight"),
        (lambda: task(network=0), "network is 0x0"),
        (lambda: task(steps=0), "steps are 0"),
        (lambda: task(batch=0), "batch is 0"),
        (lambda: task(rate=Rate(257, -9)), "rate is .*257"),
        (lambda: task(change=lambda weights: dict(list(weights.items())[1:])), r"conv1\.weight"),
    ],
)
def test_a_task_that_is_not_for_this_device(parcel: Callable[[], Parcel], message: str, tmp_path: Path) -> None:
    with pytest.raises(WireError, match=message):
        ask(TRAIN, content(parcel()), says(client=0, state=str(tmp_path)))


def test_a_message_that_is_none_of_ours(tmp_path: Path) -> None:
    for kind in (HELLO, TRAIN):
        with pytest.raises(WireError, match=r"no record 'prowd\.facts'"):
            ask(kind, RecordDict(), says())
    with pytest.raises(WireError, match="no array 'head'"):
        ask(TRAIN, Brief(RUN, text_of()).hello(), says(client=0, state=str(tmp_path)))


def test_a_task_without_what_a_method_needs(tmp_path: Path) -> None:
    node = says(client=0, state=str(tmp_path))
    ask(TRAIN, content(task("fedcomgate"), method="fedcomgate"), node)
    with pytest.raises(ProwdError, match=r"mean/conv1\.weight"):  # the second round comes without the mean movement
        ask(TRAIN, content(task("fedcomgate", round_=2), method="fedcomgate"), node)
