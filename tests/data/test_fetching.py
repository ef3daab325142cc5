# SPDX-License-Identifier: Apache-2.0
"""Downloads from a server of our own: checked, resumed after an interruption, and never half kept."""

from __future__ import annotations

import bz2
import dataclasses
import email.utils
import errno
import hashlib
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.catalogue import DATASETS, Original
from idiolect.data.fetching import build, fetch
from idiolect.data.packing import Known, difference, digest, sorted_rows
from idiolect.record.errors import FetchError

TEXT = b"".join(b"%d 1:1 %d:1\n" % (1 + row % 2, 2 + row % 7) for row in range(400))
OTHER = TEXT.replace(b"2:1", b"3:1")
MIXED_AT = 1000


class Server(ThreadingHTTPServer):
    """Sends `pages`; `cut` ends the next answer after so many bytes, `ranges` says whether it can go on later.

    `tags`: "honest" names the version and minds If-Range, "deaf" names it and does not, "none" names none, "dates"
    gives the date of the last change instead, `age` seconds before the answer.
    """

    cut, ranges, tags, age = None, True, "honest", 3600

    def handle_error(self, request, client_address):
        """A reader that goes away is expected."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, content = self.server, self.server.pages.get(self.path)
        server.asked.append(self.headers.get("Range"))
        if content is None:
            self.send_error(404)
            return
        version = self.version(content)
        if version and version in (self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")):
            self.send_response(304)
            self.end_headers()
            return
        start = 0
        told = self.headers.get("If-Range")
        if server.ranges and self.headers.get("Range") and (server.tags == "deaf" or told in (None, version)):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if version:
            self.send_header("Last-Modified" if server.tags == "dates" else "ETag", version)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut, server.cut = server.cut, None
        self.wfile.write(content[start:cut])

    def version(self, content):
        """What names this content: the last change of a dated server is as old as it says."""
        if self.server.tags == "dates":
            stamp = self.server.started - self.server.age
            return email.utils.formatdate(stamp, usegmt=True)
        return None if self.server.tags == "none" else f'"{hashlib.sha256(content).hexdigest()[:8]}"'

    def log_message(self, *_):
        """Silent."""


@pytest.fixture
def server():
    socketserver.TCPServer.allow_reuse_address = True
    with Server(("127.0.0.1", 0), Handler) as found:
        found.asked, found.pages, found.started = [], {"/mushrooms": TEXT}, time.time()
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
    assert files(tmp_path) == [f"originals/mushrooms/mushrooms.{end}" for end in ("partial", "version")]
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
    server.pages["/mushrooms"] = OTHER
    with pytest.raises(FetchError, match=r"SHA-256 .* nothing was kept"):
        fetch(mushrooms, tmp_path, nothing)
    assert files(tmp_path) == []


def test_without_a_known_checksum_the_built_file_is_checked(mushrooms, server, tmp_path):
    assert "Checksum of the original not known (mushrooms)" in fetch(unknown(mushrooms), tmp_path / "a", nothing)[0]
    server.pages["/mushrooms"] = OTHER
    with pytest.raises(FetchError, match="nothing was kept"):
        fetch(unknown(mushrooms), tmp_path / "b", nothing)
    assert files(tmp_path / "b") == []


def unknown(dataset):
    """The same set, with originals of which no checksum is known."""
    return dataclasses.replace(dataset, originals=tuple(Original(one.address) for one in dataset.originals))


def kept(folder):
    """What the files of the built set hold."""
    return {path.name: bz2.decompress(path.read_bytes()) for path in sorted((folder / "libsvm").iterdir())}


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
@pytest.mark.parametrize("tags", ["honest", "deaf", "none", "dates"])
def test_a_file_that_changes_while_it_is_fetched_is_never_mixed(mushrooms, server, tmp_path, tags, ranges):
    server.tags, server.ranges, server.cut = tags, ranges, MIXED_AT
    changed = dataclasses.replace(unknown(mushrooms), files={"libsvm/mushrooms.bz2": digest(OTHER)})
    with pytest.raises(FetchError, match="ended after"):
        fetch(changed, tmp_path, nothing)
    server.pages["/mushrooms"] = OTHER
    server.age -= 600
    fetch(changed, tmp_path, nothing)
    assert kept(tmp_path) == {"mushrooms.bz2": OTHER}
    # what cannot be told apart is not asked for in parts
    assert (server.asked[1] is None) == (tags == "none")


@pytest.mark.parametrize("version", [b"", b"\xff\xfe", b'"one"\r\nX-Other: two', "\u20ac".encode()])
@pytest.mark.parametrize("name", ["mushrooms", "mushrooms.partial"])
def test_a_version_that_no_header_can_hold_is_none(mushrooms, server, tmp_path, name, version):
    store = tmp_path / "originals/mushrooms"
    store.mkdir(parents=True)
    (store / name).write_bytes(OTHER[:MIXED_AT])
    (store / "mushrooms.version").write_bytes(version)
    fetch(unknown(mushrooms), tmp_path, nothing)
    assert kept(tmp_path) == {"mushrooms.bz2": TEXT}
    assert server.asked == [None]


@pytest.mark.parametrize("tags", ["honest", "none", "dates"])
def test_what_has_not_changed_goes_on(mushrooms, server, tmp_path, tags):
    server.tags, server.cut = tags, MIXED_AT
    with pytest.raises(FetchError):
        fetch(unknown(mushrooms), tmp_path, nothing)
    fetch(unknown(mushrooms), tmp_path, nothing)
    assert kept(tmp_path) == {"mushrooms.bz2": TEXT}
    assert server.asked == [None, None if tags == "none" else f"bytes={MIXED_AT}-"]


def test_a_date_of_this_minute_tells_no_versions_apart(mushrooms, server, tmp_path):
    server.tags, server.age, server.cut = "dates", 5, MIXED_AT
    with pytest.raises(FetchError):
        fetch(unknown(mushrooms), tmp_path, nothing)
    assert files(tmp_path) == ["originals/mushrooms/mushrooms.partial"]


@pytest.fixture
def two(server):
    """A set of two files, of which no checksum is known."""
    home = f"http://127.0.0.1:{server.server_address[1]}"
    server.pages = {"/a6a": TEXT, "/a6a.t": TEXT * 2}
    return dataclasses.replace(
        DATASETS["a6a"],
        originals=(Original(f"{home}/a6a"), Original(f"{home}/a6a.t")),
        files={"libsvm/a6a.bz2": digest(TEXT), "libsvm/a6a.t.bz2": digest(TEXT * 2)},
        known={},
    )


def interrupted(dataset, server, folder):
    """The first file is there, the second in part."""
    pages = server.pages
    server.pages = {"/a6a": pages["/a6a"]}
    with pytest.raises(FetchError, match="404"):
        fetch(dataset, folder, nothing)
    server.pages, server.cut = pages, None
    assert (folder / "originals/a6a/a6a").is_file()


def test_a_set_is_there_whole_or_not_at_all(two, server, tmp_path):
    interrupted(two, server, tmp_path)
    assert not (tmp_path / "libsvm").exists()
    server.asked.clear()
    fetch(two, tmp_path, nothing)
    assert kept(tmp_path) == {"a6a.bz2": TEXT, "a6a.t.bz2": TEXT * 2}
    assert len(server.asked) == 2  # one to hear that the first has not changed


@pytest.mark.parametrize("tags", ["honest", "none"])
def test_files_of_one_set_are_of_one_version(two, server, tmp_path, tags):
    server.tags = tags
    interrupted(two, server, tmp_path)
    server.pages = {"/a6a": OTHER, "/a6a.t": OTHER * 2}
    newer = {"libsvm/a6a.bz2": digest(OTHER), "libsvm/a6a.t.bz2": digest(OTHER * 2)}
    fetch(dataclasses.replace(two, files=newer), tmp_path, nothing)
    assert kept(tmp_path) == {"a6a.bz2": OTHER, "a6a.t.bz2": OTHER * 2}


def test_a_full_disk_keeps_the_originals_and_the_older_set(two, server, tmp_path, monkeypatch):
    fetch(two, tmp_path, nothing)
    server.pages = {"/a6a": OTHER, "/a6a.t": OTHER * 2}
    newer = dataclasses.replace(two, files={"libsvm/a6a.bz2": digest(OTHER), "libsvm/a6a.t.bz2": digest(OTHER * 2)})
    write = Path.write_bytes

    def full(path, content):
        if ".a6a.bz2" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        fetch(newer, tmp_path, nothing)
    assert kept(tmp_path) == {"a6a.bz2": TEXT, "a6a.t.bz2": TEXT * 2}
    assert (tmp_path / "originals/a6a/a6a").read_bytes() == OTHER


def in_another_order(text):
    return b"".join(reversed(text.splitlines(keepends=True)))


def test_another_copy_is_checked_by_its_known_rows(two, server, tmp_path):
    known = {
        relative: Known(digest(sorted_rows(text)))
        for relative, text in (("libsvm/a6a.bz2", TEXT), ("libsvm/a6a.t.bz2", TEXT * 2))
    }
    inexact = dataclasses.replace(two, known=known, remark="it comes in another order")
    server.pages["/a6a"] = in_another_order(TEXT).replace(b":1 ", b":1.0  ")
    assert fetch(inexact, tmp_path / "a", nothing)[1].endswith("it comes in another order.")
    assert kept(tmp_path / "a") == {"a6a.bz2": server.pages["/a6a"], "a6a.t.bz2": TEXT * 2}
    server.pages["/a6a.t"] = TEXT + OTHER
    with pytest.raises(FetchError, match="other rows than the known ones; nothing was kept"):
        fetch(inexact, tmp_path / "b", nothing)
    assert files(tmp_path / "b") == []


def test_arrays_of_another_copy_are_checked_by_labels_and_means():
    labels, pixels = np.arange(10), np.linspace(0, 100, 10)
    known = Known(digest({"y": labels}), arrays=("y",), means={"x": 50.0})
    assert difference(known, {"x": pixels + 0.2, "y": labels}) is None
    assert difference(known, {"x": pixels, "y": labels[::-1]}) == "other y than the known ones"
    assert difference(known, {"y": labels}) == "no array 'x'"
    assert difference(known, {"x": pixels * 2, "y": labels}) == "the mean 100 in x, not 50"
    assert difference(known, {"x": pixels * np.nan, "y": labels}) == "the mean nan in x, not 50"


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


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("school", b"garbage", "MatReadError: Mat file appears to be truncated"),
        ("landmine", b"garbage", "MatReadError: Mat file appears to be truncated"),
        ("vehicle", b"[" * 100_000, "RecursionError: maximum recursion depth"),
        ("cifar10", b"garbage", r"ReadError: file could not be opened successfully\)"),
    ],
)
def test_what_no_reader_takes_is_refused_in_a_short_sentence(tmp_path, name, content, error):
    own = tmp_path / "own"
    own.write_bytes(content)
    with pytest.raises(RequestError, match=f"is not what {name} is built from .{error}") as refused:
        build(DATASETS[name], own, tmp_path / "data")
    assert DATASETS[name].home in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("line", [b"y" * 10_000, b"1 " + b"x" * 10_000, b"1 " + b"1" * 4000 + b":1"])
def test_a_long_line_is_not_repeated(tmp_path, line):
    own = tmp_path / "own"
    own.write_bytes(line)
    with pytest.raises(RequestError, match=r"own, line 1: '.{60} \.\.\.' is not .*; correct the line") as refused:
        build(DATASETS["mushrooms"], own, tmp_path / "data")
    assert len(str(refused.value)) < 400
