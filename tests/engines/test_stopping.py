# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np

from idiolect.engines.stopping import has_converged

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
