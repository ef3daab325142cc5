# SPDX-License-Identifier: Apache-2.0
"""Figure 1(b) of PLSGD 2023: where two clients go, with one shared model and with a correction each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect import Training, simulate
from idiolect.data import Problem
from idiolect.data.synthetic import location_problem
from idiolect.theory import client_constants, local_optima, shared_optimum
from papers.drawing import BLUE, INK, MUTED, VERMILION, blank
from papers.lanes import PRECISION
from papers.plsgd import (
    Walk,
    every_step,
    local_sgd,
    personalized,
)
from papers.problems import problem_loss
from papers.reproduction import Measured, Progress, Spec, count_parts


class Curves(NamedTuple):
    """Both walks and the points they are about."""

    problem: Problem
    local: Walk
    personalized: Walk
    optima: np.ndarray  # (clients, 2): v*_m
    shared: np.ndarray  # (2,): v*


def trajectory_instance() -> Problem:
    """F_1 = (v1-7)^2 + 2(v2-18)^2 - 1 and F_2 = 2(v1-18)^2 + (v2-13)^2 - 1."""
    diagonals = np.array([[2.0, 4.0], [4.0, 2.0]])  # c (v - t)^2 has second derivative 2 c
    optimum = np.array([[7.0, 18.0], [18.0, 13.0]])
    note = "Two quadratics in the plane, without their constant -1."
    return location_problem(diagonals, optimum, np.zeros((2, 1, 2)), note, np.float64, constant=-1.0)


def measure(spec: Spec, progress: Progress) -> Measured:
    """Optima solved from the rows, both algorithms after R rounds and in the limit."""
    problem = trajectory_instance()
    loss, rows = problem_loss(problem), problem.federation.train
    done = count_parts(progress, 4, "trajectories")
    optima, shared = local_optima(loss, rows)["location"], shared_optimum(loss, rows)["location"]  # type: ignore[index]
    constants = client_constants(loss, rows)
    assert constants is not None
    numbers = {f"optimum_{m}_{axis}": optima[m - 1][j] for m in (1, 2) for j, axis in enumerate("xy")}
    numbers |= {f"shared_optimum_{axis}": shared[j] for j, axis in enumerate("xy")}
    numbers |= {"smoothness": constants.smoothness, "strong_convexity": constants.strong_convexity}

    alone = local_sgd(problem, local_steps=spec["local_steps"], **spec["local_gd"])
    both = personalized(problem, local_steps=spec["local_steps"], **spec["personalized"])
    local = every_step(alone, problem, spec["rounds"])
    done()
    personal = every_step(both, problem, spec["rounds"])
    done()
    training = Training(rounds=spec["many_rounds"], record_every=spec["many_rounds"], precision=PRECISION)
    limit = simulate(alone, problem.federation, training, scores=("squared_error",)).personal_models()["location"][0]
    done()
    end = simulate(both, problem.federation, training, scores=("squared_error",)).personal_models()["location"]
    done()

    server = local.server[-1]
    after = personal.server[-1] + personal.models[-1, -1] - personal.shared[-1, -1]  # w_T + theta_m,T
    for m in (1, 2):
        goal = optima[m - 1]
        numbers[f"local_gd_server_to_optimum_{m}"] = np.linalg.norm(server - goal)
        numbers[f"local_gd_client_{m}_to_optimum"] = np.linalg.norm(local.models[-1, -1, m - 1] - goal)
        numbers[f"personalized_client_{m}_to_optimum"] = np.linalg.norm(after[m - 1] - goal)
    numbers |= {f"local_gd_server_{axis}": server[j] for j, axis in enumerate("xy")}
    numbers |= {f"local_gd_limit_{axis}": limit[j] for j, axis in enumerate("xy")}
    numbers["local_gd_limit_to_shared_optimum"] = np.linalg.norm(limit - shared)
    numbers["local_gd_limit_to_nearest_optimum"] = np.linalg.norm(limit - optima, axis=1).min()
    numbers["personalized_limit_to_optima"] = np.linalg.norm(end - optima, axis=1).max()
    curves = Curves(problem, local, personal, optima, shared)
    return Measured({name: float(value) for name, value in numbers.items()}, curves)


def draw(spec: Spec, curves: Curves) -> Figure:
    """Contours of both objectives, and every iterate of both algorithms."""
    figure = blank(9.0, 5.7)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = ("Local GD", "Personalized local GD")
    for axes, walk, title in zip(panels, (curves.local, curves.personalized), titles):
        axes.set_title(title)
        _draw_problem(axes, spec, curves)
        for client, (colour, marker) in enumerate(((BLUE, "o"), (VERMILION, "s"))):
            _draw_walk(axes, walk, client, colour, marker)
        axes.set_aspect("equal")
        axes.grid(False)
        axes.set_xlabel("$v[1]$")
        axes.set_xlim(*spec["figure"]["horizontal"])
        axes.set_ylim(*spec["figure"]["vertical"])
    panels[0].set_ylabel("$v[2]$")
    panels[0].plot(*curves.local.server.T, "D", color=INK, markersize=3.4, zorder=6)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4)
    return figure


def _draw_problem(axes: Axes, spec: Spec, curves: Curves) -> None:
    """Contour lines of F_1 and F_2, and the three optima."""
    (west, east), (south, north) = spec["figure"]["horizontal"], spec["figure"]["vertical"]
    across, up = np.linspace(west, east, 240), np.linspace(south, north, 240)
    grid = np.stack(np.meshgrid(across, up), axis=-1)
    assert curves.problem.hessians is not None
    assert curves.problem.constants is not None
    for client, colour in enumerate((BLUE, VERMILION)):
        away = grid - curves.optima[client]
        values = np.einsum("...i,ij,...j->...", away, curves.problem.hessians[client], away) / 2
        values = values + curves.problem.constants[client]
        axes.contour(across, up, values, spec["figure"]["contours"], colors=colour, linewidths=0.6, alpha=0.35)
        axes.plot(*curves.optima[client], "*", color=colour, markersize=13, markeredgecolor="white", zorder=7)
        shift = (-1.5, -0.2) if client == 0 else (1.6, -0.5)
        x, y = curves.optima[client] + shift
        axes.text(x, y, rf"$v^*_{client + 1}$", color=colour, fontsize=11, ha="center")
    axes.plot(*curves.shared, "P", color=INK, markersize=8, markeredgecolor="white", zorder=7)
    x, y = curves.shared + (0.7, 0.7)
    axes.text(x, y, "$v^*$", color=INK, fontsize=11)


def _draw_walk(axes: Axes, walk: Walk, client: int, colour: str, marker: str) -> None:
    """Local steps as a line with dots; what a communication does to the client's model as a dotted line."""
    steps = walk.models[:, :, client]
    for number, points in enumerate(steps):
        axes.plot(*points.T, marker, linestyle="-", color=colour, linewidth=1.2, markersize=2.6, zorder=4)
        if number + 1 < len(steps):
            jump = np.stack([points[-1], steps[number + 1][0]])
            axes.plot(*jump.T, ":", color=colour, linewidth=1.1, zorder=3)


def _legend() -> list[Line2D]:
    def entry(label: str, **style: object) -> Line2D:
        return Line2D([], [], label=label, **style)  # type: ignore[arg-type]

    return [
        entry("client 1, local steps", color=BLUE, marker="o", markersize=4),
        entry("client 2, local steps", color=VERMILION, marker="s", markersize=4),
        entry("communication", color=MUTED, linestyle=":"),
        entry("server model", color=INK, marker="D", markersize=4, linestyle=""),
        entry("optimum of a client", color=MUTED, marker="*", markersize=10, linestyle=""),
        entry("optimum of the average", color=INK, marker="P", markersize=7, linestyle=""),
        entry("contours of $F_1$, $F_2$", color=MUTED, linewidth=0.7, alpha=0.6),
    ]
