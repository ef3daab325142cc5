# SPDX-License-Identifier: Apache-2.0
"""The plainest tuples of the contract, for methods with one shared block and one that stays on the client."""

from __future__ import annotations

from typing import Any, NamedTuple

from idiolect.core.types import Array, Params


class ServerState(NamedTuple):
    """The shared block."""

    shared: Params


class ClientState(NamedTuple):
    """A model, or a part of one, that never travels."""

    personal: Params


class Broadcast(NamedTuple):
    """The shared block goes down."""

    shared: Params


class Working(NamedTuple):
    """The client's copy of the shared block, what it keeps beside it, and the rows of the round."""

    shared: Params
    own: Any
    drawn: Any


class OwnWorking(NamedTuple):
    """The client's own block in training, and the rows of the round."""

    personal: Params
    drawn: Params


class Upload(NamedTuple):
    """Start minus end of the local work goes up."""

    drift: Params
    weight: Array
