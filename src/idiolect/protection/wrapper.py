# SPDX-License-Identifier: Apache-2.0
"""`protect`: the same algorithm with protections around it, which every engine runs as it runs the algorithm.

It is made as a subclass of the algorithm's own class with one more setting, so that whatever asks for the kind of an
algorithm, its settings or its states gets the algorithm's own answer.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from idiolect.core import Algorithm, Models, settings, tree
from idiolect.core.keys import Secret, secret_words
from idiolect.core.types import Array, ClientData, Key, Params, Reduction, StartKeys, Tally, Tree
from idiolect.protection.attacks import attack_moves, flip_labels
from idiolect.protection.changes import Beside, add_starts, changes_of, own_part, take_moves
from idiolect.protection.choices import ClientPrivacy, Protection
from idiolect.protection.clipping import COUNT_NOISE, add_noise, change_noise, clip, next_clip, noise_key
from idiolect.protection.masked_sums import Masked
from idiolect.protection.packing import keep_sent, pack_tree, unpack_tree
from idiolect.protection.reduction import ProtectedReduction
from idiolect.protection.refusals import refuse_masks, refuse_protection, refuse_rows
from idiolect.protection.row_privacy import hide_rows
from idiolect.protection.subclass import Before, put_before

Owner = TypeVar("Owner", bound=Algorithm)
NOISE_SECRET = "noise_secret"  # a setting that no party of a deployment tells another
PACKING = 0x7061636B  # sets the codec's draws apart from those of `send` itself


def protect(algorithm: Owner, protection: Protection) -> Owner:
    """The algorithm with the protections around it; RequestError where one makes no sense for it."""
    if protection.secure_aggregation is not None:
        refuse_masks(algorithm, protection)
        inner = protect(algorithm, dataclasses.replace(protection, secure_aggregation=None))
        return put_before(inner, Masked, secure_aggregation=protection.secure_aggregation)
    if protection.rows is not None:
        refuse_rows(algorithm, protection)
        return protect(hide_rows(algorithm, protection.rows), dataclasses.replace(protection, rows=None))
    if protection.is_empty:
        return algorithm
    refuse_protection(algorithm, protection)
    return put_before(algorithm, Protected, protection=protection)


def with_private_noise(algorithm: Owner) -> Owner:
    """The algorithm with noise that follows from no seed, where it adds some: for one party of a deployment."""
    protection = getattr(algorithm, "protection", None)
    if protection is None or protection.privacy is None:
        return algorithm
    return dataclasses.replace(cast(Any, algorithm), noise_secret=Secret(jnp.asarray(secret_words())))


def _settle(self: Any, key: Key, sent: Tree, client: Tree, data: ClientData) -> Tree:
    kept = super(Protected, self).settle(key, own_part(sent), own_part(client), data)
    return client._replace(own=kept) if isinstance(client, Beside) else kept


@settings
class Protected(Before):  # type: ignore[misc]
    """What the protections do at each call of the contract, around the algorithm's own answer."""

    protection: Protection = dataclasses.field(default_factory=Protection)
    noise_secret: Secret | None = None  # None: the noise follows from the run's seed, as a simulation's may

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.server_only = (*super().server_only, NOISE_SECRET)
        # engines bill a second broadcast wherever there is a `settle`, so it must not be there for others
        if super().settle is not None:
            cls.settle = _settle

    @property
    def reduction(self) -> Reduction:
        """The algorithm's, protected."""
        return ProtectedReduction(super().reduction, changes_of(self), self.protection, self.protection.gathers)

    def init_server(self, key: Key) -> Tree:
        """With the first clip, where it adapts."""
        own, privacy = super().init_server(key), self.protection.privacy
        return Beside(own, jnp.asarray(privacy.clip)) if privacy is not None and privacy.adaptive else own

    def broadcast(self, key: Key, server: Tree) -> Tree:
        """With the clip, where it adapts."""
        own = super().broadcast(key, own_part(server))
        return Beside(own, server.more) if isinstance(server, Beside) else own

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Tree, Tally]:
        """With room for what is not sent, where clients remember it."""
        own, tally = super().init_client(keys, data)
        if not self.protection.remembers:
            return own, tally
        return Beside(own, tree.zeros(self._moves_of_start(keys, own, data))), tally

    def _moves_of_start(self, keys: StartKeys, client: Tree, data: ClientData) -> Tree:
        """The shapes of a change: those of the first upload, of which nothing is computed."""

        def first(key: Key, own: Tree, rows: ClientData) -> Tree:
            bare: Any = super(Protected, self)
            sent = bare.broadcast(key, own_part(self.init_server(key)))
            working, _ = bare.receive(key, sent, own, rows)
            upload, _, _ = bare.send(key, sent, working, own, rows)
            return take_moves(changes_of(self), sent, upload)

        return jax.eval_shape(first, keys.common, client, data)

    def receive(self, key: Key, sent: Tree, client: Tree, data: ClientData) -> tuple[Tree, Tally]:
        """On rows that an attacker may have changed."""
        return super().receive(key, own_part(sent), own_part(client), flip_labels(self.protection.attack, data))

    def steps(self, sent: Tree, rows: Array) -> Array:
        """The algorithm's."""
        return super().steps(own_part(sent), rows)

    def step(self, key: Key, t: Array, sent: Tree, working: Tree, data: ClientData) -> tuple[Tree, Tally]:
        """On rows that an attacker may have changed."""
        return super().step(key, t, own_part(sent), working, flip_labels(self.protection.attack, data))

    def send(self, key: Key, sent: Tree, working: Tree, client: Tree, data: ClientData) -> tuple[Tree, Tree, Tally]:
        """The upload with its changes clipped, attacked, compressed; and what was not sent, where it is remembered."""
        rows, protection = flip_labels(self.protection.attack, data), self.protection
        upload, kept, tally = super().send(key, own_part(sent), working, own_part(client), rows)
        moves, more = keep_sent(protection.compression, take_moves(changes_of(self), own_part(sent), upload)), None
        if protection.privacy is not None:
            # a weight by rows would reveal how many the client has
            upload = upload._replace(weight=jnp.ones_like(upload.weight))
            moves, more = self._make_private(protection.privacy, key, sent, moves)
        # behind the clip, which an attacker need not obey
        moves = attack_moves(protection.attack, key, moves)
        if protection.compression is not None:
            held = tree.add(moves, client.more) if protection.remembers else moves
            moves = pack_tree(protection.compression, jax.random.fold_in(key, PACKING), held)
            if protection.remembers:
                kept = Beside(kept, tree.subtract(held, unpack_tree(moves)))
        upload = upload._replace(**moves)
        return upload if more is None else Beside(upload, more), kept, tally

    def _make_private(self, privacy: ClientPrivacy, key: Key, sent: Tree, moves: Tree) -> tuple[Tree, Array | None]:
        """The changes, clipped, with the client's part of the noise; where the clip adapts, b - 1/2."""
        bound = sent.more if isinstance(sent, Beside) else privacy.clip
        clipped = clip(moves, bound)
        if privacy.noise == "clients":
            # variances add up: n parts of 1 / sqrt(n) are the noise that the server would add
            part = change_noise(privacy) * bound / jnp.sqrt(jnp.asarray(privacy.expected, jnp.result_type(float)))
            clipped = add_noise(noise_key(self.noise_secret, key), part, clipped)
        if not privacy.adaptive:
            return clipped, None
        norm = jnp.sqrt(tree.squared_norm(moves))  # before the clip: how many were below it moves the next one
        return clipped, (norm <= bound).astype(norm.dtype) - 0.5

    def server_step(self, key: Key, server: Tree, sent: Tree, received: Tree) -> Tree:
        """With noise on the mean, and whole parameters again where the algorithm expects them."""
        privacy, own_sent, changes = self.protection.privacy, own_part(sent), changes_of(self)
        bound, adapted = (sent.more if isinstance(sent, Beside) else None), None
        if privacy is not None:
            noise = noise_key(self.noise_secret, key)
            mean = received.mean
            if bound is not None:
                adapted = next_clip(privacy, jax.random.fold_in(noise, COUNT_NOISE), bound, mean.more)
                mean = mean.own
            if privacy.noise == "server":
                # the noise of a sum, divided by the same constant as the sum
                deviation = change_noise(privacy) * (privacy.clip if bound is None else bound) / privacy.expected
                moves = {name: getattr(mean, name) for name in changes.fields}
                # an array that nobody sends must not walk away by noise alone
                mean = mean._replace(**keep_sent(self.protection.compression, add_noise(noise, deviation, moves)))
            received = received._replace(mean=mean)
        moved = super().server_step(key, own_part(server), own_sent, add_starts(changes, own_sent, received))
        return moved if adapted is None else Beside(moved, adapted)

    def shared_model(self, server: Tree) -> Params | None:
        """The algorithm's."""
        return super().shared_model(own_part(server))

    def deliver(self, key: Key, server: Tree) -> Tree:
        """The algorithm's."""
        return super().deliver(key, own_part(server))

    def point(self, sent: Tree, client: Tree) -> tuple[Params, Params]:
        """The algorithm's."""
        return super().point(own_part(sent), own_part(client))

    def models(self, key: Key, sent: Tree, client: Tree, data: ClientData) -> tuple[Models, Tally]:
        """The algorithm's."""
        return super().models(key, own_part(sent), own_part(client), data)
