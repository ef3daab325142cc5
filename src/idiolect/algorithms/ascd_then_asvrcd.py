# SPDX-License-Identifier: Apache-2.0
"""ASCD first, ASVRCD once progress slows (Unified 2023's own advice), decided by measured values of F.

ASCD-PFL is fast far from the optimum and stops at a noise floor; ASVRCD-PFL is slower at first and exact. Every
`check_every` rounds the clients evaluate f_m(y) on all rows and send it: a round of its own, billed as such. With
F_0 the first value, F_c and F_{c-1} the last two of c further ones, the server switches when the last stretch gained
little of what a stretch has gained on average:

    F_{c-1} - F_c  <  slowdown (F_0 - F_c) / c

The switch restarts z and v at y and refreshes v, one more round. `momentum` is theta1 of ASVRCD, `early_momentum`
theta of ASCD; both share eta, gamma, mu and p_w, as in the paper.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms.ascd_pfl import ASCDPFL
from idiolect.algorithms.asvrcd_pfl import ASVRCDPFL, VarianceReduced
from idiolect.algorithms.block_descent import (
    REFRESH,
    SAMPLE,
    SAMPLE_BEFORE_REFRESH,
    START,
    BlockDescent,
    Broadcast,
    ClientState,
    Coefficients,
    Iterate,
    Working,
)
from idiolect.algorithms.references import UNIFIED
from idiolect.core import Changes, Fit, Method, setting, settings, tree
from idiolect.core.control import cond, repeat, switch
from idiolect.core.types import Array, ClientData, Key, Mean, Params, Tally
from idiolect.theory.solver_rules import ASCD_THEN_ASVRCD

# Rounds before the switch end in a sample of ASCD's or in an evaluation; SWITCH is the round between. The endings of
# `block_descent` are ASVRCD's.
PLAIN, EVALUATE, SWITCH = START + 1, START + 2, START + 3


class ServerState(NamedTuple):
    """w's iterates, the last round's result, what comes next, and the values of F that decide."""

    shared: Iterate
    mean: Params
    ended: Array
    due: Array  # what the next round ends in; SAMPLE leaves it to ASVRCD's own schedule
    plain_rounds: Array  # ASCD's, so far
    checks: Array
    first_value: Array
    last_value: Array


class Upload(NamedTuple):
    """A gradient of w as in `block_descent`, or f_m(y) when the round evaluates."""

    gradient: Params
    value: Any
    weight: Array


@settings
class ASCDThenASVRCD(VarianceReduced):
    """Starts with single components, ends with variance reduction; F is measured to decide when."""

    changes = Changes(
        {"gradient": None}, exact="it decides by a loss that goes up beside the gradient; use acd_pfl or asvrcd_pfl"
    )

    momentum: float = setting(default=None, at_least=0, below=1, theory=True, doc="theta1, weight of z in x")
    anchor: float = setting(default=0.5, at_least=0, below=1, doc="theta2, weight of v in x")
    mirror_step: float = setting(default=None, above=0, theory=True, doc="gamma, the step of z")
    strong_convexity: float = setting(default=None, at_least=0, theory=True, doc="mu of F; nu = 1 - gamma mu")
    early_momentum: float = setting(default=None, at_least=0, at_most=1, theory=True, doc="theta of ASCD")
    check_every: int = setting(default=25, at_least=1, doc="rounds between evaluations of F")
    slowdown: float = setting(
        default=0.1, above=0, doc="switch when a stretch gains less than this fraction of the mean stretch"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a block to send."""
        if not self.objective.has_shared:
            return Fit("without a shared block there is nothing to send; asvrcd_pfl takes it")
        return super().fit(chance)

    def _server_at(self, start: Params) -> Any:
        """Everything at `start`; the first round evaluates F."""
        shared = self._start(start)
        kinds, counts = (_whole(START), _whole(EVALUATE)), (_whole(0), _whole(0))
        return ServerState(shared, shared.y, *kinds, *counts, jnp.zeros(()), jnp.zeros(()))

    def broadcast(self, key: Key, server: Any) -> Broadcast:
        """ASCD's schedule before the switch, ASVRCD's after it; evaluations and the switch wait for nothing."""
        # both schedules are drawn: `due` is traced, and a branch would cost more than a draw
        early, _ = self._first._schedule(key, False)
        late, ending = self._schedule(key, server.due == REFRESH)
        plain, reduced = server.due == PLAIN, server.due <= REFRESH
        iterations = jnp.where(plain, early, jnp.where(reduced, late, 0)) if self._two_blocks else ()
        return Broadcast(server.mean, server.ended, iterations, jnp.where(reduced, ending, server.due))

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One iteration of the solver whose turn it is."""

        def early() -> tuple[Working, Tally]:
            moved, tally = self._first.step(key, t, sent, _without_snapshots(working), data)
            return _with_snapshots_of(working, moved), tally.counters()

        def late() -> tuple[Working, Tally]:
            moved, tally = super(ASCDThenASVRCD, self).step(key, t, sent, working, data)
            return moved, tally.counters()

        return cond(sent.ending == PLAIN, early, late)

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Any, ClientState, Tally]:
        """ASCD's or ASVRCD's gradient, the value of f_m, or the full gradient at the point where ASVRCD takes over."""
        nothing = jnp.zeros(())

        def late() -> tuple[Upload, ClientState, Tally]:
            upload, kept, tally = super(ASCDThenASVRCD, self).send(key, sent, working, client, data)
            return Upload(upload.gradient, nothing, upload.weight), kept, tally.counters()

        def early() -> tuple[Upload, ClientState, Tally]:
            own = _without_snapshots(working)
            upload, kept, tally = self._first.send(key, sent, own, client, data)
            kept = _with_snapshots_of(working, kept)
            return Upload(upload.gradient, nothing, upload.weight), kept, tally.counters()

        def evaluate() -> tuple[Upload, ClientState, Tally]:
            batch = data.batch()
            value, _ = self.objective.loss(key, working.shared.y, working.personal.y, batch)
            tally = Tally(forward=batch.rows(), samples=batch.rows())
            upload = Upload(tree.zeros(working.shared.y), value, jnp.ones(()))
            return upload, ClientState(working.shared, working.personal), tally.counters()

        def take_over() -> tuple[Upload, ClientState, Tally]:
            # both blocks begin anew at y: z of ASCD belongs to other coefficients, and there is no snapshot yet
            restarted = Working(self._start(working.shared.y), self._start(working.personal.y), working.drawn)
            gradient, personal, tally = self._end_in_refresh(key, sent, restarted, data)
            return Upload(gradient, nothing, jnp.ones(())), ClientState(restarted.shared, personal), tally.counters()

        return switch(_branch(sent.ending), (late, early, evaluate, take_over))

    def server_step(self, key: Key, server: Any, sent: Broadcast, received: Mean) -> Any:
        """The server's copy of w follows the clients'; an evaluation decides whether to switch."""
        mean, ending = received.mean.gradient, sent.ending
        chosen = self.coefficients

        def early(iterate: Iterate) -> Iterate:
            return _widen(self._first._coast(_narrow(iterate), chosen.shared_step), iterate)

        def coast(_: Any, iterate: Iterate) -> Iterate:
            return cond(ending == PLAIN, lambda: early(iterate), lambda: self._coast(iterate, chosen.shared_step))

        shared = repeat(self.steps(sent, 0), coast, server.shared)
        # ASVRCD begins with momentum of its own: that of ASCD belongs to other coefficients
        shared = tree.choose(ending == SWITCH, self._start(shared.y), shared)
        plain_rounds = server.plain_rounds + _whole(ending == PLAIN)
        decided = self._decide(server, received.mean.value, ending == EVALUATE)
        checks, first_value, last_value, slow = decided
        after_plain = jnp.where(plain_rounds % self.check_every == 0, EVALUATE, PLAIN)
        after_late = jnp.where(ending == SAMPLE_BEFORE_REFRESH, REFRESH, SAMPLE)
        after_evaluation = jnp.where(slow, SWITCH, PLAIN)
        due = jnp.where(ending == PLAIN, after_plain, jnp.where(ending == EVALUATE, after_evaluation, after_late))
        moved = self._received(shared, ending, mean)
        return ServerState(moved, mean, ending, _whole(due), plain_rounds, checks, first_value, last_value)

    def _decide(self, server: ServerState, value: Any, evaluated: Any) -> tuple[Any, Any, Any, Any]:
        """(further values of F so far, the first, the last, whether progress has slowed)."""
        fresh = server.ended == START
        # the first value is where progress starts from, not progress
        checks = server.checks + _whole(evaluated & ~fresh)
        mean_gain = (server.first_value - value) / jnp.maximum(checks, 1).astype(value.dtype)
        # compared with the mean stretch so far, not with a tolerance: values of F have no scale that is known
        # beforehand
        slow = ~fresh & (server.last_value - value < self.slowdown * mean_gain)
        first = jnp.where(evaluated & fresh, value, server.first_value)
        return checks, first, jnp.where(evaluated, value, server.last_value), slow

    def _received(self, iterate: Iterate, ending: Any, mean: Params) -> Iterate:
        """w once the mean is known, by what the round ended in."""
        late = super(ASCDThenASVRCD, self)._received  # noqa: UP008 - inside the branches `super()` has no class

        def early() -> Iterate:
            return _widen(self._first._received(_narrow(iterate), SAMPLE, mean), iterate)

        branches = (
            lambda: late(iterate, jnp.minimum(ending, REFRESH), mean),
            early,
            lambda: iterate,
            lambda: iterate._replace(gradient=mean),
        )
        return switch(_branch(ending), branches)

    @property
    def _two_blocks(self) -> bool:
        return self.objective.has_shared and self.objective.has_personal

    @property
    def coefficients(self) -> Coefficients:
        """ASVRCD's."""
        return ASVRCDPFL(**self._settings_of(ASVRCDPFL)).coefficients

    @property
    def _first(self) -> ASCDPFL:
        return ASCDPFL(**self._settings_of(ASCDPFL) | {"momentum": self.early_momentum})

    def _settings_of(self, solver: type[BlockDescent]) -> dict[str, Any]:
        """Those of this one that the solver has, too."""
        own = {field.name for field in dataclasses.fields(self)}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(solver) if field.name in own}


def _branch(ending: Any) -> Array:
    """0: one of ASVRCD's; 1: PLAIN; 2: EVALUATE; 3: SWITCH."""
    return jnp.maximum(ending - START, 0)


def _whole(number: Any) -> Array:
    return jnp.asarray(number, jnp.int32)


def _narrow(iterate: Iterate) -> Iterate:
    # iterates of ASCD have no snapshot: its functions take and give this form
    return iterate._replace(snapshot=(), gradient=())


def _widen(iterate: Iterate, like: Iterate) -> Iterate:
    return iterate._replace(snapshot=like.snapshot, gradient=like.gradient)


def _without_snapshots(working: Working) -> Working:
    return working._replace(shared=_narrow(working.shared), personal=_narrow(working.personal))


def _with_snapshots_of(working: Working, moved: Any) -> Any:
    """`moved`, a Working or a ClientState of ASCD's, with the snapshots that it knows nothing of."""
    return moved._replace(
        shared=_widen(moved.shared, working.shared), personal=_widen(moved.personal, working.personal)
    )


METHODS = {
    "ascd_then_asvrcd": Method(
        ASCDThenASVRCD,
        "mx2",
        {},
        UNIFIED,
        "ASCD-PFL at first, ASVRCD-PFL once measured progress slows",
        theory=ASCD_THEN_ASVRCD,
    ),
}
