"""A run as TensorBoard shows it: event files that say what rounds.jsonl says. The only importer of tensorboard."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from prowd.comparison import Plan
from prowd.config.schema import RunConfig
from prowd.errors import ProwdError, RunError
from prowd.federation.engine import Federation
from prowd.federation.report import RoundReport
from prowd.methods import ServerState
from prowd.numbers.bits import parse_mix
from prowd.runs.observe import RunObserver
from prowd.runs.read import read_lines
from prowd.runs.summary import weighted_mean

__all__ = ["FOLDER", "Scalars", "TensorBoard", "load_writer", "observe_comparison", "write_events"]

FOLDER = "tensorboard"
EVENTS = "events.out.tfevents.*"
ACCURACY = {
    "trained": "accuracy after training",
    "received": "accuracy as received",
    "server": "accuracy of the new model",
}
TOTALS = "megabytes so far"
BY_CLIENT = {"clients": "accuracy by client", "own": "own accuracy by client"}
BY_GROUP = {"classes": "accuracy by class", "people": "accuracy by test person"}
BALANCED = "balanced accuracy"
SECTIONS = [
    *ACCURACY.values(),
    *BY_CLIENT.values(),
    BALANCED,
    "loss",
    "bytes up",
    "bytes down",
    TOTALS,
    "clients",
    "round",
]


def load_writer() -> Any:
    """PyTorch's writer of event files, or an error that says how to get what it needs."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        missing = (error.name or "tensorboard").partition(".")[0]
        install = "in a clone of prowd, pip install '.[tensorboard]'"
        raise ProwdError(f"--tensorboard needs {missing}; install it with: {install}") from None
    return SummaryWriter


class TensorBoard(RunObserver):
    """Writes the rounds that a run has and, as they end, those that it makes.

    The event files are always begun anew: those of a resumed run are those of one that was never stopped. They are in
    ``folder``, by default the folder ``tensorboard`` of the run's directory.
    """

    scalars: Scalars
    clock: float

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.make_writer = load_writer()
        self.writer: Any = None

    def began(self, config: RunConfig, federation: Federation, path: Path, done: int) -> None:
        """Write the configuration and the rounds so far."""
        self.write(config, path)

    def write(self, config: RunConfig, path: Path) -> None:
        """Put what a run's directory holds in the place of older event files."""
        self.folder = self.folder or path / FOLDER
        lines, _ = read_lines(path / "rounds.jsonl")
        self.scalars = Scalars(config.clients)
        self.clock = time.time() - sum(line.seconds for line in lines)
        with self._on_the_disk():
            for old in self.folder.glob(EVENTS):
                old.unlink()
            self.writer = self.make_writer(str(self.folder))
            self.writer.add_text("configuration", textwrap.indent(config.toml(), "    "), 0)
            unmeasured = {"round"} | ({BY_CLIENT["own"]} if not config.own_test else set())
            unmeasured |= {BALANCED} if config.measure != "classes" else set()
            charts = {section: ["Multiline", [f"{section}/.*"]] for section in SECTIONS if section not in unmeasured}
            self.writer.add_custom_scalars({"by section": charts})
            for line in lines:
                self._add(line)
            self.writer.flush()

    def finished(self, report: RoundReport, state: ServerState) -> None:
        """Write the round, at once, for a TensorBoard that is open."""
        with self._on_the_disk():
            self._add(report)
            self.writer.flush()

    def close(self) -> None:
        """Close the event files."""
        writer, self.writer = self.writer, None
        with self._on_the_disk():
            if writer is not None:
                writer.close()

    def _add(self, line: RoundReport) -> None:
        """A round, at the time at which it would have ended had the run never been stopped."""
        self.clock += line.seconds
        for tag, value in self.scalars.of(line).items():
            self.writer.add_scalar(tag, value, line.round, self.clock)

    @contextmanager
    def _on_the_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"event files cannot be written to {self.folder}: {error}") from error


class Scalars:
    """Lines of rounds.jsonl, in their order, as scalars; TensorBoard shows those of the same ``section/`` together."""

    def __init__(self, clients: str) -> None:
        self.counts = Counter(str(width) for width in parse_mix(clients))
        self.latest: dict[str, dict[str, float]] = {when: {} for when in ACCURACY}
        self.moved = {"up": 0, "down": 0}

    def of(self, line: RoundReport) -> dict[str, float]:
        """The scalars of the next round."""
        found: dict[str, float] = {}
        for when, section in ACCURACY.items():
            measured = getattr(line.accuracy, when)
            found |= _under(section, measured | self._average(when, measured))
        for kind, section in BY_CLIENT.items():
            found |= _under(section, {str(one): value for one, value in getattr(line.accuracy, kind).items()})
        for kind, section in BY_GROUP.items():
            for width, values in getattr(line.accuracy, kind).items():
                found |= _under(f"{section} · {width}", {str(one): value for one, value in values.items()})
        found |= _under(BALANCED, line.accuracy.balanced)
        found |= _under("loss", line.loss)
        for way in self.moved:
            sizes = getattr(line.traffic, way)
            self.moved[way] += sum(sizes.values())
            found |= _under(f"bytes {way}", sizes)
        found |= _under(TOTALS, {way: moved / 1e6 for way, moved in self.moved.items()})
        found |= _under("clients", {what: len(getattr(line.clients, what)) for what in ("lost", "refused", "limited")})
        found |= {_note_tag(path): value for path, value in _numbers(line.notes)}
        return found | {"round/seconds": line.seconds}

    def _average(self, when: str, measured: Mapping[str, float]) -> dict[str, float]:
        """Of all clients, by the last accuracy of their width, as in summary.json; none where nothing was measured."""
        latest = self.latest[when]
        latest.update(measured)
        average = weighted_mean(self.counts, latest) if measured else None
        return {} if average is None else {"average": average}


def observe_comparison(plan: Plan) -> Callable[[Path], TensorBoard]:
    """Write the event files of a comparison's finished runs; what is returned observes each run that is left."""
    for run in plan.runs:
        if run.is_finished:
            write_events(run.config, run.path, _folder(run.path))
    return _observer


def _observer(path: Path) -> TensorBoard:
    return TensorBoard(_folder(path))


def _folder(path: Path) -> Path:
    """One place for all runs of a comparison, so that TensorBoard shows them together by their names."""
    return path.parent / FOLDER / path.name


def write_events(config: RunConfig, path: Path, folder: Path) -> None:
    """Write the event files of a run that is not under way, unless they are younger than its rounds."""
    rounds = path / "rounds.jsonl"
    last = rounds.stat().st_mtime_ns if rounds.exists() else 0
    if not any(file.stat().st_mtime_ns >= last for file in folder.glob(EVENTS)):
        with closing(TensorBoard(folder)) as board:
            board.write(config, path)


def _under(section: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{section}/{name}": value for name, value in values.items()}


def _numbers(note: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """All numbers of a method's notes and where they are; of a list, such as losses epoch by epoch, the last."""
    if isinstance(note, Mapping):
        for key, value in note.items():
            yield from _numbers(value, (*path, key))
    elif isinstance(note, list):
        yield from _numbers(note[-1] if note else None, path)
    elif isinstance(note, int | float) and abs(note) < 1e308:  # JSON knows greater numbers, but no float does
        yield path, note


def _note_tag(path: tuple[str, ...]) -> str:
    """A chart for each tensor in a section for each figure: ``masks · kept/conv1.weight``, ``drift/conv1.weight``."""
    at = next((n for n, part in enumerate(path) if part.endswith(".weight")), len(path) - 1)
    section = " · ".join((*path[:at], *path[at + 1 :])) or "notes"
    return f"notes · {section}/{path[at]}" if section in SECTIONS else f"{section}/{path[at]}"
