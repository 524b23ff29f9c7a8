"""Where a device is: ``exec:COMMAND``, ``tcp:HOST:PORT`` or ``serial:DEVICE@BAUD``.

Addresses are the operator's. None is ever taken from a message: ``exec:`` starts a program.
"""

from __future__ import annotations

import shlex
import termios

from prowd.errors import ConfigError
from prowd.link.streams import Stream, connect, open_serial, start_program

__all__ = ["check_address", "open_stream"]

ACCEPTED = "exec:COMMAND, tcp:HOST:PORT or serial:DEVICE@BAUD"


def check_address(text: str) -> str:
    """Return an address that can be one."""
    _read(text)
    return text


def open_stream(text: str) -> Stream:
    """Reach the device, or raise LinkError."""
    kind, where, number = _read(text)
    if kind == "exec":
        return start_program(shlex.split(where))
    return connect(where, number) if kind == "tcp" else open_serial(where, number)


def _read(text: str) -> tuple[str, str, int]:
    kind, _, rest = text.partition(":")
    if kind == "exec":
        try:
            command = shlex.split(rest)
        except ValueError as error:
            raise ConfigError(f"link {text!r}: {error}; accepted: exec:COMMAND, quoted as in a shell") from None
        if command and "\0" not in rest:
            return kind, rest, 0
    elif kind == "tcp":
        host, _, port = rest.rpartition(":")
        if host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 2**16:
            return kind, host.removeprefix("[").removesuffix("]"), int(port)
    elif kind == "serial":
        path, _, baud = rest.rpartition("@")
        if path and "\0" not in path and baud.isdecimal():
            if not hasattr(termios, f"B{int(baud[:9])}") or int(baud[:9]) == 0:
                raise ConfigError(f"link {text!r}: {baud[:20]} baud; accepted: a usual speed, as 115200")
            return kind, path, int(baud)
    raise ConfigError(f"link {text!r} is no address; accepted: {ACCEPTED}")
