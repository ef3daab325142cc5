# SPDX-License-Identifier: Apache-2.0
"""Connections that are refused, and those that are not: certificates decide who is who, and waits are bounded."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.tls import HEADER, SERVER_NAME, TlsServer, serve_site
from idiolect.experiments.deploy.certificates import make_authority, make_papers

SECONDS = 20.0


class Echo:
    """Answers with what it was sent; a message may make it wait or answer much."""

    def __init__(self):
        self.seen = []

    def handle(self, message):
        self.seen.append(message)
        if message.startswith(b"wait"):
            time.sleep(1.0)
        return b"x" * 3_000_000 if message == b"much" else message


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    ours, theirs = make_authority("ours"), make_authority("theirs")
    return {
        "server": make_papers(folder / "server", ours, "server", server=True),
        "north": make_papers(folder / "north", ours, "north", server=False),
        "south": make_papers(folder / "south", ours, "south", server=False),
        "unknown": make_papers(folder / "unknown", ours, "west", server=False),
        "foreign": make_papers(folder / "foreign", theirs, "north", server=False),
        "foreign server": make_papers(folder / "foreign-server", theirs, "server", server=True),
    }


@pytest.fixture
def server(papers):
    made = TlsServer(("127.0.0.1", 0), papers["server"], ("north", "south"), limit=4_000_000)
    yield made
    made.close()


def start(server, papers, handler=None):
    """A site in a thread; whatever it raises is kept."""
    raised, handler = [], handler or Echo()

    def work():
        try:
            serve_site(server.address, papers, handler, limit=4_000_000)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, handler, raised


def until(condition):
    end = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_messages_pass_and_a_site_that_is_told_the_end_ends(server, papers):
    threads = [start(server, papers[name])[0] for name in ("north", "south")]
    until(lambda: set(server.sites) == {"north", "south"})
    assert server.exchange(0, {"north": b"a", "south": b"b"}, SECONDS) == {"north": b"a", "south": b"b"}
    assert len(server.exchange(1, {"north": b"much"}, SECONDS)["north"]) == 3_000_000
    server.close()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_site_is_told_why_the_server_stops(server, papers):
    thread, _, raised = start(server, papers["north"])
    until(lambda: "north" in server.sites)
    server.close(over=False, reason="A column is missing.")
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert "has stopped: A column is missing." in str(raised[0])


def test_a_late_answer_is_not_taken_for_another(server, papers):
    start(server, papers["north"])
    until(lambda: "north" in server.sites)
    assert server.exchange(0, {"north": b"wait"}, 0.2) == {}
    assert server.exchange(1, {"north": b"now", "south": b"nobody"}, SECONDS) == {"north": b"now"}


def test_a_site_that_is_started_anew_takes_its_place(server, papers):
    start(server, papers["north"])
    until(lambda: "north" in server.sites)
    _, second, _ = start(server, papers["north"])  # the first still has its connection, and answers until this one came
    until(lambda: bool(server.exchange(0, {"north": b"who"}, 1.0)) and bool(second.seen))


@pytest.mark.parametrize("who", ["foreign", "unknown"])
def test_other_certificates_are_turned_away(server, papers, who):
    start(server, papers[who])
    until(lambda: bool(server.turned_away))
    assert server.sites == ()
    assert server.exchange(0, {"north": b"a"}, 0.2) == {}


def test_no_certificate_and_no_tls_are_turned_away(server, papers):
    context = ssl.create_default_context(cafile=str(papers["server"].authority))
    with (
        socket.create_connection(server.address) as plain,
        context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        connection.recv(1)  # the refusal arrives with the first byte that is read
    with socket.create_connection(server.address) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    until(lambda: len(server.turned_away) >= 2)
    assert server.sites == ()


def test_the_key_must_be_the_certificates_own(papers):
    wrong = papers["north"]._replace(key=papers["south"].key)
    with pytest.raises(RequestError, match="certificates"):
        serve_site(("127.0.0.1", 1), wrong, Echo())


@pytest.mark.parametrize("who", ["foreign server", "south"])
def test_a_site_refuses_a_server_that_is_not_its_own(papers, who):
    """The certificate of another authority, and that of another site, which was not made to serve."""
    false = TlsServer(("127.0.0.1", 0), papers[who], ("north",))
    thread, echo, raised = start(false, papers["north"])
    thread.join(SECONDS)
    false.close()
    assert not thread.is_alive()
    assert isinstance(raised[0], RequestError)
    assert echo.seen == []


def test_a_tampered_or_too_large_frame_ends_the_connection(server, papers):
    context = ssl.create_default_context(cafile=str(papers["north"].authority))
    context.load_cert_chain(papers["north"].certificate, papers["north"].key)
    with (
        socket.create_connection(server.address) as plain,
        context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection,
    ):
        until(lambda: "north" in server.sites)
        connection.sendall(HEADER.pack(2**40, 1))
        assert server.exchange(0, {"north": b"a"}, 2.0) == {}
        assert "north" not in server.sites
    with socket.create_connection(server.address) as plain:
        connection = context.wrap_socket(plain, server_hostname=SERVER_NAME)
        until(lambda: "north" in server.sites)
        raw = socket.socket(fileno=socket.dup(connection.fileno()))
        raw.sendall(b"\x17\x03\x03\x00\x20" + b"t" * 32)  # a record that nobody with the keys has written
        until(lambda: "north" not in server.sites)
        raw.close()
        connection.close()
