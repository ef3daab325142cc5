# SPDX-License-Identifier: Apache-2.0
"""What only some algorithms do, as base classes and protocols beside the contract: the engines ask by `isinstance`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from idiolect.core.data import Array
from idiolect.core.tree import Params, Tree


class KeepsPrepared:
    """An algorithm whose ClientState has a field `prepared`: what the objective's clients prepare is kept there."""


class Listens:
    """An algorithm whose setting `neighbours`, who listens to whom, comes from [collaboration]."""


class PredictsWithMore:
    """An algorithm whose personal models hold more than parameters of the objective's model."""


class Messages(NamedTuple):
    """Messages of some rounds and their bytes, down and up. What one client sends another counts on both sides."""

    down: int
    up: int
    download_bytes: int
    upload_bytes: int


@runtime_checkable
class Bills(Protocol):
    """An algorithm that knows better than its types what is sent, between peers say."""

    @property
    def delivers(self) -> bool:
        """Whether models are handed out at the end; not where every client holds its own already."""

    def bill(
        self, sent: Tree, upload: Tree, rounds: np.ndarray, clients: np.ndarray, present: np.ndarray
    ) -> Messages | None:
        """What some rounds sent; None: the types tell.

        `sent` and `upload` are types; `rounds` are round numbers, `clients` and `present` (rounds, cohort). Runs on the
        host, with the settings as admitted.
        """


class Leg(NamedTuple):
    """One message of a round between the server and one client."""

    what: str
    up: bool
    bytes: int
    stayed: bool  # only with the clients whose upload arrives; False: with all that were asked


@runtime_checkable
class SendsInLegs(Protocol):
    """A reduction whose uploads take more messages than one."""

    def legs(self, upload: Tree, cohort: int) -> tuple[Leg, ...]:
        """All messages with one client of a round of `cohort`, but for the broadcast; `upload` is a type."""


class MaskSizes(NamedTuple):
    """Bytes of what secure aggregation sends beside masked numbers: public keys, sealed shares, a share."""

    advert: int
    sealed: int
    share: int


class MaskingClient(Protocol):
    """A client's end of one round under secure aggregation. Each answers once; RequestError refuses."""

    def advertise(self) -> bytes:
        """Public keys of this round."""

    def share(self, adverts: Mapping[int, bytes]) -> dict[int, bytes]:
        """Sealed shares for each of the others, from their keys."""

    def mask(self, lifted: Tree, sealed: Mapping[int, bytes]) -> np.ndarray:
        """What the client adds to the sum, under masks; `sealed` are the others' shares for this client."""

    def answer(self, came: Iterable[int]) -> dict[int, bytes]:
        """Shares that take the masks off the sum over these clients, by client that shared."""


class MaskingServer(Protocol):
    """The server's end of the same round; RequestError where too few clients are left, or one of them lied."""

    @property
    def length(self) -> int:
        """Numbers that each client sends."""

    def collect_keys(self, adverts: Mapping[int, bytes]) -> None:
        """Whose keys came."""

    def route_shares(self, sealed: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """From sender -> receiver to receiver -> sender, among those that sent theirs."""

    def add(self, number: int, masked: np.ndarray) -> None:
        """What one client sent."""

    def survivors(self) -> tuple[int, ...]:
        """Whose numbers came."""

    def unmask(self, answers: Mapping[int, Mapping[int, bytes]]) -> Tree:
        """The exact sum of what the survivors added, for `Masks.partial_of`."""


@runtime_checkable
class Masks(Protocol):
    """A reduction that needs only the sum of what clients add: a deployment shows its server no more than that."""

    sizes: MaskSizes

    @property
    def least(self) -> int:
        """Clients that must stay to the end of a round."""

    def lift(self, upload: Tree, client: Array, present: Array) -> Tree:
        """What one client adds."""

    def masking_client(self, number: int, session: bytes) -> MaskingClient:
        """A client's end; `session` names the run and the round."""

    def masking_server(self, upload: Tree, session: bytes) -> MaskingServer:
        """The server's end; `upload` is a type."""

    def partial_of(self, numbers: Tree, stayed: int) -> Tree:
        """What `collect` would have made of the uploads of `stayed` clients."""


@runtime_checkable
class Carries(Protocol):
    """An algorithm whose states are right for its own settings only, and are corrected when these change."""

    def carry(self, earlier: Any, server: Tree, clients: Tree) -> tuple[Tree, Tree]:
        """(server, clients) to go on with when settings change from those of `earlier`, between two rounds.

        `clients` has a row per client, and PerClient settings are whole.
        """


@runtime_checkable
class Routes(Protocol):
    """An algorithm that routes inputs between two versions of some layers."""

    @property
    def route_names(self) -> tuple[str, ...]:
        """What each exit routes."""

    def shared_shares(self, model: Params, inputs: Array) -> Array:
        """Of a personal model, the weight of each exit's shared version: (rows, exits), or (rows, time, exits)."""


class Changes(NamedTuple):
    """What of an Upload says how something moved: what can be clipped, compressed, or hidden in noise.

    An algorithm states it as `changes`, an attribute of its class; without it no protection can be put around it.
    """

    fields: dict[str, str | None]  # of the Upload -> the field of the Broadcast that it moved away from; None: a change
    exact: str | None = None  # why no upload may arrive otherwise than it was computed
    unbiased: str | None = None  # why compression must be right in the mean


@runtime_checkable
class SendsChanges(Protocol):
    """An algorithm whose uploads can be protected."""

    changes: ClassVar[Changes]


class RowReads(NamedTuple):
    """How a client's rows reach what it sends: through gradients of the objective on its batches, and not otherwise.

    An algorithm states it as `row_reads`; without it no noise on gradients can hide a row. What never leaves the client
    may read rows as it likes, by `unprotected(objective)`.
    """

    passes: int = 1  # gradients per local step, or per pass over the rows, each on a batch of its own
    exact: str | None = None  # why rows are read otherwise: the rest of a sentence


@runtime_checkable
class ReadsRows(Protocol):
    """An algorithm that states how it reads rows."""

    @property
    def row_reads(self) -> RowReads:
        """How."""
