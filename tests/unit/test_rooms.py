"""The import rule: a room may import only rooms that come before it, inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

import prowd

ORDER = """
    _version errors bits seeds quantize files fields packing wire models lowbit float32 data scene training memory
    snapshots dequantizer selection methods client transport processes pool admission rounds inbox engine roster rundir
    options settings config assembly provenance recorder summary session tensorboard comparison records console report
    flower cli api
"""
ROOMS = ORDER.split()
OPEN = {"cli", "api", "__init__"}  # the two ends that users hold, and the package itself, may reach for anything
SOURCE = Path(prowd.__file__).parent
FILES = sorted(PurePosixPath(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py"))


def room_of(file: PurePosixPath) -> str:
    """Room of a file, given relative to the package: ``data/cache.py`` is in ``data``."""
    return file.parts[0].removesuffix(".py")


def imported(source: str, file: PurePosixPath) -> Iterator[tuple[int, str, str]]:
    """Line, room and name of everything a file imports from prowd; the package itself is the room ``__init__``."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ["prowd", *file.parts[:-1]]
            start = package[: len(package) + 1 - node.level] if node.level else []
            names = [".".join([*start, *filter(None, [node.module]), alias.name]) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "prowd":
                room = parts[1] if len(parts) > 1 else "__init__"
                yield line, room if room in ROOMS or is_file(room) else "__init__", name


def is_file(room: str) -> bool:
    return any(room_of(file) == room for file in FILES)


def violations(source: str, file: PurePosixPath) -> list[str]:
    """What a file imports against the rule, in words."""
    room = room_of(file)
    if room in OPEN:
        return []
    if room not in ROOMS:
        return [f"{file}: its room {room!r} has no place in the order; give it one in {Path(__file__).name}"]
    earlier = {*ROOMS[: ROOMS.index(room)], room}
    return [
        f"{file}:{line} imports {name}, but {room!r} comes before {found!r}"
        for line, found, name in imported(source, file)
        if found not in earlier
    ]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_go_upwards_only(file: PurePosixPath) -> None:
    assert violations((SOURCE / file).read_text(), file) == []


def test_every_room_of_the_order_exists() -> None:
    assert [room for room in ROOMS if not is_file(room)] == []
    assert len(set(ROOMS)) == len(ROOMS)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("wire.py", "from prowd.engine import run"),
        ("wire.py", "import prowd.engine"),
        ("wire.py", "import os, prowd.engine as e"),
        ("wire.py", "from prowd import engine"),
        ("wire.py", "from . import engine"),
        ("wire.py", "from .engine import run"),
        ("data/cache.py", "from ..engine import run"),
        ("data/cache.py", "from .. import engine"),
        ("data/cache.py", "from prowd import errors, engine"),
        ("lowbit/deep/kernel.py", "from ...engine import run"),
        ("wire.py", "def later():\n    from prowd.engine import run"),
        ("wire.py", "class A:\n    def b(self):\n        import prowd.engine"),
        ("wire.py", "if TYPE_CHECKING:\n    from prowd.engine import run"),
        ("wire.py", "importlib.import_module('prowd.engine')"),
        ("rounds.py", "import prowd.engine"),  # the room next door, downwards
    ],
)
def test_an_import_from_a_later_room_is_caught(file: str, source: str) -> None:
    (found,) = violations(source, PurePosixPath(file))
    line = source.count("\n") + 1
    room = room_of(PurePosixPath(file))
    assert found.startswith(f"{file}:{line} imports prowd.engine")
    assert found.endswith(f"{room!r} comes before 'engine'")


@pytest.mark.parametrize("source", ["import prowd", "from prowd import __version__", "from prowd import run"])
def test_the_package_itself_comes_last(source: str) -> None:
    (found,) = violations(source, PurePosixPath("session.py"))
    assert "'session' comes before '__init__'" in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("wire.py", "import os\nfrom torch import nn\nfrom prowd.bits import INT2\nfrom prowd import packing"),
        ("data/cache.py", "from prowd.data.dataset import Dataset\nfrom . import formats\nfrom ..files import sha256"),
        ("cli.py", "from prowd import api"),
        ("__init__.py", "from prowd.api import run"),
        ("wire.py", "from prowdly import engine"),
    ],
)
def test_an_import_that_goes_upwards_is_let_be(file: str, source: str) -> None:
    assert violations(source, PurePosixPath(file)) == []


def test_a_room_without_a_place_is_caught() -> None:
    for file in ("attic.py", "attic/box.py"):
        (found,) = violations("", PurePosixPath(file))
        assert found.startswith(f"{file}: its room 'attic' has no place in the order")
    (found,) = violations("from prowd.attic import box", PurePosixPath("session.py"))
    assert "imports prowd.attic" in found
