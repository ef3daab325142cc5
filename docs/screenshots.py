# SPDX-License-Identifier: Apache-2.0
"""Pictures of pages for the docs: `python docs/screenshots.py RUNS [NAME ...]` writes docs/assets/page-NAME.png.

RUNS holds the run folders that `COMMANDS` makes; a picture shows one part of a page, as a person sees it.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from selenium import webdriver

HERE = Path(__file__).parent
WIDTH, LARGEST = 1100, 150_000  # pixels; bytes of a picture
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Shot(NamedTuple):
    """Which run, from which part of its page on, how many pixels down, in which scheme; what is done first."""

    run: str
    part: str
    height: int
    dark: bool = False
    script: str = ""


_SELECT = "look({ client: clients.names.indexOf(clients.names[%d]) })"
SHOTS = {
    "top": Shot("a6a", "body", 640),
    "gains": Shot("a6a", "#figure-gain-by-client", 560, script=_SELECT % 7),
    "writers": Shot("writers", "#figure-distribution", 900),
    "regression": Shot("school", "#figure-score-against-cost", 520),
    "flow": Shot("vehicle", "#figure-who-is-right", 820, dark=True),
    "advise": Shot("landmine", "#figure-map", 650, script="document.querySelectorAll('#figure-map button')[4].click()"),
}


def main(runs: Path, names: list[str]) -> None:
    """Take the named pictures, or all."""
    profile = tempfile.mkdtemp()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH},1000"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        for name in names or SHOTS:
            content = take(browser, runs, SHOTS[name])
            (HERE / "assets" / f"page-{name}.png").write_bytes(content)
            print(f"page-{name}.png: {len(content)} bytes")
    finally:
        browser.quit()
        shutil.rmtree(profile, ignore_errors=True)


def take(browser: webdriver.Chrome, runs: Path, shot: Shot) -> bytes:
    """One picture, in as many colours as its bytes allow."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if shot.dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": WIDTH, "height": shot.height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(f"file://{(runs / shot.run / 'report.html').resolve()}")
    if shot.script:
        browser.execute_script(shot.script)
    browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", shot.part)
    time.sleep(0.5)
    picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    for colours in (256, 128, 64, 32):
        target = io.BytesIO()
        picture.quantize(colours).save(target, "PNG", optimize=True)
        if target.tell() <= LARGEST:
            break
    return target.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
