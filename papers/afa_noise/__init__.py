# SPDX-License-Identifier: Apache-2.0
"""Figure 1(b) of All-for-all 2022: means of Bernoulli draws, told b_ij with noise."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from papers import afa
from papers.afa_means import Curves, Told, alone, doubling, draw_line, label_axes, measure_draws, single
from papers.drawing import GREEN, INK, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec


def measure(spec: Spec, progress: Progress) -> Measured:
    """The errors at the end, and where collaboration begins to lose."""

    def lanes(draw: int, truth: np.ndarray) -> dict[str, Told]:
        generator, b = np.random.default_rng([spec["noise_seed"], draw]), afa.squared_distances(truth)
        told = {
            "alone": (b, alone(spec["samples"])),
            "single": (b, single(spec["samples"])),
            "exact": (b, doubling(spec, b)),
        }
        for level in spec["noise"]:
            noisy = afa.squared_distances(truth + generator.uniform(-level, level, truth.shape))
            told[f"noise_{level:g}"] = (noisy, doubling(spec, noisy))
        return told

    curves = measure_draws(spec, progress, lanes)
    mean = curves.mean()
    numbers = {}
    for label in (label for label in mean if label.startswith("noise_")):
        numbers[f"{label}_at_end"] = mean[label][-1]
        numbers[f"{label}_over_alone_at_end"] = mean[label][-1] / mean["alone"][-1]
        numbers[f"{label}_over_single_at_end"] = mean[label][-1] / mean["single"][-1]
        ahead = np.flatnonzero(mean[label] < mean["alone"])
        numbers[f"{label}_wins_until"] = curves.at[ahead[-1]] if ahead.size else 0
    return Measured({name: float(value) for name, value in numbers.items()}, curves)


def draw(spec: Spec, curves: Curves) -> Figure:
    """Errors against samples per agent, noise from light to dark."""
    figure = blank(5.6, 3.9)
    axes = figure.subplots()
    draw_line(axes, curves, "alone", "no collaboration", VERMILION, "-")
    draw_line(axes, curves, "single", "single model", GREEN, "-")
    draw_line(axes, curves, "exact", "all-for-all, no noise", INK, "-")
    shades = np.linspace(0.35, 1.0, len(spec["noise"]))
    for level, shade in zip(spec["noise"], shades):
        colour = tuple(1 - shade * (1 - part) for part in (0.0, 0.447, 0.698))  # BLUE, lightened
        draw_line(axes, curves, f"noise_{level:g}", f"noise {level:g}", colour, "-", band=False)
    label_axes(axes, spec, "All-for-all with noise in b")
    return figure
