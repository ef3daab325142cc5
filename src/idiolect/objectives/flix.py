# SPDX-License-Identifier: Apache-2.0
"""FLIX, explicit personalization (Scafflix 2023): a client's model is mixed from the shared one and its own optimum."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from idiolect.core import Prepares, setting, settings, tree
from idiolect.core.types import Array, Batch, ClientData, Key, Params, PerClient, Tally
from idiolect.objectives.composed import ComposedObjective
from idiolect.objectives.local_solve import by_epochs, to_tolerance, until_no_better

_Solved = tuple[Params, ArrayLike, Tally]  # the point, whether the solve reached its goal, and its cost
SOLVERS = ("tolerance", "epochs", "early_stopping")


class Prepared(NamedTuple):
    """What a client keeps: x*_m, and whether its solve reached the tolerance."""

    optimum: Params
    reached: Array | np.ndarray


@settings
class FLIX(ComposedObjective, Prepares):
    """f_m(w) = f'_m(alpha_m w + (1 - alpha_m) x*_m), with alpha_m = personalization and x*_m = argmin f'_m.

    F is (mean alpha_m^2 L_m)-smooth and (mean alpha_m^2 mu_m)-strongly convex. x*_m is found once, on the client, from
    its own rows, and counted as personal gradients; no such solve where alpha_m = 1. A client with alpha_m = 0 keeps
    x*_m and never takes part: w means nothing to it.
    """

    has_shared = True
    has_personal = False  # x*_m is no variable of F

    personalization: float | PerClient = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        way_out="1 trains one model for all, 0 every client alone.",
        doc="alpha_m, the weight of the shared model in a client's own",
        strengths=(0.1, 0.3, 0.6, 0.9),
    )
    solver: str = setting(
        default="tolerance",
        choices=SOLVERS,
        doc="of x*_m: tolerance for convex losses; epochs of SGD or early_stopping for networks",
    )
    tolerance: float = setting(default=1e-6, above=0, doc="gradient norm at which x*_m counts as found")
    solver_steps: int = setting(default=20_000, at_least=2, doc="tolerance: gradients on all rows at most")
    solver_epochs: int = setting(
        default=10, at_least=1, doc="epochs: passes over the client's rows; early_stopping: at most"
    )
    solver_batch_size: int = setting(default=100, at_least=0, doc="of SGD: rows per step; 0: all of them")
    solver_step_size: float = setting(default=0.1, above=0, doc="of SGD: its step")
    stopping_share: float = setting(
        default=0.2,
        above=0,
        below=1,
        doc="early_stopping: fraction of the client's training rows that it does not learn from",
    )
    patience: int = setting(
        default=3, at_least=1, doc="early_stopping: epochs without a lower loss on those rows before it stops"
    )

    def prepare(self, key: Key, data: ClientData) -> tuple[Prepared, Tally]:
        """x*_m, from the model's start; zeros, for nothing, where alpha_m = 1."""
        return self._solve(key, data, self._share < 1)

    def prepare_again(
        self, key: Key, data: ClientData, prepared: Prepared, earlier: Prepares
    ) -> tuple[Prepared, Tally]:
        """x*_m does not depend on alpha_m: solved only where it is needed now and was not before."""
        # along a dial alpha_m changes, x*_m never does: who has solved for it once need not again
        new = jnp.logical_and(self._share < 1, cast(FLIX, earlier)._share >= 1)
        solved, tally = self._solve(key, data, new)
        return tree.choose(new, solved, prepared), tally

    def _solve(self, key: Key, data: ClientData, wanted: Array) -> tuple[Prepared, Tally]:
        """x*_m; zeros, for nothing, where it is not `wanted`."""
        solve = {"tolerance": self._by_tolerance, "epochs": self._by_epochs, "early_stopping": self._by_stopping}
        found, reached, tally = solve[self.solver](key, self.client_loss.init(key), data, wanted)
        optimum = tree.choose(wanted, found, tree.zeros(found))
        # under `vmap` the solve runs for all clients if one wants it: those who did not ask are not billed
        cost = Tally(*(jnp.where(wanted, count, 0) for count in tally))
        return Prepared(optimum, jnp.logical_or(reached, jnp.logical_not(wanted))), cost

    def _by_tolerance(self, key: Key, start: Params, data: ClientData, wanted: Array) -> _Solved:
        batch = data.batch()
        limits: dict[str, Any] = {"tolerance": self.tolerance, "most": self.solver_steps, "wanted": wanted}
        solved = to_tolerance(lambda params: self.client_loss.gradient(key, params, batch), start, **limits)
        rows = solved.gradients * data.count
        return solved.params, solved.reached, Tally(personal=rows, samples=rows, full_personal=solved.gradients)

    def _by_epochs(self, key: Key, start: Params, data: ClientData, wanted: Array) -> _Solved:
        found = by_epochs(self.client_loss.gradient, key, start, data, **self._sgd, wanted=wanted)
        rows = self.solver_epochs * data.count
        passes = 0 if self.solver_batch_size else self.solver_epochs
        return found, True, Tally(personal=rows, samples=rows, full_personal=passes)

    def _by_stopping(self, key: Key, start: Params, data: ClientData, wanted: Array) -> _Solved:
        """Only some of the rows are learnt from: no gradient of it is a full one."""

        def loss(params: Params, rows: Batch) -> Array:
            return self.client_loss.value(key, params, rows)[0]

        how = self._sgd | {"stopping_share": self.stopping_share, "patience": self.patience, "wanted": wanted}
        ended = until_no_better(self.client_loss.gradient, loss, key, start, data, **how)
        # + 1: the loss of the start is looked at before the first epoch
        learnt, seen = ended.epochs * ended.learning_rows, (ended.epochs + 1) * ended.stopping_rows
        return ended.params, True, Tally(personal=learnt, forward=seen, samples=learnt + seen)

    @property
    def _sgd(self) -> dict[str, Any]:
        return {"epochs": self.solver_epochs, "batch_size": self.solver_batch_size, "step_size": self.solver_step_size}

    def takes_part(self) -> np.ndarray:
        """Not where alpha_m = 0."""
        alpha: Any = self.personalization
        return np.asarray(alpha.values if isinstance(alpha, PerClient) else alpha) > 0

    def unprepared(self, prepared: Prepared) -> Array:
        """Whether the solve stopped short of the tolerance."""
        return jnp.logical_not(prepared.reached)

    def why_unprepared(self) -> str:
        """No optimum, or one that is hard to find."""
        return (
            f"has no optimum of its own that {self.solver_steps} gradients find to a norm of {float(self.tolerance):g}"
            ": its rows may not determine one; give l2 a value above 0, raise tolerance or solver_steps, "
            "or set solver = 'epochs' or 'early_stopping'"
        )

    def deployed(self, shared: Params, personal: Prepared) -> Params:
        """alpha_m w + (1 - alpha_m) x*_m."""
        share = self._share
        return jax.tree.map(lambda w, own: share * w + (1 - share) * own, shared, personal.optimum)

    @property
    def _share(self) -> Any:
        return self.personalization  # a client sees its own alpha_m, never the PerClient around it
