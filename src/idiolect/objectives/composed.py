# SPDX-License-Identifier: Apache-2.0
"""What every objective built on one plain loss shares: the loss, and how its model predicts.

f'_m is a mean over client m's own n_m rows and clients weigh equally, so one row of client m weighs 1/(M n_m) in F:
clients of different sizes are equals, their rows are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from idiolect.core.data import Rows
from idiolect.core.objective import Objective
from idiolect.core.settings import settings
from idiolect.core.tree import Params
from idiolect.objectives.client_loss import ClientLoss
from idiolect.objectives.rows import check_rows


@settings
class ComposedObjective(Objective):
    """An objective whose client terms are made of f'_m, a `ClientLoss`; still abstract."""

    client_loss: ClientLoss = dataclasses.field(kw_only=False)

    @property
    def keeps_statistics(self) -> bool:
        """The model's running statistics."""
        return self.client_loss.model.keeps_statistics

    def without_statistics(self) -> str:
        """What the model can be told instead, where it has a choice."""
        others = self.client_loss.model.normalizations
        return f"set normalize to {' or '.join(map(repr, others))}" if others else super().without_statistics()

    def check_rows(self, rows: Rows, names: Sequence[str]) -> None:
        """RequestError for rows that the plain loss would not understand."""
        check_rows(self.client_loss, rows, names)

    def predict(self, model: Params, inputs: Any) -> Any:
        """The model's outputs."""
        return self.client_loss.predict(model, inputs)

    @property
    def classifies(self) -> bool:
        """Whether its plain loss is one of classes."""
        return self.client_loss.criterion in ("cross_entropy", "logistic")

    @property
    def represents(self) -> bool:
        """Whether its model does."""
        return self.client_loss.model.represents

    def represent(self, model: Params, inputs: Any) -> Any:
        """What the model's last layer sees."""
        return self.client_loss.model.represent(model, inputs)
