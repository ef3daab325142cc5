# SPDX-License-Identifier: Apache-2.0
"""What a run folder's summary.json holds. Experiments fill it, reports read it; all numbers are means over seeds."""

from __future__ import annotations

import dataclasses

from idiolect.record.divergence import Divergence

SCHEMA = 3
ALONE = "local"  # the method that trains every client on its own rows

Numbers = tuple[float | None, ...]


@dataclasses.dataclass(frozen=True)
class Swept:
    """Of which method a sweep made this one, and the settings that it varied."""

    method: str
    settings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Scores:
    """A score over clients; the worst tenth, deciles and quartiles are of clients."""

    mean: float | None = None
    spread: float | None = None
    worst_decile: float | None = None
    p10: float | None = None
    p20: float | None = None
    p25: float | None = None
    p30: float | None = None
    p40: float | None = None
    p50: float | None = None
    p60: float | None = None
    p70: float | None = None
    p75: float | None = None
    p80: float | None = None
    p90: float | None = None


@dataclasses.dataclass(frozen=True)
class OtherScore:
    """A further score of the same models and rows."""

    mean: float | None
    worst_decile: float | None
    clients: int  # that have it
    missing: int


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over clients or splits with its 95 % interval."""

    mean: float | None
    low: float | None
    high: float | None

    @property
    def is_nothing(self) -> bool:
        """Whether it is 0 by nature: a method against itself."""
        return self.mean == self.low == self.high == 0

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0; also where there is none."""
        return self.low is None or self.high is None or not self.low <= 0 <= self.high


@dataclasses.dataclass(frozen=True)
class Gain(Estimate):
    """A mean gain over clients, against the method `reference`."""

    clients: int
    reference: str


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """Fractions of rows by which of the two models, received and own, gets them right."""

    both: float | None = None
    shared_only: float | None = None
    personal_only: float | None = None
    neither: float | None = None


@dataclasses.dataclass(frozen=True)
class Personalization:
    """Accuracy of the received model (g) and of the one that a client predicts with (p), means over clients.

    helped, hurt, same: percent of clients whose own model is strictly better, strictly worse, neither; the breakdown is
    the mean over clients of their fractions of rows.
    """

    acc_g: float | None = None
    acc_p: float | None = None
    helped: float | None = None
    hurt: float | None = None
    same: float | None = None
    breakdown: Breakdown = Breakdown()
    deciles_g: Numbers | None = None  # p10, p20, .. p90 over clients
    deciles_p: Numbers | None = None
    worst_tenth_g: float | None = None  # mean over the worst tenth of clients, at least one of them
    worst_tenth_p: float | None = None
    clients: float | None = None  # that have a row
    missing: float | None = None  # that have none


@dataclasses.dataclass(frozen=True)
class Routing:
    """Which version of each layer rows take, one number per layer, in all and by category of rows."""

    names: tuple[str, ...]
    shared_share: Numbers
    taken: Numbers
    one_way: Numbers
    by_category: dict[str, Numbers]
    taken_by_category: dict[str, Numbers]
    rows: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Storage:
    """Bytes kept between rounds, and of the model that a client predicts with; rows of data are not counted."""

    client_bytes: int  # the state of the client with most rows
    server_bytes: int
    model_bytes: int


@dataclasses.dataclass(frozen=True)
class Flops:
    """Floating-point operations of one client, as the compiler counts them before it optimises."""

    training: float  # one round's local work
    adaptation: float  # making the personal model from what was delivered
    prediction: float  # of the personal model, one row
    rows: int  # the client's training rows
    steps: float  # its local steps per round; the mean where they are drawn
    complete: bool  # false where a loop ends by its own test: it is counted as one turn


@dataclasses.dataclass(frozen=True)
class NewClients:
    """Clients that never trained, each after one round on its own rows."""

    mean: float | None
    shared_mean: float | None = None
    personalization: Personalization | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """The totals of a ledger."""

    rounds: int = 0
    download_bytes: int = 0
    upload_bytes: int = 0
    delivery_bytes: int = 0
    preparation_bytes: int = 0
    messages_down: int = 0
    messages_up: int = 0
    gradients_shared: int = 0
    gradients_personal: int = 0
    gradients_both: int = 0
    forward_passes: int = 0
    samples: int = 0
    full_gradients_shared: int = 0
    full_gradients_personal: int = 0
    proximal_calls: int = 0
    useful_steps: int = 0
    executed_steps: int = 0

    @property
    def traffic_bytes(self) -> int:
        """Everything that crossed the wire in rounds: up, down, and the delivery of the models."""
        return self.upload_bytes + self.download_bytes + self.delivery_bytes


@dataclasses.dataclass(frozen=True)
class MethodSummary(Costs):
    """One method of a run: what it is, what it answers on test rows, what it cost. None for what it has not."""

    method: str  # its label
    algorithm: str
    objective: str | None = None
    summary: str = ""
    reference: str = ""
    seeds: tuple[int, ...] = ()
    settings: dict[str, object] = dataclasses.field(default_factory=dict)
    swept: Swept | None = None
    chosen: bool | None = None  # in a sweep: whether validation rows choose it among the settings of its method
    tuned: str | None = None  # what was chosen on validation rows, in words
    converged: bool | None = None  # None where nothing was chosen
    diverged: Divergence | None = None

    score: Scores = Scores()
    seed_means: Numbers = ()
    interval: Numbers = ()  # two ends, or none
    clients: int = 0  # with a score
    missing: int = 0
    other_scores: dict[str, OtherScore] = dataclasses.field(default_factory=dict)
    validation_mean: float | None = None  # the first score on validation rows
    choosing_mean: float | None = None  # the score that chooses, there
    shared_mean: float | None = None
    last_mean: float | None = None
    selected_rounds: tuple[int, ...] = ()
    new_clients: NewClients | None = None
    train_loss: float | None = None  # with a solved optimum
    suboptimality: float | None = None
    distance_to_optimum: float | None = None

    helped: float | None = None  # percent of clients by verdict against training alone
    hurt: float | None = None
    same: float | None = None
    unclear: float | None = None
    better: float | None = None  # percent by the sign of the gain
    worse: float | None = None
    gain: Gain | None = None  # over training alone
    gain_over_one: Gain | None = None  # over one model for all
    personalization: Personalization | None = None
    routing: Routing | None = None

    seconds: float = 0.0
    storage: Storage | None = None
    flops: Flops | None = None

    @property
    def alone(self) -> bool:
        """Whether this is training alone."""
        return ALONE in (self.method, self.algorithm)

    @property
    def chosen_start(self) -> bool:
        """Whether validation rows prefer the model before the first round: what is delivered was never shared."""
        return self.tuned is not None and self.rounds == 0 and not self.alone and self.diverged is None

    @property
    def name(self) -> str:
        """In a sentence."""
        return "training alone" if self.alone else self.method


@dataclasses.dataclass(frozen=True)
class Announced:
    """The method that did best on validation rows by `score`, and the labels of those within noise of it."""

    method: str
    score: str
    choosing_mean: float | None
    tied: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Unscored:
    """Clients without the first score on test rows; some are named."""

    score: str
    clients: tuple[str, ...]
    count: int
    reason: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """summary.json."""

    name: str
    scores: tuple[str, ...]  # the first one decides
    higher_is_better: dict[str, bool]
    methods: tuple[MethodSummary, ...]
    choose_by: str | None = None  # the score that chooses on validation rows; None: the first one
    score_reason: str | None = None
    refit: bool = False  # whether validation rows trained too
    announced: Announced | None = None  # None where nothing was validated
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unscored: Unscored | None = None
    schema: int = SCHEMA
