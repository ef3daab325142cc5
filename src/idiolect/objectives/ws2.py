# SPDX-License-Identifier: Apache-2.0
"""WS2, explicit weight sharing (Unified 2023, eq. 16): some parameters of one model are shared, the others personal."""

from __future__ import annotations

from idiolect.core import setting, settings
from idiolect.core.objective import Parted
from idiolect.core.types import Key, Params
from idiolect.objectives.rescaled import RescaledObjective
from idiolect.objectives.split import Split, split_of


@settings
class WS2(RescaledObjective, Parted):
    """f_m(w, beta_m) = f'_m([u, beta_m]): `personal_part` says which parameters are beta_m.

    One backward pass yields both gradients. Both blocks are flat dictionaries from dotted parameter paths to arrays.
    """

    personal_part: str = setting(
        default="head",
        doc="what is personal: head, body, parameter paths (dense_1, *.bias) or slices (weights[10:], "
        "weights[:, 10:]), with commas",
    )

    @property
    def split(self) -> Split:
        """Which parameters of the model are shared, and which personal."""
        return split_of(self.client_loss.model, self.personal_part)

    def check_parts(self) -> None:
        """RequestError for a part that the model does not have."""
        _ = self.split

    def init_shared(self, key: Key) -> Params:
        """The w at which u is the shared part of the model's start."""
        return self.from_model(self.split.divide(self.client_loss.init(key))[0])

    def init_personal(self, key: Key) -> Params:
        """The personal part of the model's start."""
        return self.split.divide(self.client_loss.init(key))[1]

    def deployed(self, shared: Params, personal: Params) -> Params:
        """[u, beta_m], as the model's own parameters."""
        return self.split.join(self.to_model(shared), personal)

    def shared_model(self, shared: Params) -> Params | None:
        """None: u is a part of a model."""
        return None

    def _lost_statistics(self) -> str | None:
        """It carries them in either block, as long as a block is the model's own parameters."""
        return "a rescaled block does not carry; set rescale = false" if self.rescale else None
