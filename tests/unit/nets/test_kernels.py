"""Which kernel computes, and why the fast one is not available."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import prowd
from prowd.errors import ConfigError
from prowd.nets.architecture import Architecture, Conv, Flatten, Linear, MaxPool
from prowd.nets.lowbit import kernels
from prowd.nets.lowbit.kernels import Kernel, KernelChoice, check_kernel, make_kernel, why_not_c99, why_not_int8
from prowd.nets.lowbit.simulated import SimulatedKernel
from prowd.nets.lowbit.update import Draws
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import Rate
from prowd.numbers.streams import Stream
from tests.kernels import needs_c99, needs_int8, random_codes
from tests.runs import TINY, arrays, run_tiny

CPU, NARROW, WIDE = torch.device("cpu"), (2, 3, 4, 5, 6, 7, 8), (9, 12, 16)
DRAWS = Draws(Stream.of(0, "test"), 0)
ask_anew = kernels._why_not_here.__wrapped__  # past the cache
NET = Architecture((Conv("a", 3, 20), MaxPool(), Flatten(), Linear("b", 240, 5, relu=False)), (3, 8, 7))


def made(choice: KernelChoice, bits: int, architecture: Architecture = NET) -> Kernel:
    return make_kernel(choice, architecture, Bitwidth(bits), random_codes(architecture, bits))


@pytest.fixture
def none_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the int8 kernel."""
    monkeypatch.setattr(kernels, "_why_not_here", lambda: "the reason")


@pytest.fixture
def no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """prowd, installed without the compiled part of the c99 kernel."""
    monkeypatch.setitem(sys.modules, "prowd.nets.lowbit._core", None)
    monkeypatch.delitem(sys.modules, "prowd.nets.lowbit.c99", raising=False)
    monkeypatch.delattr("prowd.nets.lowbit._core", raising=False)


# --- the choice ------------------------------------------------------------------------------------------------------


@needs_int8
@needs_c99
@pytest.mark.parametrize("choice", ["auto", "int8"])
def test_codes_of_at_most_eight_bits_are_computed_as_int8(choice: KernelChoice) -> None:
    assert why_not_int8(CPU, NET) is None
    assert all(made(choice, bits).name.startswith("int8 (") for bits in NARROW)
    assert all(made(choice, bits).name == "c99" for bits in WIDE)


@needs_c99
def test_c99_where_it_is_asked_for() -> None:
    assert why_not_c99(CPU, NET) is None
    assert all(made("c99", bits).name == "c99" for bits in (*NARROW, *WIDE))


def test_simulated_where_it_is_asked_for() -> None:
    assert all(made("simulated", bits).name == "simulated" for bits in (*NARROW, *WIDE))


@needs_c99
@pytest.mark.usefixtures("none_here")
def test_without_int8_auto_is_c99() -> None:
    assert all(made("auto", bits).name == "c99" for bits in (*NARROW, *WIDE))
    assert why_not_int8(CPU) == why_not_int8(CPU, NET) == "the reason"


@pytest.mark.usefixtures("none_here", "no_core")
def test_without_a_compiled_part_auto_is_simulated() -> None:
    assert all(made("auto", bits).name == "simulated" for bits in (*NARROW, *WIDE))


@needs_int8
@pytest.mark.usefixtures("no_core")
@pytest.mark.parametrize("choice", ["auto", "int8"])
def test_without_c99_wide_codes_are_simulated(choice: KernelChoice) -> None:
    assert made(choice, 16).name == "simulated"
    assert made(choice, 8).name.startswith("int8 (")


@pytest.mark.usefixtures("no_core")
def test_without_c99_asking_for_it_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^kernel: .*compiled part"):
        made("c99", 12)


@needs_c99
def test_a_network_whose_sums_32_bits_can_t_hold_is_simulated() -> None:
    wide = Architecture((Flatten(), Linear("a", 70_000, 2, relu=False)), (1, 1, 70_000))  # 70,000 · 32,767 > 2^31
    assert why_not_c99(CPU, wide) is not None
    assert made("auto", 16, wide).name == "simulated"
    with pytest.raises(ConfigError, match=r"^kernel: "):
        check_kernel("c99", CPU, wide)


@pytest.mark.usefixtures("none_here")
def test_without_int8_asking_for_it_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^kernel: .*the reason"):
        made("int8", 8)
    for choice in ("auto", "simulated"):
        check_kernel(choice, CPU, NET)


@needs_c99
@pytest.mark.usefixtures("none_here")
def test_what_is_available_is_accepted() -> None:
    with pytest.raises(ConfigError, match=r"; accepted: auto, c99, simulated$"):
        check_kernel("int8", CPU, NET)


@pytest.mark.parametrize("choice", ["int8", "c99"])
def test_integer_kernels_are_for_the_cpu(choice: KernelChoice) -> None:
    cuda = torch.device("cuda")
    check_kernel("auto", cuda, NET)
    with pytest.raises(ConfigError, match=r"^kernel: .*cuda; accepted: auto, simulated$"):
        check_kernel(choice, cuda, NET)


@pytest.mark.parametrize(
    "choice", ["simulated", pytest.param("int8", marks=needs_int8), pytest.param("c99", marks=needs_c99)]
)
def test_learning_follows_a_forward_pass_that_was_recorded(choice: KernelChoice) -> None:
    kernel, images = made(choice, 8), torch.zeros(2, *NET.input_shape, dtype=torch.uint8)

    def learn() -> None:
        kernel.learn(torch.ones(2, NET.classes, dtype=torch.int64), Rate(1, 0), DRAWS, [None] * 2)

    with pytest.raises(RuntimeError, match="recorded"):
        learn()
    kernel.forward(images)
    learn()
    with pytest.raises(RuntimeError, match="recorded"):
        learn()
    kernel.forward(images)
    kernel.forward(images, record=False)
    with pytest.raises(RuntimeError, match="recorded"):
        learn()


# --- reasons of a machine --------------------------------------------------------------------------------------------


@needs_int8
@pytest.mark.parametrize(("version", "is_old"), [("2.5.1+cpu", True), ("1.13.0", True), ("2.10.0+cu128", False)])
def test_an_old_torch_is_refused(version: str, is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert (ask_anew() is not None) == is_old


def test_a_missing_compiled_part_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prowd.nets.lowbit._native", None)
    monkeypatch.delitem(sys.modules, "prowd.nets.lowbit.int8", raising=False)
    monkeypatch.delattr("prowd.nets.lowbit._native", raising=False)
    assert "compiled part" in (ask_anew() or "")


@needs_int8
def test_a_cpu_without_the_instructions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from prowd.nets.lowbit import int8

    monkeypatch.setattr(int8, "instruction_sets", list)
    assert "AVX2" in (ask_anew() or "")


class Wrong(SimulatedKernel):
    """Right, but for one code of what it gives."""

    part = "logits"

    def forward(self, images: Tensor, *, record: bool = True) -> Tensor:
        logits = super().forward(images, record=record)
        return logits + torch.eye(*logits.shape) * (self.part == "logits")

    def learn(self, error: Tensor, rate: Rate, draws: Draws, additions: Sequence[Tensor | None]) -> None:
        super().learn(error, rate, draws, additions)
        if self.part == "weights":
            self.codes[1].view(-1)[7] ^= 1


@pytest.mark.parametrize("part", ["logits", "weights"])
def test_a_kernel_whose_sums_are_wrong_is_refused(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels._agrees(SimulatedKernel)
    monkeypatch.setattr(Wrong, "part", part)
    assert not kernels._agrees(Wrong)


@needs_int8
def test_sums_that_are_wrong_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from prowd.nets.lowbit import int8

    monkeypatch.setattr(int8, "Int8Kernel", Wrong)
    assert "wrong" in (ask_anew() or "")


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("none_here")
@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"clients": "int8:1, int4:1, int12:1"}, 1),
        ({"kernel": "simulated"}, 0),
        ({"clients": "int12:1, float32:1"}, 0),
        pytest.param({"kernel": "c99"}, 0, marks=needs_c99),
    ],
)
def test_a_run_without_int8_warns_once_unless_that_was_meant(
    settings: dict[str, Any], warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_tiny(tmp_path / "run", rounds=1, **settings)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warnings
    assert all("int4, int8" in record.getMessage() for record in caplog.records)


@pytest.mark.usefixtures("none_here")
def test_int8_that_can_t_be_had_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^kernel: .*the reason"):
        prowd.run(out=tmp_path / "run", data=arrays(), workers=1, kernel="int8", **TINY)
    assert list(tmp_path.iterdir()) == []
