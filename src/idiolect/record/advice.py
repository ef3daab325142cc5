# SPDX-License-Identifier: Apache-2.0
"""Who should learn with whom: advise.json. `Ways` has one entry for each of alone, everybody and neighbours."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from idiolect.record.schema import SCHEMA, Estimate, Numbers

Entry = TypeVar("Entry")
Ways = dict[str, Entry]


@dataclasses.dataclass(frozen=True)
class RowCounts:
    """Rows of a client."""

    least: int
    median: float
    most: int


@dataclasses.dataclass(frozen=True)
class ExpectedGain:
    """A client's gain over training alone: on held-out rows, and what to expect with its 95 % interval."""

    measured: float | None
    expected: float | None
    low: float | None
    high: float | None


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A client that counts for another, and by how much."""

    client: str
    share: float


@dataclasses.dataclass(frozen=True)
class ClientAdvice:
    """What one client should do."""

    client: str
    rows: int
    advice: str  # one of the ways
    surety: float  # the probability that it is the best way
    loss: Ways[float | None]
    gain: Ways[ExpectedGain]
    own_share: float
    neighbours: tuple[Neighbour, ...]
    block: int
    worth: float  # its weighted rows, in its own rows
    all_for_one: float
    measured: dict[str, float | None]  # what the advice gains on held-out rows over the other ways
    round_bytes: dict[str, int]

    def is_unsure(self, sure: float) -> bool:
        """Whether another way may be as good: it is not improbable enough, or the interval of the gain holds 0."""
        gain = self.advised_gain
        open_ = gain.low is None or gain.high is None or gain.low <= 0 <= gain.high
        return self.surety < sure or (self.advice != "alone" and open_)

    @property
    def advised_gain(self) -> ExpectedGain:
        """Of what it is advised."""
        return self.gain[self.advice]


@dataclasses.dataclass(frozen=True)
class CollaborationMap:
    """The matrix of weights, and where a drawing puts the clients."""

    shares: tuple[Numbers, ...]
    order: tuple[int, ...]
    places: tuple[Numbers, ...]
    speed_up: float | None
    sample_saving: float | None


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What finding the advice out would send between real clients, and reveal."""

    upload_bytes: int
    download_bytes: int
    pairs: int
    reveals: str


@dataclasses.dataclass(frozen=True)
class Times:
    """How often a way was advised, and how often rightly."""

    times: int
    right: int


@dataclasses.dataclass(frozen=True)
class ClientVerdict:
    """What a client's test rows say; `right` is None without any."""

    loss: Ways[float | None]
    test_rows: int
    right: bool | None
    decidable: bool


@dataclasses.dataclass(frozen=True)
class Verification:
    """How good the advice was on test rows, over all splits; clients are those of the first one."""

    tested: int
    right: int
    decidable: int
    right_of_decidable: int
    test_loss: dict[str, float | None]  # of each way and of the advice
    regret: dict[str, Estimate]
    saved_against: dict[str, Estimate]  # "always alone", ...
    advised: Ways[Times]
    clients: tuple[ClientVerdict, ...]
    seeds: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Advice:
    """advise.json; with very many clients it holds the first ones."""

    name: str
    score: str
    task: str
    model: str
    coefficients: int
    folds: int
    penalties: dict[str, float]
    mixture: dict[str, float]
    held_out: dict[str, float | None]
    all_clients: int
    rows: RowCounts
    picks: Ways[int]
    unsure: int
    sure: float  # the surety from which advice is given without reservation
    mean_loss: Ways[float]
    mean_gain: float
    clients: tuple[ClientAdvice, ...]
    order: tuple[int, ...]  # places of the clients by their names
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    map: CollaborationMap | None  # None where only blocks were looked into
    blocks: tuple[int, ...] | None
    exchange: Exchange
    verify: Verification | None = None
    seed: int = 0
    regime: dict[str, object] = dataclasses.field(default_factory=dict)  # constants of theory
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    kind: str = "advise"
    schema: int = SCHEMA
