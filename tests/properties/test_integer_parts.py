"""Parts of an integer client against the oracle: codes of bytes, rates, and what its methods send."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prowd.methods.movement import best_ternary, movement
from prowd.nets.inputs import code_table
from prowd.numbers.bits import INT2, Bitwidth
from prowd.numbers.quantize import QTensor, Rate
from prowd.numbers.streams import Stream
from tests.reference import integer_client as oracle

widths = st.integers(2, 16)


@pytest.mark.parametrize("bits", range(2, 17))
def test_codes_of_bytes(bits: int) -> None:
    width = Bitwidth(bits)
    assert code_table(width, torch.uint8).tolist() == [oracle.image_code(u, bits) for u in range(256)]
    signed = [*range(128), *range(-128, 0)]  # in the order of their bytes
    assert code_table(width, torch.int8).tolist() == [oracle.sensor_code(c, bits) for c in signed]


@given(st.integers(1, 2**70), st.integers(1, 2**70))
def test_rates(a: int, b: int) -> None:
    rate = Rate.ratio(a, b)
    assert (rate.mantissa, rate.exponent) == oracle.nearest_rate(a, b)


@given(st.data(), widths, widths, st.integers(0, 2**64 - 1), st.integers(0, 9))
def test_movements(data: st.DataObject, bits: int, target: int, seed: int, number: int) -> None:
    most = oracle.max_code(bits)
    codes = st.lists(st.tuples(st.integers(-most, most), st.integers(-most, most)), min_size=1, max_size=40)
    trained, received = (list(part) for part in zip(*data.draw(codes), strict=True))
    tensors = [QTensor(torch.tensor(part, dtype=torch.int16), Bitwidth(bits)) for part in (trained, received)]
    found = movement(tensors[0], tensors[1], Bitwidth(target), Stream.of(seed, "movement"), number)
    key = oracle.stream_key(seed, "movement")
    words = [oracle.word(key, 0, number, index) for index in range(len(trained))]
    sent, exponent = oracle.movement(trained, received, oracle.max_code(target), words)
    assert found.codes.tolist() == sent
    assert found.scale / Bitwidth(target).steps == 2.0**exponent / Bitwidth(bits).steps


@given(st.data(), st.integers(3, 16))
def test_three_levels(data: st.DataObject, bits: int) -> None:
    furthest = data.draw(st.sampled_from((1, 3, min(40, 2 * oracle.max_code(bits)))))
    moved = data.draw(st.lists(st.integers(-furthest, furthest), min_size=1, max_size=40))
    found = best_ternary(torch.tensor(moved, dtype=torch.float64), Bitwidth(bits))
    sent, (mantissa, exponent) = oracle.three_levels(moved, bits)
    assert found.codes.tolist() == sent
    if any(sent):
        assert found.scale / INT2.steps == mantissa * 2.0**exponent / Bitwidth(bits).steps
