"""The order of the site has every page, and the reference every public name, with something to say of it."""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path

import pytest

import prowd

ROOT = Path(__file__).parents[2]
NAV = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
ELSEWHERE = {"index.md": "README.md", "questions.md": "docs/README.md", "examples/tour.md": "examples/tour.ipynb"}


def pages() -> list[str]:
    return re.findall(r"^      - .+: (\S+\.md)$", NAV, re.M)


def test_every_page_of_docs_has_its_place_in_the_order() -> None:
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    found = pages()
    assert len(found) == len(set(found))
    assert docs - {"README.md"} <= set(found)
    for page in set(found) - docs:
        assert (ROOT / ELSEWHERE.get(page, page)).is_file(), page


def test_the_order_is_from_the_start_to_the_reference() -> None:
    chapters = re.findall(r"^  - (.+):$", NAV, re.M)
    assert chapters == ["Start", "Concepts", "Guides", "Reproduction", "Methods", "Devices", "Reference"]


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: prowd\.(\w+)$", (ROOT / "docs/api.md").read_text("utf-8"), re.M)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(prowd.__all__) - {"__version__"}


@pytest.mark.parametrize("name", sorted(set(prowd.__all__) - {"__version__"}))
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(prowd, name)
    if inspect.isclass(found) or inspect.isfunction(found) or inspect.ismodule(found):
        own = found.__doc__  # not what it inherits
        assert own
        assert not own.startswith(f"{name}("), "what a dataclass makes up"
        members = {} if inspect.ismodule(found) else vars(found)
        bare = [key for key, value in members.items() if inspect.isfunction(value) and not key.startswith("_")]
        assert [key for key in bare if not inspect.getdoc(getattr(found, key))] == []
    else:
        assert name in documented_values(), "a string after its assignment"


def documented_values() -> set[str]:
    """Names that are assigned in the package, with a string after it that says what they are."""
    found: set[str] = set()
    for path in (ROOT / "src/prowd").rglob("*.py"):
        body = ast.parse(path.read_text("utf-8")).body
        for before, after in pairwise(body):
            if isinstance(before, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found |= {target.id for target in before.targets if isinstance(target, ast.Name)}
    return found
