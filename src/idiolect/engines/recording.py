# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: one row per recorded round, and per-client scores of the last and the selected round."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.metrics.scores import SCORES
from idiolect.metrics.summary import summarise
from idiolect.record.divergence import Divergence

# model -> score -> one number per client; "instances" -> who is right -> share of the client's rows
ModelScores = dict[str, dict[str, list[float]]]
ClientScores = dict[str, ModelScores]  # by split


@dataclasses.dataclass
class Recorder:
    """One lane's record. Rounds are compared on validation rows; test rows are read at the end, for two rounds."""

    scores: tuple[str, ...]  # the one to choose by selects, the others break ties
    choose_by: str = ""  # one of the scores; empty: the first
    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    client_bytes: list[int] = dataclasses.field(default_factory=list)  # the ledger's, by client; empty: not known
    slowest_gradients: int = 0  # sum over rounds of the largest gradient count of one client: the critical path
    best: list[float] = dataclasses.field(default_factory=list)  # validation means at the selected round, oriented
    selected_round: int = -1
    last_round: int = -1
    diverged: Divergence | None = None
    diverged_client: int = -1  # whose parameters stopped being finite; -1: the server's, or nobody's
    last: ClientScores = dataclasses.field(default_factory=dict)  # filled in at the end
    selected: ClientScores = dataclasses.field(default_factory=dict)

    def record(self, round_number: int, seconds: float, scores: Any, measured: dict[str, float]) -> bool:
        """Add a history row from validation scores; True when this round is the best on validation rows so far.

        `measured` are further numbers for the row, such as the distance to a known optimum.
        """
        row: dict[str, Any] = {"round": round_number, "seconds": seconds, **self.ledger.to_dict(), **measured}
        row["slowest_gradients"] = self.slowest_gradients
        for model in [model for model in ("shared", "personal") if model in scores]:
            for name, values in scores[model].items():
                summary = summarise(np.asarray(values, np.float64), SCORES[name].higher_is_better)
                for part in ("mean", "worst_decile", "spread"):
                    row[f"validation_{model}_{name}_{part}"] = float(getattr(summary, part))
        self.history.append(row)
        self.last_round = round_number
        reached = self._validation_means(row)
        # without validation rows there is nothing to compare: the last round is the selected one
        improved = not self.best or reached > self.best
        if improved:
            self.selected_round = round_number
            if not math.isnan(reached[0]):
                self.best = reached
        return improved

    def _validation_means(self, row: dict[str, Any]) -> list[float]:
        """Every score's mean, larger is better, in the order that decides."""
        order = sorted(self.scores, key=lambda name: name != self.chooser)
        means = [float(row.get(f"validation_personal_{name}_mean", math.nan)) for name in order]
        return [mean if SCORES[name].higher_is_better else -mean for name, mean in zip(order, means)]

    @property
    def chooser(self) -> str:
        """The score that rounds and settings are chosen by."""
        return self.choose_by or self.scores[0]

    def course(self) -> tuple[list[int], list[float]]:
        """(rounds, means on validation rows of the score to choose by, larger is better) of every record."""
        sign = 1 if SCORES[self.chooser].higher_is_better else -1
        means = [float(row.get(f"validation_personal_{self.chooser}_mean", math.nan)) for row in self.history]
        return [int(row["round"]) for row in self.history], [sign * mean for mean in means]

    def to_facts(self) -> dict[str, Any]:
        """Plain values for a checkpoint, without the history, which is kept line by line."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "history"]
        facts = {name: getattr(self, name) for name in names}
        lost = None if self.diverged is None else dataclasses.asdict(self.diverged)
        return facts | {"scores": list(self.scores), "ledger": self.ledger.to_dict(), "diverged": lost}

    @classmethod
    def from_facts(cls, facts: dict[str, Any], history: list[dict[str, Any]]) -> Recorder:
        """What `to_facts` wrote, with its history."""
        known = {"scores": tuple(facts["scores"]), "ledger": Ledger.from_dict(facts["ledger"]), "history": history}
        lost = None if facts["diverged"] is None else Divergence(**facts["diverged"])
        return cls(**(facts | known | {"diverged": lost}))


def to_lists(scores: Any) -> ModelScores:
    """Device scores as plain lists."""
    return {
        model: {name: np.asarray(values, np.float64).tolist() for name, values in named.items()}
        for model, named in scores.items()
    }
