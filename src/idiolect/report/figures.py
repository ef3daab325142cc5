# SPDX-License-Identifier: Apache-2.0
"""The figures of a report as files: each drawn once, saved as PNG and SVG."""

from __future__ import annotations

import functools
from collections.abc import Callable

from matplotlib.figure import Figure

from idiolect.report.clients import NO_INTERVALS, SAME, has_intervals
from idiolect.report.cost_figure import score_against_cost, suboptimality_against_cost
from idiolect.report.distribution_figure import distribution_over_clients
from idiolect.report.folder import Run
from idiolect.report.gain_figure import gain_by_client
from idiolect.report.style import Drawn, drawn

_COST = (
    "Validation score while the run spends: bytes both ways, gradient evaluations of one example, modelled seconds and "
    "rounds. Solid: mean over clients; dashed: their worst tenth; thin: each seed."
)
_OPTIMUM = (
    "How far the objective is from its exact optimum while the run spends rounds, bytes and gradients of each "
    "block: w is shared, beta personal. One line per seed; a pass that yields both gradients counts in both panels."
)
_GAIN = (
    "Each dot is a client, averaged over seeds: what it can expect to gain over training alone, from its own test rows "
    "and the mean gain of all clients, right or up being better. The line is the 95 % interval; helped and hurt are "
    f"called so that at most 5 % of the calls are false on average; same: {SAME}."
)
_GAIN_BY_SCORES = (
    "Each dot is a client, averaged over seeds: what it gains over training alone by its score on test rows, right or "
    f"up being better. {NO_INTERVALS}"
)
_SPREAD = (
    "The test score over clients. Darker bands lie nearer the median; dots (for many clients a thin line) show them "
    "all; the diamond is the mean over clients with its 95 % interval, the hollow diamond the mean of the worst tenth; "
    "a triangle at the edge: one of them farther out."
)

FIGURES: tuple[tuple[str, str, str, Callable[[Run], Figure | None], str], ...] = (
    ("score-against-cost", "Score against cost", _COST, score_against_cost, "no history to draw it from"),
    # most runs have no known optimum, and miss nothing
    ("suboptimality-against-cost", "Distance from the optimum against cost", _OPTIMUM, suboptimality_against_cost, ""),
    ("gain-by-client", "Who gains, who loses", _GAIN, gain_by_client, "no gain against training alone"),
    ("distribution", "Spread over clients", _SPREAD, distribution_over_clients, "no client has a test score"),
)


def draw_all(run: Run) -> tuple[list[Drawn], list[str]]:
    """Every figure the run has data for, and a sentence for every one it has not."""
    found, missing = list[Drawn](), []
    for name, title, caption, draw, reason in FIGURES:
        by_scores = draw is gain_by_client and not has_intervals(run)
        figure = drawn(name, title, _GAIN_BY_SCORES if by_scores else caption, functools.partial(draw, run))
        found += figure
        if reason and not figure:
            missing.append(f"The figure '{title}' was left out: {reason}.")
    return found, missing
