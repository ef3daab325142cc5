# SPDX-License-Identifier: Apache-2.0
"""Figures 1 and 9 to 11 of Scafflix 2023: Scafflix against gradient descent on FLIX, three data sets, four splits.

All alpha of one data set and split are lanes of one compiled program, which both methods and all seeds share. The
alphas draw the same coins, so that they advance side by side and read the rows once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from idiolect import Federation
from idiolect.core import Rows
from papers.drawing import INK, blank, draw_band
from papers.reproduction import Measured, Progress, Spec
from papers.scafflix import (
    IN_ORDER,
    Problem,
    communications_to,
    constants_of,
    deal,
    flix,
    released_probability,
    run,
    solver,
)
from papers.scafflix import reduce as reduce

METHODS = {"gd": "flix_gd", "scafflix": "scafflix"}


class Course(NamedTuple):
    """One method on one data set and split."""

    rounds: np.ndarray  # (records,)
    gaps: np.ndarray  # (alphas, seeds, records): F(w) - F*
    gradients: np.ndarray  # the same: |grad F(w)|^2
    bounds: np.ndarray  # (alphas, records): theorem 4's, on the mean gap

    @property
    def relative(self) -> np.ndarray:
        """(F(w) - F*)/(F(w_0) - F*)."""
        return self.gaps / self.gaps[..., :1]

    def communications(self, target: float) -> np.ndarray:
        """(alphas, seeds): how many until the relative gap is below target; nan where it never is."""
        reached = [[communications_to(self.rounds, seed, target) for seed in alpha] for alpha in self.relative]
        return np.array(reached)


Results = dict[tuple[str, str], dict[str, Course]]  # (data set, split) -> method


def measure(spec: Spec, progress: Progress) -> Measured:
    """How many communications both methods need, how alpha orders the gaps, and the released script's p."""
    results: Results = {}
    numbers: dict[str, float] = {}
    total = len(spec["data_sets"]) * (len(spec["splits"]) + 1)
    for place, data_set in enumerate(spec["data_sets"]):
        rows = deal(data_set, IN_ORDER, spec).train
        numbers[f"{data_set}_released_p"] = released_probability(rows, spec["l2"])
        progress(f"{data_set} {IN_ORDER}", place * (len(spec["splits"]) + 1) + 1, total)
        for number, split in enumerate(spec["splits"]):
            federation = deal(data_set, split, spec)
            problem = Problem.of(federation.train, spec["l2"])
            courses = results[data_set, split] = _courses(data_set, federation, problem, spec)
            # not a stored number: k-means deals rows out otherwise on another processor
            beside = problem.value(1.0) - solve_by_scikit_learn(federation.train, spec["l2"])
            numbers[f"{data_set}_{split}_optimum_minus_scikit_learn"] = beside
            numbers |= {f"{data_set}_{split}_{name}": value for name, value in _numbers(courses, spec).items()}
            progress(f"{data_set} {split}", place * (len(spec["splits"]) + 1) + number + 2, total)
    return Measured(numbers, results)


def _courses(data_set: str, federation: Federation, problem: Problem, spec: Spec) -> dict[str, Course]:
    """Both methods."""
    alphas = spec["alphas"]
    own = constants_of(flix(federation, spec, 1.0), federation)
    courses = {}
    for kind, name in METHODS.items():
        lanes = [solver(name, flix(federation, spec, alpha, known=problem.known), own) for alpha in alphas]
        gaps, gradients = [], []
        for seed in range(spec["seeds"] if kind == "scafflix" else 1):  # p = 1 draws nothing
            schedule = {"rounds": spec[f"{kind}_rounds"][data_set], "every": spec["record_every"]}
            traces = run(lanes, federation, **schedule, seeds=[seed] * len(lanes))
            gaps.append([problem.gaps(alpha, lane) for alpha, lane in zip(alphas, traces.shared)])
            gradients.append([problem.squared_gradients(alpha, lane) for alpha, lane in zip(alphas, traces.shared)])
        bounds = np.array([problem.theorem_4(alpha, own, lane, traces.rounds) for alpha, lane in zip(alphas, lanes)])
        courses[kind] = Course(traces.rounds, np.swapaxes(gaps, 0, 1), np.swapaxes(gradients, 0, 1), bounds)
    return courses


def solve_by_scikit_learn(rows: Rows, l2: float) -> float:
    """F* of one model for all by another program; a row of client m weighs 1/(M n_m)."""
    weights = np.repeat(1 / (rows.clients * rows.counts), rows.counts)
    columns = np.concatenate([np.asarray(rows.inputs, np.float64), np.ones((len(rows.inputs), 1))], axis=1)
    settings = {"C": 1 / l2, "solver": "newton-cholesky", "tol": 1e-14, "max_iter": 200, "fit_intercept": False}
    found = LogisticRegression(**settings).fit(columns, rows.targets, sample_weight=weights).coef_[0]
    margins = (2.0 * np.asarray(rows.targets) - 1) * (columns @ found)
    return float(weights @ np.logaddexp(0, -margins) + l2 / 2 * found @ found)


def _numbers(courses: dict[str, Course], spec: Spec) -> dict[str, float]:
    """The worst of all alpha and seeds."""
    gd, scafflix = courses["gd"], courses["scafflix"]
    needed, ours = gd.communications(spec["target"]), scafflix.communications(spec["target"])
    return {
        "scafflix_communications": float(ours.mean(axis=1).max()),
        "least_gain": float((needed / ours).min()),  # not a number where a method has not got there
        "bound_over_gap": float((scafflix.bounds / scafflix.gaps.mean(axis=1)).min()),
        "alphas_out_of_order": float(_out_of_order(gd.gaps) + _out_of_order(scafflix.gaps)),
    }


def _out_of_order(gaps: np.ndarray) -> int:
    """At how many records, seeds and neighbouring alpha (falling) the smaller alpha is not ahead."""
    return int((gaps[1:] >= gaps[:-1]).sum())


DASHES: dict[str, Any] = {"scafflix": "-", "gd": (0, (4, 2)), "bound": ":"}


def draw(spec: Spec, results: Results) -> Figure:
    """A column per split; for every data set a row of gaps, with theorem 4's bound, and a row of squared gradients."""
    sets, splits = spec["data_sets"], spec["splits"]
    figure = blank(2.7 * len(splits) + 0.6, 2 * 2.0 * len(sets) + 0.9)
    grid = figure.subplots(2 * len(sets), len(splits), squeeze=False, sharex="row", sharey="row")
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(spec["alphas"])))
    for place, data_set in enumerate(sets):
        for column, split in enumerate(splits):
            upper, lower = grid[2 * place, column], grid[2 * place + 1, column]
            for method, course in results[data_set, split].items():
                _draw_lines(upper, course.rounds, course.gaps, shades, DASHES[method])
                _draw_lines(lower, course.rounds, course.gradients, shades, DASHES[method])
            ours = results[data_set, split]["scafflix"]
            along, bound = np.array([0, 2 * ours.rounds[-1]]), ours.bounds[0]
            # a straight line on this scale; those of the other alpha run below it
            upper.plot(along, [bound[0], bound[-1] ** 2 / bound[0]], color=shades[0], linestyle=DASHES["bound"])
            for axes, bottom in ((upper, 1e-18), (lower, 1e-24)):  # GD goes on to the right
                axes.set(xlim=along, ylim=(bottom, None))
            upper.set_title(f"{data_set}, {split}", fontsize=8.5)
            lower.set_xlabel("communications", fontsize=8)
        grid[2 * place, 0].set_ylabel(r"$F(x) - F^*$")
        grid[2 * place + 1, 0].set_ylabel(r"$|\nabla F(x)|^2$")
    looks = [{"color": shade} for shade in shades]
    looks += [{"color": INK, "linestyle": dash} for dash in DASHES.values()]
    handles = [grid[0, 0].plot([], [], **look)[0] for look in looks]
    labels = [rf"$\alpha$ = {alpha:g}" for alpha in spec["alphas"]]
    labels += ["Scafflix", "GD", rf"theorem 4's bound, $\alpha$ = {spec['alphas'][0]:g}"]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), labelcolor=INK)
    return figure


def _draw_lines(axes: Axes, rounds: np.ndarray, values: np.ndarray, shades: np.ndarray, dash: object) -> None:
    for own, shade in zip(values, shades):
        draw_band(axes, rounds, own, geometric=True, floor=1e-300, color=shade, linestyle=dash, linewidth=1.2)
    axes.set_yscale("log")
    axes.tick_params(labelsize=7)
