# SPDX-License-Identifier: Apache-2.0
"""Figures 4, 12 and 13 of Scafflix 2023: what inexact local optima cost, and what they save.

Every client solves for x*_m to a gradient norm (lanes of one program), or takes a fixed number of gradient steps from
0 (a program per number). Scafflix then runs with what came out. What counts is how far the personal models end from
those of FLIX with exact x*_m; `local gradients` are those of the solve, per client, from the ledger.
"""

from __future__ import annotations

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from papers.drawing import BLUE, INK, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec
from papers.scafflix import Problem, Traces, constants_of, deal, flix, run, solver


class Course(NamedTuple):
    """One alpha: for every accuracy of the local solve, from rough to exact."""

    rounds: np.ndarray
    distances: np.ndarray  # (accuracies, records): mean_m |xt_m - xt*_m|^2
    gradients: np.ndarray  # (accuracies,): full gradients of the solve, mean over clients


Results = dict[tuple[float, str], Course]  # (alpha, "tolerance" or "steps")


def measure(spec: Spec, progress: Progress) -> Measured:
    """Where models end, and how many local gradients that took."""
    federation = deal(spec["data_set"], spec["split"], spec)
    problem = Problem.of(federation.train, spec["l2"])
    own = constants_of(flix(federation, spec, 1.0), federation)
    schedule = {"rounds": spec["rounds"], "every": spec["record_every"]}
    results: Results = {}
    total = 2 * len(spec["alphas"])
    for place, alpha in enumerate(spec["alphas"]):
        lanes = [solver("scafflix", flix(federation, spec, alpha, tolerance=t), own) for t in spec["tolerances"]]
        traces = run(lanes, federation, **schedule, seeds=[spec["seed"]] * len(lanes))
        results[alpha, "tolerance"] = _course(problem, alpha, [traces], spec)
        progress(f"alpha {alpha:g} tolerances", 2 * place + 1, total)
        fixed = []
        for steps in spec["steps"]:
            solve = {"solver": "epochs", "solver_epochs": steps, "solver_batch_size": 0}
            objective = flix(federation, spec, alpha, **solve, solver_step_size=1 / own.smoothness)
            fixed.append(run([solver("scafflix", objective, own)], federation, **schedule, seeds=[spec["seed"]]))
        results[alpha, "steps"] = _course(problem, alpha, fixed, spec)
        progress(f"alpha {alpha:g} steps", 2 * place + 2, total)
    numbers: dict[str, float] = {}
    for (alpha, kind), course in results.items():
        numbers |= {f"alpha_{alpha:g}_{kind}_{name}": value for name, value in _numbers(course).items()}
    for place in (0, -1):  # what the local solves cost, whatever alpha is
        name = f"{spec['tolerances'][place]:.0e}_gradients"
        numbers[name] = float(results[spec["alphas"][0], "tolerance"].gradients[place])
    many = deal(spec["data_set"], spec["split"], {**spec, "clients": spec["price_clients"]})
    steps = 1 / constants_of(flix(many, spec, 1.0), many).client_smoothness
    for start in (0, 100):
        numbers[f"price_from_{start}"] = _price_of_accuracy(Problem.of(many.train, spec["l2"]), steps, start)
    return Measured(numbers, results)


def _price_of_accuracy(problem: Problem, steps: np.ndarray, start: float) -> float:
    """Gradients of plain descent to a gradient norm of 1e-6, over those to 1e-1; all clients together."""
    rough, fine = 0, 0
    for client, step in enumerate(steps):
        point = np.full_like(problem.own[client], start)
        while (norm := np.linalg.norm(gradient := problem.gradient(client, point))) > 1e-6:
            rough, fine = rough + int(norm > 1e-1), fine + 1
            point = point - step * gradient
    return fine / rough


def _course(problem: Problem, alpha: float, traces: list[Traces], spec: Spec) -> Course:
    distances = np.concatenate([problem.distances(alpha, trace.models) for trace in traces])
    counts = np.concatenate([trace.columns["full_gradients_personal"][:, 0] for trace in traces])
    return Course(traces[0].rounds, distances, counts / spec["clients"])


def _numbers(course: Course) -> dict[str, float]:
    ends = course.distances[:, -1]
    return {"least_improvement": float((ends[:-1] / ends[1:]).min()), "roughest_end": float(ends[0])}


def draw(spec: Spec, results: Results) -> Figure:
    """Per alpha: the course for every tolerance, for every number of steps, and where each ends against its price."""
    figure = blank(9.4, 2.3 * len(spec["alphas"]) + 0.4)
    grid = figure.subplots(len(spec["alphas"]), 3, squeeze=False)
    for line, alpha in zip(grid, spec["alphas"]):
        kinds = {"tolerance": (spec["tolerances"], BLUE, "o"), "steps": (spec["steps"], VERMILION, "s")}
        for axes, (kind, (names, color, marker)) in zip(line, kinds.items()):
            course = results[alpha, kind]
            shades = mpl.colormaps["viridis"](np.linspace(0.85, 0.0, len(names)))
            for name, values, shade in zip(names, course.distances, shades):
                axes.plot(course.rounds, values, color=shade, label=f"{name:g}", linewidth=1.2)
            axes.set_yscale("log")
            axes.set_xlabel("communications", fontsize=8)
            axes.legend(title=kind, fontsize=6.5, title_fontsize=7, loc="lower left", labelcolor=INK)
            ends = course.distances[:, -1]
            line[2].plot(course.gradients, ends, color=color, marker=marker, markersize=3.5, label=f"by {kind}")
        line[0].set_ylabel(rf"$\alpha$ = {alpha:g}" + "\n" + r"mean $|\tilde{x}_m - \tilde{x}^*_m|^2$")
        line[2].set(xscale="log", yscale="log")
        line[2].set_xlabel("gradients of the local solve, per client", fontsize=8)
        line[2].legend(fontsize=7, labelcolor=INK)
        for axes in line:
            axes.tick_params(labelsize=7)
    for axes, title in zip(
        grid[0], ("solved to a gradient norm", "a number of local steps", "where it ends, and its price")
    ):
        axes.set_title(title, fontsize=8.5)
    return figure
