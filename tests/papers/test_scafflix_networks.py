# SPDX-License-Identifier: Apache-2.0
"""scafflix-networks without its data: which methods it builds, how it compares and draws, what it expects."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.algorithms import LocalSGD, Scafflix
from idiolect.core.checks import RequestError
from idiolect.data.dataset_files import VARIABLE
from idiolect.data.federation import Federation
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.objectives import FLIX, GlobalModel
from papers import scafflix_networks as networks
from papers.catalogue import load_expected, load_spec
from papers.drawing import drawing, to_bytes
from papers.scafflix_networks import METHODS, Problem, Results, Trained
from papers.verdicts import compare

SLUG = "scafflix-networks"


@pytest.fixture(scope="module")
def subject():
    """Three writers of tiny images, at the quick size's settings but for the length."""
    draw = np.random.default_rng(0)
    images, labels = draw.random((24, 6, 6, 1)), np.arange(24) % 2
    federation = Federation.from_arrays(images, labels, np.arange(24) // 8, classes=("a", "b"))
    size = load_spec(SLUG)["quick"]["writers"] | {"rounds": 2, "cohort": 2, "record_every": 1, "solver_epochs": 1}
    loss = build_client_loss(ModelSpec(), federation, None)  # linear: compiled soon
    return Problem("writers", federation, loss, size, 0.5)


def trained(level, clients=6):
    spread = 0.01 * np.arange(clients)
    return Trained(np.array([0, 5]), np.full((2, 2), level), np.stack([level + spread, level - spread]))


def results():
    levels = dict(zip(METHODS, (0.7, 0.75, 0.72, 0.8)))
    table = {name: {short: trained(level) for short, level in levels.items()} for name in networks.DATA_SETS}
    ablations = {
        "alpha": {0.1: trained(0.7), 0.3: trained(0.8), 0.9: trained(0.6)},
        "p": {0.1: trained(0.8), 0.5: trained(0.7)},
        "cohort": {1: trained(0.5), 5: trained(0.6), 10: trained(0.7), 20: trained(0.8)},
    }
    return Results(table, dict.fromkeys(networks.DATA_SETS, 0.65), ablations)


def test_every_method_gets_the_same_work_and_its_objective(subject):
    built = {short: networks.method(subject, short, step=0.1) for short in METHODS}
    assert [type(built[short].objective) for short in METHODS] == [GlobalModel, FLIX, GlobalModel, FLIX]
    for short in ("fedavg", "flix"):
        assert isinstance(built[short], LocalSGD)
        assert built[short].local_steps == 2  # 1/p
    for short in ("scaffnew", "scafflix"):
        assert isinstance(built[short], Scafflix)
        assert built[short].communication_probability == 0.5
    assert built["scafflix"].objective.personalization == 0.5
    assert {one.batch_size for one in built.values()} == {20}


def test_lanes_are_seeds_within_settings(subject):
    lanes = [networks.method(subject, "scafflix", step=0.1, alpha=alpha) for alpha in (0.1, 0.9)]
    found = networks.train(subject, lanes, [0, 1])
    assert found.validation.shape == (4, 3)
    assert found.test.shape == (4, 3)
    assert np.isfinite(found.test).all()


def test_numbers_are_those_that_are_expected():
    made = results()
    numbers = networks._numbers(*made)
    expected = [one for one in load_expected(SLUG) if one.belongs_to({"size": "gpu"})]
    rows = compare(SLUG, expected, numbers)  # refuses a number too many or too few
    assert all(row.verdict == "holds" for row in rows)
    quick = [one for one in load_expected(SLUG) if one.belongs_to(load_spec(SLUG))]
    documented = {one.name for one in quick if one.outcome == "miss"}
    assert {row.name for row in compare(SLUG, quick, numbers) if row.verdict == "changed"} == documented
    assert numbers["best_alpha"] == 0.3
    assert numbers["writers_scafflix_minus_flix"] == pytest.approx(0.05)
    assert numbers["writers_scafflix_minus_flix_half_width"] == pytest.approx(0, abs=1e-12)  # paired by client
    assert numbers["large_cohorts_minus_small"] == pytest.approx(0.75 - 0.55)
    wrong = networks._numbers(made.table | {"writers": made.table["writers"] | {"flix": trained(0.1)}}, *made[1:])
    missed = [row.name for row in compare(SLUG, expected, wrong) if row.verdict == "changed"]
    assert missed == ["writers_flix_accuracy", "writers_flix_minus_fedavg"]


def test_the_figure_is_drawn_and_a_size_must_exist():
    with drawing(SLUG):
        assert to_bytes(networks.draw(load_spec(SLUG), results()), "svg").endswith(b"</svg>\n")
    with pytest.raises(RequestError, match=r"There is no size 'gpus'\. Did you mean 'gpu'"):
        networks.problem("writers", load_spec(SLUG, ["size = 'gpus'"]))


def test_absent_writers_are_refused_with_the_command_that_gets_them(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match="idiolect datasets fetch mnist_writers"):
        networks.check(load_spec(SLUG))
