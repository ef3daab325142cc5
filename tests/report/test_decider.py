# SPDX-License-Identifier: Apache-2.0
"""One client of few test rows must not carry a mean unnamed, whichever command shows the mean."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.report.decider import decider, difference
from idiolect.report.wording import score_words

WORDS = score_words("squared_error")
NAMES, GAINS, ROWS = list("abcde"), [-1.0, 1.0, -1.0, 1.0, 500.0], [20, 30, 25, 20, 1]


@pytest.mark.parametrize("interval", [(), (-80.0, 280.0)])
def test_the_client_is_named_with_the_mean_without_it(interval):
    said = decider(WORDS, "the gain", NAMES, GAINS, ROWS, interval)
    assert said == " Client e has 1 test row and decides the gain: without it 0."


@pytest.mark.parametrize(
    ("gains", "rows", "interval"),
    [
        (GAINS, [20, 30, 25, 20, 20], ()),  # it has as many rows as others
        (GAINS[1:], ROWS[1:], (None, None)),  # nothing is known of the mean
        (GAINS[2:], ROWS[2:], ()),  # of three clients none can be told from the others
        ([0.1, 0.2, 0.3, 0.2, 0.2], ROWS, ()),  # it is like the others
        ([0.0] * 5, ROWS, ()),  # all gain alike, as where each client chose the same
        ([0.1] * 5, ROWS, (0.1, 0.1)),
        (GAINS, ROWS, (-5000.0, 5000.0)),  # the mean is not known to that part
    ],
)
def test_no_client_is_named_where_none_decides(gains, rows, interval):
    assert decider(WORDS, "the gain", NAMES[-len(gains) :], gains, rows, interval) == ""


def test_a_missing_score_has_no_difference():
    assert difference(3.0, 1.0) == 2.0
    assert np.isnan(difference(None, 1.0))
    assert "decides" in decider(WORDS, "the gain", [*NAMES, "f"], [*GAINS, np.nan], [*ROWS, 50])
