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
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from idiolect.algorithms import block_descent
from idiolect.algorithms.ascd_pfl import ASCDPFL
from idiolect.algorithms.asvrcd_pfl import Accelerated
from idiolect.algorithms.block_descent import Broadcast, ClientState, Coefficients, Iterate, Working, counted, whole
from idiolect.algorithms.references import UNIFIED
from idiolect.core import Changes, Fit, Method, setting, settings, tree
from idiolect.core.control import cond, repeat, switch
from idiolect.core.types import Array, ClientData, Key, Mean, Params, Tally
from idiolect.theory.solver_rules import ASCD_THEN_ASVRCD

# Rounds before the switch end in a sample of ASCD's or in an evaluation; SWITCH is the round between. The endings of
# `block_descent` are ASVRCD's.
PLAIN, EVALUATE, SWITCH = block_descent.START + 1, block_descent.START + 2, block_descent.START + 3


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
class ASCDThenASVRCD(Accelerated):
    """Starts with single components, ends with variance reduction; F is measured to decide when."""

    changes = Changes(
        {"gradient": None}, exact="it decides by a loss that goes up beside the gradient; use acd_pfl or asvrcd_pfl"
    )

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
        kinds, counts = (whole(block_descent.START), whole(EVALUATE)), (whole(0), whole(0))
        return ServerState(shared, shared.y, *kinds, *counts, jnp.zeros(()), jnp.zeros(()))

    def broadcast(self, key: Key, server: Any) -> Broadcast:
        """ASCD's schedule before the switch, ASVRCD's after it; evaluations and the switch wait for nothing."""
        # both schedules are drawn: `due` is traced, and a branch would cost more than a draw
        early, _ = self._first._schedule(key, False)
        late, ending = self._schedule(key, server.due == block_descent.REFRESH)
        plain, reduced = server.due == PLAIN, server.due <= block_descent.REFRESH
        iterations = jnp.where(plain, early, jnp.where(reduced, late, 0)) if self._two_blocks else ()
        return Broadcast(server.mean, server.ended, iterations, jnp.where(reduced, ending, server.due))

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One iteration of the solver whose turn it is."""
        # ASCD leaves snapshots as they are: it reads y and z alone
        early, late, at = self._first.step, super().step, (key, t, sent, working, data)
        return cond(sent.ending == PLAIN, lambda: counted(early, *at), lambda: counted(late, *at))

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Any, ClientState, Tally]:
        """ASCD's or ASVRCD's gradient, the value of f_m, or the full gradient at the point where ASVRCD takes over."""
        late = super().send

        def sample(of_solver: Callable[..., Any]) -> tuple[Upload, ClientState, Tally]:
            upload, kept, tally = of_solver(key, sent, working, client, data)
            return Upload(upload.gradient, jnp.zeros(()), upload.weight), kept, tally

        def evaluate() -> tuple[Upload, ClientState, Tally]:
            batch = data.batch()
            value, _ = self.objective.loss(key, working.shared.y, working.personal.y, batch)
            tally = Tally(forward=batch.rows(), samples=batch.rows())
            upload = Upload(tree.zeros(working.shared.y), value, jnp.ones(()))
            return upload, ClientState(working.shared, working.personal), tally

        def take_over() -> tuple[Upload, ClientState, Tally]:
            # both blocks begin anew at y: z of ASCD belongs to other coefficients, and there is no snapshot yet
            restarted = Working(self._start(working.shared.y), self._start(working.personal.y), working.drawn)
            gradient, personal, tally = self._end_in_refresh(key, sent, restarted, data)
            return Upload(gradient, jnp.zeros(()), jnp.ones(())), ClientState(restarted.shared, personal), tally

        ends: tuple[Any, ...] = ((sample, late), (sample, self._first.send), (evaluate,), (take_over,))
        return switch(_branch(sent.ending), [functools.partial(counted, *end) for end in ends])

    def server_step(self, key: Key, server: Any, sent: Broadcast, received: Mean) -> Any:
        """The server's copy of w follows the clients'; an evaluation decides whether to switch."""
        mean, ending, step = received.mean.gradient, sent.ending, self.coefficients.shared_step

        def coast(_: Any, iterate: Iterate) -> Iterate:
            early, late = self._first._coast, self._coast
            return cond(ending == PLAIN, lambda: early(iterate, step), lambda: late(iterate, step))

        shared = repeat(self.steps(sent, 0), coast, server.shared)
        # ASVRCD begins with momentum of its own: that of ASCD belongs to other coefficients
        shared = tree.choose(ending == SWITCH, self._start(shared.y), shared)
        plain_rounds = server.plain_rounds + whole(ending == PLAIN)
        *values, slow = self._decide(server, received.mean.value, ending == EVALUATE)
        after_plain = jnp.where(plain_rounds % self.check_every == 0, EVALUATE, PLAIN)
        after_late = jnp.where(
            ending == block_descent.SAMPLE_BEFORE_REFRESH, block_descent.REFRESH, block_descent.SAMPLE
        )
        after_evaluation = jnp.where(slow, SWITCH, PLAIN)
        due = jnp.where(ending == PLAIN, after_plain, jnp.where(ending == EVALUATE, after_evaluation, after_late))
        return ServerState(self._received(shared, ending, mean), mean, ending, whole(due), plain_rounds, *values)

    def _decide(self, server: ServerState, value: Any, evaluated: Any) -> tuple[Any, Any, Any, Any]:
        """(further values of F so far, the first, the last, whether progress has slowed)."""
        fresh = server.ended == block_descent.START
        # the first value is where progress starts from, not progress
        checks = server.checks + whole(evaluated & ~fresh)
        mean_gain = (server.first_value - value) / jnp.maximum(checks, 1).astype(value.dtype)
        # compared with the mean stretch so far, not with a tolerance: values of F have no scale that is known
        # beforehand
        slow = ~fresh & (server.last_value - value < self.slowdown * mean_gain)
        first = jnp.where(evaluated & fresh, value, server.first_value)
        return checks, first, jnp.where(evaluated, value, server.last_value), slow

    def _received(self, iterate: Iterate, ending: Any, mean: Params) -> Iterate:
        """w once the mean is known, by what the round ended in."""
        late = super()._received
        branches = (
            lambda: late(iterate, jnp.minimum(ending, block_descent.REFRESH), mean),
            lambda: self._first._received(iterate, block_descent.SAMPLE, mean),
            lambda: iterate,
            lambda: iterate._replace(gradient=mean),
        )
        return switch(_branch(ending), branches)

    @property
    def coefficients(self) -> Coefficients:
        """ASVRCD's."""
        return self.with_momentum

    @property
    def _first(self) -> ASCDPFL:
        """ASCD, with the settings that both have."""
        names = [field.name for field in dataclasses.fields(ASCDPFL) if hasattr(self, field.name)]
        return ASCDPFL(**{name: getattr(self, name) for name in names} | {"momentum": self.early_momentum})


def _branch(ending: Any) -> Array:
    """0: one of ASVRCD's; 1: PLAIN; 2: EVALUATE; 3: SWITCH."""
    return jnp.maximum(ending - block_descent.START, 0)


_SUMMARY = "ASCD-PFL at first, ASVRCD-PFL once measured progress slows"
METHODS = {"ascd_then_asvrcd": Method(ASCDThenASVRCD, "mx2", {}, UNIFIED, _SUMMARY, theory=ASCD_THEN_ASVRCD)}
