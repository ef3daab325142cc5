# SPDX-License-Identifier: Apache-2.0
"""One method as a row of numbers, and the columns that show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from idiolect.record.schema import Breakdown, MethodSummary, Personalization
from idiolect.report.folder import Run
from idiolect.report.wording import NONE, ScoreWords, count, megabytes, score_words, small, whole

CHOSEN = "\N{CHECK MARK}"  # marks the settings that validation rows choose
ANNOUNCED = "\N{RIGHTWARDS ARROW}"  # marks the method that validation rows choose
UNFINISHED = "~"  # marks a method that had not converged
INSTANCES = tuple(field.name for field in dataclasses.fields(Breakdown))
_OWN = (
    *("shared_mean", "rounds", "upload_bytes", "download_bytes", "delivery_bytes", "preparation_bytes"),
    *("traffic_bytes", "gradients_shared", "gradients_personal", "gradients_both", "suboptimality"),
    "distance_to_optimum",
)


@dataclasses.dataclass(frozen=True)
class MethodRow:
    """One method: scores over clients (personal models, test rows, selected round) and what they cost.

    `numbers` has them by name, in the units of the name: means over clients, percent of clients, fractions of rows.
    """

    entry: MethodSummary
    one: bool  # this is one model for all
    announced: bool  # chosen on validation rows
    converged: bool | None  # whether validation rows showed no more progress; None: not looked at
    numbers: dict[str, float | None]

    def __getitem__(self, name: str) -> float | None:
        return self.numbers[name]

    def gain(self, name: str, words: ScoreWords) -> str:
        """A gain with its interval."""
        return words.gain(self[name], self[f"{name}_low"], self[f"{name}_high"])

    def as_dict(self) -> dict[str, object]:
        """All of it side by side, as a program reads it."""
        entry = self.entry
        found = {"alone": entry.alone, "one": self.one, "announced": self.announced, "chosen": entry.chosen}
        return {
            "method": entry.method,
            **self.numbers,
            **found,
            "converged": self.converged,
            "diverged": entry.diverged,
        }


def method_row(entry: MethodSummary, announced: str | None = None, one: str | None = None) -> MethodRow:
    """One method of the summary; `announced` is the one that validation rows choose, `one` is one model for all."""
    gain = None if entry.alone else entry.gain  # against itself a method has nothing to gain
    adapted, new = entry.personalization or Personalization(), entry.new_clients
    # every name is there for every method, so that tables and files have the same columns whatever was run
    low, high = entry.interval or (None, None)
    numbers = {
        **_taken(entry.score, "mean", "worst_decile", "spread"),
        "interval_low": low,
        "interval_high": high,
        **_taken(gain, gain="mean", gain_low="low", gain_high="high"),
        **_taken(entry.gain_over_one, over_one="mean", over_one_low="low", over_one_high="high"),
        **_taken(entry if gain else None, "helped", "hurt"),
        **_taken(entry, *_OWN),
        "choosing_mean": None if entry.chosen is None or entry.diverged else entry.choosing_mean,
        **_taken(new, new_clients="mean"),
        **_taken(adapted, "acc_g", "acc_p", "worst_tenth_g", "worst_tenth_p"),
        **_taken(adapted, adapted_better="helped", adapted_same="same", adapted_worse="hurt"),
        **_taken(adapted.breakdown, *INSTANCES),
        **_taken(new and new.personalization, new_acc_g="acc_g", new_acc_p="acc_p"),
        **_taken(entry.storage, "client_bytes", "server_bytes", "model_bytes"),
        **_taken(entry.flops, flops="training"),
    }
    converged = None if entry.diverged else entry.converged
    return MethodRow(entry, entry.method == one, entry.method == announced, converged, numbers)


def _taken(part: object, *names: str, **renamed: str) -> dict[str, float | None]:
    """Numbers of one part of a summary by their names in the table; None where a method has no such part."""
    return {name: getattr(part, own, None) for name, own in (dict(zip(names, names)) | renamed).items()}


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of the table: where its number is, how it reads, and which way is better (0: neither)."""

    key: str
    title: str  # a line break where the heading may be split
    better: int
    about: str  # one sentence for whoever wonders
    show: Callable[[float | None], str] = count
    cell: Callable[[MethodRow], str] | None = None  # where the number alone does not say it
    rank: int = 0  # when a terminal shows it: 0 always, 1 wherever a run has it, others where there is room
    places: tuple[str, ...] = ("page", "terminal", "notebook")  # that show it

    @property
    def heading(self) -> str:
        """The title in one line."""
        return self.title.replace("-\n", "").replace("\n", " ")

    def text(self, row: MethodRow) -> str:
        """How a method's cell reads."""
        return self.show(row[self.key]) if self.cell is None else self.cell(row)


def score_columns(run: Run) -> tuple[Column, ...]:
    """Scores, gains against training alone, and costs."""
    words, choosing = run.words, score_words(run.choose_by)
    way, unit = 1 if run.higher_is_better else -1, f" {words.unit}" if words.unit else ""
    validated = f"Mean {choosing.title} on validation rows, by which a method's settings are chosen ({CHOSEN})."
    one_model = "Mean gain against one model for all."
    tenth, spread = "Mean over the worst tenth of the clients.", "Standard deviation over the clients."
    distance = "Mean squared distance of the models to the optimum."
    block, together = "Gradients of the {} block, counted per example.", "Gradients per example by block."

    def marked(row: MethodRow) -> str:
        return with_marks(row.entry.method, row.announced, row.converged is False)

    def chosen(row: MethodRow) -> str:
        return (f"{CHOSEN} " if row.entry.chosen else "") + choosing.bare(row["choosing_mean"])

    def gain(row: MethodRow) -> str:
        known = "alone" if row.entry.alone else row.gain("gain", words)
        return row.entry.diverged.short if row.entry.diverged else known

    def over_one(row: MethodRow) -> str:
        known = not row.entry.diverged and row["over_one"] is not None
        return "one model" if row.one else row.gain("over_one", words) if known else NONE

    def blocks(row: MethodRow) -> str:
        return "/".join(count(row[f"gradients_{block}"]).replace(" ", "") for block in ("shared", "personal", "both"))

    # a terminal has the price in one number, and the gradients of all blocks in one column
    wide, narrow, page = ("page", "terminal"), ("terminal", "notebook"), ("page",)
    return (
        Column("method", "method", 0, "The label of the method in the spec.", cell=marked),
        Column("mean", f"mean{unit}", way, "Mean over clients and seeds.", words.bare),
        Column("choosing_mean", "valida-\ntion", 0, validated, cell=chosen, rank=1),
        Column("worst_decile", "worst\n10 %", way, tenth, words.bare),
        Column("new_clients", "new\nclients", way, "Clients that never trained.", words.bare, rank=1),
        Column("spread", "spread", -1, spread, words.bare, rank=4, places=wide),
        Column("suboptimality", "subopti-\nmality", -1, "F minus its optimum.", small, rank=1),
        Column("distance_to_optimum", "squared\ndistance", -1, distance, small, rank=1),
        Column("gain", "gain over\nalone [95 %]", 1, "Mean gain against training alone.", cell=gain),
        Column("over_one", "gain over one\nmodel [95 %]", 1, one_model, cell=over_one, rank=2),
        Column("helped", "helped\n%", 1, "Clients that are clearly better off than alone.", whole),
        Column("hurt", "hurt\n%", -1, "Clients that are clearly worse off than alone.", whole),
        Column("rounds", "rounds", 0, "Messages to the server and back.", rank=3),
        Column("traffic_bytes", "MB", -1, "Everything that crossed the wire.", megabytes, places=narrow),
        Column("upload_bytes", "MB\nup", -1, "From all clients.", megabytes, rank=5, places=wide),
        Column("download_bytes", "MB\ndown", -1, "To all clients.", megabytes, rank=5, places=wide),
        Column("gradients_shared", "gradients\nshared", 0, block.format("shared"), places=page),
        Column("gradients_personal", "gradients\npersonal", 0, block.format("personal"), places=page),
        Column("gradients_both", "gradients\nboth", 0, "Gradients of both blocks in one pass.", places=page),
        Column(
            "gradients", "gradients\nshared/\npersonal/both", 0, together, cell=blocks, rank=6, places=("terminal",)
        ),
    )


def adaptation_columns() -> tuple[Column, ...]:
    """The same rows before and after adaptation: accuracy, clients, instances."""
    share = score_words("accuracy").bare
    strictly = "Clients whose own model is strictly the {} accurate."

    def label(row: MethodRow) -> str:
        """The method, and what became of it where no other column says so."""
        return f"{row.entry.method}\n({row.entry.diverged.short})" if row.entry.diverged else row.entry.method

    return (
        Column("method", "method", 0, "The label of the method in the spec.", cell=label),
        Column("acc_g", "general-\nized %", 1, "Accuracy of what clients receive, before any adaptation.", share),
        Column("acc_p", "personal-\nized %", 1, "Accuracy of the clients' own models.", share),
        # who changes nothing makes no client worse: none of the three says which method is best
        Column("adapted_better", "better\n%", 0, strictly.format("more"), whole),
        Column("adapted_same", "same\n%", 0, "Clients whose two models are equally accurate.", whole),
        Column("adapted_worse", "worse\n%", 0, strictly.format("less"), whole),
        Column("both", "rows:\nboth %", 0, "Rows that both models get right, mean over clients.", share),
        Column("shared_only", "received\nonly %", 0, "Rows that only the received model gets right.", share),
        Column("personal_only", "personal\nonly %", 0, "Rows that only the own model gets right.", share),
        Column("neither", "neither\n%", 0, "Rows that neither gets right.", share),
        Column("worst_tenth_g", "worst\nbefore", 1, "Generalized accuracy of the worst tenth of clients.", share),
        Column("worst_tenth_p", "worst\nafter", 1, "Personalized accuracy of the worst tenth of clients.", share),
        Column("new_acc_g", "new\nbefore", 1, "Clients that never trained, before any adaptation.", share),
        Column("new_acc_p", "new\nafter", 1, "Clients that never trained, with their own model.", share),
    )


def with_marks(label: str, announced: bool, unfinished: bool) -> str:
    """A label with a mark before the announced method, and behind one that had not converged."""
    return (f"{ANNOUNCED} " if announced else "") + label + (f" {UNFINISHED}" if unfinished else "")


def meanings_of_marks(run: Run, rows: Sequence[MethodRow]) -> list[str]:
    """What the marks beside a method's label mean, of those that stand in the table."""
    by = "" if run.choose_by == run.score else f" by {score_words(run.choose_by).spoken}"
    best = f"{CHOSEN} best of its method on validation rows{by}; its other settings are out of the contest"
    marks = {
        f"{ANNOUNCED} chosen on validation rows{by}": any(row.announced for row in rows),
        f"{UNFINISHED} had not converged": any(row.converged is False for row in rows),
        best: any(row.entry.chosen is not None for row in rows),
    }
    return [mark for mark, stands in marks.items() if stands]
