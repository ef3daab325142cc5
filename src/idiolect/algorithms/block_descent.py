# SPDX-License-Identifier: Apache-2.0
"""What the block-coordinate solvers of Unified 2023 share: one iteration, and messages only when w is sampled.

Each block (w, and every beta_m) has iterates y, z and a snapshot v with s = grad F(v) of that block. One iteration:

    x   = theta1 z + theta2 v + (1 - theta1 - theta2) y
    w is sampled with probability p_w, otherwise beta is; j is a component (or j = everything: exact gradients)
    g   = (grad f_j(x) - grad f_j(v)) / p + s   on the sampled block,   g = s   on the other
    y  <- x - eta g;   z <- nu z + (1 - nu) x - gamma g;   v <- the old y with probability rho

Gradients are those of F: mean_m grad_w f_m, and (1/M) grad_beta f_m. A solver without variance reduction has no v and
s = 0; one without momentum has no z and theta1 = 0. A solver is a choice of these coefficients.

The iterates of w follow from the uploads' means alone, so every client and the server keep the same copy, and one
vector each way is enough: up goes grad_w f_m, down comes the mean. A round has local iterations (beta is
sampled), as many as the server drew, then one iteration that samples w, or one that refreshes v, or both - then the
refresh is a round of its own. Refreshing needs the full gradient at v: one more round, and every component.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.algorithms.schedule import Upload, iterations_before_message, no_rows, one_batch, rows_ahead
from idiolect.core import NOTHING, Algorithm, Changes, Fit, RowReads, population, settings, step_key, tree
from idiolect.core.control import repeat, switch
from idiolect.core.reduction import nothing, weighted_mean
from idiolect.core.types import Array, Batch, ClientData, Key, Mean, Params, Reduction, Scalar, StartKeys, Tally

# What a round ends in: w is sampled; w is sampled and a round that only refreshes follows; an iteration that samples
# beta and refreshes; the refresh alone. START: nothing has ended yet, and the "mean" that goes down is w itself.
SAMPLE, SAMPLE_BEFORE_REFRESH, STEP_AND_REFRESH, REFRESH, START = range(5)


class Iterate(NamedTuple):
    """One block's y, z, v and grad F(v); the empty tuple for what a solver does without."""

    y: Params
    z: Params
    snapshot: Params
    gradient: Params


class Coefficients(NamedTuple):
    """What turns the iteration above into a solver; x = y, without z and v, unless told otherwise."""

    shared_step: Scalar  # eta of w
    personal_step: Scalar  # eta of beta
    shared_probability: Scalar  # p_w
    momentum: Scalar = 0.0  # theta1
    anchor: Scalar = 0.0  # theta2
    keep: Scalar = 0.0  # nu
    mirror_step: Scalar = 0.0  # gamma
    refresh_probability: Scalar = 0.0  # rho


class ServerState(NamedTuple):
    """The server's copy of w's iterates, the last round's result, and whether a refresh is due."""

    shared: Iterate
    mean: Params
    ended: Array  # what the last round ended in
    refresh_due: Array


class ClientState(NamedTuple):
    """The client's copy of w's iterates, and beta_m's own."""

    shared: Iterate
    personal: Iterate


class Broadcast(NamedTuple):
    """The mean of the last round's uploads and what that round ended in; the coming round's iterations and ending."""

    mean: Params
    ended: Any
    iterations: Any
    ending: Any
    shared: Params = ()  # w's y, only when it is delivered to predict with


class Working(NamedTuple):
    """Both blocks' iterates, and the rows drawn for the next iterations."""

    shared: Iterate
    personal: Iterate
    drawn: Any


Gradient = Callable[[Key, Params, Params, Batch], tuple[Params, Tally]]
Ended = tuple[Params, Iterate, Tally]  # what goes up, beta_m after the round, the cost


@settings
class BlockDescent(Algorithm[Any, ClientState, Broadcast, Working, Any]):
    """The contract of every block-coordinate solver; still abstract: a solver brings its coefficients."""

    changes = Changes({"gradient": None}, unbiased="its iterates need gradients that are right in the mean")
    row_reads = RowReads(exact="it takes gradients at several points on the same rows")

    accelerated: ClassVar[bool] = True  # keeps z
    reduces_variance: ClassVar[bool] = False  # keeps v and grad F(v)
    batch_size = 0  # exact gradients; a setting of solvers that draw components

    @property
    @abc.abstractmethod
    def coefficients(self) -> Coefficients:
        """theta1, theta2, nu, gamma, eta, p_w, rho."""

    def two_block_probability(self, probability: Scalar) -> Scalar:
        """p_w; where there is one block only, that one is always sampled."""
        if self._two_blocks:
            return probability
        return jnp.ones_like(probability) if self.objective.has_shared else jnp.zeros_like(probability)

    def fit(self, chance: float = 1.0) -> Fit:
        """Takes any objective that keeps convexity, full or component gradients."""
        if not self.objective.keeps_convexity:
            return Fit("it needs a convex objective, which this one is not even for convex losses; lsgd_pfl takes it")
        if self.objective.has_shared and getattr(self, "shared_probability", None) == 0:
            return Fit("it would never sample the shared block; set shared_probability above 0")
        if chance < 1:
            return Fit(
                "it needs every client in every round: all keep the same copy of w's iterates, which an absent one "
                "would lose; set training.cohort and training.dropout to 0"
            )
        return Fit()

    @property
    def reduction(self) -> Reduction:
        """Nothing is sent where nothing is shared: each client could draw its own schedule."""
        return weighted_mean if self.objective.has_shared else nothing

    def init_server(self, key: Key) -> ServerState:
        """Everything at the objective's start; a snapshot needs its gradient before the first iteration."""
        return self._server_at(self.objective.init_shared(key))

    def _server_at(self, start: Params) -> Any:
        """The server before the first round, with w at `start`."""
        shared = self._start(start)
        return ServerState(shared, shared.y, whole(START), jnp.asarray(self.reduces_variance))

    def carry(self, earlier: Algorithm, server: Any, clients: ClientState) -> tuple[Any, ClientState]:
        """A new start at both blocks' y: momentum and the snapshot's gradient belong to the old F."""
        return self._server_at(server.shared.y), clients._replace(personal=self._start(clients.personal.y))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[ClientState, Tally]:
        """beta_m at the objective's start; the copy of w starts with the first broadcast."""
        # zeros: the copy of w has the right form only, its start comes from the server, whose key may be another
        shared, personal = tree.zeros(self.objective.init_shared(keys.own)), self.objective.init_personal(keys.own)
        return ClientState(self._start(shared), self._start(personal)), NOTHING

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """The last round's mean, and the schedule of the next one."""
        return Broadcast(server.mean, server.ended, *self._schedule(key, server.refresh_due))

    def receive(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> tuple[Working, Tally]:
        """Both blocks as they stand."""
        # only the first broadcast carries w itself; later ones carry a mean gradient, which `settle` has used already
        shared = tree.choose(sent.ended == START, self._start(sent.mean), client.shared)
        return Working(shared, client.personal, no_rows(self.batch_size)), NOTHING

    def steps(self, sent: Broadcast, rows: Any) -> Any:
        """The drawn iterations; fixed where a block is absent, since nothing is drawn then."""
        if not self.objective.has_personal:
            return 0
        return sent.iterations if self._draws else 1

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One iteration that samples beta: nothing to send."""
        drawn, batch = rows_ahead(key, t, working.drawn, self.batch_size, data)
        personal, tally = self._sample_personal(step_key(key, t), working, batch)
        return Working(self._coast(working.shared, self.coefficients.shared_step), personal, drawn), tally

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: ClientState, data: ClientData
    ) -> tuple[Upload, ClientState, Tally]:
        """The gradient that the round's end asks for; beta_m finishes its iteration here, w when the mean is back."""
        if self.reduces_variance:
            ends = (self._end_in_sample, self._end_in_sample, self._end_in_step_and_refresh, self._end_in_refresh)
            # traced, since the server drew it: one branch is computed, and only a refresh pays for every row
            branches = [functools.partial(counted, end, key, sent, working, data) for end in ends]
            gradient, personal, tally = switch(sent.ending, branches)
        elif self.objective.has_shared:
            gradient, personal, tally = self._end_in_sample(key, sent, working, data)
        else:
            gradient, personal, tally = (), working.personal, NOTHING
        return Upload(gradient, jnp.ones(())), ClientState(working.shared, personal), tally

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """The server's copy of w goes the same way as the clients'."""
        step = self.coefficients.shared_step
        # the server replays what every client did to its copy: no message carries it, and both copies stay equal bit by
        # bit
        shared = repeat(self.steps(sent, 0), lambda _, own: self._coast(own, step), server.shared)
        mean, due = received.mean.gradient, server.refresh_due
        if self.reduces_variance:
            due = sent.ending == SAMPLE_BEFORE_REFRESH
        return ServerState(self._received(shared, sent.ending, mean), mean, sent.ending, due)

    def settle(self, key: Key, sent: Broadcast, client: ClientState, data: ClientData) -> ClientState:
        """w finishes the iteration, or stores its full gradient."""
        return client._replace(shared=self._received(client.shared, sent.ended, sent.mean))

    def shared_model(self, server: ServerState) -> Params | None:
        """What w alone stands for, where that is a whole model."""
        return self.objective.shared_model(server.shared.y)

    def deliver(self, key: Key, server: ServerState) -> Broadcast:
        """w's y alone."""
        return Broadcast((), (), (), (), server.shared.y)

    def point(self, sent: Broadcast, client: ClientState) -> tuple[Params, Params]:
        """Both blocks' y."""
        return sent.shared, client.personal.y

    @property
    def _two_blocks(self) -> bool:
        return self.objective.has_shared and self.objective.has_personal

    @property
    def _draws(self) -> bool:
        """Whether the server draws a schedule: between two blocks, or for the refreshes."""
        return self._two_blocks or self.reduces_variance

    def _start(self, start: Params) -> Iterate:
        z = start if self.accelerated else ()
        return Iterate(start, z, *((start, tree.zeros(start)) if self.reduces_variance else ((), ())))

    def _schedule(self, key: Key, refresh_due: Array | bool) -> tuple[Any, Any]:
        """(local iterations, what the round ends in)."""
        if not self._draws:
            return (), whole(SAMPLE)
        chosen = self.coefficients
        stays = 1 - chosen.refresh_probability
        # an iteration is silent if it neither samples w nor refreshes; the first that is not ends the round
        exchanging = 1 - (1 - chosen.shared_probability) * stays
        iterations = iterations_before_message(step_key(key, 0), exchanging)
        if not self.reduces_variance:
            return iterations, whole(SAMPLE)
        # the message is due to w alone, to both, or to the refresh alone: p_w (1 - rho), p_w rho, p_beta rho
        place = jax.random.uniform(step_key(key, 1), (), jnp.result_type(exchanging)) * exchanging
        both = jnp.where(place < chosen.shared_probability, SAMPLE_BEFORE_REFRESH, STEP_AND_REFRESH)
        ending = jnp.where(place < chosen.shared_probability * stays, SAMPLE, both)
        # a refresh that follows a step on w needs the new y: it is a round of its own, without iterations
        return jnp.where(refresh_due, 0, iterations), whole(jnp.where(refresh_due, REFRESH, ending))

    def _mixed(self, iterate: Iterate) -> Params:
        """x."""
        chosen, mixed = self.coefficients, iterate.y
        if self.accelerated:
            mixed = tree.toward(mixed, iterate.z, chosen.momentum)
        if self.reduces_variance and self.accelerated:
            # x = theta1 z + theta2 v + (1 - theta1 - theta2) y, written as y plus two differences
            mixed = jax.tree.map(lambda x, y, v: x + chosen.anchor * (v - y), mixed, iterate.y, iterate.snapshot)
        return mixed

    def _moved(self, iterate: Iterate, x: Params, estimate: Params, step: Scalar) -> Iterate:
        """y and z after the gradient estimate g."""
        chosen, z = self.coefficients, iterate.z
        if self.accelerated:
            z = tree.descend(tree.toward(x, z, chosen.keep), chosen.mirror_step, estimate)
        return iterate._replace(y=tree.descend(x, step, estimate), z=z)

    def _coast(self, iterate: Iterate, step: Scalar) -> Iterate:
        """An iteration that samples the other block."""
        if self.reduces_variance:
            # with variance reduction g of this block is not 0 but its full gradient at v
            return self._moved(iterate, self._mixed(iterate), iterate.gradient, step)
        if not self.accelerated:
            return iterate
        x = self._mixed(iterate)
        return iterate._replace(y=x, z=tree.toward(x, iterate.z, self.coefficients.keep))

    def _sampled(self, iterate: Iterate, scale: Scalar, difference: Params, step: Scalar) -> Iterate:
        """An iteration that samples this block."""
        estimate = tree.scale(scale, difference)
        if self.reduces_variance:
            estimate = tree.add(estimate, iterate.gradient)
        return self._moved(iterate, self._mixed(iterate), estimate, step)

    def _difference(self, gradient: Gradient, key: Key, working: Working, batch: Batch) -> tuple[Params, Tally]:
        """grad f_j(x) - grad f_j(v), or grad f_j(x) alone."""
        at_x, tally = gradient(key, self._mixed(working.shared), self._mixed(working.personal), batch)
        if not self.reduces_variance:
            return at_x, tally
        at_snapshot, more = gradient(key, working.shared.snapshot, working.personal.snapshot, batch)
        return tree.subtract(at_x, at_snapshot), tally.plus(more)

    def _sample_personal(self, key: Key, working: Working, batch: Batch) -> tuple[Iterate, Tally]:
        """beta_m after an iteration that samples it."""
        difference, tally = self._difference(self.objective.gradient_personal, key, working, batch)
        chosen = self.coefficients
        # 1/M turns grad f_m into the gradient of F (E002-2); 1/p_beta makes the estimate unbiased over coins
        scale = 1 / ((1 - chosen.shared_probability) * population(self))
        return self._sampled(working.personal, scale, difference, chosen.personal_step), tally

    def _received(self, iterate: Iterate, ending: Array | int, mean: Params) -> Iterate:
        """w once the mean of the uploads is known."""
        step = self.coefficients.shared_step
        sampled = self._sampled(iterate, 1 / self.coefficients.shared_probability, mean, step)
        if not self.reduces_variance:
            return sampled
        # in the order of the kinds: SAMPLE, SAMPLE_BEFORE_REFRESH, STEP_AND_REFRESH, REFRESH; v takes the OLD y
        branches = [
            lambda: sampled,
            lambda: sampled._replace(snapshot=iterate.y),
            lambda: self._coast(iterate, step)._replace(snapshot=iterate.y, gradient=mean),
            lambda: iterate._replace(gradient=mean),
        ]
        return switch(ending, branches)

    def _end_in_sample(self, key: Key, sent: Broadcast, working: Working, data: ClientData) -> Ended:
        batch = one_batch(key, self.batch_size, data)
        gradient, tally = self._difference(self.objective.gradient_shared, key, working, batch)
        personal = self._coast(working.personal, self.coefficients.personal_step)
        if self.reduces_variance:  # v takes the old y at once: it is read no more before the refresh that follows
            refreshes = sent.ending == SAMPLE_BEFORE_REFRESH
            snapshot = tree.choose(refreshes, working.personal.y, working.personal.snapshot)
            personal = personal._replace(snapshot=snapshot)
        return gradient, personal, tally

    def _end_in_step_and_refresh(self, key: Key, sent: Broadcast, working: Working, data: ClientData) -> Ended:
        batch = one_batch(key, self.batch_size, data)
        moved, tally = self._sample_personal(key, working, batch)
        # at the old y of both blocks: the snapshot is taken where the iteration began
        gradient, own_gradient, more = self._full_gradients(key, working.shared.y, working.personal.y, data)
        return gradient, moved._replace(snapshot=working.personal.y, gradient=own_gradient), tally.plus(more)

    def _end_in_refresh(self, key: Key, sent: Broadcast, working: Working, data: ClientData) -> Ended:
        point = working.shared.snapshot, working.personal.snapshot
        gradient, own_gradient, tally = self._full_gradients(key, *point, data)
        return gradient, working.personal._replace(gradient=own_gradient), tally

    def _full_gradients(
        self, key: Key, shared: Params, personal: Params, data: ClientData
    ) -> tuple[Params, Params, Tally]:
        """grad_w f_m and (1/M) grad_beta f_m on every row."""
        (gradient, own), tally = self.objective.gradients(key, shared, personal, data.batch())
        return gradient, tree.scale(1 / population(self), own), tally


def whole(number: ArrayLike) -> Array:
    """As a kind of ending or a count is kept."""
    return jnp.asarray(number, jnp.int32)


def counted(work: Callable[..., tuple[Any, ...]], *at: Any) -> tuple[Any, ...]:
    """What some work gives, with counters for its cost: branches must agree in their types."""
    *found, tally = work(*at)
    return *found, tally.counters()
