"""The compiled client gives the Python client's update, byte by byte, in the memory that was planned for it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from prowd.embedded.build import lacking, objects
from prowd.embedded.check import check
from prowd.embedded.sources import find_sources
from prowd.errors import RunError
from prowd.methods import Method
from prowd.methods.fedavg import FedAvg
from prowd.methods.fedpaq import FedPaq
from prowd.methods.plus import ProWDPlus
from prowd.methods.prowd.dequantizer import DequantizerSettings
from prowd.methods.prowd.method import ProWD
from tests.embedded.clients import case_of, started

METHODS: dict[str, Method] = {
    "fedavg": FedAvg(),
    "prowd": ProWD(dequantizer=DequantizerSettings(module=4, lam=0.0)),  # its server has no images here
    "fedpaq": FedPaq(),
    "fedpaq, three levels": FedPaq(bits="uplink"),
    "prowd-plus": ProWDPlus(),
}
NAMES = list(METHODS)
FLOATS = (b"__aeabi_f", b"__aeabi_d", b"sf2", b"df2", b"sf3", b"df3")  # helpers that compute with floats

needs_compiler = pytest.mark.skipif(lacking("posix") is not None, reason=f"there is no {lacking('posix')}")


def needs(target: str, *, to_run: bool = True) -> pytest.MarkDecorator:
    missing = lacking(target, to_run=to_run)
    return pytest.mark.skipif(missing is not None, reason=f"there is no {missing}")


@needs_compiler
@pytest.mark.parametrize("bits", range(2, 17))
def test_every_width(bits: int, tmp_path: Path) -> None:
    method = METHODS[NAMES[bits % len(NAMES)]]
    case = case_of(("watch", "odd")[bits % 2], bits, method, tmp_path, kept=1 + bits % 3)
    with started(case.compiled(tmp_path, optimise="-O0")) as board:
        assert board.handle(case.task()) == case.runtime.handle(case.task())


@needs_compiler
@pytest.mark.parametrize("method", ["fedavg", "fedpaq", "prowd-plus"])
def test_native_weights_and_movements(method: str, tmp_path: Path) -> None:
    case = case_of("odd", 9, METHODS[method], tmp_path, uplink="native")
    with started(case.compiled(tmp_path, optimise="-O0")) as board:
        assert board.handle(case.task()) == case.runtime.handle(case.task())


@needs_compiler
@pytest.mark.parametrize(
    "settings",
    [
        {"augment": ("crop", "flip", "rotate"), "signed": False},
        {"augment": ("rotate",), "loss": "squared"},
        {"gradient": 45, "kept": 2, "batch": 6},
        {"net": "no convolution", "gradient": 12, "batch": 20},
        {"steps": 7, "batch": 1},
    ],
    ids=str,
)
def test_every_setting(settings: dict[str, object], tmp_path: Path) -> None:
    case = case_of(**{"net": "odd", "bits": 6, "method": ProWDPlus(), "folder": tmp_path, **settings})  # type: ignore[arg-type]
    with started(case.compiled(tmp_path, optimise="-O0")) as board:
        assert board.handle(case.task()) == case.runtime.handle(case.task())


@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=needs(name)) for name in ("cortex-m3", "cortex-m4", "cortex-m3-semihosting")],
)
def test_a_cortex_m_in_the_memory_that_was_planned(target: str, tmp_path: Path) -> None:
    case = case_of("watch", 8, ProWDPlus(), tmp_path)
    found = check(case.compiled(tmp_path, target), case.runtime, steps=2)
    assert found.name.startswith("cortex-m")
    assert 0 < found.stack < 2048
    assert case.plan.total - 2500 < found.ram <= case.plan.total


@needs("cortex-m0", to_run=False)
def test_a_cortex_m0_needs_no_helper_for_floats(tmp_path: Path) -> None:
    case = case_of("odd", 8, FedPaq(), tmp_path, augment=("rotate",))
    with pytest.raises(RunError, match="no board"):
        case.compiled(tmp_path, "cortex-m0")
    (tmp_path / "client/floats.c").write_text("float f(float a); float f(float a) { return a * a; }\n")
    floats = {
        path.name: any(helper in path.read_bytes() for helper in FLOATS) for path in objects(tmp_path, "cortex-m0")
    }
    assert floats.pop("floats.o")
    assert len(floats) == 8
    assert not any(floats.values()), floats


def test_the_client_allocates_nothing_and_needs_no_operating_system() -> None:
    sources = sorted((find_sources() / "client").iterdir())
    assert {source.suffix for source in sources} == {".c", ".h"}
    for source in sources:
        text = source.read_text("utf-8")
        assert not {*re.findall(r"\w+", text)} & {"float", "malloc", "calloc", "free", "printf", "exit"}, source.name
        assert {*re.findall(r"#include <(.+)>", text)} <= {"stddef.h", "stdint.h", "string.h"}


@needs_compiler
def test_a_client_that_computes_something_else_is_found(tmp_path: Path) -> None:
    case, other = (case_of("watch", 8, FedAvg(), tmp_path, augment=kinds) for kinds in ((), ("crop",)))
    command = case.compiled(tmp_path)
    check(command, case.runtime, steps=2)
    with pytest.raises(RunError, match="differ from byte"):
        check(command, other.runtime, steps=2)


@needs_compiler
def test_a_card_that_is_damaged_or_of_another_network_is_refused(tmp_path: Path) -> None:
    command = case_of("watch", 8, FedAvg(), tmp_path).compiled(tmp_path)
    card = Path(command[-1])
    whole = card.read_bytes()
    for damaged in (b"", whole[:31], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), whole[:8] + b"\0" + whole[9:]):
        card.write_bytes(damaged)
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert ended.returncode == 2
        assert ended.stderr
        assert not ended.stdout
