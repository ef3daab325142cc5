# SPDX-License-Identifier: Apache-2.0
"""Several runs on one page, and reproductions on theirs."""

from __future__ import annotations

import json

import pytest
from tests.report.browsing import needs_browser, opened, start_browser

from idiolect.record.errors import RequestError
from idiolect.report import build_report, report_on, report_on_runs

ATTACK = "</script><script>alert(1)</script>"


@pytest.fixture
def runs(make_run):
    return [make_run("spring", clients=8), make_run("autumn", clients=12)]


def test_runs_are_compared_on_one_page(runs, tmp_path):
    found = report_on_runs(runs, tmp_path / "deep" / "both.html")
    text = found.text(False, 120)
    assert text.count("→ personal heads") == 2
    assert "spring" in text
    assert "autumn" in text
    assert "not provably, tested on the same rows" in text
    facts = found.facts()
    assert [line["run"] for line in facts["runs"]] == ["spring"] * 3 + ["autumn"] * 3  # one method diverged
    assert json.loads(json.dumps(facts))["score"] == "accuracy"
    page = found.page.read_text()
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    lines = data["figures"]["score-against-cost"]["lines"]
    assert [line["method"] for line in lines] == ["spring: personal heads", "autumn: personal heads"]


def test_the_same_rows_are_recognised(runs, tmp_path):
    for run in runs:
        (run / "rows.json").write_text(json.dumps({"test": {"sha256": "abc"}}))
    assert "provably" not in report_on_runs(runs, tmp_path / "both.html").text(False, 120)


def test_one_run_twice_keeps_two_names(runs, tmp_path):
    found = report_on_runs([runs[0], runs[0]], tmp_path / "both.html")
    assert {line["run"] for line in found.facts()["runs"]} == {"spring", "spring (2)"}
    assert "spring, level with spring (2), has the best" in found.facts()["answer"]


@pytest.mark.parametrize(
    ("file", "named"), [("dial.json", "a dial"), ("advise.json", "advice"), ("splits.json", "several splits")]
)
def test_folders_of_other_commands_are_named_as_what_they_are(runs, tmp_path, file, named):
    other = tmp_path / "other"
    other.mkdir()
    for name in (file, "spec.toml"):
        (other / name).write_text("")
    with pytest.raises(RequestError, match=f"holds {named}.* name folders of `compare`"):
        report_on_runs([runs[0], other], tmp_path / "both.html")


def test_runs_of_different_scores_are_refused(make_run, tmp_path):
    folders = [make_run("classes", clients=4), make_run("numbers", clients=4, score="mae")]
    with pytest.raises(RequestError, match="compared by one score, got several"):
        report_on_runs(folders, tmp_path / "both.html")


@pytest.fixture
def reproduction(tmp_path):
    folder = tmp_path / "rates"
    folder.mkdir()
    number = {"kind": "at_most", "expected": 1.0, "tolerance": 0.0, "tolerance_kind": "absolute", "origin": "paper"}
    number |= {"source": ATTACK, "measured": 0.5, "verdict": "holds", "because": ""}
    numbers = [number | {"name": "bound"}, number | {"name": "other", "measured": 2.0, "verdict": "misses"}]
    numbers[1]["because"] = ATTACK
    counts = {"paper": {"of": 2, "hold": 1, "miss": 1}}
    facts = {"schema": 3, "slug": "rates", "title": "Rates", "paper": "P, 2023", "shows": "figure 1"}
    (folder / "numbers.json").write_text(
        json.dumps(facts | {"counts": counts, "changed": [], "left_out": [], "numbers": numbers})
    )
    line = {"label": "measured", "colour": "#0072b2", "style": "-", "across": [1, 2, 4], "up": [1.0, 0.5, 0.25]}
    bound = line | {"label": ATTACK, "style": "--", "up": [2.0, 1.0, 0.5]}
    panel = {"title": "Error", "across": "rounds", "up": "error", "across_log": False, "up_log": True}
    (folder / "curves.json").write_text(json.dumps({"schema": 3, "panels": [panel | {"lines": [line, bound]}]}))
    (folder / "figure.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'>{ATTACK}</svg>")
    return folder


def test_a_reproduction_has_a_page(reproduction):
    found = report_on(reproduction)
    assert found.text(False, 120).startswith(
        "Rates: all 2 numbers came out as documented, 1 of them known not to hold."
    )
    page = found.page.read_text()
    assert page.count("<script") == 3  # what the folder's files hold is text, or an image that cannot run
    assert 'src="data:image/svg+xml;base64,' in page
    assert found.facts()["slug"] == "rates"


@needs_browser
def test_the_other_pages_open_without_complaint(reproduction, runs, tmp_path):
    pages = [build_report(reproduction), report_on_runs(runs, tmp_path / "both.html").page]
    with start_browser(tmp_path / "profile", tmp_path) as driver:
        for page, charts in zip(pages, (1, 2), strict=True):
            opened(driver, page)
            heights = driver.execute_script("return drawn.map((one) => one.box.clientHeight)")
            assert len(heights) == charts
            assert min(heights) > 100
            assert [entry["message"] for entry in driver.get_log("browser")] == []
        opened(driver, pages[0])
        style = "return drawn[0].plot.getOption().series.map((one) => one.lineStyle.type)"
        assert driver.execute_script(style) == ["solid", "dashed"]
