"""The documentation can be read as text, and says what the code has."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from prowd.cli import main
from prowd.config.files import presets, read_pairs
from prowd.config.schema import load_config
from prowd.errors import ConfigError
from prowd.federation.engine import Federation, run_round
from prowd.numbers.bits import FLOAT32

from .scenes import INT8, FakeTransport, honest, same, scene

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = sorted({*ROOT.glob("*.md"), *DOCS, *ROOT.glob("[!.]*/README.md"), *ROOT.glob("experiments/*/README.md")})
CURRENT = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]  # other pages name what is gone as well
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
WIDEST = 100


def text(page: Path) -> str:
    return page.read_text("utf-8")


def prose(page: Path) -> str:
    """A page without its code blocks, with an empty line for each of their lines."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text(page))


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(text(page)) if found == language]


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_wide(line: str) -> bool:
    """Tables cannot be wrapped, nor can an address that has a line to itself."""
    bare = re.fullmatch(r"\s*(?:[-*] )?(?:<?https?://\S+|!?\[[^\]]*\]\(\S+\))[.,;]?", line)
    return len(line) > WIDEST and not line.startswith("|") and not bare


# How long and how wide pages are


def test_the_readme_fits_three_screens() -> None:
    lines = text(README).splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if is_wide(line)] == []


def test_the_first_screen_of_the_readme_says_how_to_start() -> None:
    screen = "\n".join(text(README).splitlines()[:45])
    for wanted in ("Federated learning", "Install", "make run", "make test", "report/index.html"):
        assert wanted in screen, wanted


@pytest.mark.parametrize("page", DOCS, ids=shown)
def test_a_page_has_at_most_200_lines_and_answers_at_once(page: Path) -> None:
    lines = text(page).splitlines()
    assert len(lines) <= 200
    assert lines[0].startswith("# ")
    answer = [line for line in lines[1:5] if line]
    assert answer
    assert not answer[0].startswith(("#", "```"))


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_lines_are_narrow_enough_to_be_read_as_text(page: Path) -> None:
    assert [line for line in prose(page).splitlines() if is_wide(line)] == []


# Links and paths


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as hosts of Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        if not found.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(found):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing\n\n[a](#one-thing) [b](#another) [c](gone.md) [d\ne](page.md#one-thing)\n")
    assert list(broken_links(page)) == ["#another: no such heading", "gone.md: no such file"]


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([a-z]+\.md)\)", text(ROOT / "docs/README.md")))
    assert listed == {page.name for page in DOCS} - {"README.md"}


def test_every_path_of_the_architecture_exists() -> None:
    paths = re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?)`", prose(ROOT / "docs/architecture.md"))
    assert "federation/engine.py" in paths
    assert [path for path in paths if not any((base / path).exists() for base in (ROOT / "src/prowd", ROOT))] == []


def test_every_test_that_the_arithmetic_names_exists() -> None:
    paths = re.findall(r"`((?:tests/)?[a-z0-9_/]+/test_[a-z0-9_]+\.py)`", text(ROOT / "docs/numerics.md"))
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / "tests" / path.removeprefix("tests/")).exists()] == []


# Commands and code


def commands(page: Path) -> Iterator[list[str]]:
    """What a page tells its readers to type: the lines of its consoles, and commands in the text."""
    for block in blocks(page, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("prowd ", "make ", "python -m ", "pip install ")):
                yield shlex.split(line, comments=True)
    for line in re.findall(r"`((?:prowd|make|python\s-m)\s[^`]+)`", prose(page)):
        yield shlex.split(line)


def command_context(arguments: list[str]) -> click.Context:
    """Parse arguments of prowd down to the last subcommand, without running it."""
    command: click.Command = main
    context: click.Context | None = None
    rest = arguments
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(click.Context(command, parent=context), rest)
        assert name is not None
        assert found is not None
        settings = command.context_settings  # or commands remember how to ask for help from a context that has none
        context, command = click.Context(command, info_name=name, parent=context, **settings), found
    return command.make_context(None, rest, parent=context, resilient_parsing=not rest or "--help" in rest)


def check_prowd(arguments: list[str]) -> None:
    """Parse a command, and validate the settings that it gives to a preset; other files are the reader's own."""
    if arguments[0] == "COMMAND":
        return
    given = command_context(arguments).params
    source, settings = given.get("config") or "quick", read_pairs(given.get("pairs") or ())
    for method in (given.get("methods") or settings.get("method", "fedavg")).split(","):
        if source in presets() and method != "all":
            load_config(source, {**settings, "method": method})


@pytest.mark.parametrize(
    "line", ["watch runs/DIR", "run quick --nope", "run quick -s nope=1", "compare --methods nope"]
)
def test_a_command_that_cannot_be_given_is_found(line: str) -> None:
    with pytest.raises((click.UsageError, ConfigError), match=r"nope|watch"):
        check_prowd(line.split())


@pytest.mark.parametrize("page", CURRENT, ids=shown)
def test_commands_can_be_given(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    targets = re.findall(r"^([a-z-]+):", text(ROOT / "Makefile"), re.M)
    for words in commands(page):
        match words:
            case ["prowd", *arguments]:
                check_prowd(arguments)
            case ["make", target, *_]:
                assert target in targets, words
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), words
            case ["pip", "install", *what]:
                extras = itertools.chain(
                    *(found.split(",") for found in re.findall(r"(?:\.|prowd)\[(.+?)\]", str(what)))
                )
                assert {*extras} <= {*project["optional-dependencies"]}, words


@pytest.mark.parametrize("page", CURRENT, ids=shown)
def test_code_can_be_read(page: Path) -> None:
    for block in blocks(page, "toml"):
        tomllib.loads(block)
    for block in blocks(page, "python"):
        compile(block, shown(page), "exec")


def test_the_method_of_contributing_works(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    names: dict[str, Any] = {"__name__": "contributing"}
    exec(compile(block, "CONTRIBUTING.md", "exec", dont_inherit=True), names)
    method, given = names["WidthMean"](), scene(INT8, INT8, FLOAT32)
    federation = Federation(given, method, rounds=1, cohort=3)
    report, state = run_round(federation, method.init(given), FakeTransport(honest(given, method, tmp_path)))
    assert not report.clients.refused
    assert not same(state.model, method.init(given).model)
