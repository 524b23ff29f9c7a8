"""What a scene counts once must be what counting again would give."""

from __future__ import annotations

from dataclasses import replace
from statistics import median_low

from hypothesis import given
from hypothesis import strategies as st

from prowd.device.scene import ClientSpec, Scene
from prowd.nets import build
from prowd.numbers.bits import Bitwidth

WIDTHS = [Bitwidth.parse(text) for text in ("int2", "int8", "float32")]
CLIENTS = st.lists(st.tuples(st.sampled_from(WIDTHS), st.integers(1, 50)), min_size=1, max_size=12)


@given(CLIENTS, CLIENTS)
def test_everything_is_as_counted_by_hand(some: list[tuple[Bitwidth, int]], others: list[tuple[Bitwidth, int]]) -> None:
    first = Scene(build("digits", (1, 8, 8), 10, 1.0), specs(some))
    check(first)
    check(replace(first, clients=specs(others)))  # nothing counted before stays


def check(scene: Scene) -> None:
    for client in scene.clients:
        same = [other for other in scene.clients if other.width == client.width]
        assert scene.counts[client.width] == len(same)
        assert scene.firsts[client.width] == same[0]
        assert scene.by_id[client.id] == client
        assert scene.ranks[client.id] == sum(other.id < client.id for other in same)
    assert list(scene.counts) == list(scene.firsts) == sorted({client.width for client in scene.clients})
    assert scene.usual_examples == median_low(client.num_examples for client in scene.clients)


def specs(clients: list[tuple[Bitwidth, int]]) -> tuple[ClientSpec, ...]:
    return tuple(ClientSpec(2 * n, width, examples) for n, (width, examples) in enumerate(clients))
