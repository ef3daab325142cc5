# SPDX-License-Identifier: Apache-2.0
"""Published results that one command each reproduces; one line per slug, whose folder holds its numbers."""

from __future__ import annotations

from idiolect.experiments.papers import plsgd_consensus, plsgd_rates, plsgd_trajectory
from idiolect.experiments.papers.reproduction import Measured, Reproduction

_PLSGD = "000: Personalization mitigates the perils of Local SGD for heterogeneous distributed learning"

REPRODUCTIONS: dict[str, Reproduction] = {
    "plsgd-consensus": Reproduction(
        "Consensus error vanishes with personalization",
        _PLSGD,
        "figure 2, proposition 1",
        plsgd_consensus.measure,
        plsgd_consensus.draw,
    ),
    "plsgd-trajectory": Reproduction(
        "Trajectories of local GD with and without personalization",
        _PLSGD,
        "figure 1(b)",
        plsgd_trajectory.measure,
        plsgd_trajectory.draw,
    ),
    "plsgd-rates": Reproduction(
        "The rate of personalized local SGD", _PLSGD, "theorem 1", plsgd_rates.measure, plsgd_rates.draw
    ),
}

__all__ = ["REPRODUCTIONS", "Measured", "Reproduction"]
