"""prowd report, and the page that a run or a comparison ends with."""

from __future__ import annotations

import logging
import shlex
import webbrowser
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from prowd.cli.main import main
from prowd.errors import ProwdError

__all__ = ["check_report", "open_option", "report", "report_option", "show_results"]

log = logging.getLogger(__name__)
EXTRA = "in a clone of prowd, pip install '.[report]'"

open_option = click.option("--open", "opens", is_flag=True, help="Show the report in a browser at the end.")
report_option = click.option(
    "--report/--no-report",
    "reports",
    default=True,
    envvar="PROWD_REPORT",
    help="Whether to end with a page that shows the results (needs the extra report); PROWD_REPORT=0 for never.",
)


@main.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN_OR_COMPARE_DIR...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the report goes. Default: report/ in the directory, or here if there are several.",
)
@click.option("--page-only", is_flag=True, help="Write the page alone, without figures and tables as files.")
@open_option
def report(folders: Sequence[Path], out: Path | None, page_only: bool, opens: bool) -> None:
    """Turn run directories into a page, figures and tables.

    \b
    Writes to the report's directory:
      index.html        everything on one page that needs no network: tables with confidence intervals, accuracy
                        against rounds and megabytes, bytes per client, lost and refused clients, provenance
      figures/          the same figures, and the paper's, as PNG, SVG and PDF
      tables/           the paper's tables with ours, as Markdown, CSV and LaTeX (runs on CIFAR-10 with the
                        clients of a printed table)

    Runs of the same federation are set side by side, with confidence intervals over their seeds, however they were
    made. What is unfinished, damaged or of an older version is shown as far as it goes, and said so on the page.

    \b
    Examples:
      prowd report runs/compare-quick-1a2b3c4d --open
      prowd report runs/mine runs/yours --out both
    """
    check_extra()
    from prowd.views.console import say
    from prowd.views.report import make_report, verdict

    console = Console(highlight=False)
    place = out or (folders[0] / "report" if len(folders) == 1 else Path("report"))
    with console.status("drawing"):
        made = make_report(folders, place, files=not page_only)
    for problem in made.problems:
        say(console, problem, style="yellow")
    for group in made.groups:
        say(console, f"{group.title}: {verdict(group)}")
    if made.files:
        say(console, f"{len(made.files)} files in {place} (figures as PNG, SVG and PDF)")
    _tell(console, made.page, opens)


def check_report(reports: bool, opens: bool) -> None:
    """See, before a run, that a page which is to be shown will be drawn and can be."""
    if opens and not reports:
        raise click.UsageError("--open shows the report: it does not go with --no-report or PROWD_REPORT=0")
    if opens:
        check_extra()


def check_extra() -> None:
    """See that what the report is drawn with is installed."""
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise ProwdError(f"a report needs {missing[0]}; install it with: {EXTRA}")


def show_results(console: Console, folder: Path, reports: bool, opens: bool, trackers: Sequence[str]) -> None:
    """End a run or a comparison with its page, and with the commands that show it in trackers."""
    from prowd.views.console import say
    from prowd.views.trackers import how_to_look

    if reports:
        _write_page(console, folder, opens)
    for command in how_to_look(trackers, folder):
        say(console, command)


def _write_page(console: Console, folder: Path, opens: bool) -> None:
    """Write the page where the extra is installed; without it, say how to get one."""
    from prowd.views.console import say

    try:
        check_extra()
    except ProwdError:
        say(console, f"for a report: {EXTRA}, then: prowd report {shlex.quote(str(folder))}")
        return
    from prowd.views.report import make_report

    try:
        with console.status("drawing"):
            page = make_report([folder], folder / "report", files=False).page
    except Exception as error:  # what the run came to is safe, whatever befalls its picture
        log.debug("no report", exc_info=True)
        say(console, f"no report: {error!r}; try: prowd report {shlex.quote(str(folder))}", style="yellow")
    else:
        _tell(console, page, opens)


def _tell(console: Console, page: Path, opens: bool) -> None:
    from prowd.views.console import say

    say(console, f"report: {page}")
    if opens and not webbrowser.open(page.resolve().as_uri()):
        say(console, "no browser could be started; open the page yourself", style="yellow")
