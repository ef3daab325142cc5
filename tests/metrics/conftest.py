# SPDX-License-Identifier: Apache-2.0
"""What tests of gains have in common."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.metrics import paired_estimates, student_intervals
from idiolect.metrics.paired import within
from idiolect.metrics.summary import gains


@pytest.fixture(scope="session")
def client_gains():
    """Intervals of gains from what two models did on the same rows, (clients, rows); padding may hold anything."""

    def intervals(ours, theirs, mask, higher_is_better):
        ours, theirs = (np.where(mask, values, np.zeros((), np.asarray(values).dtype)) for values in (ours, theirs))
        bound = 1.0 if ours.dtype == bool else None  # a row is right or wrong
        found = student_intervals(paired_estimates(gains(ours, theirs, higher_is_better), mask, bound=bound))
        return found if bound is None else within(found, bound)

    return intervals
