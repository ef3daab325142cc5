# SPDX-License-Identifier: Apache-2.0
"""Downloads from a server of our own: checked, resumed after an interruption, and never half kept."""

from __future__ import annotations

import bz2
import dataclasses
import hashlib
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from idiolect.core.checks import RequestError
from idiolect.data.catalogue import DATASETS, Original
from idiolect.data.fetching import build, fetch
from idiolect.data.packing import digest
from idiolect.record.errors import FetchError

TEXT = b"".join(b"%d 1:1 %d:1\n" % (1 + row % 2, 2 + row % 7) for row in range(400))


class Server(ThreadingHTTPServer):
    """Sends `content`; `cut` ends the first answer after so many bytes, `ranges` says whether it can go on later."""

    content, cut, ranges = TEXT, None, True

    def handle_error(self, request, client_address):
        """A reader that goes away is expected."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        if self.path != "/mushrooms":
            self.send_error(404)
            return
        start = 0
        if server.ranges and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(server.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        self.wfile.write(server.content[start : server.cut])
        server.cut = None

    def log_message(self, *_):
        """Silent."""


@pytest.fixture
def server():
    socketserver.TCPServer.allow_reuse_address = True
    with Server(("127.0.0.1", 0), Handler) as found:
        found.asked = []
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def mushrooms(server):
    """The row of mushrooms, with its home on the server."""
    home = f"http://127.0.0.1:{server.server_address[1]}"
    return dataclasses.replace(
        DATASETS["mushrooms"],
        originals=(Original(f"{home}/mushrooms", hashlib.sha256(TEXT).hexdigest()),),
        files={"libsvm/mushrooms.bz2": digest(TEXT)},
    )


def nothing(*_):
    """No progress."""


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_set_is_fetched_checked_and_converted(mushrooms, tmp_path):
    seen = []
    (remark,) = fetch(mushrooms, tmp_path, lambda *news: seen.append(news))
    assert "Content checked" in remark
    assert seen[-1] == ("mushrooms", len(TEXT), len(TEXT))
    assert files(tmp_path) == ["libsvm/mushrooms.bz2"]
    assert bz2.decompress((tmp_path / "libsvm/mushrooms.bz2").read_bytes()) == TEXT


def test_an_interrupted_download_goes_on_where_it_stopped(mushrooms, server, tmp_path):
    server.cut = 1000
    with pytest.raises(FetchError, match=f"ended after 1000 of {len(TEXT)} bytes.*build mushrooms --from"):
        fetch(mushrooms, tmp_path, nothing)
    assert files(tmp_path) == ["originals/mushrooms/mushrooms.partial"]
    fetch(mushrooms, tmp_path, nothing)
    assert server.asked == [None, "bytes=1000-"]
    assert files(tmp_path) == ["libsvm/mushrooms.bz2"]


@pytest.mark.parametrize("kept", [TEXT, TEXT + b"more"], ids=["whole", "too long"])
def test_what_is_left_of_an_older_download_is_completed_or_replaced(mushrooms, tmp_path, kept):
    partial = tmp_path / "originals/mushrooms/mushrooms.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(kept)
    fetch(mushrooms, tmp_path, nothing)
    assert files(tmp_path) == ["libsvm/mushrooms.bz2"]


def test_a_server_that_cannot_go_on_sends_all_again(mushrooms, server, tmp_path):
    server.cut, server.ranges = 1000, False
    with pytest.raises(FetchError):
        fetch(mushrooms, tmp_path, nothing)
    fetch(mushrooms, tmp_path, nothing)
    assert files(tmp_path) == ["libsvm/mushrooms.bz2"]


def test_a_wrong_checksum_keeps_nothing(mushrooms, server, tmp_path):
    server.content = TEXT.replace(b"2:1", b"3:1")
    with pytest.raises(FetchError, match=r"SHA-256 .* nothing was kept"):
        fetch(mushrooms, tmp_path, nothing)
    assert files(tmp_path) == []


def test_without_a_known_checksum_the_built_file_is_checked(mushrooms, server, tmp_path):
    unknown = dataclasses.replace(mushrooms, originals=(Original(mushrooms.originals[0].address),))
    assert "Checksum of the original not known (mushrooms)" in fetch(unknown, tmp_path / "a", nothing)[0]
    server.content = TEXT.replace(b"2:1", b"3:1")
    with pytest.raises(FetchError, match="nothing was kept"):
        fetch(unknown, tmp_path / "b", nothing)
    assert files(tmp_path / "b") == []
    inexact = dataclasses.replace(unknown, exact=False, remark="it is another one")
    assert fetch(inexact, tmp_path / "c", nothing)[1].endswith("it is another one.")
    assert files(tmp_path / "c") == ["libsvm/mushrooms.bz2"]


@pytest.mark.parametrize(
    ("address", "words"),
    [("http://127.0.0.1:9/mushrooms", "could not be read"), ("{}/else", "answered 404")],
)
def test_no_network_and_a_lost_page_are_one_sentence(mushrooms, tmp_path, address, words):
    home = mushrooms.originals[0].address.rpartition("/")[0]
    lost = dataclasses.replace(mushrooms, originals=(Original(address.format(home)),))
    with pytest.raises(FetchError, match=f"{words}.*`idiolect datasets build mushrooms --from FILE`"):
        fetch(lost, tmp_path, nothing)
    assert files(tmp_path) == []


def test_a_file_of_the_users_own_is_built(mushrooms, tmp_path):
    own = tmp_path / "mine.txt"
    own.write_bytes(TEXT)
    assert "Content checked" in build(mushrooms, own, tmp_path / "data")[-1]
    assert files(tmp_path / "data") == ["libsvm/mushrooms.bz2"]
    own.write_bytes(b"<html>Not found</html>")
    with pytest.raises(RequestError, match="'<html>Not' is not a number"):
        build(mushrooms, own, tmp_path / "other")
    assert files(tmp_path / "other") == []
    with pytest.raises(RequestError, match=r"built from 2 files \(a6a, a6a.t\); give --from the folder"):
        build(DATASETS["a6a"], own, tmp_path / "other")
    with pytest.raises(RequestError, match="There is no file"):
        build(DATASETS["a6a"], tmp_path, tmp_path / "other")
    with pytest.raises(RequestError, match="is not what school is built from"):
        build(DATASETS["school"], own, tmp_path / "other")
