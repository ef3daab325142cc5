# SPDX-License-Identifier: Apache-2.0
"""Bytes between the short-lived processes that Flower starts at a site and the one process that answers.

A socket in a folder that only its owner may enter: a frame is eight bytes of length, then the block.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

HEADER = struct.Struct("<Q")
MOST_FRAME = 1 << 30
LOOK_EVERY = 0.5  # seconds between looks whether to stop
SECONDS = 600.0  # that an answer, or a frame that has begun, may take
Handle = Callable[[bytes], bytes]  # not the engine's protocol: the relay that imports this must not load JAX


def ask(path: Path, block: bytes) -> bytes:
    """The answer of the process that serves the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(path))
        _write(connection, block)
        return _read(connection)


def serve(path: Path, handle: Handle, stop: Callable[[], bool]) -> bool:
    """Answer until an empty block says that the run is over (True), or `stop` does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path.unlink(missing_ok=True)  # of an earlier one
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(LOOK_EVERY)
        while not stop():
            with contextlib.suppress(TimeoutError, ConnectionError):  # of one that hung up: the next may not
                if _answer(listener, handle):
                    return True
    return False


def _answer(listener: socket.socket, handle: Handle) -> bool:
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(SECONDS)
        block = _read(connection)
        _write(connection, handle(block) if block else b"")
    return not block


def _write(connection: socket.socket, block: bytes) -> None:
    connection.sendall(HEADER.pack(len(block)) + block)


def _read(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as frame:  # a connection carries one frame each way: nothing behind it is lost
        header = frame.read(HEADER.size)
        length = int.from_bytes(header, "little")
        if length > MOST_FRAME:
            raise ConnectionError(f"a frame of {length} bytes, more than {MOST_FRAME}")
        block = frame.read(length)
    if len(header) < HEADER.size or len(block) < length:
        raise ConnectionError("closed in the middle of a frame")
    return block
