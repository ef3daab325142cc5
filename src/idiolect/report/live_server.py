# SPDX-License-Identifier: Apache-2.0
"""The page of a run while it trains, served on this machine alone to one browser that has the token."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from idiolect.report.live import live_data, live_page, write_stopped

HOST, COOKIE = "127.0.0.1", "idiolect"
RECENT = 5.0  # seconds since a browser was last heard of: it is still there
WAIT = 4.0  # seconds at the end in which it can fetch what there is to see


class LivePage:
    """What is served: the standing of a run, then its report."""

    def __init__(self, folder: Path):
        self.folder, self.state = folder, "running"
        self.progress: dict[str, tuple[int, int]] = {}
        # apart: the token stands in an address, which histories and screens show, and opens the page once
        self.token, self._cookie = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self._spent, self._seen, self._shown = False, 0.0, threading.Event()
        self._guard = threading.Lock()
        self._server = _Server((HOST, 0), _Handler)
        self._server.live, self.port = self, int(self._server.server_address[1])  # a free one, that the system chose
        self.address = f"http://{HOST}:{self.port}/?token={self.token}"  # where the token opens the page once
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def update(self, label: str, done: int, of: int) -> None:
        """Rounds done of a method."""
        with self._guard:
            self.progress[label] = (done, of)

    def redeem(self, token: str) -> str | None:
        """The cookie for the token; None for a wrong one, and for the second time."""
        with self._guard:
            # compared in constant time: an answer's delay must not show how much of a guess was right
            if self._spent or not hmac.compare_digest(token.encode(), self.token.encode()):
                return None
            self._spent = True
            return self._cookie

    def admits(self, cookie: str) -> bool:
        """Whether a browser is the one that had the token."""
        return hmac.compare_digest(cookie.encode(), self._cookie.encode())

    def data(self) -> dict[str, object]:
        """What a browser asks for every second."""
        # the state is read once: a run that ends meanwhile is reported as ended by the next answer, whole
        self._seen, state = time.monotonic(), self.state
        answer = {"state": state} | (self._standing() if state == "running" else {})
        if state == "stopped":
            self._shown.set()
        return answer

    def page(self) -> str:
        """The report, once there is one; what is known so far, until then."""
        self._seen = time.monotonic()
        if self.state == "finished":
            self._shown.set()
            return (self.folder / "report.html").read_text(encoding="utf-8")
        return live_page(self.folder, self._standing())

    def _standing(self) -> dict[str, object]:
        with self._guard:
            progress = dict(self.progress)
        return live_data(self.folder, progress)

    def start(self) -> None:
        """Serve, in a thread."""
        self._thread.start()

    def close(self, state: str) -> None:
        """Say how it ended; wait shortly for a browser that looks on, so that it keeps the last page."""
        if state == "stopped":
            with contextlib.suppress(Exception):  # that the run was stopped must be said, whatever became of its page
                write_stopped(self.folder, self._standing())
        self.state = state
        if self._seen and time.monotonic() - self._seen < RECENT:
            self._shown.wait(WAIT)
            time.sleep(0.2)  # the last answer is on its way
        # after the wait: a browser that looks on has its last page
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A server that knows its page; threaded, because browsers open connections ahead of use and leave them idle."""

    live: LivePage


class _Handler(BaseHTTPRequestHandler):
    """Two addresses, for one browser, from this machine."""

    server: _Server

    def do_GET(self) -> None:
        """The page, its data, or a refusal."""
        live, asked = self.server.live, urlsplit(self.path)
        # a foreign name that points here is another site's try to read the page
        if self.headers.get("Host", "") not in (f"{HOST}:{live.port}", f"localhost:{live.port}"):
            return self._refuse(403)
        token = parse_qs(asked.query).get("token")
        if token is not None and asked.path == "/":
            return self._welcome(live.redeem(token[0]))
        if not live.admits(self._cookie()):
            return self._refuse(403)
        if asked.path not in ("/", "/data"):
            return self._refuse(404)
        try:
            content = live.page() if asked.path == "/" else json.dumps(live.data(), allow_nan=False)
        except Exception:  # files change while they are read: the browser asks again, and the run must not hear
            return self._refuse(503)
        kind = "text/html; charset=utf-8" if asked.path == "/" else "application/json"
        return self._answer(200, content, {"Content-Type": kind})

    def _cookie(self) -> str:
        with contextlib.suppress(CookieError):
            found = SimpleCookie(self.headers.get("Cookie", "")).get(f"{COOKIE}-{self.server.live.port}")
            return found.value if found is not None else ""
        return ""

    def _welcome(self, cookie: str | None) -> None:
        """On to the page, without the token in its address; one that has the cookie already may come again."""
        if cookie is None and not self.server.live.admits(self._cookie()):
            return self._refuse(403)
        headers = {"Location": "/"}
        if cookie is not None:
            # with the port, which cookies do not know: two runs on one machine would overwrite each other's
            name = f"{COOKIE}-{self.server.live.port}"
            headers = {"Set-Cookie": f"{name}={cookie}; HttpOnly; SameSite=Strict; Path=/", **headers}
        return self._answer(303, "", headers)

    def _refuse(self, code: int) -> None:
        way_out = "Use the address that idiolect printed; its token opens the page once.\n" if code == 403 else ""
        self._answer(code, way_out, {"Content-Type": "text/plain"})

    def _answer(self, code: int, text: str, headers: dict[str, str]) -> None:
        content = text.encode("utf-8")
        # what the page shows of clients must stay neither in a cache nor in another site's log
        usual = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
        self.send_response(code)
        for name, value in (headers | {"Content-Length": str(len(content))} | usual).items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a closed browser is no affair of the run
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal belongs to the run."""


@contextlib.contextmanager
def served(folder: Path, say: Callable[[str], None]) -> Iterator[LivePage]:
    """Inside, the page is served; afterwards it is the report, or what was reached when the run ended early."""
    live = LivePage(folder)
    live.start()
    say(f"Live page, on this machine: {live.address}")
    try:
        yield live
    except BaseException:
        live.close("stopped")
        raise
    live.close("finished")
