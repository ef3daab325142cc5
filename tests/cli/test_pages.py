# SPDX-License-Identifier: Apache-2.0
"""The pages that commands leave, in a browser where there is one; and a run that is followed while it trains."""

from __future__ import annotations

import json
import re
import urllib.request

import numpy as np
import pytest
from tests.report.browsing import needs_browser, opened, start_browser


@pytest.fixture
def clinics(here):
    """Two kinds of clinics whose doses act in opposite directions."""
    draws, lines = np.random.default_rng(0), ["clinic,age,weight,dose"]
    for clinic in range(8):
        for age, weight in draws.normal(size=(25, 2)):
            lines.append(f"c{clinic},{age:.4f},{weight:.4f},{(3 if clinic < 4 else -3) * age + weight:.4f}")
    (here / "clinics.csv").write_text("\n".join(lines) + "\n")
    return here


@needs_browser
def test_the_map_and_the_dial_can_be_explored(idiolect, clinics, tmp_path):
    assert idiolect("advise", "clinics.csv", "--client", "clinic", "--target", "dose", "--out", "advice").code == 0
    columns = ("--client", "site", "--target", "ill", "--rounds", "2", "--values", "1,0.5,0")
    assert idiolect("dial", "hospitals.csv", *columns, "--out", "dial").code == 0
    with start_browser(tmp_path / "profile", tmp_path) as driver:
        opened(driver, clinics / "advice" / "report.html")
        buttons = {one.text: one for one in driver.find_elements("css selector", "#figure-map button")}
        buttons["by group"].click()
        legend = [one.text for one in driver.find_elements("css selector", "#figure-map .legend span")]
        assert legend == ["group 1: 4", "group 2: 4"]
        driver.find_element("css selector", "#figure-map select").send_keys("c3")
        said = driver.find_element("css selector", "#figure-map .said").text
        assert said.startswith("c3; advice: join neighbours")
        assert driver.find_element("css selector", "#clients tr.selected th").text == "c3"
        kinds = []
        for view in ("table of weights", "expected gains", "graph"):
            buttons[view].click()
            kinds.append(driver.execute_script("return drawn[0].plot.getOption().series.at(-1).data.length"))
        shares = np.array(json.loads((clinics / "advice" / "advise.json").read_text())["map"]["shares"])
        assert kinds == [(shares >= 0.005).sum(), 8, 8]
        opened(driver, clinics / "dial" / "report.html")
        driver.find_element("css selector", "#figure-dial select").send_keys("s2")
        names = "return drawn[0].plot.getOption().series.map((one) => one.name)"
        assert "choice of a client" in driver.execute_script(names)
        assert [entry["message"] for entry in driver.get_log("browser")] == []


@needs_browser
def test_on_a_telephone_whom_a_client_joins_is_in_sight(idiolect, clinics, tmp_path):
    assert idiolect("advise", "clinics.csv", "--client", "clinic", "--target", "dose", "--out", "advice").code == 0
    with start_browser(tmp_path / "profile", tmp_path) as driver:
        metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        opened(driver, clinics / "advice" / "report.html")
        whom, right, highest = driver.execute_script(
            "const box = document.querySelector('#clients .scroll'), rows = [...box.querySelectorAll('tbody tr')];"
            "const edge = (one) => one.getBoundingClientRect().right;"
            "return [Math.max(...rows.map((row) => edge(row.querySelector('td small')))), edge(box),"
            " Math.max(...rows.map((row) => row.clientHeight))]"
        )
        assert whom <= right
        assert highest < 130


def test_a_run_is_followed_while_it_trains(idiolect, here, monkeypatch):
    seen = []

    def look(live):
        """As a browser would, in the middle of training."""
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with (
            opener.open(live.address, timeout=10) as page,
            opener.open(live.address.partition("?")[0] + "data") as data,
        ):
            seen.append((page.read().decode(), json.loads(data.read())))

    from idiolect.report.live_server import LivePage

    update = LivePage.update

    def updated(live, label, done, of):
        update(live, label, done, of)
        if not seen:
            look(live)
        live._seen = 0.0  # it was closed again

    monkeypatch.setattr(LivePage, "update", updated)
    answer = idiolect("run", "spec.toml", "--out", "run", "--live")
    assert answer.code == 0, answer.err
    assert re.search(r"Live page, on this machine: http://127\.0\.0\.1:\d+/\?token=", answer.err)
    page, data = seen[0]
    assert "Training goes on" in page
    assert data["state"] == "running"
    assert data["progress"][0]["name"] == "local"
    assert "Methods side by side" in (here / "run" / "report.html").read_text()
    assert idiolect("run", "spec.toml", "--out", "again", "--quiet").code == 0
    both = idiolect("report", "run", "again", "--out", "both.html")
    assert both.code == 0, both.err
    assert "provably" not in both.out  # the same rows
    assert (here / "both.html").is_file()
    same = [(here / name / "clients.parquet").read_bytes() for name in ("run", "again")]
    assert same[0] == same[1]  # being watched changes nothing


def test_what_cannot_be_followed_or_written_is_refused(idiolect, finished):
    live = idiolect("compare", "hospitals.csv", "--client", "site", "--target", "ill", "--splits", "2", "--live")
    assert (live.code, live.error) == (
        2,
        "Error: --live follows one run on one host, not --splits and not --hosts; leave one of them out.",
    )
    answer = idiolect("report", finished, "--out", "page.html")
    assert answer.code == 2
    assert "--out is for the page of several runs" in answer.error
