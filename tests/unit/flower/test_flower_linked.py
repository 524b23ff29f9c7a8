"""A node that is the gateway of a board."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed")

from prowd.config.schema import load_config
from prowd.device.scene import ClientSpec, LocalSettings
from prowd.errors import ConfigError, LinkError, WireError
from prowd.flower.node import Node, read_run
from prowd.flower.server_app import begin
from prowd.link import Stream
from prowd.methods import FedAvg
from prowd.methods.recipe import recipe
from prowd.wire import Task, Work, encode_task
from tests.board import Board, hello
from tests.unit.flower.federations import RUN, config_with, plain, says, server, text_of
from tests.unit.link.lines import Line
from tests.unit.scenes import INT8

LINK = "serial:/dev/ttyACM0@115200"
NUMBER = recipe(FedAvg(), "ternary", LocalSettings(), INT8)
Plug = Callable[[Board], None]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    """Puts a board at the end of every link."""

    def put(board: Board) -> None:
        def open_stream(address: str) -> Stream:
            assert address == LINK
            return Line(board)

        monkeypatch.setattr("prowd.federation.links.open_stream", open_stream)

    return put


def gateway(**changes: object) -> Node:
    given = {
        key: value for key, value in says(client=1, width="int8", **{"link": LINK, **changes}).items() if key != "data"
    }
    return Node.read(given, plain())


def task(*, client: int = 1, steps: int = 2, seed: int | None = None) -> bytes:
    work = Work(steps, 1, network=1)
    return encode_task(Task(1, plain().seed if seed is None else seed, client, {}, work=work)).join()


def board(number: int = NUMBER, width: int = 8) -> Board:
    return Board(lambda message: message[::-1], hello(width, 2**32 - 1, 1, number, 77))


def test_a_board_says_how_many_examples_it_has_and_does_the_work(plug: Plug) -> None:
    plug(board())
    node = gateway()
    assert (node.link, node.data, node.shared) == (LINK, "", False)
    assert node.introduce(plain()) == ClientSpec(1, INT8, 77)
    assert node.handle(plain(), RUN, task()) == task()[::-1]


def test_a_board_made_for_another_run_is_not_part_of_this_one(plug: Plug) -> None:
    plug(board(width=6))
    with pytest.raises(LinkError, match=f"{LINK}: it was made for something else: width is 6; accepted: 8"):
        gateway().introduce(plain())
    plug(board(number=5))
    with pytest.raises(LinkError, match="recipe is 0x5; accepted: "):
        gateway().introduce(plain())
    with pytest.raises(LinkError, match="recipe is 0x5; accepted: "):
        gateway().handle(plain(), RUN, task())


def test_what_a_server_may_ask_is_as_limited_as_anywhere(plug: Plug) -> None:
    plug(board())
    with pytest.raises(WireError, match="client 1 of seed 0 received a task for client 2 of seed 0"):
        gateway().handle(plain(), RUN, task(client=2))
    with pytest.raises(WireError, match="client 1 of seed 0 received a task for client 1 of seed 9"):
        gateway().handle(plain(), RUN, task(seed=9))
    with pytest.raises(ConfigError, match="steps: 8; accepted: up to 7, the limit of this device"):
        gateway(steps=7).handle(plain(), RUN, task(steps=8))
    with pytest.raises(ConfigError, match="steps: 9; accepted: up to 7"):
        gateway(steps=7).introduce(config_with(steps=9))
    with pytest.raises(ConfigError, match="a task of "):
        gateway(memory=1).handle(plain(), RUN, task() + bytes(10**6))


def test_only_the_operator_says_where_a_board_is(tmp_path: Path) -> None:
    told = text_of().replace("[links]", f'[links]\n1 = "exec:touch {tmp_path / "started"}"')
    assert "started" in told
    assert read_run(told).links == {}
    with pytest.raises(ConfigError, match="links: of a device its operator tells its node"):
        begin(None, server(settings="links.0=exec:true"))  # type: ignore[arg-type]


def test_a_board_has_its_own_data_and_an_address_is_one() -> None:
    with pytest.raises(ConfigError, match="data is 'digits' beside link; accepted: one"):
        Node.read(says(link=LINK), plain())
    with pytest.raises(ConfigError, match="link 'board' is no address; accepted: exec:COMMAND"):
        gateway(link="board")
    assert load_config("quick").links == {}
