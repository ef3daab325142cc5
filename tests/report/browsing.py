# SPDX-License-Identifier: Apache-2.0
"""Debian's chromium, driven headless."""

from __future__ import annotations

import contextlib
import shutil

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="needs the browser chromium and chromedriver (Debian: chromium-driver)"
)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@contextlib.contextmanager
def start_browser(profile, downloads):
    """A browser with a profile of its own that is gone afterwards."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def opened(driver, file):
    """The page, once its script has run to the end."""
    driver.get(f"file://{file}")
    assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
    return driver


# Text whose contrast with the nearest painted ground is below 4.5 (WCAG AA; 3 for large text).
HIDDEN_CONTRAST = """
const rgb = (text) => {
  const box = document.createElement("canvas").getContext("2d");
  box.fillStyle = text; box.fillRect(0, 0, 1, 1);
  return [...box.getImageData(0, 0, 1, 1).data];
};
const light = (colour) => {
  const [r, g, b] = colour.slice(0, 3).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (one) => {
  for (let node = one; node; node = node.parentElement) {
    const colour = rgb(getComputedStyle(node).backgroundColor);
    if (colour[3] > 250) return colour;
  }
  return [255, 255, 255, 255];
};
const found = new Map();
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !one.checkVisibility() || one.closest("svg, script, .skip")) continue;
  const look = getComputedStyle(one);
  const key = [look.color, ground(one).join(), look.fontSize].join("|");
  if (found.has(key)) continue;
  const ends = [light(rgb(look.color)), light(ground(one))].sort((a, b) => a - b);
  const least = parseFloat(look.fontSize) >= 24 ? 3 : 4.5;
  found.set(key, (ends[1] + 0.05) / (ends[0] + 0.05) >= least ? "" : one.outerHTML.slice(0, 120) + " " + look.color);
}
return [...found.values()].filter(Boolean);
"""
