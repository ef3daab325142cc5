# SPDX-License-Identifier: Apache-2.0
"""Shared by both halves of figure 1 of All-for-all 2022: means of Bernoulli draws, schedules, figures of errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from idiolect.core.mixing import Phases
from idiolect.theory import all_for_all as theory
from papers import afa
from papers.afa_problems import bernoulli_means
from papers.drawing import draw_band
from papers.reproduction import Progress, Spec

Told = tuple[np.ndarray, Phases]  # what a lane is told: b, and its schedule


class Curves(NamedTuple):
    """Mean errors: by label (draws, stops)."""

    at: list[int]
    errors: dict[str, np.ndarray]

    def mean(self) -> dict[str, np.ndarray]:
        """Over draws, (stops,)."""
        return {label: draws.mean(axis=0) for label, draws in self.errors.items()}


def named_samples(spec: Spec) -> list[int]:
    """Sample sizes that numbers are named after."""
    return [k for k in spec["named"] if k <= spec["samples"]]


def measure_draws(spec: Spec, progress: Progress, lanes: Callable[[int, np.ndarray], Mapping[str, Told]]) -> Curves:
    """Errors of the lanes that are made for each draw, from its number and its true means."""
    at = afa.stops(spec["samples"], named_samples(spec), spec["stops"])
    found: dict[str, list[np.ndarray]] = {}
    for draw in range(spec["draws"]):
        problem = bernoulli_means(spec["agents"], spec["samples"], spec["first_seed"] + draw, dtype=np.float64)
        truth = afa.true_means(problem)
        told = lanes(draw, truth)
        models = afa.walk([afa.streaming(problem, *own) for own in told.values()], problem, at, spec["start"])
        for label, error in zip(told, afa.excess(models, truth)):
            found.setdefault(label, []).append(error)
        progress("figure 1", draw + 1, spec["draws"])
    return Curves(at, {label: np.array(draws) for label, draws in found.items()})


def alone(rounds: int) -> Phases:
    """Running means of an agent's own samples: steps 1/k."""
    return theory.fixed(0.0, 1 / np.arange(1, rounds + 1))


def single(rounds: int) -> Phases:
    """Running means of all samples: steps 1/k."""
    return theory.fixed(np.inf, 1 / np.arange(1, rounds + 1))


def doubling(spec: Spec, b: np.ndarray) -> Phases:
    """Phases of twice the accuracy each, as the theorem has them."""
    constants = {"smoothness": 1.0, "strong_convexity": 1.0, "noise": spec["noise_variance"]}
    phases = theory.doubling(afa.all_known(b), spec["samples"], first_accuracy=spec["first_accuracy"], **constants)
    return afa.by_round(phases, spec["samples"])


def draw_line(axes: Axes, curves: Curves, name: str, label: str, colour: Any, line: str, band: bool = True) -> None:
    """The mean over draws and, around it, the middle half of them."""
    quantiles = (0.25, 0.75) if band else None
    draw_band(axes, curves.at, curves.errors[name], band=quantiles, color=colour, linestyle=line, label=label)


def label_axes(axes: Axes, spec: Spec, title: str) -> None:
    """Errors against samples, both on logarithmic scales."""
    axes.set(xscale="log", yscale="log", xlabel="samples per agent", ylabel=r"mean$_i\ \frac{1}{2}(x_i - p_i)^2$")
    axes.set_title(f"{title} ({spec['agents']} agents, {spec['draws']} draws)")
    axes.legend(loc="lower left", fontsize=7)
