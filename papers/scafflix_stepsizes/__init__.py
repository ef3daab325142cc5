# SPDX-License-Identifier: Apache-2.0
"""Figure 5 of Scafflix 2023: every client its own step gamma_m = 1/L_m, against one step 1/max L_m for all.

Both have p = 1/sqrt(max L_m/mu_m) and the same coins; methods, alpha and seeds of one split are lanes of one program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from idiolect import Algorithm
from idiolect.algorithms import Scafflix
from papers.drawing import BLUE, INK, VERMILION, blank, draw_band
from papers.reproduction import Measured, Progress, Spec
from papers.scafflix import (
    Problem,
    common_step,
    communications_to,
    constants_of,
    deal,
    flix,
    run,
    solver,
)

LOOKS: dict[str, dict[str, Any]] = {
    "individual": {"color": BLUE, "linestyle": "-"},
    "common": {"color": VERMILION, "linestyle": (0, (4, 2))},
}
BOUND: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.0}


class Course(NamedTuple):
    """One split."""

    rounds: np.ndarray  # (records,)
    gaps: np.ndarray  # (alphas, steps, seeds, records), relative; steps in the order of LOOKS
    bounds: np.ndarray  # (alphas, records): theorem 4's on the mean, relative, for individual steps
    spread: float  # max L_m/mean L_m: how much the clients differ


Results = dict[str, Course]  # by split


def measure(spec: Spec, progress: Progress) -> Measured:
    """Communications with a common step over those with individual ones, mean over seeds."""
    results: Results = {}
    numbers: dict[str, float] = {}
    for done, split in enumerate(spec["splits"], 1):
        course = results[split] = _course(split, spec)
        lanes = course.gaps.reshape(-1, len(course.rounds))
        needed = np.array([communications_to(course.rounds, lane, spec["target"]) for lane in lanes])
        individual, common = np.moveaxis(needed.reshape(course.gaps.shape[:-1]), 1, 0)
        numbers[f"{split}_bound_over_gap"] = float((course.bounds / course.gaps[:, 0].mean(axis=1)).min())
        for place, alpha in enumerate(spec["alphas"]):
            numbers[f"{split}_alpha_{alpha:g}_gain"] = float((common / individual)[place].mean())
        progress(split, done, len(spec["splits"]))
    return Measured(numbers, results)


def _course(split: str, spec: Spec) -> Course:
    federation = deal(spec["data_set"], split, spec)
    problem = Problem.of(federation.train, spec["l2"])
    own = constants_of(flix(federation, spec, 1.0), federation)
    lanes: list[Algorithm] = []
    seeds: list[int] = []
    alphas: list[float] = []
    plains: list[Scafflix] = []
    for alpha in spec["alphas"]:
        objective = flix(federation, spec, alpha, known=problem.known)
        plains.append(solver("scafflix", objective, own))
        for algorithm in (plains[-1], solver("scafflix", objective, own, local_step=common_step(own))):
            lanes += [algorithm] * spec["seeds"]
            seeds += range(spec["seeds"])
            alphas += [alpha] * spec["seeds"]
    traces = run(lanes, federation, rounds=spec["rounds"], every=spec["record_every"], seeds=seeds)
    gaps = np.array([problem.gaps(alpha, lane) for alpha, lane in zip(alphas, traces.shared)])
    shape = (len(spec["alphas"]), len(LOOKS), spec["seeds"], len(traces.rounds))
    relative = (gaps / gaps[:, :1]).reshape(shape)
    bounds = [problem.theorem_4(alpha, own, plain, traces.rounds) for alpha, plain in zip(spec["alphas"], plains)]
    starts = gaps[:, 0].reshape(shape[:-1])[:, 0, 0]  # of an alpha, all lanes start at the same point
    spread = own.smoothness / float(own.client_smoothness.mean())
    return Course(traces.rounds, relative, np.array(bounds) / starts[:, None], spread)


def draw(spec: Spec, results: Results) -> Figure:
    """A column per split, a row per alpha; bands hold all seeds."""
    figure = blank(2.5 * len(results) + 0.6, 1.9 * len(spec["alphas"]) + 0.8)
    grid = figure.subplots(len(spec["alphas"]), len(results), squeeze=False, sharex=True, sharey=True)
    for column, (split, course) in enumerate(results.items()):
        for row, alpha in enumerate(spec["alphas"]):
            axes = grid[row, column]
            for lines, look in zip(course.gaps[row], LOOKS.values()):
                draw_band(axes, course.rounds, lines, geometric=True, **look)
            axes.plot(course.rounds, course.bounds[row], **BOUND)
            axes.set_yscale("log")
            axes.tick_params(labelsize=7)
            grid[row, 0].set_ylabel(rf"$\alpha$ = {alpha:g}" + "\n" + r"$(F - F^*)/(F_0 - F^*)$")
        grid[0, column].set_title(f"{spec['data_set']}, {split}", fontsize=8.5)
        grid[-1, column].set_xlabel("communications", fontsize=8)
    handles = [grid[0, 0].plot([], [], **look)[0] for look in (*LOOKS.values(), BOUND)]
    labels = [r"individual $\gamma_m = 1/L_m$", r"common $\gamma = 1/\max L_m$", "theorem 4's bound, individual"]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, labelcolor=INK)
    return figure
