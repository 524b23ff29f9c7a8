"""Clients over links beside clients that are simulated: whose reply is whose, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prowd.errors import LinkError
from prowd.federation.engine import run_round
from prowd.federation.links import Agreed, LinkedDevice, LinkedDevices, agreed, examples_hash, with_measures
from prowd.federation.transport import Refusal, Silence
from prowd.link import Gateway, Hello, Patience
from prowd.methods import FedAvg
from prowd.numbers.bits import FLOAT32
from prowd.wire import decode_task, decode_update, encode_task
from tests.board import Board, hello
from tests.unit.federation.rounds import answers, federation
from tests.unit.link.lines import Line
from tests.unit.scenes import INT4, INT8, FakeTransport, asked, blobs, device, honest, scene

QUICK = Patience(answer=0.05, repeats=1, boot=0.1)
HELLO = Hello(width=8, chunk=256, client=None, network=5, recipe=7, examples=12, data=9, largest=2**20, name="fake")
AGREED = Agreed(width=8, client=3, recipe=7, examples=12, data=9)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"client": 3},
        {"recipe": 0},
        {"data": 0},
    ],
)
def test_a_device_that_is_who_it_should_be(said: Mapping[str, Any]) -> None:
    AGREED.check(replace(HELLO, **said), 5)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"width": 4}, "width is 4; accepted: 8"),
        ({"client": 2}, "client is 2; accepted: 3"),
        ({"network": 6}, "network is 0x6; accepted: 0x5"),
        ({"recipe": 8}, "recipe is 0x8; accepted: 0x7"),
        ({"examples": 11}, "number of examples is 11; accepted: 12"),
        ({"data": 8}, "hash of its examples is 0x8; accepted: 0x9"),
    ],
)
def test_a_device_that_was_made_for_something_else(said: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(LinkError, match=reason):
        AGREED.check(replace(HELLO, **said), 5)


def test_what_is_agreed_follows_from_the_scene() -> None:
    place, examples = scene(INT4, INT8), blobs(12)
    one = agreed(place, FedAvg(), place.clients[1], examples_hash(examples))
    assert (one.width, one.client, one.examples) == (8, 1, 12)
    assert one.recipe
    assert one.data == examples_hash(blobs(12))
    assert one.data != examples_hash(blobs(12, seed=1))


class Crowd:
    """The clients of a federation as LinkedDevices needs them: who they are, and their examples."""

    def __init__(self, folder: Path) -> None:
        self.given = federation(rounds=1)
        self.scene, self.method, self.folder = self.given.scene, self.given.method, folder

    def __getitem__(self, client: int) -> Any:
        class Runtime:
            device = globals()["device"](self.scene.clients[client], self.folder)

        return Runtime

    def board(self, client: int) -> Board:
        """A board that is a client, and knows nothing of measuring."""
        spec, answer = self.scene.clients[client], answers(self.given, self.folder)

        def train(message: bytes) -> bytes:
            reply = answer(client, encode_task(replace(decode_task(message), settings={})).join())
            assert reply is not None
            return reply

        me = agreed(self.scene, self.method, spec, examples_hash(self[client].device.train))
        network = self.scene.architecture.digest
        return Board(train, hello(spec.width.bits, client, network, me.recipe, spec.num_examples, me.data))


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path)


def linked(crowd: Crowd, lines: Mapping[int, Line]) -> LinkedDevices:
    inner = FakeTransport(answers(crowd.given, crowd.folder))
    made = LinkedDevices(inner, crowd, dict.fromkeys(lines, "tcp:board:1"), QUICK)  # type: ignore[arg-type]
    for client, line in lines.items():
        made.devices[client].open = lambda line=line, one=made.devices[client]: Gateway(line, QUICK, one.tally)  # type: ignore[method-assign,misc]
    return made


def test_a_round_with_boards_is_that_without(crowd: Crowd) -> None:
    given = crowd.given
    start = given.method.init(given.scene)
    pure, expected = run_round(given, start, FakeTransport(answers(given, crowd.folder)))
    transport = linked(crowd, {client: Line(crowd.board(client)) for client in (0, 3, 4)})
    report, state = run_round(given, start, transport)
    assert {name: tensor.tolist() for name, tensor in state.model.items()} == {
        name: tensor.tolist() for name, tensor in expected.model.items()
    }
    assert report.loss == pure.loss
    assert {**report.accuracy.received, "float32": 0} == {**pure.accuracy.received, "float32": 0}
    assert sorted(report.accuracy.clients) == [1, 2]
    assert report.clients.missing == []
    assert transport.devices[4].tally.sent > report.traffic.clients[4][1]
    assert transport.devices[4].who is None or transport.devices[4].who.name == "fake"
    transport.close()


def test_boards_that_fail_are_left_out_with_a_reason_and_the_round_goes_on(crowd: Crowd) -> None:
    def nothing(_: bytes) -> Iterator[bytes]:
        return iter(())

    def rubbish(_: bytes) -> Iterator[bytes]:
        return iter([b"rubbish"])

    other = crowd.board(3)
    other.me = hello(width=6)
    lines = {0: Line(crowd.board(0), up=nothing), 2: Line(crowd.board(2), up=rubbish), 3: Line(other)}
    report, _ = run_round(crowd.given, crowd.given.method.init(crowd.scene), linked(crowd, lines))
    lost = {absence.client: absence.reason for absence in report.clients.lost}
    refused = {absence.client: absence.reason for absence in report.clients.refused}
    assert lost[0] == "tcp:board:1: no answer in 3 tries"
    assert lost[3] == "tcp:board:1: it was made for something else: width is 6; accepted: 32"
    assert refused == {2: "tcp:board:1: no frame among the 21 bytes that it sent in 3 tries"}


def test_an_update_that_is_none_is_refused_where_all_are(crowd: Crowd) -> None:
    board = crowd.board(0)
    board.train = lambda task: b"PRWD but not an update, whatever its board says"
    report, _ = run_round(crowd.given, crowd.given.method.init(crowd.scene), linked(crowd, {0: Line(board)}))
    (refused,) = report.clients.refused
    assert refused.client == 0
    assert "byte 4: version" in refused.reason


def test_an_error_of_ours_is_not_a_silence(crowd: Crowd) -> None:
    transport = linked(crowd, {0: Line(crowd.board(0))})

    def broken() -> Gateway:
        raise ZeroDivisionError("ours")

    transport.devices[0].open = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError, match="ours"):
        run_round(crowd.given, crowd.given.method.init(crowd.scene), transport)


def test_a_link_that_ends_is_opened_again_and_not_forever() -> None:
    place = scene(INT8)
    message = encode_task(asked(place, place.clients[0], {})).join()
    one = LinkedDevice("exec:false", agreed(place, FedAvg(), place.clients[0]))
    reply = one.handle(message)
    assert isinstance(reply, Silence)
    assert reply.reason == "exec:false: the link ended: 'false' ended with exit code 1"


def test_what_is_measured_for_a_device(tmp_path: Path) -> None:
    place = scene(INT8, FLOAT32)
    spec, method = place.clients[0], FedAvg()
    weights = method.dispatch(place, method.init(place), spec)
    plain = asked(place, spec, weights)
    wanted = asked(place, spec, weights, measure_received=1.0, measure_trained=1.0)
    answer, test = honest(place, method, tmp_path), device(spec, tmp_path).test
    reply = answer(0, encode_task(plain).join())
    assert reply is not None
    expected = decode_update(answer(0, encode_task(wanted).join()) or b"").metrics["accuracy_received"]
    found = decode_update(with_measures(reply, place, spec, wanted, test, 10**6))
    assert found.metrics == {"loss": decode_update(reply).metrics["loss"], "accuracy_received": expected}
    assert with_measures(reply, place, spec, plain, test, 10**6) == reply
    assert with_measures(reply[:-1], place, spec, wanted, test, 10**6) == reply[:-1]
    assert with_measures(reply, place, spec, wanted, blobs(0), 10**6) == reply


def test_a_refused_reply_names_its_link() -> None:
    place = scene(INT4)
    message = encode_task(asked(place, place.clients[0], {})).join()
    one = LinkedDevice("exec:echo rubbish; cat", agreed(place, FedAvg(), place.clients[0]), QUICK)
    one.open = lambda: Gateway(Line(Board(lambda task: task), up=lambda _: iter([b"x"])), QUICK)  # type: ignore[method-assign]
    reply = one.handle(message)
    assert isinstance(reply, Refusal)
    assert reply.reason.startswith("exec:echo rubbish; cat: no frame")
