# SPDX-License-Identifier: Apache-2.0
"""What a page's script draws again to be explored: the numbers behind the figures of a run, and all its clients."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.record.privacy import Statement
from idiolect.record.schema import MethodSummary
from idiolect.record.words import counted
from idiolect.report import cost_figure
from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.cost_figure import OF_OPTIMUM, OF_SCORE, Curve, Panel
from idiolect.report.distribution_figure import client_scores, deciles_of
from idiolect.report.folder import Run, laid_out, mean_known, numbers, of_method
from idiolect.report.html import LIMIT
from idiolect.report.privacy import array_line
from idiolect.report.style import method_colours, page_colour
from idiolect.report.wording import ScoreWords, known

Data = dict[str, object]
Line = tuple[Data, list[np.ndarray]]  # of one method, with its costs
_SPENT = (
    "While the run spends. Each dot is a recorded round; dotted: a method that spends nothing of the kind; thin: the "
    "range of the seeds. The buttons switch what is spent, and methods on and off."
)
COST, DISTRIBUTION = "score-against-cost", "distribution"
# as the page calls them: the shared model is the one that a client received
_SPOKEN = {
    "both": "both right",
    "shared_only": "received only",
    "personal_only": "personal only",
    "neither": "neither",
}
_COLUMNS = {
    "rows": "train_rows",
    "alone": "alone",
    "shared": "shared",
    "personal": "personal",
    "gain": "expected",
    "low": "expected_low",
    "high": "expected_high",
}
ABSENT, NOTHING = " ", "-"  # no such client of the method; nothing to compare it with
MOST_POINTS = 2000  # recorded rounds of one curve; more are thinned out evenly


def packed(values: np.ndarray | Sequence[float | None]) -> str:
    """A column for the page's script, so that 10,000 clients stay small: 32-bit floats in base 64.

    What is None or infinite is not-a-number.
    """
    # little-endian, as the script's typed arrays are wherever browsers run
    with np.errstate(over="ignore"):
        small = np.asarray(values, "<f4")
    # looked at after the cast: a double beyond 32 bits is infinite only then, and figures draw gaps, no infinities
    return base64.b64encode(np.where(np.isfinite(small), small, np.float32(np.nan)).tobytes()).decode("ascii")


class Shown(NamedTuple):
    """One method in the figures of curves and deciles."""

    run: Run
    entry: MethodSummary
    label: str
    colour: str


def run_figures(run: Run) -> dict[str, Data]:
    """By name; those that the run has nothing for are left out. Names of drawn figures replace these."""
    shown = method_figures(shown_methods(run), run.words)
    found: dict[str, Data | None] = {
        COST: shown.get(COST),
        "suboptimality-against-cost": optimum_curves(run),
        "gain-by-client": {"kind": "gain"} if run.alone is not None and run.clients.num_rows else None,
        DISTRIBUTION: shown.get(DISTRIBUTION),
        "who-is-right": who_is_right(run),
        "routes": routes(run),
        "sent": sent(run.privacy),
    }
    return {name: data for name, data in found.items() if data is not None}


def shown_methods(run: Run) -> list[Shown]:
    """All methods of a run."""
    colours = method_colours(run)
    return [Shown(run, entry, entry.method, colours[entry.method]) for entry in run.methods]


def method_figures(methods: Sequence[Shown], words: ScoreWords) -> dict[str, Data]:
    """Validation score by what was spent, and the test score's deciles over clients, with mean and worst tenth."""
    curves, spreads = list[Line](), list[Data]()
    for run, entry, label, colour in methods:
        line: Data = {"method": label, "colour": page_colour(colour)}
        curve, scores = cost_figure.curve_of(run, entry), client_scores(run, entry.method)
        if np.isfinite(curve.mean).any():
            curves.append(_score_line(curve, line))
        if not (entry.diverged or np.isnan(scores).all()):
            line |= {"deciles": [float(f"{end:.6g}") for end in deciles_of(scores)[1]], "mean": entry.score.mean}
            spreads.append(line | {"worst": entry.score.worst_decile, "interval": entry.interval})
    found: dict[str, Data] = {}
    if curves:
        statistics = ["mean over clients", "worst tenth"]
        found[COST] = _costs(OF_SCORE, curves, statistics, f"validation {words.title}", words.scale)
    if spreads:
        found[DISTRIBUTION] = {"kind": "deciles", "title": f"test {words.title}", "lines": spreads}
    return found


def _costs(panels: tuple[Panel, ...], lines: list[Line], statistics: list[str], title: str, scale: float = 1.0) -> Data:
    """What is switched between; costs that no method pays are left out."""
    # a button that switches to an axis of zeros would show nothing
    kept = [place for place in range(len(panels)) if any(cost_figure.spends(costs[place]) for _, costs in lines)]
    full = [line | {"costs": [packed(costs[place]) for place in kept]} for line, costs in lines]
    titles = [panels[place].title for place in kept]
    facts = {"kind": "cost", "title": title, "scale": scale, "statistics": statistics, "caption": _SPENT}
    return facts | {"costs": titles, "lines": full}


def _score_line(curve: Curve, line: Data) -> Line:
    shown = _thinned(np.flatnonzero(cost_figure.rounds_shown(curve)))
    middle, low, high = cost_figure.band(curve.mean[:, shown])
    values = [packed(middle), packed(mean_known(curve.worst[:, shown]))]
    ends = [packed(low), packed(high)] if len(curve.mean) > 1 else None
    costs = [mean_known(costs[:, shown]) for costs in curve.costs]
    return line | {"diverged": curve.diverged, "values": values, "band": ends}, costs


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


def who_is_right(run: Run) -> Data | None:
    """Fractions of test rows that both models, one or neither gets right, by method."""
    groups: list[Data] = [
        {"name": entry.method, "values": [getattr(found.breakdown, name) for name in _SPOKEN]}
        for entry in run.methods
        if (found := entry.personalization) and known(found.breakdown.both)
    ]
    return _bars("test rows (%)", list(_SPOKEN.values()), groups, stacked=True)


def routes(run: Run) -> Data | None:
    """How likely rows take the shared version of each layer, by which model gets them right."""
    groups: list[Data] = []
    for entry in run.methods:
        if found := entry.routing:
            for place, layer in enumerate(found.names):
                shares = [found.shared_share[place], *(found.by_category[name][place] for name in _SPOKEN)]
                groups.append({"name": f"{entry.method}: {layer}", "values": shares})
    names = ["all rows", *_SPOKEN.values()]
    return _bars("mean probability of the shared version (%)", names, groups, stacked=False)


def _bars(title: str, parts: list[str], groups: list[Data], stacked: bool) -> Data | None:
    facts: Data = {"kind": "bars", "parts": parts, "groups": groups, "stacked": stacked, "title": title, "scale": 100}
    return facts if groups else None


def sent(statement: Statement | None) -> Data | None:
    """Bytes of what one client sends in one round, array by array, and how often, by method."""
    lines = [
        {
            "name": entry.method,
            "arrays": [[array_line(one), one.bytes] for one in entry.uploads],
            "about": [
                f"{counted(entry.uploads_in_all, 'upload')} of all clients",
                f"each from {counted(entry.rows_at_least.rows, 'row')} at least",
            ],
        }
        for entry in (statement.methods if statement else ())
    ]
    return {"kind": "sent", "lines": lines, "title": "bytes that a client sends in a round"} if lines else None


def score_facts(words: ScoreWords, higher: bool) -> dict[str, object]:
    """How the script writes a score."""
    return {
        "title": words.title,
        "scale": words.scale,
        "decimals": int(words.specification[1]) if words.specification.endswith("f") else None,
        "higher": higher,
    }


def client_data(tables: Sequence[ClientTable], shown: int, colours: dict[str, str]) -> dict[str, object]:
    """The clients of all methods, in one order."""
    names = dict.fromkeys(str(name) for table in tables for name in table.client)
    places = {name: place for place, name in enumerate(names)}
    # packed columns and their numbers: one that several methods share, rows of each client say, is kept once
    pool, new = dict[str, int](), set[int]()
    methods = []
    for table in tables:
        # methods may have other clients, or another order: columns are by client, not by row
        at = np.asarray([places[str(name)] for name in table.client], int)
        new |= set(at[table.held_out].tolist())
        verdicts = [ABSENT] * len(places)  # a character per client: the place of its verdict, or why there is none
        for place, verdict in zip(at, table.verdict):
            verdicts[place] = str(VERDICTS.index(verdict)) if verdict in VERDICTS else NOTHING
        entry: dict[str, object] = {"method": table.method, "colour": page_colour(colours[table.method])}
        entry["verdict"] = "".join(verdicts)
        for key, name in _COLUMNS.items():
            column = laid_out(getattr(table, name), at, len(places))
            # a method without such numbers, as one without a shared model: the page leaves the column out
            entry[key] = pool.setdefault(packed(column), len(pool)) if np.isfinite(column).any() else None
        methods.append(entry)
    facts = {"limit": LIMIT, "shown": shown, "verdicts": VERDICTS, "names": list(names), "fresh": sorted(new)}
    return facts | {"columns": list(pool), "methods": methods}
