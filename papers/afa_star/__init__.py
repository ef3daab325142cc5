# SPDX-License-Identifier: Apache-2.0
"""Erratum E004-4: rho(W) is not 1, and the printed step 1/(2L) of theorem 3.b diverges on a star; 1/(2 L rho) does not.

Also E004-5: the rate exp(-K/(2 kappa)) fails on two agents.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from idiolect.collaborate import neighbourhood_weights
from idiolect.core import mixing
from idiolect.theory import all_for_all as theory
from papers import afa
from papers.afa_problems import means_at
from papers.drawing import BLUE, GREEN, MUTED, PURPLE, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec


class Curves(NamedTuple):
    """F after every round, by share of 1/(L rho(W)), and Lemma 3's bias."""

    at: list[int]
    errors: dict[str, np.ndarray]
    bias: float


def measure(spec: Spec, progress: Progress) -> Measured:
    """Spectra, the star under four steps, and the two-agent counter-example."""
    places = np.vstack([np.zeros(spec["agents"] - 1), np.eye(spec["agents"] - 1)])
    b = afa.squared_distances(places)
    weights = neighbourhood_weights(b, spec["accuracy"])
    star = mixing.from_dense(weights)
    radius = theory.spectral_radius(star)
    numbers = {"rho_star": radius} | _radii(spec)
    progress("star", 1, 3)
    problem = means_at(places, dtype=np.float64)
    steps = {
        "printed": 0.5,
        "corrected": theory.stable_step(1.0, radius),
        "just_below": spec["just_below"] / radius,
        "just_above": spec["just_above"] / radius,
    }
    at = list(range(1, spec["rounds"] + 1))
    lanes = [afa.all_for_all(problem, star, step) for step in steps.values()]
    errors = afa.walk(lanes, problem, at, of=lambda models: afa.excess(models, places))
    found = dict(zip(steps, errors))
    bias, start = theory.bias(weights, b), float(afa.excess(np.zeros_like(places), places))
    early = found["printed"][spec["growth_from"] :]
    numbers |= {
        "printed_growth_per_round": float(np.sqrt(early[1] / early[0])),
        "printed_error_over_theorem": found["printed"][19] / (start * np.exp(-20 / 2) + bias),
        "corrected_error_over_bias": found["corrected"][-1] / bias,
        "just_below_error_over_bias": found["just_below"][-1] / bias,
        "just_above_error_over_bias": found["just_above"][-1] / bias,
    }
    progress("star", 2, 3)
    numbers |= _two_agents()
    progress("star", 3, 3)
    return Measured({name: float(value) for name, value in numbers.items()}, Curves(at, found, bias))


def _radii(spec: Spec) -> dict[str, float]:
    """rho(W) where everybody hears one agent, on a ring, and on the paper's own random p at many accuracies."""
    hub = np.zeros((spec["agents"], spec["agents"]))
    hub[:, 0] = 1
    ring = (np.eye(spec["agents"]) + np.roll(np.eye(spec["agents"]), 1, axis=1)) / 2
    found = []
    for draw in range(spec["draws"]):
        places = np.random.default_rng([spec["seed"], draw]).random((spec["agents"], 1))
        known = afa.all_known(afa.squared_distances(places))
        found += [theory.spectral_radius(theory.neighbours_within(known, eps)) for eps in spec["accuracies"]]
    return {
        "rho_hub": theory.spectral_radius(mixing.from_dense(hub)),
        "rho_ring": theory.spectral_radius(mixing.from_dense(ring)),
        "rho_uniform_largest": max(found),
    }


def _two_agents() -> dict[str, float]:
    """Two equal quadratics, b = 0, eta = 1/2: the ratio of errors after 40 rounds; exp(-20) is printed."""
    weights = np.array([[0.1, 0.9], [0.0, 1.0]])
    problem = means_at(np.ones((2, 1)), dtype=np.float64)
    models = afa.walk([afa.all_for_all(problem, mixing.from_dense(weights), 0.5)], problem, [40])
    ratio = afa.excess(models, np.ones((2, 1)))[0, 0] / 0.5  # from x0 = 0
    bound = theory.contraction(1.0, 0.5, weights) ** 40
    return {
        "two_agents_ratio": ratio,
        "two_agents_over_printed": ratio / np.exp(-20),
        "two_agents_over_bound": ratio / bound,
    }


def draw(spec: Spec, curves: Curves) -> Figure:
    """F against rounds on the star."""
    figure = blank(5.6, 3.6)
    axes = figure.subplots()
    styles = {
        "printed": (r"$\eta = 1/(2L)$, as printed", VERMILION, "-"),
        "just_above": rf"$\eta = {spec['just_above']:g}/(L\rho(W))$",
        "just_below": rf"$\eta = {spec['just_below']:g}/(L\rho(W))$",
        "corrected": (r"$\eta = 1/(2L\rho(W))$, corrected", BLUE, "-"),
    }
    for name, style in styles.items():
        label, colour, line = style if isinstance(style, tuple) else (style, PURPLE if "above" in name else GREEN, "--")
        axes.plot(curves.at, np.minimum(curves.errors[name], 1e12), color=colour, linestyle=line, label=label)
    axes.axhline(
        curves.bias, color=MUTED, linewidth=0.9, linestyle=":", label=r"bias $\frac{1}{N}\sum\lambda_{ij}b_{ij}$"
    )
    axes.set_yscale("log")
    axes.set_ylim(1e-2, 1e10)
    axes.set_xlim(0, spec["shown"])
    axes.set_xlabel("rounds")
    axes.set_ylabel(r"$F$, mean excess loss")
    axes.set_title(f"A star of {spec['agents']} agents: rho(W) = 25, not 1")
    axes.legend(loc="upper right", fontsize=7.5)
    return figure
