# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation over real sites: both ends of one round, from a client's lifted upload to the exact sum.

What travels between them are blocks of fixed sizes (`SIZES`) and masked numbers; the engine carries them unread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.kinds import MaskSizes
from idiolect.core.tree import Tree
from idiolect.protection.choices import SecureAggregation
from idiolect.protection.ciphers import KEY_BYTES
from idiolect.protection.fixed_point import Digits, digits_of_host, to_fixed
from idiolect.protection.masking import ADVERT_BYTES, SEALED_BYTES, Advert, Aggregator, Party, Terms
from idiolect.protection.shamir import SHARE_BYTES

SIZES = MaskSizes(ADVERT_BYTES, SEALED_BYTES, SHARE_BYTES)


class ClientMasks:
    """A client in one round: `core.kinds.MaskingClient`."""

    def __init__(self, rules: SecureAggregation, number: int, session: bytes):
        self.rules, self.number = rules, number
        self.party = Party(number, Terms(session, rules.threshold))

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

    def answer(self, came: Iterable[int]) -> dict[int, bytes]:
        """A share of one secret of each client that shared: by client, itself included."""
        return self.party.answer(came)


class ServerMasks:
    """The server in one round: `core.kinds.MaskingServer`; `lifted` is the form of what each client adds."""

    def __init__(self, rules: SecureAggregation, lifted: Tree, session: bytes):
        self.forms, self.form = jax.tree.flatten(lifted)
        length = sum(math.prod(leaf.shape) for leaf in self.forms)
        self.server = Aggregator(Terms(session, rules.threshold), length)

    @property
    def length(self) -> int:
        """Numbers that each client sends."""
        return self.server.length

    def collect_keys(self, adverts: Mapping[int, bytes]) -> None:
        """Whose keys came."""
        self.server.collect_keys({number: _advert_of(block) for number, block in adverts.items()})

    def route_shares(self, sealed: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """From sender -> receiver to receiver -> sender, among those that sent theirs."""
        return self.server.route_shares(sealed)

    def add(self, number: int, masked: np.ndarray) -> None:
        """What one client sent."""
        self.server.add(number, masked)

    def survivors(self) -> tuple[int, ...]:
        """Whose numbers came."""
        return self.server.survivors()

    def unmask(self, answers: Mapping[int, Mapping[int, bytes]]) -> Tree:
        """The sum, as digits."""
        total, found, place = self.server.unmask(answers), [], 0
        for form in self.forms:
            size = math.prod(form.shape)
            digits = digits_of_host(total[place : place + size].reshape(form.shape))
            found.append(Digits(jnp.asarray(digits), form.dtype))
            place += size
        return jax.tree.unflatten(self.form, found)


def _advert_of(block: bytes) -> Advert:
    return Advert(*(block[place : place + KEY_BYTES] for place in range(0, ADVERT_BYTES, KEY_BYTES)))
