# SPDX-License-Identifier: Apache-2.0
"""The figure of the theorem 1 reproduction: error under its bound, noise against M, stability against beta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from papers.drawing import BLUE, GREEN, INK, MUTED, VERMILION, blank
from papers.reproduction import Spec


def draw(spec: Spec, curves: Any) -> Figure:
    """Three panels, one per claim."""
    figure = blank(10.8, 4.0)
    first, second, third = figure.subplots(1, 3)
    _draw_bound(first, spec, curves.bound)
    _draw_noise(second, spec, curves.noise)
    _draw_threshold(third, spec, curves.threshold)
    return figure


def middle(values: Sequence[Any]) -> Any:
    """The entry of a grid that is shown."""
    return values[len(values) // 2]


def _below(axes: Axes, columns: int) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.47, -0.17), ncols=columns, handlelength=2.0, columnspacing=1.0)


def _draw_bound(axes: Axes, spec: Spec, shown: dict[str, Any]) -> None:
    rounds = np.arange(1, spec["bound"]["rounds"] + 1)
    for name, colour, words in (("noisy", VERMILION, "noisy"), ("exact", BLUE, "no noise")):
        errors, bounds = shown[name]
        axes.semilogy(rounds, bounds, "--", color=colour, label=f"bound, {words}")
        axes.semilogy(rounds, errors, "o-", color=colour, markersize=3.2, label=f"measured, {words}")
    asked = spec["bound"]
    kappa, steps, alpha = (
        middle(asked["condition_number"]),
        middle(asked["local_steps"]),
        asked["personal_step_scale"][0],
    )
    axes.set_title("Error under the bound")
    axes.set_ylabel(r"mean over clients of $\|\hat v_m-v^*_m\|^2$")
    axes.set_xlabel(rf"round ($\alpha={alpha:g}$, $K={steps}$, $\kappa={kappa:g}$)")
    _below(axes, 2)


def _draw_noise(axes: Axes, spec: Spec, noise: dict[str, Any]) -> None:
    clients = noise["clients"]
    alpha = spec["noise"]["personal_step_scale"]
    axes.loglog(clients, noise["predicted"][:, 0], "-", color=BLUE, linewidth=5, alpha=0.22)
    axes.loglog(clients, noise["predicted"][:, 1], "-", color=GREEN, linewidth=5, alpha=0.22)
    axes.loglog(clients, noise["total"][:, 0], "o-", color=BLUE, markersize=4, label=rf"all, $\alpha={alpha:g}$")
    several = clients > 1  # one client has no deviation from the mean
    axes.loglog(clients[several], noise["own"][several], "^:", color=BLUE, markersize=4, label="own part of it")
    axes.loglog(clients, noise["shared"], "v:", color=INK, markersize=4, label="shared part of it")
    axes.loglog(clients, noise["total"][:, 1], "s-", color=GREEN, markersize=4, label=r"all, $\alpha=1/\sqrt{M}$")
    axes.loglog(clients, noise["terms"][:, 0], "--", color=BLUE, linewidth=1.1, label=rf"bound, $\alpha={alpha:g}$")
    axes.loglog(clients, noise["terms"][:, 1], "--", color=GREEN, linewidth=1.1, label=r"bound, $\alpha=1/\sqrt{M}$")
    axes.set_xticks(clients, [str(m) for m in clients])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.set_title("What noise adds")
    axes.set_ylabel("noise's share of the error")
    axes.set_xlabel("clients $M$")
    _below(axes, 2)


def _draw_threshold(axes: Axes, spec: Spec, threshold: dict[str, Any]) -> None:
    beta, size = threshold["beta"], np.abs(threshold["multiplier"])
    other = spec["stability"]
    axes.axhline(1.0, color=MUTED, linewidth=0.9)
    axes.plot(beta, np.abs(threshold["predicted"]), "-", color=MUTED, linewidth=5, alpha=0.28, label="exact value")
    stable = size < 1
    axes.plot(beta[stable], size[stable], "o", color=BLUE, markersize=2.8, label="converges")
    axes.plot(beta[~stable], size[~stable], "X", color=VERMILION, markersize=3.4, label="diverges")
    alpha, steps = other["personal_step_scale"], other["local_steps"]
    shrink = 1 - (1 - spec["threshold"]["step_size"] * (1 + alpha) * max(other["spectrum"])) ** steps
    limit = 2 * (1 + alpha) / shrink - alpha
    axes.axvline(limit, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="predicted limit")
    axes.set_title("How large $\\beta$ may be")
    axes.set_ylabel("multiplier of the mean error per round")
    axes.set_xlabel(rf"server step $\beta$ ($\alpha={alpha:g}$, $K={steps}$)")
    axes.set_ylim(bottom=0)
    _below(axes, 2)
