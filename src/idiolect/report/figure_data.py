# SPDX-License-Identifier: Apache-2.0
"""The numbers behind the figures of a run's page, from which its script draws them again to be explored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from idiolect.record.privacy import Statement
from idiolect.record.schema import MethodSummary
from idiolect.report.cost_figure import (
    OF_OPTIMUM,
    OF_SCORE,
    Curve,
    Panel,
    band,
    curve_of,
    curves_of,
    rounds_shown,
    spends,
)
from idiolect.report.distribution_figure import client_scores, deciles_of
from idiolect.report.folder import Run, mean_known, numbers, of_method
from idiolect.report.packed import packed
from idiolect.report.privacy import array_line
from idiolect.report.style import method_colours, page_colour, series_colours
from idiolect.report.wording import known, score_words

Data = dict[str, object]
Line = tuple[Data, list[np.ndarray]]  # of one method, with its costs
_SPENT = (
    "While the run spends. Each dot is a recorded round; dotted: a method that spends nothing of the kind; thin: the "
    "range of the seeds. The buttons switch what is spent, and methods on and off."
)
COST, SCORED = "score-against-cost", ["mean over clients", "worst tenth"]
# as the page calls them: the shared model is the one that a client received
_SPOKEN = {
    "both": "both right",
    "shared_only": "received only",
    "personal_only": "personal only",
    "neither": "neither",
}
MOST_POINTS = 2000  # recorded rounds of one curve; more are thinned out evenly


def run_figures(run: Run) -> dict[str, Data]:
    """By name; those that the run has nothing for are left out. Names of drawn figures replace these."""
    found: dict[str, Callable[[Run], Data | None]] = {
        COST: score_curves,
        "suboptimality-against-cost": optimum_curves,
        "gain-by-client": lambda run: {"kind": "gain"} if run.alone is not None and run.clients.num_rows else None,
        "distribution": deciles,
        "who-is-right": who_is_right,
        "routes": routes,
        "sent": lambda run: sent(run.privacy),
    }
    made = {name: make(run) for name, make in found.items()}
    return {name: data for name, data in made.items() if data is not None}


def score_curves(run: Run) -> Data | None:
    """Validation score by what was spent, mean and worst tenth of clients."""
    curves = curves_of(run)
    if not curves:
        return None
    colours, words = method_colours(run), run.words
    lines = [_score_line(curve, page_colour(colours[curve.method])) for curve in curves]
    return _costs(OF_SCORE, lines, SCORED, f"validation {words.title}", words.scale)


def runs_figures(chosen: dict[str, tuple[Run, str]]) -> dict[str, Data]:
    """Curves and deciles of one method of each run, under the names of the runs."""
    # methods of several runs may have one label: lines are called by run and method
    lines, spreads, colours = list[Line](), list[Data](), series_colours(list(chosen))
    for name, (run, method) in chosen.items():
        label, colour = f"{name}: {method}", page_colour(colours[name])
        curve = curve_of(run, method, diverged=False)
        if np.isfinite(curve.mean).any():
            lines.append(_score_line(dataclasses.replace(curve, method=label), colour))
        own = next(entry for entry in run.methods if entry.method == method)
        spreads += _decile_line(run, own, colour, label)
    words = score_words(next(iter(chosen.values()))[0].score) if chosen else score_words("")
    found: dict[str, Data] = {}
    if lines:
        found[COST] = _costs(OF_SCORE, lines, SCORED, f"validation {words.title}", words.scale)
    if spreads:
        found["distribution"] = {"kind": "deciles", "title": f"test {words.title}", "lines": spreads}
    return found


def _costs(panels: tuple[Panel, ...], lines: list[Line], statistics: list[str], title: str, scale: float = 1.0) -> Data:
    """What is switched between; costs that no method pays are left out."""
    # a button that switches to an axis of zeros would show nothing
    kept = [place for place in range(len(panels)) if any(spends(costs[place]) for _, costs in lines)]
    full = [line | {"costs": [packed(costs[place]) for place in kept]} for line, costs in lines]
    titles = [panels[place].title for place in kept]
    facts = {"kind": "cost", "title": title, "scale": scale, "statistics": statistics, "caption": _SPENT}
    return facts | {"costs": titles, "lines": full}


def _score_line(curve: Curve, colour: str) -> Line:
    shown = _thinned(np.flatnonzero(rounds_shown(curve)))
    middle, low, high = band(curve.mean[:, shown])
    line: Data = {"method": curve.method, "colour": colour, "diverged": curve.diverged}
    line["values"] = [packed(middle), packed(mean_known(curve.worst[:, shown]))]
    line["band"] = [packed(low), packed(high)] if len(curve.mean) > 1 else None
    return line, [mean_known(costs[:, shown]) for costs in curve.costs]


def _thinned(places: np.ndarray) -> np.ndarray:
    if len(places) <= MOST_POINTS:
        return places
    return places[np.unique(np.linspace(0, len(places) - 1, MOST_POINTS).astype(int))]


def optimum_curves(run: Run) -> Data | None:
    """F - F* of each method's first seed by what was spent; None where no optimum is known."""
    colours, lines = method_colours(run), list[Line]()
    for entry in run.methods:
        rows = of_method(run.history, entry.method)
        gap, seeds = numbers(rows, "suboptimality"), rows["seed"].to_numpy()
        # logarithms: a gap of 0 or below is at the optimum up to rounding, and has no place
        first = _thinned(np.flatnonzero((gap > 0) & (seeds == seeds[:1])))
        if len(first):
            line: Data = {"method": entry.method, "colour": page_colour(colours[entry.method]), "diverged": False}
            line |= {"values": [packed(gap[first])], "band": None}
            lines.append((line, [panel.spent(rows)[first] for panel in OF_OPTIMUM]))
    return _costs(OF_OPTIMUM, lines, ["F - F*"], "F - F* on training rows") if lines else None


def deciles(run: Run) -> Data | None:
    """The test score's deciles over clients, with mean and worst tenth, of every method that has them."""
    colours, lines = method_colours(run), list[Data]()
    for entry in run.methods:
        lines += [] if entry.diverged else _decile_line(run, entry, page_colour(colours[entry.method]), entry.method)
    return {"kind": "deciles", "title": f"test {run.words.title}", "lines": lines} if lines else None


def _decile_line(run: Run, entry: MethodSummary, colour: str, label: str) -> list[Data]:
    """One row of the figure; none where no client has a score."""
    scores = client_scores(run, entry.method)
    if np.isnan(scores).all():
        return []
    _, ends = deciles_of(scores)
    line: Data = {"method": label, "colour": colour, "deciles": [float(f"{end:.6g}") for end in ends]}
    line |= {"mean": entry.score.mean, "worst": entry.score.worst_decile, "interval": entry.interval}
    return [line]


def who_is_right(run: Run) -> Data | None:
    """Fractions of test rows that both models, one or neither gets right, by method."""
    groups = list[Data]()
    for entry in run.methods:
        if entry.personalization is not None:
            shares = [getattr(entry.personalization.breakdown, name) for name in _SPOKEN]
            groups += [{"name": entry.method, "values": shares}] if known(shares[0]) else []
    return _bars("test rows (%)", list(_SPOKEN.values()), groups, stacked=True) if groups else None


def routes(run: Run) -> Data | None:
    """How likely rows take the shared version of each layer, by which model gets them right."""
    groups: list[Data] = []
    for entry in run.methods:
        if found := entry.routing:
            for place, layer in enumerate(found.names):
                shares = [found.shared_share[place], *(found.by_category[name][place] for name in _SPOKEN)]
                groups.append({"name": f"{entry.method}: {layer}", "values": shares})
    names = ["all rows", *_SPOKEN.values()]
    return _bars("mean probability of the shared version (%)", names, groups, stacked=False) if groups else None


def _bars(title: str, parts: list[str], groups: list[Data], stacked: bool) -> Data:
    return {"kind": "bars", "parts": parts, "groups": groups, "stacked": stacked, "title": title, "scale": 100}


def sent(statement: Statement | None) -> Data | None:
    """Bytes of what one client sends in one round, array by array, and how often, by method."""
    lines = [
        {
            "name": entry.method,
            "arrays": [[array_line(one), one.bytes] for one in entry.uploads],
            "about": [
                f"{entry.uploads_in_all:,} uploads of all clients",
                f"each from {entry.rows_at_least.rows:,} rows at least",
            ],
        }
        for entry in (statement.methods if statement else ())
    ]
    return {"kind": "sent", "lines": lines, "title": "bytes that a client sends in a round"} if lines else None
