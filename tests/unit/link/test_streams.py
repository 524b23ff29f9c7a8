"""Addresses, and the streams that they lead to: programs, connections and serial lines, all of them real."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
import time

import pytest

from prowd.errors import ConfigError, LinkError
from prowd.link import Gateway, Patience, Stream, check_address, open_stream
from tests.board import Board

LONG = 60.0  # seconds; nothing here takes as long, unless it hangs
ECHO = "import os\nwhile data := os.read(0, 99): os.write(1, data)"


def program(code: str) -> str:
    return f"exec:{sys.executable} -c '{code}'"


def read(stream: Stream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += stream.receive(LONG)
    return found


def test_a_program_gets_bytes_and_gives_some() -> None:
    stream = open_stream(program(ECHO))
    stream.send(bytes(range(256)) * 40, LONG)
    assert read(stream, 256 * 40) == bytes(range(256)) * 40
    assert stream.receive(0.01) == b""
    stream.close()
    stream.close()


def test_closing_the_link_ends_the_program_and_all_that_it_started() -> None:
    code = 'import os, subprocess; p = subprocess.Popen(["sleep", "600"]); os.write(1, b"%d" % p.pid); p.wait()'
    stream = open_stream(program(code))
    child = int(stream.receive(LONG))
    stream.close()
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, text=True, check=False)
        if state.stdout.strip()[:1] in ("", "Z"):
            return
        time.sleep(0.02)
    raise AssertionError(f"{child} still runs")


def test_a_program_that_ends_is_quoted() -> None:
    stream = open_stream(program('import sys; sys.exit("no \\x1b[1m port")'))
    with pytest.raises(LinkError, match=r"the link ended: .* ended with exit code 1: no \\x1b\[1m port") as found:
        stream.receive(LONG)
    assert found.value.again


def test_a_program_that_does_not_read_holds_nobody_up() -> None:
    stream = open_stream(program("import time; time.sleep(600)"))
    with pytest.raises(LinkError, match="takes no more bytes"):
        stream.send(bytes(10**6), 0.05)
    stream.close()


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("exec:/nowhere/at-all", "'/nowhere/at-all' cannot be started: No such file"),
        ("serial:/nowhere/at-all@9600", "/nowhere/at-all cannot be opened: No such file"),
        ("serial:/dev/null@9600", "/dev/null is no serial line"),
    ],
)
def test_what_cannot_be_reached_says_why(address: str, reason: str) -> None:
    with pytest.raises(LinkError, match=reason):
        open_stream(address)


def test_a_connection_to_a_device_and_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stream = open_stream(f"tcp:127.0.0.1:{port}")
        device, _ = server.accept()
        stream.send(b"ping", LONG)
        assert device.recv(4) == b"ping"
        device.sendall(b"pong")
        assert stream.receive(LONG) == b"pong"
        device.close()
        with pytest.raises(LinkError, match="the link ended: it hung up") as found:
            stream.receive(LONG)
        assert found.value.again
    with pytest.raises(LinkError, match=f"nobody answers at 127.0.0.1:{port}: .*refused"):
        open_stream(f"tcp:127.0.0.1:{port}")


def test_a_serial_line_carries_every_byte_as_it_is() -> None:
    ours, theirs = pty.openpty()
    stream = open_stream(f"serial:{os.ttyname(theirs)}@115200")
    assert stream.rate == 11520
    board = Board(lambda task: task[::-1])
    done = threading.Event()

    def serve() -> None:
        os.write(ours, board.boot())
        while not done.is_set():
            for answer in board.feed(os.read(ours, 65536)):
                os.write(ours, answer)

    server = threading.Thread(target=serve)
    server.start()
    gateway = Gateway(stream, Patience(answer=LONG))
    task = bytes(range(256)) * 5
    assert gateway.hello().name == "fake"
    assert gateway.exchange(task, 2) == task[::-1]
    done.set()
    stream.send(b"\0", LONG)
    server.join()
    gateway.close()
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize(
    "text",
    [
        "exec:board --fast",
        "tcp:localhost:5000",
        "tcp:[::1]:65535",
        "serial:/dev/ttyACM0@115200",
        "serial:/dev/odd@name@9600",
    ],
)
def test_addresses_that_are_some(text: str) -> None:
    assert check_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "board",
        "exec:",
        "exec:   ",
        'exec:an "open quote',
        "exec:a\0b",
        "tcp:localhost",
        "tcp::5000",
        "tcp:localhost:0",
        "tcp:localhost:65536",
        "tcp:localhost:five",
        "serial:/dev/ttyACM0",
        "serial:@9600",
        "serial:/dev/ttyACM0@12345",
        "serial:/dev/ttyACM0@0",
        "serial:/dev/ttyACM0@" + "9" * 5000,
        "http://localhost",
    ],
)
def test_addresses_that_are_none_say_what_is_accepted(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted: "):
        check_address(text)
