"""A run as TensorBoard shows it: event files that say what rounds.jsonl says. The only importer of tensorboard."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from prowd.config.schema import RunConfig
from prowd.views.trackers.scalars import BALANCED, BY_CLIENT, SECTIONS
from prowd.views.trackers.tracker import Tracker

__all__ = ["TensorBoard"]

EVENTS = "events.out.tfevents.*"


class TensorBoard(Tracker):
    """Writes event files into the folder ``tensorboard``, of the run or of its comparison, one folder a run.

    They are always begun anew: those of a resumed run are those of one that was never stopped.
    """

    name: ClassVar[str] = "tensorboard"
    writer: Any = None

    def start(self, config: RunConfig) -> int:
        """Put new event files in the place of older ones."""
        from torch.utils.tensorboard import SummaryWriter

        folder = self.folder(self.path)
        for old in folder.glob(EVENTS):
            old.unlink()
        self.writer = SummaryWriter(str(folder))
        self.writer.add_text("configuration", textwrap.indent(config.toml(), "    "), 0)
        unmeasured = {"round"} | ({BY_CLIENT["own"]} if not config.own_test else set())
        unmeasured |= {BALANCED} if config.measure != "classes" else set()
        charts = {section: ["Multiline", [f"{section}/.*"]] for section in SECTIONS if section not in unmeasured}
        self.writer.add_custom_scalars({"by section": charts})
        self.writer.flush()
        return 0

    def send(self, round_: int, when: float, values: Mapping[str, float]) -> None:
        """Write the round, at once, for a TensorBoard that is open."""
        for tag, value in values.items():
            self.writer.add_scalar(tag, value, round_, when)
        self.writer.flush()

    def end(self, *, complete: bool) -> None:
        """Close the event files."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()

    def folder(self, path: Path) -> Path:
        """Where the event files of a run are: with those of its comparison, so that TensorBoard shows all by name."""
        return path / self.name if self.home is None else self.home / self.name / path.name

    def is_up_to_date(self, path: Path) -> bool:
        """Whether its event files are younger than its rounds."""
        rounds = path / "rounds.jsonl"
        last = rounds.stat().st_mtime_ns if rounds.exists() else 0
        return any(file.stat().st_mtime_ns >= last for file in self.folder(path).glob(EVENTS))
