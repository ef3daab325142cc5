# SPDX-License-Identifier: Apache-2.0
"""What left each client: privacy.json of a run, a dial or advice."""

from __future__ import annotations

import dataclasses

from idiolect.record.schema import SCHEMA

STATEMENT = "privacy.json"


@dataclasses.dataclass(frozen=True)
class Array:
    """One array of a message, and how often it went each way where that is counted array by array."""

    array: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    uploads: int | None = None
    downloads: int | None = None


@dataclasses.dataclass(frozen=True)
class FewestRows:
    """The client with the fewest rows, and how many of them an upload is computed from."""

    rows: int
    client: str


@dataclasses.dataclass(frozen=True)
class PreparedColumn:
    """What preparing one column sent; the least and the most bytes that a client sent."""

    column: str
    content: str
    upload_bytes: tuple[int, ...]
    download_bytes: int


@dataclasses.dataclass(frozen=True)
class PreparationSent:
    """What was sent before round 0 so that all rows are prepared alike."""

    way: str
    meaning: str
    columns: tuple[PreparedColumn, ...]
    total_bytes: int
    rows_at_least: FewestRows
    protection: str


@dataclasses.dataclass(frozen=True)
class Aside:
    """What is sent beside preparation and rounds and is not counted in bytes."""

    what: str
    numbers: int | None = None
    times: int | None = None


@dataclasses.dataclass(frozen=True)
class LikenessSent:
    """What finding out who is alike sent, and reveals."""

    what: str
    arrays: tuple[Array, ...]
    upload_bytes: int
    download_bytes: int
    rows_at_least: int | None
    reveals: str
    protection: str


@dataclasses.dataclass(frozen=True)
class ClientEpsilon:
    """What training has spent of one client's rows, under differential privacy of rows."""

    client: str
    rows: int
    epsilon: float


@dataclasses.dataclass(frozen=True)
class MethodSent:
    """What training one method sent; of several seeds the first stands for all."""

    method: str
    uploads: tuple[Array, ...]
    downloads: tuple[Array, ...]
    deliveries: tuple[Array, ...]
    rounds: int
    rounds_to_choose: int
    seeds: int
    uploads_in_all: int
    upload_bytes: int
    rows_at_least: FewestRows
    protection: str
    epsilons: tuple[ClientEpsilon, ...] = ()


@dataclasses.dataclass(frozen=True)
class Statement:
    """privacy.json."""

    preparation: PreparationSent | None
    also: tuple[Aside, ...]
    exchange: LikenessSent | None
    methods: tuple[MethodSent, ...]
    schema: int = SCHEMA
