# SPDX-License-Identifier: Apache-2.0
"""Figures 1(a) and 1(b) of paper 004: means of Bernoulli draws, told b_ij exactly or with noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from idiolect.core.mixing import Phases
from idiolect.data.problem import Problem
from idiolect.data.synthetic import bernoulli_means
from idiolect.experiments.papers import afa
from idiolect.experiments.papers.drawing import BLUE, GREEN, INK, MUTED, PURPLE, VERMILION, blank
from idiolect.experiments.papers.reproduction import Measured, Progress, Spec
from idiolect.theory import all_for_all as theory

METHODS = {  # drawn as
    "alone": ("no collaboration", VERMILION, "-"),
    "single": ("single model", GREEN, "-"),
    "phases": ("all-for-all, phases", BLUE, "-"),
    "one_over_k": (r"all-for-all, $\eta = 1/k$", PURPLE, "--"),
}


class Curves(NamedTuple):
    """Mean errors: by label (draws, stops)."""

    at: list[int]
    errors: dict[str, np.ndarray]


def measure(spec: Spec, progress: Progress) -> Measured:
    """Figure 1(a): errors at the named sample sizes, means over draws, and the paper's two claims."""
    at, named = _places(spec)
    found: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
    for draw in range(spec["draws"]):
        problem = _problem(spec, draw)
        b = afa.squared_distances(_truth(problem))
        lanes = _schedules(spec, b)
        models = afa.walk([afa.streaming(problem, b, own) for own in lanes.values()], problem, at, spec["start"])
        for name, error in zip(lanes, afa.excess(models, _truth(problem))):
            found[name].append(error)
        progress("figure 1(a)", draw + 1, spec["draws"])
    errors = {name: np.array(draws) for name, draws in found.items()}
    mean = {name: draws.mean(axis=0)[[at.index(k) for k in named]] for name, draws in errors.items()}
    numbers = {f"{name}_{k}": float(value) for name in mean for k, value in zip(named, mean[name])}
    best = np.minimum(mean["alone"], mean["single"])
    late = [place for place, k in enumerate(named) if k >= spec["claim_from"]]
    numbers["phases_over_best_of_both"] = float((mean["phases"] / best)[late].max())
    numbers["one_over_k_over_best_of_both"] = float((mean["one_over_k"] / best).max())
    return Measured(numbers, Curves(at, errors))


def measure_noise(spec: Spec, progress: Progress) -> Measured:
    """Figure 1(b): b from noisy means; the errors at the end, and where collaboration begins to lose."""
    at, _ = _places(spec)
    labels = ["alone", "single", "exact", *(f"noise_{level:g}" for level in spec["noise"])]
    found: dict[str, list[np.ndarray]] = {label: [] for label in labels}
    for draw in range(spec["draws"]):
        problem = _problem(spec, draw)
        exact, rounds = _truth(problem), spec["samples"]
        generator = np.random.default_rng([spec["noise_seed"], draw])
        told = {"alone": exact, "single": exact, "exact": exact}
        told |= {f"noise_{s:g}": exact + generator.uniform(-s, s, exact.shape) for s in spec["noise"]}
        lanes = []
        for label, places in told.items():
            b = afa.squared_distances(places)
            schedule = _fixed(label, rounds) if label in ("alone", "single") else _phases(spec, b)
            lanes.append(afa.streaming(problem, b, schedule))
        for label, error in zip(told, afa.excess(afa.walk(lanes, problem, at, spec["start"]), exact)):
            found[label].append(error)
        progress("figure 1(b)", draw + 1, spec["draws"])
    errors = {label: np.array(draws) for label, draws in found.items()}
    mean = {label: draws.mean(axis=0) for label, draws in errors.items()}
    numbers = {f"{label}_at_end": mean[label][-1] for label in labels}
    for label in labels[3:]:
        numbers[f"{label}_over_alone_at_end"] = mean[label][-1] / mean["alone"][-1]
        numbers[f"{label}_over_single_at_end"] = mean[label][-1] / mean["single"][-1]
        ahead = np.flatnonzero(mean[label] < mean["alone"])
        numbers[f"{label}_wins_until"] = at[ahead[-1]] if ahead.size else 0
    return Measured({name: float(value) for name, value in numbers.items()}, Curves(at, errors))


def _places(spec: Spec) -> tuple[list[int], list[int]]:
    named = [k for k in spec["named"] if k <= spec["samples"]]
    return afa.stops(spec["samples"], named, spec["stops"]), named


def _problem(spec: Spec, draw: int) -> Problem:
    return bernoulli_means(spec["agents"], spec["samples"], spec["first_seed"] + draw, dtype=np.float64)


def _truth(problem: Problem) -> np.ndarray:
    assert problem.truth is not None
    return problem.truth


def _schedules(spec: Spec, b: np.ndarray) -> dict[str, Phases]:
    known, rounds = afa.all_known(b), spec["samples"]
    constants = {"smoothness": 1.0, "strong_convexity": 1.0, "noise": spec["noise_variance"]}
    return {
        "alone": _fixed("alone", rounds),
        "single": _fixed("single", rounds),
        "phases": _phases(spec, b),
        "one_over_k": theory.one_over_k(known, rounds, **constants),
    }


def _fixed(label: str, rounds: int) -> Phases:
    """Running means of an agent's own samples, or of everybody's: steps 1/k."""
    return theory.fixed(0.0 if label == "alone" else np.inf, 1 / np.arange(1, rounds + 1))


def _phases(spec: Spec, b: np.ndarray) -> Phases:
    phases = theory.doubling(
        afa.all_known(b),
        spec["samples"],
        first_accuracy=spec["first_accuracy"],
        smoothness=1.0,
        strong_convexity=1.0,
        noise=spec["noise_variance"],
    )
    return afa.by_round(phases, spec["samples"])


def draw(spec: Spec, curves: Curves) -> Figure:
    """Errors against samples per agent, with the middle half of the draws, beside the two limits."""
    figure = blank(5.6, 3.9)
    axes = figure.subplots()
    for name, (label, colour, line) in METHODS.items():
        _line(axes, curves, name, label, colour, line)
    at = np.array(curves.at)
    axes.plot(at, 1 / (12 * at), color=MUTED, linewidth=0.9, linestyle=":", label="(1/12)/t and 1/24", zorder=1)
    axes.axhline(1 / 24, color=MUTED, linewidth=0.9, linestyle=":", zorder=1)
    _dress(axes, spec, "All-for-all against its limits, b told exactly")
    return figure


def draw_noise(spec: Spec, curves: Curves) -> Figure:
    """The same with noise in b, from light to dark."""
    figure = blank(5.6, 3.9)
    axes = figure.subplots()
    _line(axes, curves, "alone", "no collaboration", VERMILION, "-")
    _line(axes, curves, "single", "single model", GREEN, "-")
    _line(axes, curves, "exact", "all-for-all, no noise", INK, "-")
    shades = np.linspace(0.35, 1.0, len(spec["noise"]))
    for level, shade in zip(spec["noise"], shades):
        colour = tuple(1 - shade * (1 - part) for part in (0.0, 0.447, 0.698))  # BLUE, lightened
        _line(axes, curves, f"noise_{level:g}", f"noise {level:g}", colour, "-", band=False)
    _dress(axes, spec, "All-for-all with noise in b")
    return figure


def _line(axes: Any, curves: Curves, name: str, label: str, colour: Any, line: str, band: bool = True) -> None:
    draws = curves.errors[name]
    axes.plot(curves.at, draws.mean(axis=0), color=colour, linestyle=line, label=label)
    if band:
        axes.fill_between(curves.at, *afa.quartiles(draws), color=colour, alpha=0.15, linewidth=0)


def _dress(axes: Any, spec: Spec, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("samples per agent")
    axes.set_ylabel(r"mean$_i\ \frac{1}{2}(x_i - p_i)^2$")
    axes.set_title(f"{title} ({spec['agents']} agents, {spec['draws']} draws)")
    axes.legend(loc="lower left", fontsize=7)
