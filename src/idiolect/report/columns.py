# SPDX-License-Identifier: Apache-2.0
"""One method as a row of numbers, and the columns that show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from idiolect.record.divergence import Divergence
from idiolect.record.schema import Gain, MethodSummary, Personalization
from idiolect.report.wording import NONE, ScoreWords, count, megabytes, percent, score_words, small


@dataclasses.dataclass(frozen=True)
class MethodRow:
    """One method: scores over clients (personal models, test rows, selected round) and what they cost."""

    method: str
    mean: float | None
    interval_low: float | None
    interval_high: float | None
    worst_decile: float | None
    spread: float | None
    shared_mean: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    over_one: float | None  # the same against one model for all
    over_one_low: float | None
    over_one_high: float | None
    helped: float | None  # percent of clients with this verdict against training alone
    hurt: float | None
    rounds: int | None
    upload_bytes: int | None
    download_bytes: int | None
    delivery_bytes: int | None
    gradients_shared: int | None
    gradients_personal: int | None
    gradients_both: int | None
    alone: bool  # this is training alone: nothing to gain against itself
    diverged: Divergence | None
    preparation_bytes: int | None = None  # sent before round 0 so that all rows are prepared alike
    announced: bool = False  # chosen on validation rows
    one: bool = False  # this is one model for all
    converged: bool | None = None  # whether validation rows showed no more progress; None: nobody looked
    choosing_mean: float | None = None  # in a sweep: the score on validation rows that chooses its settings
    chosen: bool | None = None  # in a sweep: whether these are the settings that validation rows choose
    new_clients: float | None = None  # mean score of clients that never trained
    suboptimality: float | None = None  # of the training objective, where its optimum is known
    distance_to_optimum: float | None = None
    acc_g: float | None = None  # accuracy of what clients receive, before any adaptation; None: no whole model
    acc_p: float | None = None  # accuracy of their personal models
    worst_tenth_g: float | None = None
    worst_tenth_p: float | None = None
    adapted_better: float | None = None  # percent of clients whose personal model is strictly the more accurate
    adapted_same: float | None = None
    adapted_worse: float | None = None
    both: float | None = None  # share of rows that both models get right
    shared_only: float | None = None
    personal_only: float | None = None
    neither: float | None = None
    new_acc_g: float | None = None  # of clients that never trained
    new_acc_p: float | None = None
    client_bytes: int | None = None  # that a client keeps between rounds
    server_bytes: int | None = None
    model_bytes: int | None = None
    flops: float | None = None  # operations of one client in one round

    @property
    def traffic_bytes(self) -> int | None:
        """Everything that crossed the wire: up, down, and the delivery of the models."""
        known = [n for n in (self.upload_bytes, self.download_bytes, self.delivery_bytes) if n is not None]
        return sum(known) if known else None

    @property
    def gradients(self) -> int | None:
        """Gradient evaluations whatever the block, or None when none was recorded."""
        known = [n for n in (self.gradients_shared, self.gradients_personal, self.gradients_both) if n is not None]
        return sum(known) if known else None

    @property
    def adapts(self) -> bool:
        """Whether any client's own model answers any row otherwise than the received one does."""
        return (self.shared_only, self.personal_only) != (0, 0)


CHOSEN = "\N{CHECK MARK}"  # marks the settings that validation rows choose
ANNOUNCED = "\N{RIGHTWARDS ARROW}"  # marks the method that validation rows choose
UNFINISHED = "~"  # marks a method that had not converged


class Column(NamedTuple):
    """One column of the table: where its number is, how it reads, and which way is better (0: neither)."""

    key: str
    title: str  # a line break where the heading may be split
    better: int
    text: Callable[[MethodRow], str]
    about: str  # one sentence for whoever wonders
    contends: Callable[[MethodRow], bool] = lambda row: True  # whether a method can be the best of it


def score_columns(words: ScoreWords, higher_is_better: bool, choosing: ScoreWords) -> tuple[Column, ...]:
    """Scores, gains against training alone, and costs; `choosing` is the score that chooses on validation rows."""
    way = 1 if higher_is_better else -1
    unit = f" {words.unit}" if words.unit else ""

    def gradients(block: str) -> Callable[[MethodRow], str]:
        return lambda row: count(getattr(row, f"gradients_{block}"))

    return (
        Column("method", "method", 0, marked, "The label of the method in the spec."),
        Column("mean", f"mean{unit}", way, lambda row: words.bare(row.mean), "Mean over clients and seeds."),
        Column(
            "choosing_mean",
            "valida-\ntion",
            0,
            lambda row: (
                f"{CHOSEN} {choosing.bare(row.choosing_mean)}" if row.chosen else choosing.bare(row.choosing_mean)
            ),
            f"Mean {choosing.title} on validation rows, by which a method's settings are chosen ({CHOSEN}).",
        ),
        Column(
            "worst_decile",
            "worst\n10 %",
            way,
            lambda row: words.bare(row.worst_decile),
            "Mean over the worst tenth of the clients.",
        ),
        Column(
            "new_clients", "new\nclients", way, lambda row: words.bare(row.new_clients), "Clients that never trained."
        ),
        Column("spread", "spread", -1, lambda row: words.bare(row.spread), "Standard deviation over the clients."),
        Column("suboptimality", "subopti-\nmality", -1, lambda row: small(row.suboptimality), "F minus its optimum."),
        Column(
            "distance_to_optimum",
            "squared\ndistance",
            -1,
            lambda row: small(row.distance_to_optimum),
            "Mean squared distance of the models to the optimum.",
        ),
        Column(
            "gain", "gain over\nalone [95 %]", 1, lambda row: _gain(row, words), "Mean gain against training alone."
        ),
        Column(
            "over_one",
            "gain over one\nmodel [95 %]",
            1,
            lambda row: _over_one(row, words),
            "Mean gain against one model for all.",
        ),
        Column(
            "helped", "helped\n%", 1, lambda row: percent(row.helped), "Clients that are clearly better off than alone."
        ),
        Column("hurt", "hurt\n%", -1, lambda row: percent(row.hurt), "Clients that are clearly worse off than alone."),
        Column("rounds", "rounds", 0, lambda row: count(row.rounds), "Exchanges with the server."),
        Column("upload_bytes", "MB\nup", -1, lambda row: megabytes(row.upload_bytes), "From all clients."),
        Column("download_bytes", "MB\ndown", -1, lambda row: megabytes(row.download_bytes), "To all clients."),
        Column(
            "gradients_shared",
            "gradients\nshared",
            0,
            gradients("shared"),
            "Gradients of the shared block, counted per example.",
        ),
        Column(
            "gradients_personal",
            "\npersonal",
            0,
            gradients("personal"),
            "Gradients of the personal block, counted per example.",
        ),
        Column("gradients_both", "\nboth", 0, gradients("both"), "Gradients of both blocks in one pass."),
    )


_DETAILS = (
    *("spread", "upload_bytes", "download_bytes"),
    *("gradients", "gradients_shared", "gradients_personal", "gradients_both"),
)


def detail_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The methods and what `short_columns` leaves out."""
    return tuple(column for column in columns if column.key in ("method", *_DETAILS))


def short_columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """What a terminal shows unasked: scores, both gains, clients, and the price in one number."""
    traffic = Column(
        "traffic_bytes", "MB", -1, lambda row: megabytes(row.traffic_bytes), "Everything that crossed the wire."
    )
    return (*(column for column in columns if column.key not in _DETAILS), traffic)


INSTANCES = ("both", "shared_only", "personal_only", "neither")


def adaptation_columns() -> tuple[Column, ...]:
    """The same rows before and after adaptation: accuracy, clients, instances."""
    share = score_words("accuracy").bare

    def column(key: str, title: str, better: int, about: str, text: Callable[[float | None], str] = share) -> Column:
        return Column(key, title, better, lambda row: text(getattr(row, key)), about)

    return (
        Column("method", "method", 0, _label, "The label of the method in the spec."),
        column("acc_g", "general-\nized %", 1, "Accuracy of what clients receive, before any adaptation."),
        column("acc_p", "personal-\nized %", 1, "Accuracy of the clients' own models."),
        column("adapted_better", "better\n%", 0, "Clients whose own model is strictly the more accurate.", percent),
        column("adapted_same", "same\n%", 0, "Clients whose two models are equally accurate.", percent),
        column(
            "adapted_worse", "worse\n%", -1, "Clients whose own model is strictly the less accurate.", percent
        )._replace(contends=lambda row: row.adapts),
        column("both", "rows:\nboth %", 0, "Rows that both models get right, mean over clients."),
        column("shared_only", "received\nonly %", 0, "Rows that only the received model gets right."),
        column("personal_only", "personal\nonly %", 0, "Rows that only the own model gets right."),
        column("neither", "neither\n%", 0, "Rows that neither gets right."),
        column("worst_tenth_g", "worst\nbefore", 1, "Generalized accuracy of the worst tenth of clients."),
        column("worst_tenth_p", "\nafter", 1, "Personalized accuracy of the worst tenth of clients."),
        column("new_acc_g", "new\nbefore", 1, "Clients that never trained, before any adaptation."),
        column("new_acc_p", "\nafter", 1, "Clients that never trained, with their own model."),
    )


def method_row(entry: MethodSummary, announced: str | None = None, one: str | None = None) -> MethodRow:
    """One method of the summary; `announced` is the one that validation rows choose, `one` is one model for all."""
    gain = _NO_GAIN if entry.gain is None or entry.alone else entry.gain
    over_one = entry.gain_over_one or _NO_GAIN
    low, high = entry.interval or (None, None)
    compared = gain is not _NO_GAIN
    adapted = entry.personalization or Personalization()
    new = (entry.new_clients and entry.new_clients.personalization) or Personalization()
    return MethodRow(
        method=entry.method,
        mean=entry.score.mean,
        interval_low=low,
        interval_high=high,
        worst_decile=entry.score.worst_decile,
        spread=entry.score.spread,
        shared_mean=entry.shared_mean,
        gain=gain.mean,
        gain_low=gain.low,
        gain_high=gain.high,
        over_one=over_one.mean,
        over_one_low=over_one.low,
        over_one_high=over_one.high,
        announced=entry.method == announced,
        one=entry.method == one,
        converged=None if entry.diverged else entry.converged,
        helped=entry.helped if compared else None,
        hurt=entry.hurt if compared else None,
        alone=entry.alone,
        diverged=entry.diverged,
        choosing_mean=None if entry.chosen is None or entry.diverged else entry.choosing_mean,
        chosen=entry.chosen,
        new_clients=None if entry.new_clients is None else entry.new_clients.mean,
        suboptimality=entry.suboptimality,
        distance_to_optimum=entry.distance_to_optimum,
        acc_g=adapted.acc_g,
        acc_p=adapted.acc_p,
        worst_tenth_g=adapted.worst_tenth_g,
        worst_tenth_p=adapted.worst_tenth_p,
        adapted_better=adapted.helped,
        adapted_same=adapted.same,
        adapted_worse=adapted.hurt,
        new_acc_g=new.acc_g,
        new_acc_p=new.acc_p,
        flops=None if entry.flops is None else entry.flops.training,
        **vars(adapted.breakdown),
        **({} if entry.storage is None else vars(entry.storage)),
        **{name: getattr(entry, name) for name in _COUNTS},
    )


_NO_GAIN = Gain(None, None, None, 0, "")


_COUNTS = (
    "rounds",
    "upload_bytes",
    "download_bytes",
    "delivery_bytes",
    "preparation_bytes",
    "gradients_shared",
    "gradients_personal",
    "gradients_both",
)


def _label(row: MethodRow) -> str:
    """The method, and what became of it where no other column says so."""
    return f"{row.method}\n({row.diverged.short})" if row.diverged else row.method


def marked(row: MethodRow) -> str:
    """The method's label, with a mark before the announced one and behind one that had not converged."""
    label = f"{ANNOUNCED} {row.method}" if row.announced else row.method
    return f"{label} {UNFINISHED}" if row.converged is False else label


def _over_one(row: MethodRow, words: ScoreWords) -> str:
    if row.one:
        return "one model"
    if row.diverged or row.over_one is None:
        return NONE
    return words.gain(row.over_one, row.over_one_low, row.over_one_high)


def _gain(row: MethodRow, words: ScoreWords) -> str:
    if row.diverged:
        return row.diverged.short
    if row.alone:
        return "alone"
    return words.gain(row.gain, row.gain_low, row.gain_high)
