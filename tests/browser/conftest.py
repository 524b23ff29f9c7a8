"""One browser for all tests here, and the pages that it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from selenium.common.exceptions import SessionNotCreatedException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from prowd.views.report import Report, make_report
from tests.unit.views.report.directories import absent, line, write

from .looking import Browser
from .written import write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
WIDTHS = ("int8", "float32")
WORD = "w" * 300
MARKUP = """$x_{$<script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;"""
HOSTILE = f"{MARKUP} {WORD}"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium; nothing is downloaded where it is missing."""
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        absent = "browser" if binary is None else "chromedriver"
        do_without(f"there is no {absent} (Debian: apt install chromium chromium-driver)")
    options = ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")
        patch.setenv("SE_AVOID_STATS", "true")
        patch.setenv("no_proxy", "*")
        try:
            started = Chrome(options, ChromeService(driver))
        except SessionNotCreatedException as error:
            do_without(f"{binary} does not start: {error.msg}")
        try:
            yield Browser(started)
        finally:
            started.quit()


def do_without(reason: str) -> NoReturn:
    """Skip what needs a browser; where one must be there, as in continuous integration, fail instead."""
    if os.environ.get("PROWD_BROWSER") == "required":
        pytest.fail(f"PROWD_BROWSER=required, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of four methods on the paper's data, with samples of weights and missing clients, and of one more run.

    fedavg comes to 9.99 % on average, local to 10.01, fedpaq to 5.00 and prowd to 85.00.
    """
    folder = tmp_path_factory.mktemp("comparison")
    for method, end in {"local": 0.1251, "fedavg": 0.1249, "fedpaq": 0.075, "prowd": 0.875}.items():
        for seed in range(3):
            is_late = method == "prowd" and seed == 2
            write_run(
                folder / "runs" / f"{method}-seed{seed}",
                method=method,
                seed=seed,
                end=end,
                samples=seed == 0,
                data="cifar10",
                options={"ladder": "int8, float32"} if method == "prowd" else {},
                lost={2: [absent(0), absent(3, "float32")], 4: [absent(0)]} if is_late else {},
                refused={3: [absent(2, "float32", "codes outside the width", attempt=2)]} if is_late else {},
            )
    write_run(folder / "other", clients="int4:2", name="other")
    return make_report([folder / "runs", folder / "other"], folder / "report", files=False).page


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The page, with files, of an unfinished run all of whose words are markup, or have no end."""
    folder = tmp_path_factory.mktemp("hostile")
    run = write_run(
        folder / 'a <b>run</b> #1? 100% "o\'k" & so',
        method=f"my.py:{HOSTILE}",
        name=HOSTILE,
        partition=HOSTILE,
        made=2,
        lost={1: [absent(0, reason=HOSTILE)]},
        session={"command": HOSTILE, "version": HOSTILE, "machine": {"system": HOSTILE}},
    )
    return make_report([run], folder / "report #1")


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two methods whose accuracy is known for two people: person 3 gains by rounds, person 10 loses."""
    folder = tmp_path_factory.mktemp("clinic")
    for method, more in (("fedavg", 0.0), ("prowd", 0.1)):
        people = [{"3": 0.2 + 0.1 * n + more, "10": 0.75 - 0.1 * n + more} for n in (1, 2, 3)]
        rounds = [
            line(n, {}, accuracy={"trained": {"int8": 0.5, "float32": 0.5}, "people": dict.fromkeys(WIDTHS, found)})
            for n, found in enumerate(people, 1)
        ]
        write(folder / "runs" / method, rounds, method=method)
    return make_report([folder / "runs"], folder / "report", files=False).page


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has no round yet."""
    folder = tmp_path_factory.mktemp("begun")
    return make_report([write_run(folder / "run", made=0)], folder / "report", files=False).page


@pytest.fixture(params=["comparison", "hostile", "begun"])
def page(request: pytest.FixtureRequest) -> Path:
    """Each page in turn: of a comparison, of hostile words, of a run without a round."""
    made = request.getfixturevalue(request.param)
    return made.page if isinstance(made, Report) else made
