# SPDX-License-Identifier: Apache-2.0
"""Appendix A.4 of All-for-all 2022: agents drawn from a density on [0, 1]^p, b(theta, theta') = |theta - theta'|^q.

Three parts: the exponent -2 - p/q of proposition 2 from counted neighbourhoods; the asynchronous method given exactly
that many samples; and the samples that the synchronous method takes on mean estimation, whose exponent is -1 - p/q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy.spatial import cKDTree

from idiolect.theory import all_for_all as theory
from papers import afa
from papers.afa_problems import bernoulli_means, means_at
from papers.drawing import BLUE, GREEN, MUTED, PURPLE, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec, count_parts

COLOURS = (BLUE, VERMILION, GREEN, PURPLE)


class Line(NamedTuple):
    """Samples against accuracies, and the exponent of proposition 2 or theorem 4."""

    label: str
    accuracy: np.ndarray
    samples: np.ndarray
    exponent: float


class Curves(NamedTuple):
    """What the figure shows."""

    counted: list[Line]
    measured: list[Line]
    promised: list[tuple[float, float]]  # (accuracy, what was reached with the promised samples)


def measure(spec: Spec, progress: Progress) -> Measured:
    """All three parts."""
    cases = spec["counted"]["cases"]
    done = count_parts(progress, len(cases) + 1 + len(spec["measured"]["cases"]), "appendix A.4")
    numbers, counted = _counted(spec["counted"], done)
    reached, promised = _promised(spec["promised"])
    done()
    fitted, measured = _measured(spec["measured"], done)
    return Measured(numbers | reached | fitted, Curves(counted, measured, promised))


def _density(seed: int, agents: int, dimension: int) -> np.ndarray:
    """Independent coordinates with density 1/2 + theta on [0, 1]: continuous, positive, not constant."""
    uniform = np.random.default_rng(seed).random((agents, dimension))
    return (np.sqrt(1 + 8 * uniform) - 1) / 2


def _slope(accuracy: np.ndarray, samples: np.ndarray) -> float:
    return float(np.polyfit(np.log(accuracy), np.log(samples), 1)[0])


def _counted(spec: Any, done: Callable[[], None]) -> tuple[dict[str, float], list[Line]]:
    """T = (4 D^2 B^2/eps^2) sum_i 1/N_i over accuracies with the same radii in every case."""
    numbers, lines = {}, []
    for dimension, power in spec["cases"]:
        tree = cKDTree(places := _density(spec["seed"], spec["agents"], dimension))
        least, most = spec["radii"][str(dimension)]
        radii = np.geomspace(least, most, spec["points"])
        accuracy = 2 * radii**power  # b <= eps/2 within these radii
        samples = np.array(
            [
                theory.asynchronous_samples(
                    eps, 1.0, 1.0, float((1 / tree.query_ball_point(places, radius, return_length=True)).sum())
                )
                for eps, radius in zip(accuracy, radii)
            ]
        )
        exponent = -2 - dimension / power
        numbers[f"counted_exponent_p{dimension}_q{power}"] = _slope(accuracy, samples)
        lines.append(Line(f"p = {dimension}, q = {power}: {exponent:g}", accuracy, samples, exponent))
        done()
    return numbers, lines


def _promised(spec: Any) -> tuple[dict[str, float], list[tuple[float, float]]]:
    """Theorem 4.1 on Bernoulli means: T samples, one agent at a time, must give a mean error of eps."""
    problem = bernoulli_means(spec["agents"], spec["rows"], spec["seed"], dtype=np.float64)
    truth = afa.true_means(problem)
    known, shown = afa.all_known(afa.squared_distances(truth)), []
    for eps in spec["accuracy"]:
        number = theory.neighbourhood_counts(known, eps)
        shares = float((1 / number).sum())
        rounds = math.ceil(theory.asynchronous_samples(eps, spec["radius"], spec["second_moment"], shares))
        step = theory.asynchronous_step(eps, spec["second_moment"], spec["agents"], shares)
        algorithm = afa.all_for_all(problem, theory.neighbours_within(known, eps), step, batch_size=1)
        # the mean of F over the rounds, one agent in each, read at equal distances; F^0 counts too
        length = max(rounds // spec["stops"], 1)
        at = range(0, rounds // length * length, length)
        models = afa.walk([algorithm], problem, at, spec["start"], seed=spec["seed"], cohort=1)
        shown.append((eps, float(afa.excess(models, truth).mean())))
    worst = max(reached / eps for eps, reached in shown)
    return {"promised_error_over_accuracy": worst}, shown


def _measured(spec: Any, done: Callable[[], None]) -> tuple[dict[str, float], list[Line]]:
    """Samples until F <= eps on mean estimation with theory's step, all agents at once, without the logarithm."""
    numbers, lines = {}, []
    for case in spec["cases"]:
        dimension, accuracy = case["dimension"], np.array(case["accuracy"])
        samples = np.array([_samples(spec, case, draw) for draw in range(spec["draws"])]).mean(axis=0)
        exponent = -1 - dimension / 2
        numbers[f"measured_exponent_p{dimension}_q2"] = _slope(accuracy, samples)
        lines.append(Line(f"p = {dimension}, q = 2: {exponent:g}", accuracy, samples, exponent))
        done()
    return numbers, lines


def _samples(spec: Any, case: Any, draw: int) -> list[float]:
    """T/ln(2 F^0/eps) for every accuracy, from one draw of agents and samples; every accuracy is a lane."""
    places = _density(spec["seed"] + draw, spec["agents"], case["dimension"])
    known = afa.all_known(afa.squared_distances(places))
    start = float(afa.excess(np.full_like(places, spec["start"]), places))
    constants = {"smoothness": 1.0, "strong_convexity": 1.0, "noise": spec["noise"] ** 2, "agents": spec["agents"]}
    matrices, steps = [], []
    for eps in case["accuracy"]:
        neighbours = theory.neighbours_within(known, eps)
        shares = float((1 / theory.neighbourhood_counts(known, eps)).sum())
        radius = theory.spectral_radius(neighbours)
        steps.append(theory.synchronous_step(eps, shares=shares, spectral_radius=radius, **constants))
        matrices.append(neighbours)
    horizon = math.ceil(max(math.log(2 * start / eps) / eta for eps, eta in zip(case["accuracy"], steps)))
    problem = means_at(places, horizon, spec["noise"], spec["seed"] + draw, dtype=np.float64)
    common: dict[str, Any] = {"batch_size": 1, "order": "stream"}
    lanes = [afa.all_for_all(problem, matrix, eta, **common) for matrix, eta in zip(matrices, steps)]
    at = sorted({*np.round(np.geomspace(1, horizon, spec["stops"])).astype(int).tolist()})
    errors = afa.excess(afa.walk(lanes, problem, at, spec["start"]), places)
    found = []
    for eps, own in zip(case["accuracy"], errors):
        there = np.flatnonzero(own <= eps)
        rounds = at[there[0]] if there.size else math.nan
        found.append(spec["agents"] * rounds / math.log(2 * start / eps))
    return found


def draw(spec: Spec, curves: Curves) -> Figure:
    """Samples against accuracy: by proposition 2, and measured; slopes beside them."""
    figure = blank(9.0, 3.6)
    left, right = figure.subplots(1, 2)
    for axes, lines in ((left, curves.counted), (right, curves.measured)):
        for line, colour in zip(lines, COLOURS):
            axes.plot(line.accuracy, line.samples, "o", color=colour, markersize=4, label=line.label)
            middle = np.exp(np.mean(np.log(line.samples) - line.exponent * np.log(line.accuracy)))
            axes.plot(line.accuracy, middle * line.accuracy**line.exponent, color=colour, linewidth=1.1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())  # labels between powers of ten would run into each other
        axes.set_xlabel(r"accuracy $\varepsilon$")
        axes.legend(loc="upper right", title="slope of the line", title_fontsize=7.5, fontsize=7.5)
    shown = sorted({eps for line in curves.measured for eps in line.accuracy})
    right.set_xticks(shown, [f"{eps:g}" for eps in shown])
    left.set_title(r"Promised samples, $-2-p/q$")
    left.set_ylabel(r"$T_\varepsilon / (B^2 D^2)$")
    right.set_title(r"Measured on mean estimation, $-1-p/q$")
    right.set_ylabel(r"samples until $F \leq \varepsilon$, over $\ln(2F^0/\varepsilon)$")
    reached = ", ".join(f"{value:.2g} at {eps:g}" for eps, value in curves.promised)
    figure.supxlabel(
        f"One agent at a time with the promised number of samples: mean error {reached}", fontsize=7.5, color=MUTED
    )
    return figure
