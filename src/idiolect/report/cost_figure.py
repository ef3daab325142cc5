# SPDX-License-Identifier: Apache-2.0
"""Score against cost: what the validation rows said while bytes, gradients and modelled seconds were spent."""

from __future__ import annotations

import dataclasses
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from idiolect.report.folder import Run, numbers, of_method
from idiolect.report.style import INK, MUTED, PAPER, blank, cost_axis, method_colours
from idiolect.report.wording import score_words, shortened

# Panel: what is spent, the history's columns that add up to it, their unit.
_PANELS = (
    ("communicated, MB", ("download_bytes", "upload_bytes"), 1e-6),
    ("gradient evaluations", ("gradients_shared", "gradients_personal", "gradients_both"), 1.0),
    ("modelled seconds", ("modelled_seconds",), 1.0),
    ("rounds", ("rounds",), 1.0),
)
_FEW_SEEDS = 4  # under this an interval over seeds says little: two seeds would give +- 9 standard deviations


@dataclasses.dataclass(frozen=True)
class Curve:
    """One method's history, (seeds, rounds) arrays over the union of recorded rounds, not-a-number in the holes."""

    method: str
    costs: tuple[np.ndarray, ...]  # one per panel
    mean: np.ndarray
    worst: np.ndarray
    diverged: bool


def score_against_cost(run: Run) -> Figure | None:
    """Validation score (mean, worst tenth of clients) by bytes, gradients, modelled time, rounds; None if unknown."""
    diverged = {entry.method: bool(entry.diverged) for entry in run.methods}
    curves = [_curve(run, method, diverged[method]) for method in diverged]
    curves = [curve for curve in curves if np.isfinite(curve.mean).any()]
    if not curves:
        return None
    words, colours = score_words(run.score), method_colours(run)
    lines = -(-(len(curves) + 2) // 4)
    figure = blank(12, 3.5 + 0.22 * lines)
    panels = figure.subplots(1, len(_PANELS), sharey=True, width_ratios=(1, 1, 1, 0.62))
    for place, (axes, (title, _, _)) in enumerate(zip(panels, _PANELS)):
        wide = cost_axis(axes, np.concatenate([curve.costs[place].ravel() for curve in curves]))
        for order, curve in enumerate(curves):
            _draw(axes, curve, place, colours[curve.method], words.scale, wide, 3 + order)
        axes.set_xlabel(title + (" (log scale)" if wide else ""))
        if not any(np.isfinite(curve.costs[place]).any() for curve in curves):
            axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center", color=MUTED)
    _limits(panels[0], curves, words.scale)
    panels[0].set_ylabel(f"validation {words.title}")
    _legend(figure, curves, colours)
    return figure


def _curve(run: Run, method: str, diverged: bool) -> Curve:
    rows = of_method(run.history, method)
    seeds, seed_of = np.unique(rows["seed"].to_numpy(), return_inverse=True)
    rounds, round_of = np.unique(rows["round"].to_numpy(), return_inverse=True)

    def spread(values: np.ndarray) -> np.ndarray:
        cells = np.full((len(seeds), len(rounds)), np.nan)
        cells[seed_of, round_of] = values
        return cells

    costs = tuple(
        spread(unit * np.sum([numbers(rows, column) for column in columns], axis=0)) for _, columns, unit in _PANELS
    )
    mean, worst = (spread(_validation(rows, run.score, which)) for which in ("mean", "worst_decile"))
    return Curve(method, costs, mean, worst, diverged)


def _validation(rows: pa.Table, score: str, statistic: str) -> np.ndarray:
    """The personal models' score; the shared model's where a method has no other."""
    personal = numbers(rows, f"validation_personal_{score}_{statistic}")
    values = np.where(np.isnan(personal), numbers(rows, f"validation_shared_{score}_{statistic}"), personal)
    return np.where(np.isfinite(values), values, np.nan)


def _draw(axes: Axes, curve: Curve, place: int, colour: str, scale: float, wide: bool, order: int) -> None:
    costs = curve.costs[place]
    everywhere = np.isfinite(curve.mean).all(axis=0)  # a mean over changing seeds would jump
    if not everywhere.any():
        everywhere = np.isfinite(curve.mean).any(axis=0)
    cost = np.mean(costs[:, everywhere], axis=0) if len(costs) else np.empty(0)
    shown = (cost > 0) if wide else np.isfinite(cost)
    if not np.isfinite(costs).any():  # not recorded, which is not the same as free
        return
    if not _spends(costs) or not shown.any():  # only where it ends can be shown
        for values, width in ((curve.mean, 1.8), (curve.worst, 1.0)):
            axes.axhline(_last(values) * scale, color=colour, linewidth=width, linestyle=(0, (1, 1.6)), zorder=order)
        return
    cost = cost[shown]
    if len(curve.mean) > 1:
        for seed in range(len(curve.mean)):
            seen = costs[seed] > 0 if wide else np.isfinite(costs[seed])
            axes.plot(costs[seed][seen], curve.mean[seed][seen] * scale, color=colour, linewidth=0.7, alpha=0.45)
    middle, low, high = _band(curve.mean[:, everywhere][:, shown] * scale)
    if len(curve.mean) > 1:
        axes.fill_between(cost, low, high, color=colour, alpha=0.16, linewidth=0)
    worst = _band(curve.worst[:, everywhere][:, shown] * scale)[0]
    dot = "_" if len(cost) == 1 else None  # a line through one point cannot be seen
    axes.plot(cost, worst, color=colour, linewidth=1.2, linestyle=(0, (4, 2)), marker=dot, zorder=order)
    axes.plot(cost, middle, color=colour, linewidth=2.0, zorder=order + 20)
    mark, size = ("X", 46) if curve.diverged else ("o", 22)
    ends = axes.scatter(cost[-1:], middle[-1:], s=size, marker=mark, color=colour, edgecolor=PAPER, linewidth=0.7)
    ends.set_zorder(order + 40)


def _spends(costs: np.ndarray) -> bool:
    """Whether a method pays anything of this kind."""
    return bool(np.nan_to_num(costs).max(initial=0.0) > 0)


def _last(mean: np.ndarray) -> float:
    """Where the curve ends: the mean over seeds at its last round."""
    finite = np.isfinite(mean).any(axis=0)
    if not finite.any():
        return float("nan")
    return float(np.nanmean(mean[:, np.flatnonzero(finite)[-1]]))


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds with a 95 % t interval, or with the seeds' own range when they are few."""
    known = np.where(np.isfinite(values), values, np.nan)
    # Rounds that no seed has a score for stay empty; nanmean would warn about them.
    number = np.maximum(np.isfinite(known).sum(axis=0), 1)
    empty = ~np.isfinite(known).any(axis=0)
    middle = np.where(empty, np.nan, np.nansum(known, axis=0) / number)
    if len(values) < _FEW_SEEDS:
        low = np.where(empty, np.nan, np.min(np.where(np.isnan(known), np.inf, known), axis=0))
        high = np.where(empty, np.nan, np.max(np.where(np.isnan(known), -np.inf, known), axis=0))
        return middle, low, high
    deviation = np.sqrt(np.nansum((known - middle) ** 2, axis=0) / np.maximum(number - 1, 1))
    half = student_quantile(len(values) - 1) * deviation / np.sqrt(number)
    return middle, middle - half, middle + half


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t by its Cornish-Fisher series (Hill 1970): within 1 % from 3 degrees on."""
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _limits(axes: Axes, curves: list[Curve], scale: float) -> None:
    """A vertical range for the methods that finished: one that explodes must not flatten the others."""
    calm = [curve for curve in curves if not curve.diverged] or curves
    values = np.concatenate([np.concatenate([curve.mean.ravel(), curve.worst.ravel()]) for curve in calm]) * scale
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    if low > 0 and high / low > 50:  # a loss that falls by orders of magnitude
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
    else:
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        axes.set_ylim(low - room, high + room)


def _legend(figure: Figure, curves: list[Curve], colours: dict[str, str]) -> None:
    entries = []
    for curve in curves:
        silent = np.isfinite(curve.costs[0]).any() and not _spends(curve.costs[0])
        note = " (diverged)" if curve.diverged else " (dotted: sends nothing)" if silent else ""
        entries.append(
            Line2D([], [], color=colours[curve.method], linewidth=2.4, label=shortened(curve.method, 26) + note)
        )
    dashed = Line2D([], [], color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="worst tenth of clients")
    entries.append(dashed)
    seeds = max(len(curve.mean) for curve in curves)
    if seeds > 1:
        band = "95 % interval" if seeds >= _FEW_SEEDS else "range"
        entries.append(Line2D([], [], color=MUTED, linewidth=0.8, label=f"each seed; band: their {band}"))
    figure.legend(handles=entries, loc="outside upper left", ncols=4, handlelength=1.8, columnspacing=1.6)
