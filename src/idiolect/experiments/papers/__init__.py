# SPDX-License-Identifier: Apache-2.0
"""Published results that one command each reproduces; one line per slug, whose folder holds its numbers."""

from __future__ import annotations

from idiolect.experiments.papers import (
    collaborate_bernoulli,
    plsgd_consensus,
    plsgd_rates,
    plsgd_trajectory,
    unified_images,
    unified_relaxation,
    unified_reparametrisation,
    unified_sampling,
    unified_synthetic,
    unified_synthetic_figure,
)
from idiolect.experiments.papers.reproduction import Measured, Reproduction

_PLSGD = "000: Personalization mitigates the perils of Local SGD for heterogeneous distributed learning"
_ALL_FOR_ALL = "004: Sample optimality and all-for-all strategies in personalized federated and collaborative learning"
_UNIFIED = "002: Personalized federated learning: a unified framework and universal optimization techniques"

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
    "unified-mx2": Reproduction(
        "Solvers of the mixture objective",
        _UNIFIED,
        "figure 1, table 4",
        unified_synthetic.measure_mx2,
        unified_synthetic_figure.draw,
    ),
    "unified-ws2": Reproduction(
        "Solvers of explicit weight sharing",
        _UNIFIED,
        "figure 2, table 5",
        unified_synthetic.measure_ws2,
        unified_synthetic_figure.draw,
    ),
    "unified-images": Reproduction(
        "Three solvers on three objectives and three image sets",
        _UNIFIED,
        "figures 3, 4 and 5",
        unified_images.measure,
        unified_images.draw,
    ),
    "unified-sampling": Reproduction(
        "How often to communicate: the p_w of theory and others",
        _UNIFIED,
        "figure 6",
        unified_sampling.measure,
        unified_sampling.draw,
    ),
    "unified-reparametrisation": Reproduction(
        "What rescaling the shared block brings",
        _UNIFIED,
        "figure 7",
        unified_reparametrisation.measure,
        unified_reparametrisation.draw,
    ),
    "unified-relaxation": Reproduction(
        "More or less weight on the shared model's own loss",
        _UNIFIED,
        "figure 8",
        unified_relaxation.measure,
        unified_relaxation.draw,
    ),
    "collaborate-bernoulli": Reproduction(
        "Mean estimation with estimated discrepancies",
        _ALL_FOR_ALL,
        "beyond figure 1: the paper's open question",
        collaborate_bernoulli.measure,
        collaborate_bernoulli.draw,
    ),
}

__all__ = ["REPRODUCTIONS", "Measured", "Reproduction"]
