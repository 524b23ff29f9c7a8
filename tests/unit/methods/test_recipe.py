"""The number by which a board and a gateway know that they mean the same training."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prowd.device.scene import LocalSettings
from prowd.methods import METHODS, FedAvg, FedCom, FedPaq, FedProx, Method, ProWD, ProWDPlus
from prowd.methods.recipe import CODES, LEVELS, WEIGHTS, client_half, recipe
from prowd.nets.lowbit.model import LowBitSettings
from prowd.numbers.bits import FLOAT32, Bitwidth

INT8, LOCAL = Bitwidth(8), LocalSettings()


def number(method: Method, local: LocalSettings = LOCAL, width: Bitwidth = INT8, *, native: bool = False) -> int:
    return recipe(method, "native" if native else "ternary", local, width)


def test_every_built_in_method_is_known_to_be_simple_or_not() -> None:
    halves = {name: client_half(method()) for name, method in METHODS.items()}
    assert {name for name, half in halves.items() if half is None} == {"fedprox", "fedcomgate", "local"}
    assert (halves["prowd"], halves["prowd-plus"], halves["fedpaq"]) == (WEIGHTS, LEVELS, CODES)


def test_what_only_the_server_does_changes_nothing() -> None:
    assert number(FedAvg()) == number(ProWD())
    assert number(ProWDPlus()) == number(ProWDPlus(pull=0.3))
    assert number(FedPaq()) == number(FedCom(gamma=2.0))
    slower = replace(LOCAL, steps=3, batch=2, horizon=5, lowbit=LowBitSettings(rate=2.0))
    assert number(FedAvg(), slower) == number(FedAvg())


@pytest.mark.parametrize(
    "other",
    [
        number(ProWDPlus()),
        number(FedPaq()),
        number(FedPaq(bits="uplink")),
        number(FedProx()),
        number(FedProx(mu=0.5)),
        number(FedAvg(), native=True),
        number(FedAvg(), width=Bitwidth(6)),
        number(FedAvg(), width=FLOAT32),
        number(FedAvg(), replace(LOCAL, augment=("flip",))),
        number(FedAvg(), replace(LOCAL, lowbit=LowBitSettings(logit_scale=4.0))),
        number(FedAvg(), replace(LOCAL, lowbit=LowBitSettings(loss="squared"))),
    ],
)
def test_what_a_device_does_differently_changes_it(other: int) -> None:
    assert other != number(FedAvg())


def test_the_number_stays_what_is_compiled_into_boards() -> None:
    assert number(FedAvg()) == 0x2EA053B68A702DCF
