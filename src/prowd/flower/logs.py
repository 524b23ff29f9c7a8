"""Logs that programs read: a JSON object a line, on both sides."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["event", "log_to", "log_to_stderr"]

ROOT = logging.getLogger("prowd")


class JsonLines(logging.Formatter):
    """Time, level and event, then the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = getattr(record, "fields", {})
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def event(log: logging.Logger, name: str, fields: Mapping[str, Any], level: int = logging.INFO) -> None:
    """Log that something happened, with what there is to know of it."""
    log.log(level, name, extra={"fields": dict(fields)})


def log_to_stderr() -> None:
    """Send everything that prowd logs to the process's stderr, once."""
    if not any(isinstance(handler.formatter, JsonLines) for handler in ROOT.handlers):
        _add(logging.StreamHandler(sys.stderr))


def log_to(path: Path) -> logging.Handler:
    """Send it to a file too; whoever calls removes the handler."""
    return _add(logging.FileHandler(path, encoding="utf-8"))


def _add(handler: logging.Handler) -> logging.Handler:
    handler.setFormatter(JsonLines())
    ROOT.addHandler(handler)
    ROOT.setLevel(logging.INFO)
    return handler
