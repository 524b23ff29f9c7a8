"""prowd-client: a program that needs neither Python nor a library, for boards that run Linux. QEMU runs it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from prowd.embedded.build import lacking
from prowd.embedded.check import check
from prowd.methods import Method
from prowd.methods.fedavg import FedAvg
from prowd.methods.plus import ProWDPlus
from tests.embedded.clients import case_of

MOST = 200_000  # bytes
INTERPRETER = b"/ld-"  # what a program that is not static asks for


@pytest.mark.skipif(lacking("aarch64") is not None, reason=f"there is no {lacking('aarch64')}")
@pytest.mark.parametrize(("net", "bits", "method"), [("watch", 8, ProWDPlus()), ("odd", 11, FedAvg())])
def test_it_gives_the_bytes_of_the_python_client(net: str, bits: int, method: Method, tmp_path: Path) -> None:
    case = case_of(net, bits, method, tmp_path)
    command = case.compiled(tmp_path, "aarch64")
    program = Path(command[1])
    assert program.name == "prowd-client-aarch64"
    assert program.stat().st_size < MOST
    assert INTERPRETER not in program.read_bytes()
    assert check(command, case.runtime, steps=2).name == "posix"
