# SPDX-License-Identifier: Apache-2.0
"""Is the answer right? Errors against the best classical fit, the announced winner, coverage, and false alarms."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

ALONE = "local"
TEST_OVER_LEARN = 0.25  # test rows / rows learned from, of every split
LEVEL = 0.95
BOOTSTRAPS = 4000
Cell = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Splits:
    """The cells of one table, one per split: of the classical fits, and of ours."""

    classical: tuple[Cell, ...]
    ours: tuple[Cell, ...]


def mean_over_clients(values: Sequence[float | None]) -> float:
    """Mean over the clients that have one."""
    return float(np.mean([value for value in values if value is not None]))


def errors_by_split(cells: Sequence[Cell], kind: str, what: str = "errors") -> dict[str, np.ndarray]:
    """Mean error over clients in each split, for each fit or method that has one in every split."""
    names = [name for name in cells[0][kind] if all(name in cell[kind] for cell in cells)]
    known = [name for name in names if any(value is not None for value in cells[0][kind][name].get(what, ()))]
    return {name: np.array([mean_over_clients(cell[kind][name][what]) for cell in cells]) for name in known}


def announced_errors(cells: Sequence[Cell]) -> np.ndarray:
    """The announced method's mean error over clients in each split."""
    return np.array([mean_over_clients(cell["methods"][cell["announced"]]["errors"]) for cell in cells])


def worse_than_noise(errors: np.ndarray, best: np.ndarray, corrected: bool = True) -> bool:
    """Whether one method's mean error over splits is above another's by more than chance, paired over splits.

    Splits share rows, so their differences are not independent: the variance of the mean is taken as
    (1/splits + test/learn) times the variance over splits (Nadeau and Bengio, 2003) when `corrected`.
    """
    difference = errors - best
    splits = len(difference)
    if splits < 2:
        return False
    inflation = 1 / splits + (TEST_OVER_LEARN if corrected else 0)
    bound = stats.t.ppf((1 + LEVEL) / 2, splits - 1) * math.sqrt(inflation * float(difference.var(ddof=1)))
    return float(difference.mean()) > float(bound)


def right_announcements(cells: Sequence[Cell], corrected: bool = True) -> list[bool]:
    """Per split: the announced method has the least mean error over all splits, or is tied with the one that has."""
    errors = errors_by_split(cells, "methods")
    winner = min(errors, key=lambda name: errors[name].mean())
    return [
        cell["announced"] == winner
        or (cell["announced"] in errors and not worse_than_noise(errors[cell["announced"]], errors[winner], corrected))
        for cell in cells
    ]


def ratio_interval(splits: Splits, best: str) -> tuple[float, float]:
    """95 % interval of the announced error over that of the fit `best`, by a bootstrap over clients.

    A table has the clients that it has: where a few clients with few test rows decide the ratio, other clients of the
    same kind could have turned it round.
    """
    places = {name: place for place, name in enumerate(splits.classical[0]["clients"])}
    clients = splits.ours[0]["methods"][splits.ours[0]["announced"]]["client"]
    order = [places[name] for name in clients]
    chosen = [cell["methods"][cell["announced"]]["errors"] for cell in splits.ours]
    theirs = [[cell["fits"][best]["errors"][place] for place in order] for cell in splits.classical]
    # (splits, clients): the same clients have a test row on both sides
    pairs = np.array([chosen, theirs], float)
    drawn = np.random.default_rng(0).integers(0, len(clients), (BOOTSTRAPS, len(clients)))
    sums = np.nansum(pairs, axis=1)[:, drawn].sum(axis=2)
    low, high = np.quantile(sums[0] / sums[1], (0.025, 0.975))
    return float(low), float(high)


def held_gains(cells: Sequence[Cell]) -> list[bool]:
    """Per split, method and client: does the 95 % interval of the gain hold the client's mean gain on the other splits?

    The mean over other splits is noisy too, but not independent of the interval: with a fifth of the rows in each test
    part, the distance of a split's gain from the mean of nine others has 0.89 of the variance of the gain itself where
    test rows are the only noise. A perfect 95 % interval holds 96 % by this count; training rows that differ between
    splits, which an interval over test rows cannot know of, lower it.
    """
    held = []
    for method in _collaborative(cells):
        gains = _table(cells, method, "plain_gain")
        for split, cell in enumerate(cells):
            others = np.delete(gains, split, axis=0)
            known = ~np.isnan(others)
            means = np.where(known, others, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
            low, high = (np.array(cell["methods"][method][name], float) for name in ("gain_low", "gain_high"))
            counted = (known.sum(axis=0) > 0) & ~np.isnan(low) & ~np.isnan(high)
            held += list((low <= means)[counted] & (means <= high)[counted])
    return [bool(value) for value in held]


def hurt_calls(cells: Sequence[Cell]) -> list[bool]:
    """Per split, method and client with a verdict: is it "hurt"?"""
    verdicts = [word for cell in cells for name in _collaborative([cell]) for word in cell["methods"][name]["verdict"]]
    return [word == "hurt" for word in verdicts if word is not None]


def hurt_elsewhere(cells: Sequence[Cell]) -> list[bool]:
    """Per "hurt" verdict: is the client's mean gain on the other splits negative too?"""
    found = []
    for method in _collaborative(cells):
        gains = _table(cells, method, "plain_gain")
        for split, cell in enumerate(cells):
            for client, word in enumerate(cell["methods"][method]["verdict"]):
                others = np.delete(gains[:, client], split)
                if word == "hurt" and not np.isnan(others).all():
                    found.append(bool(np.nanmean(others) < 0))
    return found


def _collaborative(cells: Sequence[Cell]) -> list[str]:
    """Methods other than training alone that every split has."""
    return [name for name in cells[0]["methods"] if name != ALONE and all(name in cell["methods"] for cell in cells)]


def _table(cells: Sequence[Cell], method: str, what: str) -> np.ndarray:
    """(splits, clients)."""
    return np.array([cell["methods"][method][what] for cell in cells], float)


def judge_table(splits: Splits) -> dict[str, Any]:
    """Everything that is said of one table."""
    classical, ours = errors_by_split(splits.classical, "fits"), errors_by_split(splits.ours, "methods")
    announced = announced_errors(splits.ours)
    best = min(classical, key=lambda name: classical[name].mean())
    winner = min(ours, key=lambda name: ours[name].mean())
    held, hurt, elsewhere = held_gains(splits.ours), hurt_calls(splits.ours), hurt_elsewhere(splits.ours)
    return {
        "splits": len(splits.ours),
        "classical": {name: float(errors.mean()) for name, errors in classical.items()},
        "classical accuracy": _means(errors_by_split(splits.classical, "fits", "accuracy")),
        "ours": {name: float(errors.mean()) for name, errors in ours.items()},
        "our accuracy": _means(errors_by_split(splits.ours, "methods", "accuracy")),
        "best classical": best,
        "winner": winner,
        "announced": dict(Counter(cell["announced"] for cell in splits.ours).most_common()),
        "announced error": float(announced.mean()),
        "ratio": float(announced.mean() / classical[best].mean()),
        "ratio, 95 % over clients": ratio_interval(splits, best),
        "ratio of the winner": float(ours[winner].mean() / classical[best].mean()),
        "right": _fraction(right_announcements(splits.ours)),
        "right, splits taken as independent": _fraction(right_announcements(splits.ours, corrected=False)),
        "coverage": _fraction(held),
        "intervals": len(held),
        "hurt": _fraction(hurt),
        "verdicts": len(hurt),
        "hurt elsewhere too": _fraction(elsewhere),
        "seconds of a compare": float(np.median([cell["seconds"] for cell in splits.ours])),
    }


def run_numbers(splits: Splits) -> list[dict[str, Any]]:
    """One line per split: what was announced, and every mean error over clients."""
    return [
        {
            "announced": ours["announced"],
            "tied": list(ours["tied"]),
            "ours": {name: mean_over_clients(entry["errors"]) for name, entry in ours["methods"].items()},
            "classical": {name: mean_over_clients(entry["errors"]) for name, entry in classical["fits"].items()},
            "seconds": ours["seconds"],
        }
        for classical, ours in zip(splits.classical, splits.ours)
    ]


def _means(errors: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in errors.items()}


def _fraction(flags: Sequence[bool]) -> float | None:
    return float(np.mean(flags)) if len(flags) else None
