# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from idiolect.engines.stopping import has_converged, needs_no_more

ROUNDS = list(range(0, 105, 5))


def test_a_score_that_stands_still_has_converged():
    assert has_converged(ROUNDS, [-1.0] * len(ROUNDS))
    assert has_converged(ROUNDS, [-1 - 2.0**-place for place in range(len(ROUNDS))])


def test_a_score_that_falls_again_has_converged():
    scores = [-abs(place - 7) - 1.0 for place in range(len(ROUNDS))]
    assert has_converged(ROUNDS, scores)


def test_slow_progress_is_progress():
    # one part in a thousand per record: an impatient rule would call it standing still
    scores = (-np.exp(-0.001 * np.arange(len(ROUNDS)))).tolist()
    assert not has_converged(ROUNDS, scores)


def test_few_records_and_unknown_scores_tell_nothing():
    assert not has_converged(ROUNDS[:5], [-1.0] * 5)
    assert not has_converged(ROUNDS, [math.nan] * len(ROUNDS))


@pytest.mark.parametrize(
    ("scores", "enough"),
    [
        ([-1.0, -1.1, -1.2, -1.3], True),  # round 0
        ([-1.0, -0.5, -0.6, -0.7], True),
        ([-1.0, -0.5, math.nan, -math.inf], True),
        ([-1.0, -0.9, -0.8, -0.7], False),
        ([-1.0, -0.99999, -0.99998, -0.99997], False),  # slow, and too short to tell
        ([-1.0, -1.0, -1.0, -1.0], True),
        ([math.nan] * 4, False),
        ([-1.0], False),
        ([], False),
    ],
)
def test_a_best_round_long_before_the_last_needs_no_more_rounds(scores, enough):
    rounds = list(range(len(scores)))
    assert needs_no_more(rounds, scores) is enough
    assert not has_converged(rounds, scores)  # few rounds end no run


def test_what_has_converged_needs_no_more_rounds():
    assert needs_no_more(ROUNDS, [-1 - 2.0**-place for place in range(len(ROUNDS))])
    assert not needs_no_more(ROUNDS, (-np.exp(-0.001 * np.arange(len(ROUNDS)))).tolist())
