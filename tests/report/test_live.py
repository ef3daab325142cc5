# SPDX-License-Identifier: Apache-2.0
"""The page of a run while it trains: what it shows, to which browser it is served, and what stays."""

from __future__ import annotations

import http.client
import json
import threading
import time

import pytest
from tests.report.browsing import needs_browser, start_browser

from idiolect.report.live import live_data, run_so_far
from idiolect.report.live_server import LivePage, served

ATTACK = "</script><img src=x onerror=alert(1)>"


def _line(number, seed=0):
    row = {"round": number, "rounds": number, "seconds": 0.1 * number, "download_bytes": 1000 * number}
    row |= {"upload_bytes": 1000 * number, "gradients_shared": 50 * number, "modelled_seconds": 0.5 * number}
    mean = 0.5 + 0.04 * number + 0.01 * seed
    return row | {"validation_personal_accuracy_mean": mean, "validation_personal_accuracy_worst_decile": mean - 0.2}


def _write(folder, method, rounds, seeds=2):
    own = folder / "checkpoint" / method
    own.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps([_line(number, seed) for seed in range(seeds)]) + "\n" for number in range(rounds)]
    (own / "history.jsonl").write_text("".join(lines))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "demo"
    _write(folder, "fedavg", 4)
    (folder / "spec.toml").write_text('name = "demo"\nseeds = [0, 1]\n')
    return folder


@pytest.fixture
def live(folder):
    page = LivePage(folder)
    page.start()
    yield page
    page._seen = 0.0  # no browser looks on
    page.close("finished")


def _ask(live, path, cookie="", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    try:
        connection.request("GET", path, headers={"Cookie": cookie, "Host": host or f"127.0.0.1:{live.port}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def _enter(live):
    """The cookie of the browser that has the token."""
    status, _, headers = _ask(live, f"/?token={live.token}")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    return headers["Set-Cookie"].partition(";")[0]


def test_what_is_recorded_so_far_is_told(folder):
    _write(folder, "local", 2, seeds=1)
    with (folder / "checkpoint" / "local" / "history.jsonl").open("a") as file:
        file.write('[{"round": 3, "rou')  # on its way
    run = run_so_far(folder)
    assert [entry.method for entry in run.methods] == ["fedavg", "local"]
    assert run.history.num_rows == 2 * 4 + 2
    data = live_data(folder, {"fedavg": (3, 40)})
    assert data["progress"] == [{"name": "fedavg", "done": 3, "of": 40}]
    assert data["figures"]["score-against-cost"]["lines"][0]["method"] == "fedavg"
    json.dumps(data, allow_nan=False)


def test_nothing_is_told_before_the_first_record(tmp_path):
    assert live_data(tmp_path, {}) == {"progress": [], "figures": {}}


def test_only_the_browser_with_the_token_gets_in_and_only_once(live):
    for path in ("/", "/data", "/report.html", "/?token=wrong", "/../spec.toml"):
        assert _ask(live, path)[0] == 403
    cookie = _enter(live)
    assert _ask(live, f"/?token={live.token}")[0] == 403  # spent
    assert _ask(live, "/", cookie)[0] == 200
    assert _ask(live, "/", cookie + "x")[0] == 403
    assert _ask(live, "/", "idiolect=%00; =;")[0] == 403


def test_no_other_file_no_other_name_no_other_machine(live):
    cookie = _enter(live)
    for path in ("/spec.toml", "/report.html", "/figures/a.png", "/checkpoint/fedavg/history.jsonl"):
        assert _ask(live, path, cookie)[0] == 404
    assert _ask(live, "/data", cookie, host="attacker.example")[0] == 403
    assert _ask(live, "/data", cookie, host=f"localhost:{live.port}")[0] == 200
    assert live._server.socket.getsockname()[0] == "127.0.0.1"


def test_the_page_and_its_data(live):
    live.update(ATTACK, 2, 9)
    cookie = _enter(live)
    _, text, headers = _ask(live, "/", cookie)
    assert "<img" not in text.partition("<script>")[0]
    assert "connect-src 'self'" in text
    assert headers["Cache-Control"] == "no-store"
    found = json.loads(_ask(live, "/data", cookie)[1])
    assert found["state"] == "running"
    assert found["progress"] == [{"name": ATTACK, "done": 2, "of": 9}]


def test_a_run_that_ends_early_keeps_its_page(folder):
    said = []
    pages = []

    def interrupted():
        with served(folder, said.append) as live:
            pages.append(live)
            live.update("fedavg", 3, 40)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert said[0].startswith("Live page, on this machine: http://127.0.0.1:")
    text = (folder / "report.html").read_text()
    assert "The run was stopped before its end" in text
    assert "idiolect run demo --resume" in text
    assert "connect-src" not in text
    with pytest.raises(OSError, match="refused"):
        _ask(pages[0], "/")


def test_the_end_waits_for_a_browser_that_looks_on(folder):
    with served(folder, lambda text: None) as live:
        cookie = _enter(live)
        assert json.loads(_ask(live, "/data", cookie)[1])["state"] == "running"
        (folder / "report.html").write_text("the report")
        seen = []

        def look():
            while (state := json.loads(_ask(live, "/data", cookie)[1])["state"]) == "running":
                time.sleep(0.02)
            seen.extend([state, _ask(live, "/", cookie)[1]])

        thread = threading.Thread(target=look)
        thread.start()
    thread.join()
    assert seen == ["finished", "the report"]


@needs_browser
def test_a_browser_follows_without_reloading(live, folder, tmp_path):
    with start_browser(tmp_path / "profile", tmp_path) as driver:
        driver.get(live.address)
        assert "token" not in driver.current_url
        driver.execute_script("window.before = 'the same page'")
        count = (
            "return charts['score-against-cost'].plot.getOption().series.filter((one) => one.name)"
            ".map((one) => one.data.length)"
        )
        assert driver.execute_script(count) == [4]

        def until(script, expected):
            ends = time.monotonic() + 8
            while (found := driver.execute_script(script)) != expected:
                assert time.monotonic() < ends, found
                time.sleep(0.1)

        _write(folder, "fedavg", 8)
        _write(folder, "local", 3)
        live.update("fedavg", 7, 40)
        until(count, [8, 3])
        until("return document.querySelector('progress').value", 7)
        assert driver.execute_script("return window.before") == "the same page"
        live.state = "stopped"
        until("return document.getElementById('live-state').textContent.startsWith('The run was stopped')", True)
        assert driver.execute_script(count) == [8, 3]  # what was seen stays
        assert [entry["message"] for entry in driver.get_log("browser")] == []
