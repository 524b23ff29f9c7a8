"""Every error prowd raises on purpose; the command line prints these as one line, without a traceback."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

__all__ = [
    "DISK",
    "ClientError",
    "ConfigError",
    "DataError",
    "ProwdError",
    "RunError",
    "WireError",
    "disk_fault",
    "harmless",
    "near",
]


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


class ClientError(ProwdError):
    """A client's own code failed; carries the traceback of the process in which it ran."""


DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the folder is read-only",
    errno.EACCES: "the folder is read-only",
    errno.EPERM: "the folder is read-only",
}


def disk_fault(error: OSError, where: object) -> str:
    """What the disk did not let be written, in a line: what is wrong, where, and how to go on."""
    wrong = DISK.get(error.errno or 0, error.strerror or repr(error))
    place = where if error.filename is None else error.filename
    return f"{wrong}: {place}; finished rounds are safe. Mend it, then go on with: prowd run --resume {where}"


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
