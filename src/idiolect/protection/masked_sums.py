# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation as a reduction: exact sums of fixed-point numbers, and the protocol's messages in the ledger.

What goes up is the upload *lifted* by the algorithm's own reduction, weight and count with it, as fixed-point numbers.
Masks cancel exactly, so that a simulation need not draw them: the sum is the same whole number as that of real sites.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import settings
from idiolect.core.kinds import Leg, MaskSizes
from idiolect.core.types import Reduction, Tree
from idiolect.protection.choices import SecureAggregation
from idiolect.protection.ciphers import KEY_BYTES
from idiolect.protection.fixed_point import NUMBER_BYTES, Digits, digits_of_host, fits, from_digits, to_digits, to_fixed
from idiolect.protection.masking import ADVERT_BYTES, SEALED_BYTES, Advert, Aggregator, Party, Terms
from idiolect.protection.shamir import SHARE_BYTES
from idiolect.protection.subclass import Before

SIZES = MaskSizes(ADVERT_BYTES, SEALED_BYTES, SHARE_BYTES)


class ClientMasks:
    """A client in one round: `core.kinds.MaskingClient`."""

    def __init__(self, rules: SecureAggregation, number: int, session: bytes):
        self.rules, self.number = rules, number
        self.party = Party(number, Terms(session, rules.threshold))
        self.answer = self.party.answer

    def advertise(self) -> bytes:
        """Public keys."""
        return b"".join(self.party.advertise())

    def share(self, adverts: Mapping[int, bytes]) -> dict[int, bytes]:
        """Shares of two secrets, sealed for each of the others, whose keys these are."""
        others = {number: _advert_of(block) for number, block in adverts.items()}
        return self.party.share(others | {self.number: self.party.advertise()})

    def mask(self, lifted: Tree, sealed: Mapping[int, bytes]) -> np.ndarray:
        """What the client adds to the sum, in fixed point, under all masks."""
        numbers = np.concatenate([np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(lifted)])
        return self.party.mask(to_fixed(numbers, self.rules.fraction_bits, self.rules.cohort), sealed)


class ServerMasks:
    """The server in one round: `core.kinds.MaskingServer`; `lifted` is the form of what each client adds."""

    def __init__(self, rules: SecureAggregation, lifted: Tree, session: bytes):
        self.forms, self.form = jax.tree.flatten(lifted)
        length = sum(math.prod(leaf.shape) for leaf in self.forms)
        self.server = Aggregator(Terms(session, rules.threshold), length)
        self.length, self.route_shares = length, self.server.route_shares
        self.add, self.survivors = self.server.add, self.server.survivors

    def collect_keys(self, adverts: Mapping[int, bytes]) -> None:
        """Whose keys came."""
        self.server.collect_keys({number: _advert_of(block) for number, block in adverts.items()})

    def unmask(self, answers: Mapping[int, Mapping[int, bytes]]) -> Tree:
        """The sum, as digits."""
        ends = np.cumsum([math.prod(form.shape) for form in self.forms])
        parts = zip(np.split(self.server.unmask(answers), ends[:-1]), self.forms)
        found = [Digits(jnp.asarray(digits_of_host(part.reshape(form.shape))), form.dtype) for part, form in parts]
        return jax.tree.unflatten(self.form, found)


def _advert_of(block: bytes) -> Advert:
    return Advert(*(block[place : place + KEY_BYTES] for place in range(0, ADVERT_BYTES, KEY_BYTES)))


class FixedSum(NamedTuple):
    """The sum of some lifted uploads."""

    numbers: Tree  # of Digits
    stayed: jax.Array  # clients in it
    beyond: jax.Array  # clients of them with a number that the sum has no room for


@dataclasses.dataclass(eq=False)
class MaskedReduction:
    """Another reduction's lift, add and lower, with fixed-point numbers in between."""

    own: Reduction
    rules: SecureAggregation
    stacks: bool = False
    sizes = SIZES

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> FixedSum:
        """The exact sum of a chunk."""
        bits, cohort = self.rules.fraction_bits, self.rules.cohort
        lifted = jax.vmap(self.lift)(uploads, clients, present)
        numbers = jax.tree.map(
            lambda leaf: Digits(jnp.sum(to_digits(leaf, bits), axis=1, dtype=jnp.uint32), leaf.dtype), lifted
        )
        rooms = [jax.vmap(lambda row: fits(row, bits, cohort))(leaf) for leaf in jax.tree.leaves(lifted)]
        beyond = present & ~functools.reduce(jnp.logical_and, rooms)
        return FixedSum(numbers, jnp.sum(present, dtype=jnp.int32), jnp.sum(beyond, dtype=jnp.int32))

    def lift(self, upload: Tree, client: jax.Array, present: jax.Array) -> Tree:
        """What one client adds to the sum; zero where it is absent."""
        return self.own.collect(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (upload, client, present)))

    def lower(self, partial: FixedSum) -> Tree:
        """What the algorithm receives; NaN where the protocol would have refused the round."""
        refused = (partial.beyond > 0) | (partial.stayed < self.rules.threshold)

        def one(number: Digits) -> jax.Array:
            value = from_digits(number, self.rules.fraction_bits)
            real = jnp.issubdtype(value.dtype, jnp.floating)
            return jnp.where(refused, jnp.nan, value).astype(value.dtype) if real else value

        return self.own.lower(jax.tree.map(one, partial.numbers, is_leaf=lambda node: isinstance(node, Digits)))

    @property
    def least(self) -> int:
        """Clients that must stay to the end of a round."""
        return self.rules.threshold

    def masking_client(self, number: int, session: bytes) -> ClientMasks:
        """A site's end of one round."""
        return ClientMasks(self.rules, number, session)

    def masking_server(self, upload: Tree, session: bytes) -> ServerMasks:
        """The coordinator's end of one round; `upload` is a type."""
        return ServerMasks(self.rules, self.lifted_form(upload), session)

    def partial_of(self, numbers: Tree, stayed: int) -> FixedSum:
        """What `collect` would have made of the uploads whose exact sum this is."""
        return FixedSum(numbers, jnp.int32(stayed), jnp.int32(0))

    def lifted_form(self, upload: Tree) -> Tree:
        """The form of what each client adds to the sum."""
        form: Tree = jax.eval_shape(self.lift, upload, jnp.zeros((), jnp.int32), jnp.ones((), bool))
        return form

    def legs(self, upload: Tree, cohort: int) -> tuple[Leg, ...]:
        """Keys, sealed shares, masked numbers, who stayed (a bit each), and a share of a secret of each client.

        A client that drops out is billed as the protocol's dearest: it leaves after it sent its shares.
        """
        numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.lifted_form(upload)))
        others = cohort - 1
        return (
            Leg("public keys", up=True, bytes=SIZES.advert, stayed=False),
            Leg("public keys of the others", up=False, bytes=SIZES.advert * others, stayed=False),
            Leg("sealed shares of keys", up=True, bytes=SIZES.sealed * others, stayed=False),
            Leg("sealed shares of the others' keys", up=False, bytes=SIZES.sealed * others, stayed=False),
            Leg("masked numbers", up=True, bytes=NUMBER_BYTES * numbers, stayed=True),
            Leg("whose numbers came", up=False, bytes=-(-cohort // 8), stayed=True),
            Leg("shares that take the masks off the sum", up=True, bytes=SIZES.share * cohort, stayed=True),
        )


@settings
class Masked(Before):  # type: ignore[misc]
    """All that secure aggregation changes of an algorithm; only for one that was not refused."""

    secure_aggregation: SecureAggregation = dataclasses.field(default_factory=SecureAggregation)

    @property
    def reduction(self) -> Reduction:
        """The algorithm's, of fixed-point numbers."""
        return MaskedReduction(super().reduction, self.secure_aggregation)
