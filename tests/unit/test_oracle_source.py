"""The oracle of an integer client is worth something because it has nothing but integers: its source says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[1] / "reference"
SOURCES = [f"integer_{part}.py" for part in ("numbers", "layers", "passes", "images", "client")]
ALLOWED = {"collections.abc", "dataclasses", "hashlib", "typing"}
ALLOWED |= {f"tests.reference.{name.removesuffix('.py')}" for name in SOURCES}
NOT_INTEGER = {"float", "complex", "__import__", "eval", "exec"}


def faults(source: str) -> Iterator[str]:
    """What could bring a number that is no integer into a program, line by line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (f"import of {alias.name}" for alias in names if alias.name not in ALLOWED)
            case ast.ImportFrom(module=module) if module not in ALLOWED:
                yield f"import from {module}"
            case ast.Constant(value=float() | complex()):
                yield f"line {node.lineno}: the literal {node.value!r}"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield f"line {node.lineno}: a true division"
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in NOT_INTEGER:
                yield f"line {node.lineno}: the name {name}"
            case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub())):
                yield f"line {node.lineno}: a negative power"


@pytest.mark.parametrize("name", SOURCES)
def test_the_oracle_knows_integers_only(name: str) -> None:
    assert list(faults((REFERENCE / name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import numpy as np",
        "from math import log2",
        "from prowd.numbers import quantize",
        "from . import integer_oracle",
        "x = 0.5",
        "x = 1e3",
        "x = 2j",
        "x = 1 / 2",
        "x = 4\nx /= 2",
        "x = float(1)",
        "x = 2 ** -1",
        "x = __import__('math')",
        "import builtins",
    ],
)
def test_what_is_no_integer_is_found(source: str) -> None:
    assert list(faults(source))


def test_integers_are_let_through() -> None:
    assert list(faults("import hashlib\nx = 7 // 2 + (3 << 4) % 5 + 2**8\nx //= 2\n")) == []
