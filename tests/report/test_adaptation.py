# SPDX-License-Identifier: Apache-2.0
"""Before and after adaptation, routes, storage and operations: in the table and on the page."""

from __future__ import annotations

import re

import pytest

from idiolect.record.divergence import Divergence
from idiolect.record.schema import NewClients
from idiolect.report import read
from idiolect.report.page import render
from idiolect.report.table import compare
from idiolect.report.wording import NONE

BREAKDOWN = {"both": 0.5, "shared_only": 0.1, "personal_only": 0.3, "neither": 0.1}
KNOWN = {
    "acc_g": 0.6,
    "acc_p": 0.8,
    "helped": 70.0,
    "hurt": 10.0,
    "same": 20.0,
    "breakdown": BREAKDOWN,
    "deciles_g": [0.1 * k for k in range(1, 10)],
    "deciles_p": [0.05 + 0.1 * k for k in range(1, 10)],
    "worst_tenth_g": 0.123,
    "worst_tenth_p": 0.234,
    "clients": 19,
    "missing": 1,
}
NOTHING = dict.fromkeys(KNOWN) | {"acc_p": 0.7, "breakdown": dict.fromkeys(BREAKDOWN)}
ROUTING = {
    "names": ["conv_0", "dense<1>"],
    "shared_share": [0.911, 0.5],
    "taken": [1.0, 0.25],
    "one_way": [0.987, 0.0],
    "by_category": {name: [0.333, None] for name in BREAKDOWN},
    "taken_by_category": {name: [0.444, None] for name in BREAKDOWN},
    "rows": {"both": 5, "shared_only": 1, "personal_only": 3, "neither": 1},
}


@pytest.fixture
def adapted(folder, edit_summary):
    """A run of training alone, without a received model, and a method that routes; the others say nothing."""

    def tell(summary):
        alone, routed = summary["methods"][:2]
        alone["personalization"] = NOTHING
        new = {"mean": 0.5, "shared_mean": 0.4, "personalization": KNOWN | {"acc_g": 0.415, "acc_p": 0.525}}
        routed |= {"personalization": KNOWN, "routing": ROUTING, "new_clients": new}
        routed["storage"] = {"client_bytes": 1234, "server_bytes": 56789, "model_bytes": 4321}
        routed["flops"] = {
            "training": 7.5e9,
            "adaptation": 2.5e6,
            "prediction": 5600.0,
            "rows": 10,
            "steps": 5.0,
            "complete": True,
        }

    edit_summary(folder, tell)
    return read(folder)


def test_the_table_has_a_second_part(adapted):
    table = compare(adapted)
    text = table.to_text(width=120)
    lines = text[text.index("general-") :].splitlines()
    assert lines[3].split()[:3] == ["local", NONE, "70.0"]
    wanted = [
        "fedavg",
        "60.0",
        "80.0*",
        "70",
        "20",
        "10",
        "50.0",
        "10.0",
        "30.0",
        "10.0",
        "12.3",
        "23.4",
        "41.5",
        "52.5",
    ]
    assert lines[4].split() == wanted
    assert max(len(line) for line in lines) <= 120
    methods = table.as_dict()["methods"]
    assert (methods[0]["acc_g"], methods[1]["acc_g"], methods[1]["flops"]) == (None, 0.6, 7.5e9)


def test_the_page_shows_them(adapted):
    text = render(adapted, [], [])
    section = re.search(r'<section id="adaptation".*?</section>', text, re.DOTALL)[0]
    assert "Routes of fedavg" in section
    for shown in ("60.0", "80.0", "91.1", "98.7", "33.3", "44.4", "dense&lt;1&gt;", ">15.0<", ">95.0<"):
        assert shown in section, shown
    ledger = re.search(r'<section id="ledger".*?</section>', text, re.DOTALL)[0]
    for shown in ("1.2 k", "56.8 k", "7.5 G", "2.5 M", "FLOPs, a round"):
        assert shown in ledger, shown


def test_no_method_is_marked_for_how_few_clients_get_worse(adapted, edit_summary):
    """A method that moves nothing makes none worse: a star at 7 % beside its 0 would be false."""
    still = KNOWN | {"helped": 0.0, "same": 100.0, "hurt": 0.0}
    still["breakdown"] = BREAKDOWN | {"shared_only": 0.0, "personal_only": 0.0}
    moving = KNOWN | {"hurt": 30.0}
    changes = {1: still, 2: moving, 0: KNOWN}

    def change(summary):
        for place, found in changes.items():
            summary["methods"][place]["personalization"] = found

    edit_summary(adapted.path, change)
    table = compare(read(adapted.path))
    place = [column.key for column in table.adaptation].index("adapted_worse")
    cells = [line[place] for line in table.cells(table.adaptation)]
    assert cells[:3] == [("10", False), ("0", False), ("30", False)]
    legend = " ".join(table.to_text().split())
    assert "same: both models are equal on its test rows, which may be too few to show a difference" in legend


def test_the_second_table_says_that_it_is_in_plain_accuracy(adapted, edit_summary):
    sentence = "This table is in plain accuracy (%), not in balanced accuracy."
    assert "plain accuracy" not in compare(adapted).to_text()
    other = {"scores": ["balanced_accuracy"], "higher_is_better": {"balanced_accuracy": True}}
    edit_summary(adapted.path, lambda summary: summary.update(other))
    run = read(adapted.path)
    assert sentence in " ".join(compare(run).to_text().split())
    assert sentence in render(run, [], [])


def test_how_a_model_of_a_new_client_came_about_is_said(adapted, edit_summary):
    every = "new clients: those that never trained, each after one round on its own rows"
    both = "new: clients that never trained, before and after one round on their own rows"
    only = " (with local, all the training its model gets)"
    text = " ".join(compare(adapted).to_text().split())
    assert f"{every};" in text  # local says nothing of new clients here
    assert both in text
    edit_summary(adapted.path, lambda summary: summary["methods"][0].update(new_clients=NewClients(0.6)))
    run = read(adapted.path)
    assert every + only in " ".join(compare(run).to_text().split())
    assert every + only in render(run, [], [])
    edit_summary(adapted.path, lambda summary: [entry.update(new_clients=None) for entry in summary["methods"]])
    assert "never trained" not in compare(read(adapted.path)).to_text()


def test_a_dash_is_explained_for_algorithms_of_ones_own_too(adapted):
    assert "A dash: the method sends, or declares, no whole model, or diverged." in " ".join(
        compare(adapted).to_text().split()
    )


def test_a_diverged_method_has_dashes_and_its_round(adapted, edit_summary):
    lost = Divergence(31, "a")
    edit_summary(adapted.path, lambda summary: summary["methods"][1].update(diverged=lost))
    edit_summary(adapted.path, lambda summary: summary["methods"][2].update(personalization=KNOWN))
    run = read(adapted.path)
    table = compare(run)
    text = table.to_text(width=120)
    assert text.count("diverged, round 31") == 2  # in both tables
    lines = text[text.index("general-") :].splitlines()
    assert lines[4].split() == ["fedavg", *[NONE] * 11]
    assert lines[5].split() == ["(diverged,", "round", "31)"]
    page = render(run, [], [])
    section = re.search(r'<section id="adaptation".*?</section>', page, re.DOTALL)[0]
    assert "Routes of fedavg" not in section
    assert ">fedavg<" not in section  # no deciles either
    seeds = re.search(r'<section id="seeds".*?</section>', page, re.DOTALL)[0]
    cells = re.search(r">fedavg</th>(.*?)</tr>", seeds)[1]
    assert re.findall(r">([^<]+)</td>", cells) == [NONE] * 7
    assert ">fedavg</option>" not in page


def test_an_older_run_has_no_such_part(folder):
    run = read(folder)
    assert compare(run).adaptation == ()
    text = render(run, [], [])
    assert 'id="adaptation"' not in text
    assert "FLOPs, a round" not in text
