# SPDX-License-Identifier: Apache-2.0
"""Runs on solved problems are measured against their solution."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.data.synthetic import quadratics
from idiolect.engines.evaluate import Standing
from idiolect.experiments.execute import execute
from idiolect.experiments.known_optimum import optimum_measure
from idiolect.experiments.spec import from_table
from idiolect.models import MLP, Linear
from idiolect.objectives import Additive, ClientLoss, GlobalModel


@pytest.fixture(scope="module")
def problem():
    return quadratics(4, 3, spectrum=(0.5, 1.0), seed=1, dtype=np.float64)


@pytest.mark.parametrize("objective", [GlobalModel, Additive])
def test_the_optimum_of_its_own_objective_measures_zero(objective, problem):
    loss = ClientLoss(model=Linear(3, 0, bias=False), criterion="squared")
    measure = optimum_measure(objective(loss), problem.federation.train)
    own = problem.optimum if objective is Additive else np.broadcast_to(problem.shared_optimum, (4, 3))
    at_optimum = measure(Standing((), (), {"weights": np.array(own)}))
    assert at_optimum["suboptimality"] == pytest.approx(0, abs=1e-12)
    assert at_optimum["distance_to_optimum"] == pytest.approx(0, abs=1e-20)
    # one step of length 2 along the first axis on every client: squared distance 4
    aside = measure(Standing((), (), {"weights": np.array(own) + np.array([2.0, 0.0, 0.0])}))
    assert aside["distance_to_optimum"] == pytest.approx(4.0)
    # F is a mean of quadratics with curvature at least 0.5: at least 0.5 * 4 / 2
    assert aside["suboptimality"] >= 1.0


def test_a_model_without_a_known_optimum_is_not_measured(problem):
    assert optimum_measure(GlobalModel(ClientLoss(model=MLP(3, 2))), problem.federation.train) is None


def test_a_run_on_a_solved_problem_records_its_distance(tmp_path):
    table = {
        "data": {"source": "quadratics", "settings": {"clients": 4, "dimension": 3}},
        "training": {"rounds": 40, "record_every": 20, "precision": "float64", "executor": "batched"},
        "methods": {
            name: {"step_size": "theory", "local_steps": 3} for name in ("local_sgd", "personalized_local_sgd")
        },
    }
    done = execute(from_table(table), tmp_path / "run")
    plain, personalized = done.summary.methods
    # PLSGD 2023: without personalization local steps stop short of the optimum, with it they reach it
    assert plain.suboptimality > 100 * personalized.suboptimality >= 0
    rows = done.trained[1].runs[0].history
    assert rows[-1]["suboptimality"] < 1e-3 * rows[0]["suboptimality"]
    assert rows[-1]["distance_to_optimum"] < 1e-2 * rows[0]["distance_to_optimum"]
