# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: one row per recorded round, and per-client scores of the last and the selected round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.engines.billing import Account
from idiolect.engines.evaluate import KINDS, Scores
from idiolect.engines.plan import Plan
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import summarise
from idiolect.record.divergence import Divergence

# model -> score -> one number per client; "instances" -> who is right -> fraction of the client's rows
ModelScores = dict[str, dict[str, list[float]]]
ClientScores = dict[str, ModelScores]  # by split


Row = dict[str, Any]  # one recorded round: column -> number


@dataclasses.dataclass
class Recorder:
    """One lane's record. Rounds are compared on validation rows; test rows are read at the end, for two rounds."""

    scores: tuple[str, ...]  # the one to choose by selects, the others break ties
    choose_by: str
    ledger: Ledger
    history: list[Row]
    client_bytes: list[int]  # the ledger's, by client; empty: not known
    selected_round: int
    last_round: int
    diverged: Divergence | None
    diverged_client: int  # whose parameters stopped being finite; -1: the server's, or no client's
    last: ClientScores = dataclasses.field(default_factory=dict)  # filled in at the end
    selected: ClientScores = dataclasses.field(default_factory=dict)


def open_recorder(plan: Plan, account: Account, history: Sequence[Row], selected_round: int) -> Recorder:
    """The record of a lane so far."""
    diverged, client = None, account.diverged_client
    if not account.sound:
        diverged = Divergence(account.diverged_round, None if client < 0 else plan.federation.names[client])
    return Recorder(
        scores=plan.scores,
        choose_by=plan.choose_by,
        ledger=account.ledger,
        history=list(history),
        client_bytes=account.client_bytes.tolist(),
        selected_round=int(selected_round),
        last_round=history[-1]["round"] if history else -1,
        diverged=diverged,
        diverged_client=client,
    )


def history_row(number: int, seconds: float, account: Account, scores: Scores, measured: dict[str, float]) -> Row:
    """What is recorded of a round, from validation scores.

    `measured` are further numbers for the row, such as the distance to a known optimum.
    """
    row: Row = {"round": number, "seconds": seconds, **account.ledger.to_dict(), **measured}
    row["slowest_gradients"] = account.slowest_gradients
    for model in KINDS:
        for name, values in scores.get(model, {}).items():
            summary = summarise(np.asarray(values, np.float64), SCORES[name].higher_is_better)
            for part in ("mean", "worst_decile", "spread"):
                row[f"validation_{model}_{name}_{part}"] = float(getattr(summary, part))
    return row


def compare_record(
    row: Row, best: tuple[float, ...], scores: tuple[str, ...], choose_by: str
) -> tuple[bool, tuple[float, ...]]:
    """Whether validation rows say that a recorded round is better than the `best` so far, and what the best is now.

    Every score's mean, larger is better, in the order that decides.
    """
    order = sorted(scores, key=lambda name: name != choose_by)
    means = [float(row.get(f"validation_personal_{name}_mean", math.nan)) for name in order]
    reached = tuple(mean if SCORES[name].higher_is_better else -mean for name, mean in zip(order, means))
    # without validation rows there is nothing to compare: the last round is the selected one. Not-a-number, which is
    # never larger, stands before the first record
    better = math.isnan(best[0]) or reached > best
    return better, best if math.isnan(reached[0]) else max(reached, best)


def to_lists(scores: Scores) -> ModelScores:
    """Device scores as plain lists."""
    return {
        model: {name: np.asarray(values, np.float64).tolist() for name, values in named.items()}
        for model, named in scores.items()
    }
