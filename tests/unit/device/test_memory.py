"""What a client remembers: the right round's file, few of them, and never a damaged or foreign one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from prowd.device.memory import KEPT, ClientMemory, forget_after
from prowd.errors import DiskError, RunError
from prowd.numbers.quantize import Weights
from tests.unit.scenes import INT2, INT6, codes, floats


def remembered(memory: ClientMemory, before: int) -> float | None:
    found = memory.load(before)
    return None if found is None else float(found["w"].value()[0])


def mark(round_: int) -> Weights:
    return {"w": floats(float(round_))}


@pytest.fixture
def memory(tmp_path: Path) -> ClientMemory:
    return ClientMemory(tmp_path / "client-0004", seed=5, client=4)


def test_nothing_is_known_before_the_first_round(memory: ClientMemory) -> None:
    assert memory.load(1) is None
    assert not memory.folder.exists()


def test_what_is_saved_comes_back_bit_for_bit(memory: ClientMemory) -> None:
    weights = {
        "a.weight": codes(INT6, -31, 0, 31, 7, shape=(2, 2)),
        "b": codes(INT2, 1, 0, -1),
        "c": floats(0.1, -3e38),
    }
    memory.save(3, weights)
    found = memory.load(4)
    assert found is not None
    assert list(found) == list(weights)
    for name, tensor in weights.items():
        assert (found[name].width, found[name].scale) == (tensor.width, tensor.scale)
        assert found[name].codes.dtype == tensor.codes.dtype
        assert torch.equal(found[name].codes, tensor.codes)


def test_a_memory_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memory = ClientMemory(tmp_path / "file" / "client-0004", seed=5, client=4)
    with pytest.raises(DiskError, match=rf"^client 4: its memory {memory.folder} cannot be written: "):
        memory.save(1, mark(1))


def test_a_round_reads_what_was_known_before_it(memory: ClientMemory) -> None:
    for round_ in (2, 5, 9):  # the client does not take part in every round
        memory.save(round_, mark(round_))
    assert [remembered(memory, before) for before in (1, 2, 3, 5, 6, 9, 10, 1000)] == [
        None, None, 2.0, 2.0, 5.0, 5.0, 9.0, 9.0,
    ]  # fmt: skip


def test_rounds_are_ordered_as_numbers(memory: ClientMemory) -> None:
    for round_ in (999_999, 1_000_000):  # one digit more than the file name pads to
        memory.save(round_, mark(round_))
    assert remembered(memory, 2_000_000) == 1_000_000


def test_only_the_last_few_are_kept(memory: ClientMemory) -> None:
    for round_ in range(1, 8):
        memory.save(round_, mark(round_))
        assert len(list(memory.folder.iterdir())) == min(round_, KEPT)
    assert KEPT == 3
    assert [remembered(memory, before) for before in (8, 7, 6, 5)] == [7.0, 6.0, 5.0, None]


def test_a_resumed_run_forgets_what_it_undoes(memory: ClientMemory) -> None:
    for round_ in (1, 2, 3):
        memory.save(round_, mark(round_))
    forget_after(memory.folder.parent, 1)
    assert remembered(memory, 100) == 1.0


def test_a_late_save_leaves_later_rounds_alone(memory: ClientMemory) -> None:
    """A worker that outlives a killed server may save an old round while the resumed run is past it."""
    for round_ in (3, 4, 5):
        memory.save(round_, mark(round_))
    memory.save(3, mark(3))
    assert [remembered(memory, before) for before in (4, 5, 6)] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_diverged_are_not_kept(memory: ClientMemory, value: float) -> None:
    memory.save(1, mark(1))
    memory.save(2, {"w": floats(1.0, value)})
    assert remembered(memory, 3) == 1.0


@pytest.mark.parametrize("damage", [b"", b"short", None], ids=["empty", "garbage", "a flipped bit"])
def test_a_damaged_file_is_named(memory: ClientMemory, damage: bytes | None) -> None:
    memory.save(1, mark(1))
    path = memory.folder / "round-000001.bin"
    whole = path.read_bytes()
    path.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]) if damage is None else damage)
    with pytest.raises(RunError, match=r"client 4: its memory .*round-000001\.bin is damaged"):
        memory.load(2)
    assert memory.load(1) is None, "a round that does not need the file does not read it"


@pytest.mark.parametrize(("seed", "client"), [(5, 3), (6, 4)])
def test_a_foreign_memory_is_refused(memory: ClientMemory, seed: int, client: int) -> None:
    ClientMemory(memory.folder, seed, client).save(1, mark(1))
    with pytest.raises(RunError, match=rf"client 4: .*round-000001\.bin .* of round 1, client {client}, seed {seed}"):
        memory.load(2)
