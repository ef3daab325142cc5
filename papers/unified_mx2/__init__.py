# SPDX-License-Identifier: Apache-2.0
"""Figure 1 of Unified 2023: every solver on the mixture objective MX2, synthetic clients."""

from __future__ import annotations

import dataclasses

import numpy as np

from idiolect import MX2
from papers.lanes import Standing
from papers.problems import problem_loss
from papers.reproduction import Measured, Progress, Spec
from papers.unified import set_up, solver
from papers.unified_problems import logistic_mixture
from papers.unified_synthetic import (
    Case,
    Runner,
    curvature,
    from_theory,
    measure_cases,
    optimum,
    paper_solvers,
)
from papers.unified_synthetic import check as check
from papers.unified_synthetic_figure import draw as draw

# section 5.1: ASVRCD gets as far as the others, the general solvers keep up with pFedMe, L2SGD+ is slightly faster
PAIRS = (("asvrcd", "ascd"), ("ascd", "pfedme_batch_5"), ("l2sgd_plus", "asvrcd"))


def measure(spec: Spec, progress: Progress) -> Measured:
    """The mixture objective: figure 1."""
    return measure_cases(spec, [mixture(spec, float(level)) for level in spec["heterogeneity"]], PAIRS, progress)


def mixture(spec: Spec, level: float) -> Case:
    """MX2 at one level of heterogeneity: the paper's five methods, as released where that differs, and ACD-PFL."""
    problem = logistic_mixture(level, dtype=np.float64)
    objective = MX2(problem_loss(problem), penalty=spec["penalty_times_heterogeneity"] / level)
    setup = set_up(objective, problem.federation, curvature(problem))
    # the released code forgets the square of |x| in Lc' = max |x|^2 / 4 (E002-12 v), and does not rescale LSGD's w
    norms = np.linalg.norm(problem.federation.train.inputs, axis=1)
    released = set_up(objective, problem.federation, curvature(problem), float(norms.max()) / 4)
    plain = set_up(dataclasses.replace(objective, rescale=False), problem.federation, curvature(problem))

    def error(where: Standing) -> float:
        return float(((np.asarray(where.personal["weights"]) - problem.truth) ** 2).sum())

    seeds = spec["seeds"]
    methods = paper_solvers(spec, setup)
    methods |= from_theory(released, seeds, ascd_released="ascd_pfl", asvrcd_released="asvrcd_pfl")
    step = methods["asvrcd"].algorithm
    borrowed = {"step_size": step.step_size, "averaging_probability": step.shared_probability}  # type: ignore[attr-defined]
    methods["lsgd_released"] = Runner("lsgd_pfl", solver("lsgd_pfl", plain, **spec["lsgd"]), plain, seeds)
    methods["l2sgd_plus"] = Runner("l2sgd_plus", solver("l2sgd_plus", setup, batch_size=1, **borrowed), setup, seeds)
    for rows in spec["pfedme_batches"]:
        algorithm = solver("pfedme", setup, batch_size=rows, **spec["pfedme"])
        methods[f"pfedme_batch_{rows}"] = Runner("pfedme", algorithm, setup, seeds)
    return Case(level, setup, optimum(setup), error, methods)
