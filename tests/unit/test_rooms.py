"""The import rule: a room may import only rooms that come before it, inside functions too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

import prowd

ORDER = """
    errors files numbers wire link nets data device methods federation embedded config runs comparison views flower
    api cli
"""
ROOMS = ORDER.split()
OPEN = {"__init__"}  # the package itself offers names of all rooms
VERSION = "prowd.__version__"  # known before any room is
SOURCE = Path(prowd.__file__).parent
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
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
        if found not in earlier and name != VERSION
    ]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_go_upwards_only(file: PurePosixPath) -> None:
    assert violations((SOURCE / file).read_text(), file) == []


def test_every_room_of_the_order_exists() -> None:
    assert [room for room in ROOMS if not is_file(room)] == []
    assert len(set(ROOMS)) == len(ROOMS)


def test_contributing_shows_the_same_rooms_in_the_same_order() -> None:
    text = CONTRIBUTING.read_text("utf-8")
    table = text[text.index("## The rooms") : text.index("## Ways of working")]
    first_cells = re.findall(r"^\| (`.+?) \|", table, re.M)
    shown = [name for cell in first_cells for name in re.findall(r"`([a-z]+)(?:/|\.py)`", cell)]
    assert shown == ROOMS


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("wire/packing.py", "from prowd.federation import engine"),
        ("wire/packing.py", "import os, prowd.federation as f"),
        ("wire/packing.py", "from prowd import federation"),
        ("wire/packing.py", "from .. import federation"),
        ("wire/packing.py", "from ..federation import engine"),
        ("errors.py", "from .federation import engine"),
        ("data/cache.py", "from prowd import errors, federation"),
        ("nets/lowbit/kernel.py", "from ...federation import engine"),
        ("wire/packing.py", "def later():\n    from prowd.federation import engine"),
        ("wire/packing.py", "if TYPE_CHECKING:\n    from prowd.federation import engine"),
        ("wire/packing.py", "importlib.import_module('prowd.federation')"),
        ("methods/base.py", "import prowd.federation"),  # the room next door, downwards
    ],
)
def test_an_import_from_a_later_room_is_caught(file: str, source: str) -> None:
    (found,) = violations(source, PurePosixPath(file))
    line = source.count("\n") + 1
    room = room_of(PurePosixPath(file))
    assert found.startswith(f"{file}:{line} imports prowd.federation")
    assert found.endswith(f"{room!r} comes before 'federation'")


def test_the_command_line_stands_on_the_python_interface() -> None:
    assert violations("from prowd.api import run", PurePosixPath("cli/run.py")) == []
    (found,) = violations("from prowd.cli import main", PurePosixPath("api.py"))
    assert "'api' comes before 'cli'" in found


@pytest.mark.parametrize("source", ["import prowd", "from prowd import run"])
def test_the_package_itself_comes_last(source: str) -> None:
    (found,) = violations(source, PurePosixPath("runs/run.py"))
    assert "'runs' comes before '__init__'" in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "wire/fields.py",
            "import os\nfrom torch import nn\nfrom prowd.numbers import bits\nfrom prowd import errors",
        ),
        ("data/cache.py", "from prowd.data.dataset import Dataset\nfrom . import formats\nfrom ..files import sha256"),
        ("runs/run.py", "from prowd import __version__"),
        ("cli/main.py", "from prowd import api"),
        ("__init__.py", "from prowd.api import run"),
        ("wire/fields.py", "from prowdly import federation"),
    ],
)
def test_an_import_that_goes_upwards_is_let_be(file: str, source: str) -> None:
    assert violations(source, PurePosixPath(file)) == []


def test_a_room_without_a_place_is_caught() -> None:
    for file in ("attic.py", "attic/box.py"):
        (found,) = violations("", PurePosixPath(file))
        assert found.startswith(f"{file}: its room 'attic' has no place in the order")
    (found,) = violations("from prowd.attic import box", PurePosixPath("runs/run.py"))
    assert "imports prowd.attic" in found
