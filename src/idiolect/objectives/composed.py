# SPDX-License-Identifier: Apache-2.0
"""What every objective built on one plain loss shares: the loss, and how its model predicts.

f'_m is a mean over client m's own n_m rows and clients weigh equally, so one row of client m weighs 1/(M n_m) in F:
clients of different sizes are equals, their rows are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from idiolect.core import Objective, settings
from idiolect.core.objective import Statistics
from idiolect.core.types import Array, Batch, Key, Params, Rows
from idiolect.objectives.client_loss import ClientLoss
from idiolect.objectives.rows import check_rows


@settings
class ComposedObjective(Objective):
    """An objective whose client terms are made of f'_m, a `ClientLoss`; still abstract."""

    carries_statistics: ClassVar[bool] = False  # whether its gradients bring along what a pass makes of them

    client_loss: ClientLoss = dataclasses.field(kw_only=False)

    @property
    def statistics(self) -> Statistics | None:
        """Those of the model, and what it can be told instead, where it has a choice."""
        model = self.client_loss.model
        if not model.keeps_statistics:
            return None
        instead = " or ".join(map(repr, model.normalizations))
        way_out = f"set normalize to {instead}" if instead else "use a model without batch normalisation"
        return Statistics(self._lost_statistics(), way_out)

    def _lost_statistics(self) -> str | None:
        # what a pass makes of moments belongs to the one model that the pass went through
        if self.carries_statistics:
            return None
        return "this objective does not carry; use global_model, local_only, ws2 or maml"

    def init_shared(self, key: Key) -> Params:
        """The model's start, where there is a shared block."""
        return self.client_loss.init(key) if self.has_shared else ()

    def init_personal(self, key: Key) -> Params:
        """The model's start, where there is a personal block."""
        return self.client_loss.init(key) if self.has_personal else ()

    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Any, Any]:
        """f'_m of the model that (w, beta_m) stands for."""
        return self.client_loss.value(key, self.deployed(shared, personal), batch)

    def check_parts(self) -> None:
        """RequestError where its settings name parts that its model does not have; most name none."""

    def check_rows(self, rows: Rows, names: Sequence[str]) -> None:
        """RequestError for rows that the plain loss would not understand."""
        check_rows(self.client_loss, rows, names)

    def predict(self, model: Params, inputs: Array) -> Array:
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

    def represent(self, model: Params, inputs: Array) -> Array:
        """What the model's last layer sees."""
        return self.client_loss.model.represent(model, inputs)
