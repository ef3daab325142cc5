# SPDX-License-Identifier: Apache-2.0
"""Figure 1(a) of All-for-all 2022: means of Bernoulli draws, told b_ij exactly."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from idiolect.theory import all_for_all as theory
from papers import afa
from papers.afa_means import (
    Curves,
    Told,
    alone,
    doubling,
    draw_line,
    label_axes,
    measure_draws,
    named_samples,
    single,
)
from papers.drawing import BLUE, GREEN, MUTED, PURPLE, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec

METHODS = {  # drawn as
    "alone": ("no collaboration", VERMILION, "-"),
    "single": ("single model", GREEN, "-"),
    "phases": ("all-for-all, phases", BLUE, "-"),
    "one_over_k": (r"all-for-all, $\eta = 1/k$", PURPLE, "--"),
}


def measure(spec: Spec, progress: Progress) -> Measured:
    """Errors at the named sample sizes, means over draws, held to theory and to the paper's two claims."""

    def lanes(draw: int, truth: np.ndarray) -> dict[str, Told]:
        b, rounds = afa.squared_distances(truth), spec["samples"]
        constants = {"smoothness": 1.0, "strong_convexity": 1.0, "noise": spec["noise_variance"]}
        schedules = (
            alone(rounds),
            single(rounds),
            doubling(spec, b),
            theory.one_over_k(afa.all_known(b), rounds, **constants),
        )
        return {name: (b, own) for name, own in zip(METHODS, schedules)}

    curves, named = measure_draws(spec, progress, lanes), named_samples(spec)
    mean = {name: own[[curves.at.index(k) for k in named]] for name, own in curves.mean().items()}
    numbers = {f"phases_{k}": value for k, value in zip(named, mean["phases"])}
    # E p(1-p) = 1/6 and Var p = 1/12: a mean of t tosses errs by 1/(12t), one of all agents' by Var p (1 - 1/N) beside
    t, agents = np.array(named), spec["agents"]
    expected = {"alone": 1 / (12 * t), "single": (1 - 1 / agents) / 24 + 1 / (12 * agents * t)}
    for name, own in expected.items():
        numbers[f"{name}_largest_deviation"] = np.abs(mean[name] / own - 1).max()
        numbers[f"phases_over_{name}"] = (mean["phases"] / mean[name]).max()
    numbers["one_over_k_at_end"] = mean["one_over_k"][-1]
    return Measured({name: float(value) for name, value in numbers.items()}, curves)


def draw(spec: Spec, curves: Curves) -> Figure:
    """Errors against samples per agent, with the middle half of the draws, beside the two limits."""
    figure = blank(5.6, 3.9)
    axes = figure.subplots()
    for name, (label, colour, line) in METHODS.items():
        draw_line(axes, curves, name, label, colour, line)
    at = np.array(curves.at)
    axes.plot(at, 1 / (12 * at), color=MUTED, linewidth=0.9, linestyle=":", label="(1/12)/t and 1/24", zorder=1)
    axes.axhline(1 / 24, color=MUTED, linewidth=0.9, linestyle=":", zorder=1)
    label_axes(axes, spec, "All-for-all against its limits, b told exactly")
    return figure
