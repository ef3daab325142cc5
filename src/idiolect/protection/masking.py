# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation: a server learns the sum of its clients' vectors and none of them (Bonawitz et al. 2017, CCS).

Four turns, with keys of one round: `advertise`, `share`, `mask`, `answer`. A client's vector carries a mask per other
client, which cancels in the sum, and one of its own. Of clients that came, the server asks the others for shares of
their own mask; of those that dropped out after they shared, for shares of the key of their masks. No party tells both.
The server follows the protocol and is curious: that it hands on the keys as they are, the connection must ensure.
"""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from idiolect.core import RequestError
from idiolect.core.keys import secret_bytes
from idiolect.protection import ciphers
from idiolect.protection.ciphers import KEY_BYTES, TAG_BYTES
from idiolect.protection.shamir import SECRET_BYTES, SHARE_BYTES, join_shares, split_secret, weights_at_zero

ADVERT_BYTES = 3 * KEY_BYTES
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES


class Advert(NamedTuple):
    """What a party shows of its secrets."""

    sealing: bytes  # public key for shares in transit
    masking: bytes  # public key for the masks that it shares with each other party
    own_mask: bytes  # digest of the seed of its own mask: a wrong one is noticed


class Terms(NamedTuple):
    """What all parties of a round agree on beforehand."""

    session: bytes  # names the run and the round: nothing of another one fits
    threshold: int


def check_threshold(threshold: int, parties: int) -> None:
    """RequestError unless more than half are needed, and no more than there are."""
    if not parties < 2 * threshold <= 2 * parties:
        raise RequestError(
            f"The threshold of secure aggregation must be more than half of the {parties} clients of a round, so that "
            f"the server cannot unmask two halves apart, and at most all of them, got {threshold}."
        )


class Party:
    """One client in one round."""

    def __init__(self, number: int, terms: Terms):
        self.number, self.terms = number, terms
        self._sealing, self._masking, self._seed = (secret_bytes(SECRET_BYTES) for _ in range(3))
        self._adverts: dict[int, Advert] = {}
        self._held: dict[int, tuple[bytes, bytes]] = {}  # of each party: a share of its masking key, one of its seed
        self._masked = False
        self._answered: frozenset[int] | None = None

    def advertise(self) -> Advert:
        """Public keys."""
        return Advert(ciphers.public_of(self._sealing), ciphers.public_of(self._masking), ciphers.digest_of(self._seed))

    def share(self, adverts: Mapping[int, Advert]) -> dict[int, bytes]:
        """Shares of the masking key and of the own seed for every other party, each sealed for it alone."""
        if self._adverts:
            raise RequestError("A party shares its secrets once; begin another round.")
        check_threshold(self.terms.threshold, len(adverts))
        if adverts.get(self.number) != self.advertise():
            raise RequestError(f"Client {self.number} is not among the keys of this round as it sent them.")
        self._adverts = dict(adverts)
        keys = split_secret(self._masking, adverts, self.terms.threshold)
        seeds = split_secret(self._seed, adverts, self.terms.threshold)
        self._held[self.number] = keys[self.number], seeds[self.number]
        return {
            other: ciphers.seal(self._key(self.number, other), keys[other] + seeds[other])
            for other in adverts
            if other != self.number
        }

    def mask(self, vector: np.ndarray, sealed: Mapping[int, bytes]) -> np.ndarray:
        """The vector (uint64) under all masks; `sealed` are the shares from the other parties that sent theirs."""
        if self._masked or not self._adverts:
            raise RequestError("A party masks one vector, after it shared its secrets; begin another round.")
        if len(sealed) + 1 < self.terms.threshold:
            raise _too_few("shares", len(sealed) + 1, self.terms.threshold)
        for other, box in sealed.items():
            self._held[other] = self._open(other, box)
        self._masked = True
        total = vector + own_mask(self._seed, self.terms, len(vector))
        for other in sealed:
            total += pair_mask(self._masking, self.number, other, self._adverts[other], self.terms, len(vector))
        return total

    def answer(self, came: Iterable[int]) -> dict[int, bytes]:
        """A share per party that shared: of its own mask's seed if its vector came, of its masking key if not."""
        survivors = frozenset(came)
        if self._answered not in (None, survivors):
            raise RequestError("A party answers about one set of clients: two would unmask a client; begin another.")
        if not survivors <= set(self._held) or self.number not in survivors or not self._masked:
            raise RequestError(f"Client {self.number} was asked about clients that are not in its round.")
        if len(survivors) < self.terms.threshold:
            raise _too_few("vectors", len(survivors), self.terms.threshold)
        self._answered = survivors
        return {party: seed if party in survivors else key for party, (key, seed) in self._held.items()}

    def _open(self, other: int, box: bytes) -> tuple[bytes, bytes]:
        if other not in self._adverts or other == self.number:
            raise RequestError(f"Shares came from client {other}, which is not among the others of this round.")
        plain = ciphers.unseal(self._key(other, self.number), box)
        if plain is None:
            raise RequestError(
                f"The shares from client {other} to client {self.number} were changed on their way: refused."
            )
        return plain[:SHARE_BYTES], plain[SHARE_BYTES:]

    def _key(self, sender: int, receiver: int) -> bytes:
        """Of one message in one direction."""
        other = receiver if sender == self.number else sender
        shared = ciphers.agreed_secret(self._sealing, self._adverts[other].sealing)
        return ciphers.derived_key(shared, self.terms.session, b"shares", sender, receiver)


@dataclasses.dataclass
class Aggregator:
    """The server in one round: it hands on keys and sealed shares, adds vectors up, and takes the masks off."""

    terms: Terms
    length: int
    adverts: dict[int, Advert] = dataclasses.field(default_factory=dict)
    sharers: frozenset[int] = frozenset()
    came: set[int] = dataclasses.field(default_factory=set)
    sum: np.ndarray | None = None

    def collect_keys(self, adverts: Mapping[int, Advert]) -> dict[int, Advert]:
        """What every party knows."""
        check_threshold(self.terms.threshold, len(adverts))
        self.adverts = dict(adverts)
        return self.adverts

    def route_shares(self, sealed: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """From sender -> receiver to receiver -> sender, among those that sent theirs."""
        if len(sealed) < self.terms.threshold:
            raise _too_few("shares", len(sealed), self.terms.threshold)
        absent = [sender for sender, boxes in sealed.items() if set(self.adverts) - {sender} - set(boxes)]
        if absent or not set(sealed) <= set(self.adverts):
            raise RequestError(f"Clients {absent or sorted(sealed)} sent shares for others than those of this round.")
        self.sharers = frozenset(sealed)
        return {
            receiver: {sender: boxes[receiver] for sender, boxes in sealed.items() if sender != receiver}
            for receiver in sealed
        }

    def add(self, number: int, masked: np.ndarray) -> None:
        """One party's masked vector."""
        if number not in self.sharers or number in self.came:
            raise RequestError(f"Client {number} sent a vector that this round does not wait for.")
        if masked.dtype != np.uint64 or masked.shape != (self.length,):
            raise RequestError(
                f"Client {number} sent {masked.dtype} of shape {masked.shape}, and not {self.length} uint64."
            )
        self.came.add(number)
        self.sum = masked.copy() if self.sum is None else self.sum + masked

    def survivors(self) -> tuple[int, ...]:
        """Whose vectors came: what every one of them is asked about."""
        if len(self.came) < self.terms.threshold:
            raise _too_few("vectors", len(self.came), self.terms.threshold)
        return tuple(sorted(self.came))

    def unmask(self, answers: Mapping[int, Mapping[int, bytes]]) -> np.ndarray:
        """The sum of the vectors that came, exactly, from the shares of at least `threshold` parties."""
        came = self.survivors()
        answering = [party for party in came if party in answers][: self.terms.threshold]
        if len(answering) < self.terms.threshold:
            raise _too_few("answers", len(answering), self.terms.threshold)
        weights = weights_at_zero(answering)
        assert self.sum is not None
        total = self.sum.copy()
        for party in sorted(self.sharers):
            secret = self._secret(party, {other: answers[other].get(party, b"") for other in answering}, weights)
            if party in self.came:
                total -= own_mask(secret, self.terms, self.length)
                continue
            for other in came:  # what the others put on for the one that is not there; it has the opposite sign
                total += pair_mask(secret, party, other, self.adverts[other], self.terms, self.length)
        return total

    def _secret(self, party: int, shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
        secret = join_shares(shares, weights)
        shown, came = self.adverts[party], party in self.came
        made = ciphers.digest_of(secret) if came else ciphers.public_of(secret)
        if not hmac.compare_digest(made, shown.own_mask if came else shown.masking):
            raise RequestError(
                f"The shares of client {party}'s secret are not those that it handed out: one of them was changed; "
                "run the round again."
            )
        return secret


def pair_mask(secret: bytes, own: int, other: int, shown: Advert, terms: Terms, length: int) -> np.ndarray:
    """The mask that `own` puts on for `other`: `other` puts on the opposite."""
    shared = ciphers.agreed_secret(secret, shown.masking)
    stream = ciphers.mask_stream(ciphers.derived_key(shared, terms.session, b"pair", *sorted((own, other))), length)
    return stream if own < other else np.negative(stream)


def own_mask(seed: bytes, terms: Terms, length: int) -> np.ndarray:
    """A party's own mask."""
    return ciphers.mask_stream(ciphers.derived_key(seed, terms.session, b"own"), length)


def _too_few(what: str, found: int, threshold: int) -> RequestError:
    return RequestError(
        f"Secure aggregation needs the {what} of {threshold} clients, got {found}: nothing can be unmasked; run the "
        "round again with more clients, or with a lower threshold."
    )
