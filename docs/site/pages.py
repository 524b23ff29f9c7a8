"""Hooks of mkdocs: pages of the repository that are not in docs/ become pages of the site, where they are linked.

On a forge the documentation is a tree of files that link to one another, and stays one. Here every file that a page
links to gets a place in the site, and links are turned to these places: Markdown as it is, notebooks as Markdown with
their pictures, source as a page that shows it.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

__all__ = ["on_config", "on_files", "on_page_content", "on_page_markdown", "origin", "place", "reachable", "turned"]

ROOT = Path(__file__).parents[2]
PLACES = {"README.md": "index.md", "docs/README.md": "questions.md"}
FENCE = re.compile(r"^(```+)\w*\n.*?^\1$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".toml": "toml", ".cff": "yaml"}


def on_config(config: Any) -> Any:
    """Name headings as forges do, so that a link to one leads there in both places."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what the pages of docs/ lead to."""
    if index := files.get_file_from_path("README.md"):
        files.remove(index)  # it has another place
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in reachable(["README.md", "docs/README.md", *pages]):
        if path.startswith("docs/") and path not in PLACES:
            continue
        for name, content in shown(path):
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn the links of a page to the places in the site."""
    return turned(markdown, origin(page.file.src_uri))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Show a bar in the code of a table as a bar: forges take the backslash off, this Markdown does not."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.S)


def links(markdown: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for target in LINK.findall(FENCE.sub("", markdown)):
        if not re.match(r"[a-z]+:|#", target):
            yield target.partition("#")[0]


def reachable(start: list[str]) -> list[str]:
    """Every file of the repository to which links lead from some pages, themselves included."""
    found = dict.fromkeys(start)
    waiting = list(found)
    while waiting:
        path = waiting.pop()
        for link in links(text_of(path)):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
            if target not in found and (ROOT / target).is_file():  # what is not there mkdocs complains of
                found[target] = None
                waiting.append(target)
    return list(found)


def place(path: str) -> str:
    """Where in the site a file of the repository is."""
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return path if path.endswith(".md") else f"source/{path}.md"


def origin(uri: str) -> str:
    """The file of the repository that a page of the site shows: the other way round."""
    for path in (key for key, value in PLACES.items() if value == uri):
        return path
    candidates = [f"docs/{uri}", uri, uri.removesuffix(".md") + ".ipynb", uri[len("source/") : -len(".md")]]
    return next(path for path in candidates if place(path) == uri and (ROOT / path).is_file())


def turned(markdown: str, path: str) -> str:
    """A page with its links as they are in the site, its code left alone."""
    here = posixpath.dirname(place(path)) or "."

    def turn(match: re.Match[str]) -> str:
        target, hash_, anchor = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", match[1]):
            return match[0]
        full = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (ROOT / full).is_file():
            return match[0]
        return f"]({posixpath.relpath(place(full), here)}{hash_}{anchor})"

    return outside_code(markdown, lambda text: LINK.sub(turn, text))


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """A page of which everything is changed but its blocks of code."""
    parts, end = [], 0
    for block in FENCE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def text_of(path: str) -> str:
    """The Markdown of a file, as far as it has some."""
    if path.endswith(".ipynb"):
        return "\n\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")
    return (ROOT / path).read_text("utf-8") if path.endswith(".md") else ""


def cells(path: str) -> list[dict[str, Any]]:
    """The cells of a notebook."""
    found: list[dict[str, Any]] = json.loads((ROOT / path).read_text("utf-8"))["cells"]
    return found


def shown(path: str) -> Iterator[tuple[str, str | bytes]]:
    """The files of the site that show a file of the repository."""
    if path.endswith(".ipynb"):
        yield from notebook(path)
    elif path.endswith(".md"):
        yield place(path), text_of(path)
    else:
        language = LANGUAGES.get(Path(path).suffix, "text")
        source = (ROOT / path).read_text("utf-8")
        yield place(path), f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n`````{language}\n{source}\n`````\n"


def notebook(path: str) -> Iterator[tuple[str, str | bytes]]:
    """A notebook as a page, and its pictures."""
    parts: list[str] = []
    stem, pictures = place(path).removesuffix(".md"), 0
    for cell in cells(path):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text'])}```")
            elif "image/png" in output.get("data", {}):
                pictures += 1
                name = f"{stem}-{pictures}.png"
                yield name, base64.b64decode(output["data"]["image/png"])
                parts.append(f"![Picture {pictures}]({posixpath.basename(name)})")
    yield place(path), "\n\n".join(parts) + "\n"
