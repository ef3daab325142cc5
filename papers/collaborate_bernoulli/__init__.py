# SPDX-License-Identifier: Apache-2.0
"""The open question of All-for-all 2022 on its own problem: mean estimation with estimated discrepancies.

Nothing about p reaches the estimate: weights are learnt from the tosses alone (`collaborate.weights`), with the same
settings on both problems. p only measures errors, and tells the version that is told b_ij = (p_i - p_j)^2/2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect.collaborate.quadratic import make_sample
from idiolect.collaborate.threads import one_thread
from idiolect.collaborate.weights import learn_weights
from idiolect.core import Rows
from idiolect.core.keys import Purpose, host_generator
from idiolect.metrics.summary import bootstrap_interval
from idiolect.theory.convex import ConvexLoss
from papers.drawing import BLUE, GREEN, INK, MUTED, VERMILION, blank
from papers.reproduction import Measured, Progress, Spec

LOSS = ConvexLoss("squared", 1, 0, bias=False, diagonal=True, l2=0.0)  # (x - toss)^2 / 2
WAYS = ("alone", "single", "told", "estimated")
_WIDTHS = np.geomspace(1e-4, 1.0, 41)  # |p_i - p_j| up to which the told version averages: the best is taken


class Curves(NamedTuple):
    """Errors mean_i (x_i - p_i)^2/2 by problem, way, samples and draw."""

    samples: tuple[int, ...]
    errors: dict[str, np.ndarray]  # problem: (ways, samples, draws)


def measure(spec: Spec, progress: Progress) -> Measured:
    """Alone, one model for all, told and estimated discrepancies: uniform p, and p from well-separated values."""
    samples, draws = tuple(spec["samples"]), int(spec["draws"])
    errors = {name: np.empty((len(WAYS), len(samples), draws)) for name in ("uniform", "clustered")}
    done, total = 0, len(errors) * draws * len(samples)
    for name, table in errors.items():
        for draw in range(draws):
            source = host_generator(spec["seed"], Purpose.SYNTHETIC, list(errors).index(name), draw)
            means = _means(spec, name, source)
            tosses = (source.uniform(size=(len(means), max(samples))) < means[:, None]).astype(np.float64)
            for place, amount in enumerate(samples):
                table[:, place, draw] = errors_of(means, tosses[:, :amount], spec["folds"], draw)
                done += 1
                progress(name, done, total)
    curves = Curves(samples, errors)
    return Measured(_numbers(spec, curves), curves, to_text(curves))


def _numbers(spec: Spec, curves: Curves) -> dict[str, float]:
    """Ratios of mean errors over the draws."""
    numbers = {}
    for place, amount in enumerate(curves.samples):
        alone, _, told, estimated = curves.errors["clustered"][:, place].mean(axis=1)
        apart = curves.errors["uniform"][:, place].mean(axis=1)
        numbers[f"uniform_{amount}_over_alone"] = apart[3] / apart[0]
        numbers[f"clustered_{amount}_over_alone"] = estimated / alone
        if amount == spec["told_at"]:
            numbers[f"clustered_{amount}_over_told"] = estimated / told
    return {name: float(value) for name, value in numbers.items()}


def _means(spec: Spec, name: str, source: np.random.Generator) -> np.ndarray:
    """p_i: uniform on [0, 1], or equally many agents at each of the given values."""
    if name == "uniform":
        return np.asarray(source.uniform(size=spec["agents"]))
    return np.repeat(np.asarray(spec["values"], np.float64), spec["agents"] // len(spec["values"]))


def errors_of(means: np.ndarray, tosses: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Errors of the four WAYS after these tosses, (agents, samples)."""
    agents, amount = tosses.shape
    own = tosses.mean(axis=1)
    rows = Rows(np.ones((tosses.size, 1)), tosses.reshape(-1, 1), np.arange(agents + 1) * amount)
    with one_thread():
        learned = learn_weights(make_sample(LOSS, rows, min(folds, amount), seed))

    def error(answer: np.ndarray) -> float:
        return float(0.5 * np.mean((answer - means) ** 2))

    gap = np.abs(means[:, None] - means)
    told = [(gap <= width) / (gap <= width).sum(axis=1, keepdims=True) for width in _WIDTHS]
    return np.array(
        [
            error(own),
            error(np.full(agents, own.mean())),
            min(error(shares @ own) for shares in told),
            error(learned.shares @ own),
        ]
    )


def to_text(curves: Curves) -> str:
    """The table: mean error over draws and the ratio to training alone with its 95 % interval over draws."""
    lines = [
        f"{'problem':<10} {'samples':>7} {'alone':>9} {'single':>9} {'told':>9} {'estimated':>9}  over alone [95 %]"
    ]
    for name, table in curves.errors.items():
        for place, amount in enumerate(curves.samples):
            alone, single, told, estimated = table[:, place].mean(axis=1)
            ratio, low, high = ratio_interval(table[3, place], table[0, place])
            lines.append(
                f"{name:<10} {amount:>7} {alone:>9.2e} {single:>9.2e} {told:>9.2e} {estimated:>9.2e}  "
                f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
            )
    return "\n".join(lines)


def ratio_interval(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Ratio of two means over the same draws and its interval: ours - r theirs is resampled, r the ratio (Fieller)."""
    ratio = float(ours.mean() / theirs.mean())
    low, high = bootstrap_interval((ours - ratio * theirs) / theirs.mean(), host_generator(0, Purpose.BOOTSTRAP))
    return ratio, ratio + low, ratio + high


def draw(spec: Spec, curves: Curves) -> Figure:
    """Error against samples on both problems; bars are 95 % intervals over draws."""
    figure = blank(9.4, 4.0)
    left, right = figure.subplots(1, 2)
    _panel(left, curves, "uniform", "p uniform: others tell almost nothing")
    _panel(right, curves, "clustered", f"p from {len(spec['values'])} values: others tell much")
    amounts = np.geomspace(min(curves.samples), max(curves.samples), 50)
    left.loglog(amounts, 1 / 12 / (amounts + 2), ":", color=INK, linewidth=1.2, label="Bayes optimum, p uniform")
    handles = [*left.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _panel(axes: Axes, curves: Curves, name: str, title: str) -> None:
    styles: dict[str, tuple[str, str, str]] = {
        "alone": (MUTED, "o", "alone"),
        "single": (GREEN, "^", "one model for all"),
        "told": (BLUE, "s", "discrepancies told"),
        "estimated": (VERMILION, "D", "discrepancies estimated"),
    }
    for place, way in enumerate(WAYS):
        colour, marker, label = styles[way]
        values = curves.errors[name][place]
        middle = values.mean(axis=1)
        ends: Any = [bootstrap_interval(one, host_generator(0, Purpose.BOOTSTRAP)) for one in values]
        bars = np.abs(np.array(ends).T - middle)
        axes.errorbar(curves.samples, middle, bars, color=colour, marker=marker, markersize=4, capsize=2.5, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title)
    axes.set_xlabel("samples per agent")
    axes.set_ylabel(r"mean over agents of $(x_i-p_i)^2/2$")
