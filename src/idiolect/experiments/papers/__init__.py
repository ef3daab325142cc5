# SPDX-License-Identifier: Apache-2.0
"""Published results that one command each reproduces; one line per slug, whose folder holds its numbers."""

from __future__ import annotations

from idiolect.experiments.papers import (
    afa_bernoulli,
    afa_continuum,
    afa_star,
    collaborate_bernoulli,
    flow_ablations,
    flow_tables,
    plsgd_consensus,
    plsgd_rates,
    plsgd_trajectory,
    scafflix_condition,
    scafflix_exact,
    scafflix_inexact,
    scafflix_logistic,
    scafflix_networks,
    scafflix_stepsizes,
    unified_images,
    unified_relaxation,
    unified_reparametrisation,
    unified_sampling,
    unified_synthetic,
    unified_synthetic_figure,
)
from idiolect.experiments.papers.reproduction import Measured, Reproduction

_PLSGD = "000: Personalization mitigates the perils of Local SGD for heterogeneous distributed learning"
_SCAFFLIX = "001: Explicit personalization and local training: double communication acceleration in federated learning"
_UNIFIED = "002: Personalized federated learning: a unified framework and universal optimization techniques"
_FLOW = "003: Flow: per-instance personalized federated learning"
_AFA = "004: Sample optimality and all-for-all strategies in personalized federated and collaborative learning"

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
    "scafflix-logistic": Reproduction(
        "Scafflix against gradient descent on FLIX",
        _SCAFFLIX,
        "figures 1, 9, 10 and 11",
        scafflix_logistic.measure,
        scafflix_logistic.draw,
    ),
    "scafflix-stepsizes": Reproduction(
        "Individual steps against a common one",
        _SCAFFLIX,
        "figure 5",
        scafflix_stepsizes.measure,
        scafflix_stepsizes.draw,
    ),
    "scafflix-inexact": Reproduction(
        "Inexact local optima",
        _SCAFFLIX,
        "figures 4, 12 and 13",
        scafflix_inexact.measure,
        scafflix_inexact.draw,
    ),
    "scafflix-condition": Reproduction(
        "Communications grow like the root of the condition number",
        _SCAFFLIX,
        "theorem 4",
        scafflix_condition.measure,
        scafflix_condition.draw,
    ),
    "scafflix-exact": Reproduction(
        "Scafflix ends at the exact personalized optimum",
        _SCAFFLIX,
        "theorem 4",
        scafflix_exact.measure,
        scafflix_exact.draw,
    ),
    "scafflix-networks": Reproduction(
        "FedAvg, FLIX, Scaffnew and Scafflix with networks",
        _SCAFFLIX,
        "figures 2 and 3, table 1",
        scafflix_networks.measure,
        scafflix_networks.draw,
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
    "flow-table2": Reproduction(
        "Flow and ten baselines: accuracy of shared and personal models",
        _FLOW,
        "tables 2, 5 and 6",
        flow_tables.measure_accuracy,
        flow_tables.draw_accuracy,
        flow_tables.check,
        in_cells=True,
    ),
    "flow-table3": Reproduction(
        "Flow and ten baselines: who is better off with a personal model",
        _FLOW,
        "tables 3 and 7, figures 2 and 10",
        flow_tables.measure_helped,
        flow_tables.draw_helped,
        flow_tables.check,
        in_cells=True,
    ),
    "flow-ablations": Reproduction(
        "Flow without its parts, in other orders, with other splits",
        _FLOW,
        "figures 3, 4, 7 and 8, table 8, appendix D",
        flow_ablations.measure,
        flow_ablations.draw,
        flow_ablations.check,
        in_cells=True,
    ),
    "afa-bernoulli": Reproduction(
        "All-for-all on means of Bernoulli draws",
        _AFA,
        "figure 1(a)",
        afa_bernoulli.measure,
        afa_bernoulli.draw,
    ),
    "afa-noise": Reproduction(
        "All-for-all with noise in the discrepancies",
        _AFA,
        "figure 1(b)",
        afa_bernoulli.measure_noise,
        afa_bernoulli.draw_noise,
    ),
    "afa-continuum": Reproduction(
        "Infinitely many agents: how samples grow with accuracy",
        _AFA,
        "appendix A.4, proposition 2",
        afa_continuum.measure,
        afa_continuum.draw,
    ),
    "afa-star": Reproduction(
        "The printed step diverges on a star, the corrected one does not",
        _AFA,
        "theorem 3.b, erratum E004-4",
        afa_star.measure,
        afa_star.draw,
    ),
    "collaborate-bernoulli": Reproduction(
        "Mean estimation with estimated discrepancies",
        _AFA,
        "beyond figure 1: the paper's open question",
        collaborate_bernoulli.measure,
        collaborate_bernoulli.draw,
    ),
}

__all__ = ["REPRODUCTIONS", "Measured", "Reproduction"]
