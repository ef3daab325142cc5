# SPDX-License-Identifier: Apache-2.0
"""What `compare` refuses, it refuses by the option that was given, before anything is made."""

from __future__ import annotations

import json

import pytest

from idiolect.cli.options import said_by_option

REFUSED = [  # (options, a part of the sentence)
    ("--rounds -1", "Error: --rounds must be at least 0, got -1."),
    ("--rounds 99999999999", "Error: --rounds must be below 2^31"),
    ("--minutes 0", "Error: --minutes must be above 0, got 0."),
    ("--minutes nan", "Error: --minutes must be a finite number, got nan"),
    ("--step-sizes 0", "Error: --step-sizes must be above 0, got 0."),
    ("--step-sizes 0.1,0.1", "Error: --step-sizes must differ, got '0.1,0.1'; name each once."),
    ("--methods local,local", "Error: --methods must differ, got 'local' more than once; name each once."),
    ("--methods all,local", "Error: --methods all stands for every method, got 'all,local'; leave the other names"),
    ("--methods LOCAL", "There is no algorithm 'LOCAL'. Did you mean 'local'?"),
    ("--cohort 9", "Error: --cohort must be at most the number of clients, 4, got 9."),
    ("--cohort -1", "Error: --cohort must be at least 0, got -1."),
    ("--batch-size -1", "Error: --batch-size must be at least 0, got -1."),
    ("--set methods.ditto.penalty=-1", "Error: methods.ditto.penalty must be at least 0, got -1."),
    ("--epochs 0", "Error: --epochs must be at least 1, got 0."),
    ("--seed -1", "Error: --seed must be at least 0, got -1."),
    ("--seed 1099511627776", "Error: --seed or --seeds must be below 2^31, got 1099511627776"),
    ("--held-out 0.99", "Error: --held-out must leave at least 2 of 4 clients to train, got 4 held out"),
    ("--held-out inf", "Error: --held-out must be a finite number, got inf"),
    ("--task ranking", "Error: --task must be one of 'classification', 'regression', 'counts', got 'ranking'."),
    ("--model tree", "Error: --model must be one of 'linear', 'mlp'"),
    ("--name a/b", "Error: --name must be printable and able to name a folder under runs/, got 'a/b'"),
    ("--score pinball_0", "Error: Score pinball_N needs a whole percent N from 1 to 99, got 'pinball_0'"),
    ("--score pinball_100", "Error: Score pinball_N needs a whole percent N from 1 to 99, got 'pinball_100'"),
    ("--features age,age", "Error: --features must name different columns, got 'age' more than once"),
    ("--drop age,age", "Error: --drop must name different columns, got 'age' more than once"),
    ("--set training.rounds=-3", "Error: training.rounds must be at least 0, got -3."),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED, ids=[options for options, _ in REFUSED])
def test_an_option_is_refused_by_its_own_name(idiolect, here, options, sentence):
    answer = idiolect(
        *("compare", "doses.csv", "--client", "site", "--target", "ill", "--out", "out"), *options.split()
    )
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.error
    assert not (here / "out").exists()


ROLES = [  # (options, a part of the sentence)
    ("--time ill", "The time column must have no other role, but 'ill' is also the target; name another one."),
    ("--time site", "The time column must have no other role, but 'site' is also the client; name another one."),
    ("--group ill", "The group column must have no other role, but 'ill' is also the target; name another one."),
    ("--group site", "The group column must have no other role, but 'site' is also the client; name another one."),
    ("--split-column site", "The split column must have no other role, but 'site' is also the client"),
    ("--group age --weight age", "The weight column must have no other role, but 'age' is also the group"),
    ("--categorical site", "Column 'site' already has another role, client; take it out of --categorical."),
]


@pytest.mark.parametrize(("options", "sentence"), ROLES, ids=[options for options, _ in ROLES])
def test_a_column_has_one_role(idiolect, here, options, sentence):
    answer = idiolect(
        *("compare", "doses.csv", "--client", "site", "--target", "ill", "--out", "out"), *options.split()
    )
    assert answer.code == 2
    assert sentence in answer.error
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("--l2 -1", "Error: --l2 must be at least 0, got -1."), ("--l2 0.1 --rounds -2", "every value of a dial, got -2")],
)
def test_dial_refuses_by_the_option_too(idiolect, here, options, sentence):
    answer = idiolect("dial", "doses.csv", "--client", "site", "--target", "ill", "--out", "out", *options.split())
    assert answer.code == 2
    assert sentence in answer.error
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("methods.ditto.epochs must be at least 0.", "--epochs must be at least 0."),
        ("methods.ditto.penalty must be at least 0.", "methods.ditto.penalty must be at least 0."),
        ("epochs must be at least 0.", "epochs must be at least 0."),
        ("There is no score 'x'.", "There is no score 'x'."),
        ("name", "name"),
    ],
)
def test_only_settings_that_have_an_option_are_renamed(sentence, expected):
    assert said_by_option(sentence) == expected


def test_a_setting_keeps_its_name_where_it_was_set_by_hand():
    assert said_by_option("training.rounds must be 1.", ["training.rounds = 3"]) == "training.rounds must be 1."
    assert said_by_option("training.rounds must be 1.", ["training.cohort = 3"]) == "--rounds must be 1."


DIALS = [  # (options, a part of the sentence, what it must not name)
    ("--values 0,1.5", "Error: --values must be at least 0 and at most 1, got 1.5.", "scafflix"),
    ("--l2 0 --task classification", "Error: --l2 must be above 0 here", "mu'"),
    ("--l2 -1", "Error: --l2 must be", "model.l2"),
]


@pytest.mark.parametrize(("options", "sentence", "unsaid"), DIALS, ids=[options for options, _, _ in DIALS])
def test_dial_refuses_by_what_was_typed(idiolect, here, options, sentence, unsaid):
    answer = idiolect("dial", "doses.csv", "--client", "site", "--target", "ill", "--out", "out", *options.split())
    assert (answer.code, answer.out) == (2, "")
    assert sentence in answer.error
    assert unsaid not in answer.error
    assert not (here / "out").exists()


@pytest.mark.parametrize("command", ["compare", "dial", "advise"])
def test_a_folder_is_no_table(idiolect, here, command):
    answer = idiolect(command, ".", "--client", "site", "--target", "ill", "--out", "out")
    assert answer.code == 2
    assert "is a folder, but a file is needed" in answer.error
    assert "--name" not in answer.error


def test_a_comparison_speaks_of_theory_only_when_asked(idiolect, here):
    request = (
        "compare",
        "doses.csv",
        "--client",
        "site",
        "--target",
        "ill",
        "--methods",
        "local,l2gd",
        "--rounds",
        "2",
    )
    plain, asked = idiolect(*request, "--out", "out"), idiolect(*request, "--out", "other", "--details")
    assert "averaging_probability" not in plain.err
    assert "averaging_probability" in asked.err
    notes = json.loads((here / "out" / "summary.json").read_text())["notes"]
    assert [note for note in notes if "averaging_probability" in note]
