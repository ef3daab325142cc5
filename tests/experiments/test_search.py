# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from idiolect.core.checks import Range
from idiolect.experiments.search import Axis, Trial, best_of, grid, search


def bowl(best):
    """Scores that fall off on a logarithmic scale around `best`, one target per axis; every try costs its step."""

    def attempt(points):
        tried.append(len(points))
        return [(-1 - sum(math.log(point[n] / best[n]) ** 2 for n in point), point["step"]) for point in points]

    tried = []
    return attempt, tried


def test_a_best_point_inside_ends_the_search():
    attempt, tried = bowl({"step": 1.0})
    trials = search([Axis("step", (0.25, 1.0, 4.0))], attempt)
    assert best_of(trials).point == {"step": 1.0}
    assert tried == [3]


@pytest.mark.parametrize(("target", "found"), [(60.0, 64.0), (0.001, 0.00390625 / 4)])
def test_the_grid_widens_while_the_best_stands_at_its_edge(target, found):
    attempt, tried = bowl({"step": target})
    best = best_of(search([Axis("step", (0.25, 1.0, 4.0))], attempt))
    assert best.point["step"] == pytest.approx(found)
    assert tried == [3] * len(tried)  # the same program serves every widening


def test_two_axes_widen_on_the_side_of_the_best_point():
    attempt, _ = bowl({"step": 1.0, "pull": 900.0})
    trials = search([Axis("step", (0.5, 1.0, 2.0)), Axis("pull", (1.0, 10.0))], attempt)
    assert best_of(trials).point == {"step": 1.0, "pull": 1000.0}


def test_a_setting_is_never_tried_outside_its_range():
    attempt, _ = bowl({"step": 100.0})
    trials = search([Axis("step", (0.25, 0.5), Range(at_most=1))], attempt)
    assert max(trial.point["step"] for trial in trials) == 1.0


def test_a_search_in_which_everything_fails_goes_down_and_ends():
    trials = search([Axis("step", (1.0, 4.0))], lambda points: [(-math.inf, 0.0)] * len(points))
    assert min(trial.point["step"] for trial in trials) < 0.01
    assert len(trials) == 8


def test_of_equal_scores_the_cheapest_counts():
    trials = [Trial({"s": 1.0}, -1.0, 50), Trial({"s": 2.0}, -1.0005, 5), Trial({"s": 3.0}, -1.01, 1)]
    assert best_of(trials).point == {"s": 2.0}


def test_no_axis_is_one_point():
    assert grid([]) == [{}]


def test_an_axis_that_asks_for_it_is_looked_at_closer_around_the_best():
    attempt, tried = bowl({"step": 1.0, "pull": 14.0})
    axes = [Axis("step", (1.0,)), Axis("pull", (1.0, 8.0, 64.0), refines=True)]
    trials = search(axes, attempt)
    assert best_of(trials).point["pull"] == pytest.approx(16.0)  # a third of the way from 8 to 64
    assert tried == [3, 4]
    assert {trial.point["step"] for trial in trials} == {1.0}  # a single value was chosen elsewhere and does not widen


def test_closer_values_stay_in_range():
    attempt, _ = bowl({"step": 2.0})
    trials = search([Axis("step", (0.25, 0.5, 1.0), Range(at_most=1), refines=True)], attempt)
    assert max(trial.point["step"] for trial in trials) == 1.0


def test_a_single_value_that_fails_goes_down():
    trials = search([Axis("step", (4.0,))], lambda points: [(-math.inf, 0.0)] * len(points))
    assert [trial.point["step"] for trial in trials] == [4.0, 1.0, 0.25, 0.0625]
