# SPDX-License-Identifier: Apache-2.0
"""An objective: F(w, beta) = (1/M) sum_m f_m(w, beta_m), from one shared and M personal blocks of parameters."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax

from idiolect.core.data import Array, Batch, ClientData, Rows
from idiolect.core.keys import Key
from idiolect.core.settings import Settings
from idiolect.core.statistics import moving
from idiolect.core.tally import NOTHING, Tally, gradient_tally
from idiolect.core.tree import Params


class Statistics(NamedTuple):
    """Running statistics of a model, of batch normalisation say: both are the rest of a sentence."""

    lost: str | None  # why the objective's gradients would not carry them; None: they do
    way_out: str  # how to have a model without them


class Objective(Settings, abc.ABC):
    """How shared and personal parameters become one client's loss. A block that is absent is the empty tuple."""

    has_shared: ClassVar[bool]
    has_personal: ClassVar[bool]
    keeps_convexity: ClassVar[bool] = True  # whether F is convex wherever the plain losses f'_m are

    @property
    def statistics(self) -> Statistics | None:
        """What becomes of its model's running statistics; None where it has none."""
        return None

    @abc.abstractmethod
    def init_shared(self, key: Key) -> Params:
        """A start for w."""

    @abc.abstractmethod
    def init_personal(self, key: Key) -> Params:
        """A start for beta_m."""

    @abc.abstractmethod
    def loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Array, Array]:
        """f_m(w, beta_m) on a batch, and what running statistics become by this pass, {dotted path: new value}."""

    @abc.abstractmethod
    def deployed(self, shared: Params, personal: Params) -> Params:
        """The model that (w, beta_m) stands for, without looking at data."""

    @abc.abstractmethod
    def predict(self, model: Params, inputs: Array) -> Array:
        """Outputs of a deployed model."""

    def shared_model(self, shared: Params) -> Params | None:
        """The whole model that w alone stands for, before any beta_m; None where w is only a part of one."""
        return None if self.has_personal else shared

    def personalize(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """The model that client m predicts with and its cost; may adapt to `batch`, the client's training rows."""
        return self.deployed(shared, personal), NOTHING

    def gradient_shared(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad_w f_m, with the change of running statistics in their places, and its cost."""
        gradient, seen = jax.grad(lambda w: self.loss(key, w, personal, batch), has_aux=True)(shared)
        return moving(gradient, shared, seen), gradient_tally(batch, "shared")

    def gradient_personal(self, key: Key, shared: Params, personal: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad_beta f_m and its cost."""
        gradient, seen = jax.grad(lambda b: self.loss(key, shared, b, batch), has_aux=True)(personal)
        return moving(gradient, personal, seen), gradient_tally(batch, "personal")

    def gradients(
        self, key: Key, shared: Params, personal: Params, batch: Batch
    ) -> tuple[tuple[Params, Params], Tally]:
        """grad_w f_m and grad_beta f_m from one pass, and its cost; the empty tuple for a block that does not exist."""
        if not self.has_personal:
            gradient, tally = self.gradient_shared(key, shared, personal, batch)
            return (gradient, ()), tally
        if not self.has_shared:
            gradient, tally = self.gradient_personal(key, shared, personal, batch)
            return ((), gradient), tally
        gradients, seen = jax.grad(lambda w, b: self.loss(key, w, b, batch), (0, 1), has_aux=True)(shared, personal)
        moved = moving(gradients[0], shared, seen), moving(gradients[1], personal, seen)
        return moved, gradient_tally(batch, "both")


def unprotected(objective: Objective) -> Objective:
    """The objective for what never leaves the client: what is below a protection of its rows, or itself."""
    below: Objective = getattr(objective, "unprotected", objective)
    return below


@runtime_checkable
class Checks(Protocol):
    """An objective that can tell before the first round what would not work."""

    def check_parts(self) -> None:
        """RequestError where its settings name parts that its model does not have."""

    def check_rows(self, rows: Rows, names: Sequence[str]) -> None:
        """RequestError for rows that the loss would not understand: inputs of another shape, labels out of range."""


@runtime_checkable
class Settles(Protocol):
    """An objective whose loss in training is not that of its predictions: something is random, or moments a batch's."""

    def settled_loss(self, key: Key, shared: Params, personal: Params, batch: Batch) -> Any:
        """f_m as predictions see it: nothing random, running moments instead of the batch's."""


class Prepares(abc.ABC):
    """An objective whose clients work something out from their own rows before training, and keep it.

    Its functions get what a client prepared in the place of a personal block.
    """

    @abc.abstractmethod
    def prepare(self, key: Key, data: ClientData) -> tuple[Params, Tally]:
        """What a client prepares: constants, no block of parameters.

        The key is the server's own start, the same for every client: what starts at `init_shared` starts where w does.
        """

    @abc.abstractmethod
    def prepare_again(self, key: Key, data: ClientData, prepared: Params, earlier: Any) -> tuple[Params, Tally]:
        """What a client keeps when settings change from `earlier`'s to these, and what that costs beyond `prepared`."""

    @abc.abstractmethod
    def takes_part(self) -> Array:
        """Whether a client's term depends on w, one truth value or one per client; PerClient settings are whole."""

    @abc.abstractmethod
    def unprepared(self, prepared: Params) -> Array:
        """Whether `prepare` did not find what it looked for."""

    @abc.abstractmethod
    def why_unprepared(self) -> str:
        """What then is wrong with the client, and the way out: the rest of a sentence that begins with its name."""


@runtime_checkable
class Represents(Protocol):
    """An objective that knows what the last layer of a deployed model sees."""

    @property
    def classifies(self) -> bool:
        """Whether its targets are classes."""

    @property
    def represents(self) -> bool:
        """Whether its model says what its last layer sees."""

    def represent(self, model: Params, inputs: Array) -> Array:
        """What it sees: (rows, width)."""


@runtime_checkable
class Routable(Protocol):
    """An objective of one model's plain loss, whose layers can be routed."""

    def routed(self, routed: str, widths: tuple[int, ...], fixed: bool, token_routing: str) -> Routed:
        """The loss with the named layers in two versions.

        `widths` are those of the net psi that weighs the versions, row by row; `token_routing` is what it reads of a
        text: the "states" of the model, or "frequencies" of tokens. With `fixed` weights, q_0 itself stands where psi
        would.
        """


class Routed(Protocol):
    """One model's plain loss with routed layers in two versions, shared (in w) and local, and a net psi to weigh them.

    What depends on shares comes with them: `shared` q_0, `local` q_1 and `log_shared` log q_0, each with one entry per
    exit on the last axis.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """What each exit routes."""

    def init_routing(self, key: Key) -> Params:
        """A start for psi."""

    def start_local(self, shared: Params) -> Params:
        """The local versions as they start: w's own."""

    def local_value(self, key: Key, shared: Params, local: Params, batch: Batch) -> Array:
        """f_m where every routed layer is local."""

    def mixed_value(
        self, key: Key, routing: Params, shared: Params, local: Params, batch: Batch
    ) -> tuple[Array, Array]:
        """f_m of the mixture."""

    def predict_mixed(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Array, Array]:
        """Outputs of the mixture."""

    def predict_chosen(self, routing: Params, shared: Params, local: Params, inputs: Array) -> tuple[Array, Array]:
        """Outputs where each row takes one version of each layer: the shared one iff q_0 >= 1/2."""


class Adapting(Objective):
    """f_m(w) = f'_m(w - inner_step grad f'_m(w)): a start that is good after one step; still abstract."""

    inner_step: float

    @abc.abstractmethod
    def plain_gradient(self, key: Key, shared: Params, batch: Batch) -> tuple[Params, Tally]:
        """grad f'_m(w), without the inner step, and its cost."""


class Parted(Objective):
    """f_m(w, beta_m) = f'_m([w, beta_m]): some parameters of one model are shared, the others personal; abstract."""


class Mixture(Objective):
    """f_m(w, beta_m) = f'_m(beta_m) + (penalty/2) |u - beta_m|^2, u the model that w stands for; still abstract.

    Minimised over w, u is the mean of the beta_m: what is left is an objective in beta alone.
    """

    penalty: float

    @abc.abstractmethod
    def to_model(self, shared: Params) -> Params:
        """u, from w."""

    @abc.abstractmethod
    def from_model(self, model: Params) -> Params:
        """w, from u."""
