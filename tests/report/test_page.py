# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import idiolect.report
from idiolect.record.schema import Announced
from idiolect.report import FolderError, build_report, comparison_table, read
from idiolect.report.page import render
from idiolect.report.style import Drawn

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{answer}}"


class Page(HTMLParser):
    """Tags with their attributes, and the text of scripts and headings by id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.inside, self.text = [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside.append(dict(attributes).get("id") or tag)

    def handle_data(self, data):
        if self.inside:
            self.text[self.inside[-1]] = self.text.get(self.inside[-1], "") + data

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_builds_the_page_and_the_figures(built):
    assert sorted(file.name for file in (built / "figures").iterdir()) == [
        "distribution.png",
        "distribution.svg",
        "gain-by-client.png",
        "gain-by-client.svg",
        "manifest.json",
        "score-against-cost.png",
        "score-against-cost.svg",
    ]
    assert not list(built.rglob("*.unfinished"))
    page = Page((built / "report.html").read_text())
    assert len(page.of("svg")) == 3
    assert page.text["answer"].startswith("personal heads is best on average")
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_asks_nothing_of_the_network(built):
    text = (built / "report.html").read_text()
    page = Page(text)
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "figures/", "data:")), target
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)


def test_only_its_own_script_may_run(built):
    text = (built / "report.html").read_text()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    policy = next(meta["content"] for meta in Page(text).of("meta") if "http-equiv" in meta)
    assert f"script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}' ;" in policy
    assert "connect-src" not in policy  # only a page that is served while training may ask its server
    assert "default-src 'none'" in policy


def test_hostile_strings_are_harmless(make_run, edit_summary):
    folder = make_run(clients=4, names=lambda m: f"{ATTACK}{m}")

    def poison(summary):
        summary |= {"name": ATTACK, "notes": [ATTACK], "warnings": [ATTACK], "score_reason": ATTACK}
        for entry in summary["methods"]:
            entry |= {"summary": ATTACK, "settings": {ATTACK: ATTACK}, "tuned": ATTACK, "reference": ATTACK}
        summary["methods"][-1]["diverged"] = {"round": 7, "client": ATTACK, "reason": ATTACK}

    edit_summary(folder, poison)
    (folder / "machine.json").write_text(json.dumps({ATTACK: ATTACK}))
    (folder / "spec.toml").write_text(f'name = """{ATTACK}"""\n')
    text = build_report(folder).read_text()
    page = Page(text)
    assert [attributes.get("type") for attributes in page.of("script")] == ["application/json", None, None]
    assert not page.of("img")
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    data = json.loads(page.text["page-data"])["clients"]
    assert data["names"][1] == f"{ATTACK}1"  # and yet the name arrives as it is
    assert text.count("{{answer}}") > 10  # nor was the text taken for a place in the template


def test_only_our_own_figures_and_scripts_go_unescaped():
    files = [
        *Path(idiolect.report.__file__).parent.rglob("*.html"),
        *Path(idiolect.report.__file__).parent.glob("*.py"),
    ]
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert [line for line in lines if re.search(r"\|\s*safe\b|Markup\(|autoescape=False|autoescape false", line)] == [
        line for line in lines if "one.for_page() | safe" in line or "<script>{{ script | safe }}</script>" in line
    ]


def test_the_vendored_library_is_the_one_that_is_written_down():
    vendor = Path(idiolect.report.__file__).parent / "vendor"
    digest = hashlib.sha256((vendor / "echarts.common.min.js").read_bytes()).hexdigest()
    assert f"`{digest}`" in (vendor / "README.md").read_text()
    assert {"LICENSE-echarts", "NOTICE-echarts", "LICENSE-d3"} <= {file.name for file in vendor.iterdir()}
    text = (vendor / "echarts.common.min.js").read_text()
    assert "</script" not in text
    assert "<!--" not in text


def test_thousands_of_clients_are_limited_until_asked_for(make_run, methods):
    folder = make_run(methods=(methods["local"], methods["personal heads"]), clients=2500, seeds=1)
    text = render(read(folder), [], [])
    body = re.search(r'id="client-table">.*?<tbody>(.*?)</tbody>', text, re.DOTALL)[1]
    assert body.count("<tr>") == 100
    data = json.loads(Page(text).text["page-data"])["clients"]
    personal = data["methods"][1]
    assert len(data["names"]) == len(base64.b64decode(data["columns"][personal["personal"]])) // 4 == 2500
    assert data["methods"][data["shown"]]["method"] == "personal heads"
    assert len(text) < 2_500_000


def test_one_client_and_one_method(make_run, methods):
    text = build_report(make_run(methods=(methods["personal heads"],), clients=2, seeds=1)).read_text()
    assert "The method &#39;local&#39; was not run" in text
    assert "was left out: no gain against training alone" in text


def test_every_method_diverged(make_run, methods):
    text = build_report(make_run(methods=(methods["fedavg-wild"],))).read_text()
    assert "there is no answer" in Page(text).text["answer"]


def test_the_headline_is_who_does_best_and_the_rest_is_text_below(folder):
    answer = comparison_table(folder).answer
    page = Page(render(read(folder), [], []))
    assert (page.text["answer"].strip(), page.text["further"].strip()) == (answer.headline, answer.further)
    assert "worst tenth" not in answer.headline
    assert "worst tenth" in answer.further
    assert answer.further[0].isupper()
    assert answer.sentence.lower() == f"{answer.headline[:-1]}; {answer.further}".lower()  # nothing is lost


def test_new_clients_are_counted_apart(folder, hold_out):
    assert "4 methods · 20 clients</p>" in render(read(folder), [], [])
    hold_out(folder, 2)
    text = render(read(folder), [], [])
    assert "4 methods · 18 clients and 2 new</p>" in text
    assert ">hospital-20 <small>new</small></th>" in text
    assert "New: a client that never trained" in text


@pytest.mark.parametrize(
    ("alone", "others", "expected"),
    [
        (0.6, 0.7, "<b>personal heads</b><span>accuracy 70.0 %, level with fedavg</span>"),
        (0.0, 0.0, "<b>no method</b><span>accuracy 0.0 %</span>"),
    ],
)
def test_the_tile_of_the_worst_tenth(folder, edit_summary, alone, others, expected):
    def change(summary):
        for entry in summary["methods"][:3]:
            entry["score"]["worst_decile"] = alone if entry["method"] == "local" else others

    edit_summary(folder, change)
    assert expected in render(read(folder), [], [])


def test_an_unfinished_run_is_marked_at_the_top(make_run):
    text = render(read(make_run(finished=False)), [], [])
    assert text.index("The run is not finished") < text.index('id="comparison"')


def test_every_part_of_the_summary_is_shown(folder, edit_summary):
    edit_summary(folder, lambda summary: summary["methods"][1].update(reference="McMahan et al. 2017", tuned="by hand"))
    text = render(read(folder), [], [])
    for expected in (
        "3 rows without a target were left out.",
        "Client hospital-01 has no test rows.",
        "Scored by accuracy: the classes are balanced.",
        "idiolect compare data.csv",
        "McMahan et al. 2017",
        "by hand",
        "not recorded in the run folder; `idiolect explain lsgd_pfl` prints it",
        "Training diverged in round 7 on client",
        "seeds = [0, 1]",
        "<dt>local steps</dt><dd>5</dd>",
    ):
        assert expected in text, expected


@pytest.fixture
def quick_figures(monkeypatch):
    """One figure that takes no time, for tests of how files are written."""
    drawn = Drawn("distribution", "Spread", "About it.", b"png", b"<svg></svg>")
    monkeypatch.setattr("idiolect.report.page.draw_all", lambda run: ([drawn], []))


@pytest.mark.usefixtures("quick_figures")
def test_an_older_figure_does_not_outlive_its_data(folder):
    (folder / "figures").mkdir()
    (folder / "figures" / "gain-by-client.svg").touch()
    (folder / "figures" / "my own.svg").touch()
    build_report(folder)
    left = sorted(file.name for file in (folder / "figures").iterdir())
    assert left == ["distribution.png", "distribution.svg", "manifest.json", "my own.svg"]


@pytest.mark.usefixtures("quick_figures")
def test_a_failed_write_leaves_the_old_page_whole(folder, monkeypatch):
    page = build_report(folder)
    before = page.read_bytes()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(FolderError, match="No space left on device"):
        build_report(folder)
    assert page.read_bytes() == before
    assert not list(folder.rglob("*.unfinished"))


@pytest.mark.usefixtures("quick_figures")
def test_reporting_changes_nothing_else_and_repeats_itself(folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert build_report(folder) == folder / "report.html"
    first = (folder / "report.html").read_bytes()
    build_report(folder)
    assert (folder / "report.html").read_bytes() == first
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert {path.name for path in folder.iterdir()} == {*before, "figures", "report.html"}


def test_the_arrow_stays_beside_the_method_it_marks(folder, edit_summary):
    announced = Announced("personal heads", "log_loss", 0.5, ())
    edit_summary(folder, lambda summary: summary.update(announced=announced))
    assert ">→\N{NO-BREAK SPACE}personal heads</th>" in build_report(folder).read_text(encoding="utf-8")
