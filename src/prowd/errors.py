"""Every error prowd raises on purpose; the command line prints these as one line, without a traceback."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from typing import Self

__all__ = [
    "ClientError", "ConfigError", "DataError", "DiskError", "LinkError", "ProwdError", "RunError", "WireError",
    "harmless", "near",
]  # fmt: skip

CURES = {
    errno.ENOSPC: "the disk is full, make room: ",
    errno.EDQUOT: "the disk is full for this user, make room: ",
    errno.EFBIG: "it would be longer than files may be here (ulimit -f): ",
    errno.EROFS: "the disk is read-only: ",
    errno.EACCES: "it is read-only for this user: ",
    errno.EPERM: "it is read-only for this user: ",
}


class ProwdError(Exception):
    """Base of all errors a user can cause or cure."""


class ConfigError(ProwdError):
    """A setting is unknown, malformed or impossible; the message names the field, the value and what is accepted."""


class WireError(ProwdError):
    """Bytes that are not a valid message: what is wrong and where."""


class DataError(ProwdError):
    """A data set is missing, damaged or of the wrong form."""


class RunError(ProwdError):
    """A run directory or checkpoint cannot be used."""


class DiskError(RunError):
    """A file of a run cannot be written; the rounds that are finished are saved, and the run can go on from there."""

    @classmethod
    def of(cls, what: str, error: OSError) -> Self:
        """What cannot be written, and why in a user's words."""
        return cls(f"{what}: {CURES.get(error.errno or 0, '')}{error}")


class ClientError(ProwdError):
    """A client's own code failed; carries the traceback of the process in which it ran."""


class LinkError(ProwdError):
    """A linked device cannot be reached, does not answer or refuses; ``again``: a new link may help."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


def harmless(text: str, longest: int = 500) -> str:
    """Somebody else's words as one line that steers no terminal: what cannot be printed is written as its escape.

    Control and escape codes, line breaks, marks that turn the direction of reading and invisible letters are among
    it. Brackets stay: whoever shows the line shows it as text, never as markup.
    """
    shown = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return shown[:longest]


def near(value: str, known: Iterable[str]) -> str:
    """The end of an error message: the name that was perhaps meant."""
    close = difflib.get_close_matches(value, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
