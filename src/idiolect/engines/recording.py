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

ClientScores = dict[
    str, dict[str, dict[str, list[float]]]
]  # split -> model -> score -> one number per client


@dataclasses.dataclass
class Recorder:
    """One lane's record. The round is selected on validation rows; test scores are kept for two rounds only."""

    scores: tuple[str, ...]  # the first one selects
    ledger: Ledger = dataclasses.field(default_factory=Ledger)
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last_round: int = -1
    last: ClientScores = dataclasses.field(default_factory=dict)
    selected_round: int = -1
    selected: ClientScores = dataclasses.field(default_factory=dict)
    best: float = -math.inf
    outputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # test rows, selected round
    slowest_gradients: int = (
        0  # sum over rounds of the largest gradient count of one client: the critical path
    )
    diverged: str | None = None
    personal_cost: tuple[int, ...] = (
        0,
        0,
        0,
        0,
        0,
    )  # a Tally: what the latest personal models cost the clients

    def record(self, round_number: int, seconds: float, scores: Any, outputs: dict[str, np.ndarray]) -> None:
        """Add a history row; remember the clients' scores when this round is the best on validation rows so far."""
        clients: ClientScores = {
            split: {
                model: {name: np.asarray(values, np.float64).tolist() for name, values in named.items()}
                for model, named in models.items()
            }
            for split, models in scores.items()
        }
        row: dict[str, Any] = {"round": round_number, "seconds": seconds, **self.ledger.to_dict()}
        row["slowest_gradients"] = self.slowest_gradients
        for split, models in clients.items():
            if split == "test":  # never in the history: nobody should choose a round by it
                continue
            for model, named in models.items():
                for name, values in named.items():
                    summary = summarise(np.asarray(values), SCORES[name].higher_is_better)
                    for part in ("mean", "worst_decile", "spread"):
                        row[f"{split}_{model}_{name}_{part}"] = float(getattr(summary, part))
        self.history.append(row)
        self.last_round, self.last = round_number, clients
        reached = self._validation_score(row)
        if reached > self.best or (math.isnan(reached) and self.best == -math.inf) or not self.selected:
            self.best = self.best if math.isnan(reached) else reached
            self.selected_round, self.selected, self.outputs = round_number, clients, outputs

    def _validation_score(self, row: dict[str, Any]) -> float:
        name = self.scores[0]
        value = float(row.get(f"validation_personal_{name}_mean", math.nan))
        return value if SCORES[name].higher_is_better else -value

    def to_facts(self) -> dict[str, Any]:
        """Plain values for a checkpoint; `outputs` are arrays and travel with the state's leaves."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return facts | {
            "scores": list(self.scores),
            "ledger": self.ledger.to_dict(),
            "outputs": sorted(self.outputs),
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any], arrays: list[np.ndarray]) -> Recorder:
        """What `to_facts` wrote; takes its outputs from the front of `arrays`."""
        restored = facts | {
            "scores": tuple(facts["scores"]),
            "ledger": Ledger.from_dict(facts["ledger"]),
            "personal_cost": tuple(facts["personal_cost"]),
            "outputs": {model: arrays.pop(0) for model in facts["outputs"]},
        }
        return cls(**restored)
