# SPDX-License-Identifier: Apache-2.0
"""Theorem 4 of Scafflix 2023: communications grow like sqrt(kappa), where those of gradient descent grow like kappa.

f'_m(v) = (L_m/2) sum_j s_j (v_j - o_mj)^2 with s from 1 to 1/kappa: every client has the condition number kappa, and
since all share the eigenvectors, so has FLIX. Both methods run to the target, and the ledger counts.
"""

from __future__ import annotations

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect import ClientLoss, Federation, Location, PerClient
from idiolect.algorithms import Scafflix, find
from idiolect.core import Rows
from idiolect.data import Task
from idiolect.data.problem import federate
from idiolect.objectives import FLIX
from idiolect.theory import Constants, block_constants, client_constants, joint_problem, predict
from idiolect.theory.constants import shares_of
from idiolect.theory.scafflix import contraction, gap_over_psi
from papers import lanes
from papers.drawing import BLUE, INK, MUTED, VERMILION, blank, draw_band
from papers.lanes import Standing
from papers.reproduction import Measured, Progress, Spec
from papers.scafflix import communications_to, solver

RECORDS = 300  # of a run, at most
METHODS = {"gd": "flix_gd", "scafflix": "scafflix"}


class Family(NamedTuple):
    """The problem of one kappa, and where its optimum is."""

    objective: FLIX
    federation: Federation
    own: Constants
    weights: np.ndarray  # F - F* = sum_j weights_j (w_j - w*_j)^2
    best: np.ndarray  # w*

    def algorithm(self, name: str) -> Scafflix:
        """The named method with theory's parameters."""
        return solver(name, self.objective, self.own, clients=self.own.clients)

    def promise(self, name: str, target: float) -> float:
        """Communications to the relative gap `target` that theory promises: theorem 4, or (1 - mu/L)^k."""
        blocks = block_constants(self.objective, self.own)
        assert blocks is not None  # a quadratic
        promised = predict(find(name).theory, self.algorithm(name), self.own, blocks, 1.0, target)
        assert promised is not None  # exact gradients, steps within 1/L_m
        return promised.cost.rounds

    def bound(self, communications: np.ndarray) -> np.ndarray:
        """Theorem 4 on the relative gap, after as many iterations as have so many communications on average."""
        algorithm, clients = self.algorithm("scafflix"), self.own.clients
        chance = float(algorithm.communication_probability)
        assert isinstance(algorithm.local_step, PerClient)  # the L_m differ
        steps = np.asarray(algorithm.local_step.values)
        zeta = contraction(steps, self.own, shares_of(self.objective, clients), chance)
        start = gap_over_psi(self.objective, self.own, steps, chance)
        assert start is not None  # the optimum is known
        return start * (1 - zeta) ** (communications / chance)

    def measure(self, lane: int, where: Standing) -> dict[str, float]:
        """The relative gap, for the history; from x = 0, and without subtracting losses."""
        away = np.asarray(where.shared["location"], np.float64) - self.best
        return {"gap": float(self.weights @ away**2 / (self.weights @ self.best**2))}


def family(spec: Spec, kappa: float) -> Family:
    """Clients of different L_m and alpha_m and one condition number; a row is a root of a curvature and its target."""
    clients, features = len(spec["smoothness"]), spec["features"]
    curvature = np.array(spec["smoothness"])[:, None] * np.geomspace(1, 1 / kappa, features)
    own = np.random.default_rng(spec["problem_seed"]).normal(size=(clients, features))
    root = np.sqrt(curvature)
    rows = Rows(root, root * own, np.arange(clients + 1))
    loss = ClientLoss(model=Location(features), criterion="squared")
    # solved far enough that x*_m does not limit the gap
    alpha = PerClient(np.array(spec["alphas"]))
    objective = FLIX(loss, personalization=alpha, tolerance=1e-12, solver_steps=10**6)
    problem = joint_problem(objective, rows)
    best = None if problem is None else problem.optimum()
    constants = client_constants(loss, rows)
    assert best is not None  # a quadratic
    assert constants is not None
    federation = federate(rows, Task.regression(features), "")
    weights = (np.array(spec["alphas"])[:, None] ** 2 * curvature).mean(axis=0) / 2
    return Family(objective, federation, constants, weights, np.asarray(best.shared["location"]))


class Course(NamedTuple):
    """One method at one kappa."""

    communications: np.ndarray  # (records,), by the ledger: messages up per client
    gaps: np.ndarray  # (seeds, records), relative
    promised: float  # communications to the target

    def needed(self, target: float) -> float:
        """Mean over seeds."""
        return float(np.mean([communications_to(self.communications, gaps, target) for gaps in self.gaps]))


Results = dict[float, dict[str, Course]]  # kappa -> method


def measure(spec: Spec, progress: Progress) -> Measured:
    """Communications to the target of both methods, and how they grow with kappa."""
    results: Results = {}
    numbers: dict[str, float] = {}
    kappas, target = spec["kappas"], spec["target"]
    for done, kappa in enumerate(kappas, 1):
        problem = family(spec, kappa)
        courses = results[kappa] = {kind: _course(problem, name, spec) for kind, name in METHODS.items()}
        numbers |= {f"kappa_{kappa:g}_{kind}": course.needed(target) for kind, course in courses.items()}
        over = problem.bound(courses["scafflix"].communications) / courses["scafflix"].gaps.mean(axis=0)
        numbers[f"kappa_{kappa:g}_bound_over_gap"] = float(over.min())
        progress(f"kappa {kappa:g}", done, len(kappas))
    for kind in METHODS:
        counts = [results[kappa][kind].needed(target) for kappa in kappas]
        numbers[f"{kind}_exponent"] = float(np.polyfit(np.log(kappas), np.log(counts), 1)[0])
    return Measured(numbers, results)


def _course(problem: Family, name: str, spec: Spec) -> Course:
    promised = problem.promise(name, spec["target"])
    seeds = range(spec["seeds"] if name == "scafflix" else 1)  # p = 1 draws nothing
    rounds = int(np.ceil(promised))  # what theory promises is enough
    training = lanes.schedule(rounds, max(rounds // RECORDS, 1))
    curves = lanes.train([problem.algorithm(name)] * len(seeds), problem.federation, training, seeds, problem.measure)
    messages = curves.columns["messages_up"][0]  # a round is one for every lane
    return Course(messages / problem.own.clients, curves.columns["gap"], promised)


def draw(spec: Spec, results: Results) -> Figure:
    """Left: the course of the gap. Right: communications to the target against kappa."""
    figure = blank(10.4, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    _draw_courses(left, spec, results)
    _draw_growth(right, spec, results)
    return figure


def _draw_courses(axes: Axes, spec: Spec, results: Results) -> None:
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.8, len(results)))
    for (kappa, courses), shade in zip(results.items(), shades):
        ours, gd = courses["scafflix"], courses["gd"]
        axes.plot(gd.communications[1:], gd.gaps[0, 1:], color=shade, linestyle=(0, (4, 2)))
        draw_band(axes, ours.communications[1:], ours.gaps[:, 1:], geometric=True, color=shade)
        along = np.geomspace(1, ours.promised, 200)
        axes.plot(along, family(spec, kappa).bound(along), color=shade, linestyle=":", linewidth=1.2)
    axes.axhline(spec["target"], color=MUTED, linewidth=0.8)
    axes.set(xscale="log", yscale="log", ylim=(spec["target"] / 10, None))
    axes.set_title("Gap against communications")
    axes.set_xlabel("communications (messages up per client)")
    axes.set_ylabel(r"$(F - F^*)/(F_0 - F^*)$")
    looks = [{"color": shade} for shade in shades]
    looks += [{"color": INK, "linestyle": dash} for dash in ("-", (0, (4, 2)), ":")]
    words = [rf"$\kappa$ = {kappa:g}" for kappa in results] + ["Scafflix", "GD", "theorem 4's bound"]
    handles = [axes.plot([], [], **look)[0] for look in looks]
    axes.legend(handles, words, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=len(words), columnspacing=1.0)


def _draw_growth(axes: Axes, spec: Spec, results: Results) -> None:
    kappas, target = np.array(list(results)), spec["target"]
    for kind, color, marker, words in (("gd", VERMILION, "s", "GD"), ("scafflix", BLUE, "o", "Scafflix")):
        counts = np.array([courses[kind].needed(target) for courses in results.values()])
        slope = np.polyfit(np.log(kappas), np.log(counts), 1)[0]
        axes.plot(kappas, counts, color=color, marker=marker, label=rf"{words}: like $\kappa^{{{slope:.2f}}}$")
    promised = [courses["scafflix"].promised for courses in results.values()]
    axes.plot(kappas, promised, color=BLUE, linestyle=":", linewidth=1.2, label="theorem 4 promises Scafflix")
    axes.set(xscale="log", yscale="log")
    axes.set_title(f"Communications to a relative gap of {target:g}")
    axes.set_xlabel(r"condition number $\kappa$ of every client")
    axes.set_ylabel("communications")
    axes.legend(loc="upper left")
