# SPDX-License-Identifier: Apache-2.0
"""Who is helped and who is hurt, with the number of false calls over many clients under control."""

from __future__ import annotations

import numpy as np

from idiolect.metrics.paired import Estimates, Intervals, two_sided
from idiolect.metrics.shrinkage import expected_gains, moderated

VERDICTS = ("helped", "hurt", "unclear", "same")
FALSE_CALLS = 0.05  # of the clients that are called, at most this fraction wrongly


def false_discovery(p_values: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg (1995): which p-values are significant, at most FALSE_CALLS of them falsely on average.

    Not-a-number is no test and never significant.
    """
    known = ~np.isnan(p_values)
    ordered = np.sort(p_values[known])
    below = np.flatnonzero(ordered <= FALSE_CALLS * np.arange(1, ordered.size + 1) / max(ordered.size, 1))
    limit = ordered[below[-1]] if below.size else -1.0
    return known & (np.where(known, p_values, np.inf) <= limit)


def judge(found: Estimates) -> tuple[Intervals, np.ndarray]:
    """The gain that each client can expect, and its verdict; '' for a client without a gain.

    helped, hurt: its p-value passes `false_discovery` among the method's clients and the interval of its expected gain
    excludes 0 on the same side. same: the gain is exactly 0. unclear: all others. P-values and expected gains use
    `moderated` errors.
    """
    steady = moderated(found)
    expected = expected_gains(steady)
    called = false_discovery(two_sided(steady))
    with np.errstate(invalid="ignore"):
        helped = called & (expected.low > 0) & (found.value > 0)
        hurt = called & (expected.high < 0) & (found.value < 0)
    words = np.where(helped, "helped", np.where(hurt, "hurt", np.where(found.value == 0, "same", "unclear")))
    return expected, np.where(np.isnan(found.value), "", words)
