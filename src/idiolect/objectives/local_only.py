# SPDX-License-Identifier: Apache-2.0
"""A model for each: f_m(beta_m) = f'_m(beta_m)."""

from __future__ import annotations

from idiolect.core import settings
from idiolect.core.types import Params
from idiolect.objectives.composed import ComposedObjective


@settings
class LocalOnly(ComposedObjective):
    """The fully personal objective: no shared block."""

    has_shared = False
    has_personal = True
    carries_statistics = True  # one model, one pass

    def deployed(self, shared: Params, personal: Params) -> Params:
        """beta_m."""
        return personal
