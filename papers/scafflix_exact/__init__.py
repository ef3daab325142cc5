# SPDX-License-Identifier: Apache-2.0
"""Corollary of theorem 4 of Scafflix 2023: Scafflix ends at the personalized optimum itself, whatever the alpha_m.

Logistic regression on LIBSVM sets with a different alpha_m on every client; the optimum is solved apart.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from idiolect import ClientLoss, Linear, PerClient
from idiolect.data import shared_files
from idiolect.objectives import FLIX
from idiolect.theory.scafflix import Solution, solution
from papers import lanes
from papers.drawing import BLUE, GREEN, MUTED, VERMILION, blank
from papers.lanes import Standing
from papers.reproduction import Measured, Progress, Spec
from papers.scafflix import constants_of, solver
from papers.scafflix import reduce as reduce

COLORS = (BLUE, VERMILION, GREEN)


class Course(NamedTuple):
    """How far one run is from the optimum, record by record."""

    communications: np.ndarray
    distances: np.ndarray  # of w or of the farthest client's model, the larger


Results = dict[tuple[str, int], Course]  # (data set, clients)


def measure(spec: Spec, progress: Progress) -> Measured:
    """The distance at the end, on every data set and number of clients."""
    results: Results = {}
    numbers = {}
    cases = [(name, clients) for name in spec["data_sets"] for clients in spec["clients"]]
    for done, (name, clients) in enumerate(cases, 1):
        results[name, clients] = _course(name, clients, spec)
        numbers[f"{name}_{clients}_distance"] = float(results[name, clients].distances[-1])
        progress(f"{name}, {clients} clients", done, len(cases))
    return Measured(numbers, results)


def _course(name: str, clients: int, spec: Spec) -> Course:
    federation = shared_files.libsvm(name, clients=clients, seed=spec["data_seed"])
    model = Linear(features=federation.train.inputs.shape[1], outputs=0, bias=False)
    alphas = PerClient(np.linspace(spec["least_alpha"], 1, clients))
    loss = ClientLoss(model=model, criterion="logistic", l2=spec["l2"])
    objective = FLIX(client_loss=loss, personalization=alphas, tolerance=spec["tolerance"])
    exact = solution(objective, federation.train)
    assert exact is not None  # a linear model
    algorithm = solver("scafflix", objective, constants_of(objective, federation), clients=clients)
    curves = lanes.train(
        [algorithm],
        federation,
        lanes.schedule(spec["rounds"], spec["record_every"]),
        [spec["seed"]],
        lambda lane, where: {"distance": distance(where, exact)},
    )
    return Course(curves.columns["rounds"][0], curves.columns["distance"][0])


def distance(where: Standing, exact: Solution) -> float:
    """The Euclidean distance of w to w*, or of the farthest xt_m to xt*_m if that is larger."""
    shared = jax.tree.map(lambda ours, best: np.linalg.norm(np.asarray(ours) - best), where.shared, exact.shared)
    models = jax.tree.map(
        lambda ours, best: np.linalg.norm((np.asarray(ours) - best).reshape(len(best), -1), axis=1).max(),
        where.models,
        exact.models,
    )
    return float(max(jax.tree.leaves((shared, models))))


def draw(spec: Spec, results: Results) -> Figure:
    """Distance against communications: a colour per data set, dashed for the larger number of clients."""
    figure = blank(6.4, 3.6)
    axes = figure.subplots()
    colors = dict(zip(spec["data_sets"], COLORS))
    for (name, clients), course in results.items():
        dash = (0, (4, 2)) if clients == max(spec["clients"]) else "-"
        label = f"{name}, {clients} clients"
        axes.plot(course.communications, course.distances, color=colors[name], linestyle=dash, label=label)
    axes.axhline(spec["target"], color=MUTED, linewidth=0.8)
    axes.set(yscale="log")
    axes.set_title("Distance to the personalized optimum")
    axes.set_xlabel("communications")
    axes.set_ylabel("of w, or of the farthest client's model")
    axes.legend(loc="upper right", ncols=1)
    return figure
