# SPDX-License-Identifier: Apache-2.0
"""Shares of a secret, of which any `threshold` rebuild it and fewer tell nothing (Shamir 1979), modulo 2^255 - 19."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from idiolect.core import RequestError
from idiolect.core.keys import secret_bytes

PRIME = 2**255 - 19
SECRET_BYTES = 31  # every such secret is below the prime
SHARE_BYTES = 32


def split_secret(secret: bytes, parties: Iterable[int], threshold: int) -> dict[int, bytes]:
    """A share for each of the parties: the value at party + 1 of a random polynomial whose value at 0 is the secret."""
    # 64 bytes modulo the prime: no coefficient is likelier than another by more than 2^-256
    drawn = [int.from_bytes(secret_bytes(64), "big") % PRIME for _ in range(threshold - 1)]
    coefficients = [*drawn, int.from_bytes(secret, "big")]
    return {party: _value_at(coefficients, party + 1).to_bytes(SHARE_BYTES, "big") for party in parties}


def _value_at(coefficients: list[int], place: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value * place + coefficient) % PRIME
    return value


def weights_at_zero(parties: Iterable[int]) -> dict[int, int]:
    """Lagrange's weights: the secret is the sum of weight times share over these parties."""
    places = [party + 1 for party in parties]
    found = {}
    for own in places:
        above, below = 1, 1
        for other in places:
            if other != own:
                above, below = above * other % PRIME, below * (other - own) % PRIME
        found[own - 1] = above * pow(below, -1, PRIME) % PRIME
    return found


def join_shares(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
    """The secret, from the shares of the parties that `weights` are for; RequestError where they make none."""
    value = sum(weight * int.from_bytes(shares[party], "big") for party, weight in weights.items()) % PRIME
    if value >= 2 ** (8 * SECRET_BYTES):
        raise RequestError("The shares of a secret do not fit together: one of them is wrong; run the round again.")
    return value.to_bytes(SECRET_BYTES, "big")
