# SPDX-License-Identifier: Apache-2.0
"""The reference transport: one kept connection per site, TLS 1.3 with certificates on both sides, frames with a length.

A site is who its certificate says, whatever its messages say. Waits are bounded, and so are frames.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.transport import Handler

SERVER_NAME = "coordinator"  # that the server's certificate must bear, wherever it runs
HEADER = struct.Struct("!QQ")  # length, number of the question
MOST_FRAME = 1 << 30
HANDSHAKE_SECONDS = 10.0
PATIENCE = 60.0  # seconds, of a site, for a message that has begun, and for its answer to leave
LOOK_EVERY = 1.0  # seconds between a site's looks whether to stop
LONGEST_WAIT = 5.0  # seconds between two attempts to connect
END = 2**64 - 1  # instead of a number: the run is over; a reason, if any, says why it stopped
MOST_REASON = 2000  # bytes


class Papers(NamedTuple):
    """Files in PEM: one's own certificate and key, and the authority's certificate that others must be signed by."""

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(cls, kit: Path) -> Papers:
        """Those of a kit, by the names that they have in every kit."""
        return cls(kit / "own.crt", kit / "own.key", kit / "authority.crt")


def _context(papers: Papers, purpose: ssl.Purpose) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(purpose, cafile=str(papers.authority))
        context.load_cert_chain(papers.certificate, papers.key)
    except (OSError, ssl.SSLError) as error:
        raise RequestError(f"The certificates in {papers.certificate.parent} cannot be used ({error}).") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _certified_name(connection: ssl.SSLSocket) -> str:
    found: Any = connection.getpeercert() or {}
    names = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


class _Line:
    """One end of a connection. What comes late stays apart by its number, and never blocks what is asked."""

    def __init__(self, connection: ssl.SSLSocket, limit: int, other: str):
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection, self.limit, self.other = connection, limit, other
        self.open = True
        self._read, self._heard = bytearray(), 0.0  # what has come of frames, and when the last of it did
        self._busy = threading.Lock()  # one thread at a time: an SSL object is not made for two

    def close(self) -> None:
        self.open = False
        with contextlib.suppress(OSError):
            self.connection.close()

    def is_alive(self) -> bool:
        """Whether the site has not closed, as far as it can be seen."""
        if self.open and self._busy.acquire(blocking=False):
            try:
                while self._take():
                    pass
            except OSError:
                self.close()
            finally:
                self._busy.release()
        return self.open

    def ask(self, number: int, message: bytes, until: float) -> bytes | None:
        """The answer with this number, in time; others are older, and thrown away."""
        with self._busy:
            try:
                self.send(number, message, until)
                while (frame := self.receive(until)) is not None:
                    if frame[0] == number:
                        return frame[1]
            except OSError:
                self.close()
            return None

    def receive(self, until: float) -> tuple[int, bytes] | None:
        """The number and the content of the next frame, in time."""
        while (frame := self._next_frame()) is None:
            if not self._take() and not self._wait(until, writes=False):
                return None
        return frame

    def has_stalled(self) -> bool:
        """Whether a message has begun and does not go on."""
        return bool(self._read) and time.monotonic() > self._heard + PATIENCE

    def send(self, number: int, content: bytes, until: float) -> None:
        """A frame, in time."""
        left = memoryview(HEADER.pack(len(content), number) + content)
        while left:
            try:
                left = left[self.connection.send(left) :]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._take()  # a site that still sends an old answer reads nothing until that is gone
                if not self._wait(until, writes=True):
                    raise ConnectionError("it does not read") from None  # half a message cannot be taken back

    def _take(self) -> bool:
        """Read what is there; whether something was."""
        try:
            part = self.connection.recv(1 << 18)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not part:
            raise ConnectionError(f"the {self.other} has closed")
        self._read += part
        self._heard = time.monotonic()
        return True

    def _wait(self, until: float, writes: bool) -> bool:
        left = until - time.monotonic()
        if left <= 0:
            return False
        with selectors.DefaultSelector() as selector:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
            selector.register(self.connection, events)
            return bool(selector.select(left))

    def _next_frame(self) -> tuple[int, bytes] | None:
        """The next whole frame of what was read."""
        if len(self._read) < HEADER.size:
            return None
        length, number = HEADER.unpack_from(self._read)
        if length > self.limit:
            raise ConnectionError(f"a frame of {length} bytes, more than {self.limit}")
        if len(self._read) < HEADER.size + length:
            return None
        content = bytes(self._read[HEADER.size : HEADER.size + length])
        del self._read[: HEADER.size + length]
        return number, content

    def end(self, reason: bytes) -> None:
        """Tell the site that the run is over, or why the coordinator stops."""
        with self._busy, contextlib.suppress(OSError):
            self.send(END, reason, time.monotonic() + HANDSHAKE_SECONDS)


class TlsServer:
    """The coordinator's side: listens, and knows a site by its certificate."""

    def __init__(self, address: tuple[str, int], papers: Papers, sites: Sequence[str], limit: int = MOST_FRAME):
        self.expected, self.limit = frozenset(sites), limit
        self.turned_away: list[str] = []  # why connections were refused, the newest last
        self._lines: dict[str, _Line] = {}
        self._number = 0
        self._context = _context(papers, ssl.Purpose.CLIENT_AUTH)
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self.expected)))
        try:
            self._listener = socket.create_server(address, backlog=128)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise RequestError(
                f"The server cannot listen at {address[0]}:{address[1]} ({why}); stop what does, or change host or "
                "port in server.toml, and in connect.toml of every site."
            ) from None
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def sites(self) -> Sequence[str]:
        """Who is connected now."""
        return tuple(name for name, line in list(self._lines.items()) if line.is_alive())

    def _accept(self) -> None:
        while not self._closed:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            # in a thread of its own: one that says nothing must not keep others out
            threading.Thread(target=self._welcome, args=(plain,), daemon=True).start()

    def _welcome(self, plain: socket.socket) -> None:
        plain.settimeout(HANDSHAKE_SECONDS)
        try:
            connection = self._context.wrap_socket(plain, server_side=True)
        except (OSError, ValueError) as error:
            self._turn_away(plain, f"no valid certificate ({getattr(error, 'reason', None) or type(error).__name__})")
            return
        name = _certified_name(connection)
        if name not in self.expected:
            self._turn_away(connection, f"{name!r} is not one of this run's sites")
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        before = self._lines.get(name)
        self._lines[name] = _Line(connection, self.limit, "site")
        if before is not None:  # the site was started anew
            before.close()

    def _turn_away(self, connection: socket.socket, reason: str) -> None:
        self.turned_away = [*self.turned_away[-99:], reason]
        with contextlib.suppress(OSError):
            connection.close()

    def exchange(self, round: int, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, bytes]:
        """All sites at once; who is not connected, or is too late, is absent."""
        self._number += 1
        until, lines = time.monotonic() + deadline, {name: self._lines.get(name) for name in messages}
        asked = {
            name: self._pool.submit(line.ask, self._number, messages[name], until)
            for name, line in lines.items()
            if line is not None and line.open
        }
        found = {name: future.result() for name, future in asked.items()}
        return {name: answer for name, answer in found.items() if answer is not None}

    def __enter__(self) -> TlsServer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # sites are told that the run is over, or why it will not go on; after a crash they wait for the server instead
        self.close(error is None, str(error) if isinstance(error, RequestError) else "")

    def close(self, over: bool = True, reason: str = "") -> None:
        """Stop listening; where the run is `over`, or stops for a `reason`, sites are told and need not come back."""
        self._closed = True
        self._listener.close()
        for line in list(self._lines.values()):
            if (over or reason) and line.open:
                line.end(reason.encode()[:MOST_REASON])
            line.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def serve_site(
    address: tuple[str, int],
    papers: Papers,
    handler: Handler,
    stop: Callable[[], bool] = lambda: False,
    limit: int = MOST_FRAME,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """A site's side: connect, answer, and connect again where the connection is lost, until the run is over."""
    context, wait, told = _context(papers, ssl.Purpose.SERVER_AUTH), 0.1, ""
    while not stop():
        try:
            with (
                socket.create_connection(address, timeout=HANDSHAKE_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection,
            ):
                say(f"Connected to {address[0]}:{address[1]}.")
                wait = 0.1
                if _answer(_Line(connection, limit, "coordinator"), handler, stop):
                    return
        except ssl.SSLCertVerificationError as error:
            raise RequestError(
                f"The server at {address[0]}:{address[1]} is not that of this kit ({error.verify_message}); use the "
                "kit that came from the same `deploy init`, or correct connect.toml."
            ) from None
        except OSError as error:
            why = f"No connection ({error}); trying again."
            if why != told:  # the same reason is said once, however long the server is away
                say(why)
            told = why
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


def _answer(line: _Line, handler: Handler, stop: Callable[[], bool]) -> bool:
    """Until the run is over (True), or the site is stopped."""
    while not stop():
        frame = line.receive(time.monotonic() + LOOK_EVERY)
        if frame is None and line.has_stalled():
            raise ConnectionError("half a message")
        if frame is None:
            continue
        number, content = frame
        if number == END and content:
            raise RequestError(f"The server has stopped: {content[:MOST_REASON].decode(errors='replace')}")
        if number == END:
            return True
        line.send(number, handler.handle(content), time.monotonic() + PATIENCE)
    return True
