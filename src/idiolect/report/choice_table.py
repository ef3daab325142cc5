# SPDX-License-Identifier: Apache-2.0
"""What each client chose among settings, in a dial's folder or in part of a sweep's, as a person reads it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from idiolect.record.choices import Choice, ChoiceRow, Choices, OwnChoice, Value, ValueTried
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record, read_rows
from idiolect.record.words import counted
from idiolect.report.decider import decider, difference
from idiolect.report.text import LABEL, WIDTH, TextColumn, more_clients, printed, starred, tables_of
from idiolect.report.wording import ScoreWords, better, count, kilobytes, listed, megabytes, score_words, size
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; more are in the Parquet file
MOST_VALUES = 8  # columns of that table
_WITHOUT = "without a score on validation rows took the value that is best on average."
_HOLDS, _LETS_GO = 10.0, 0.01  # penalties that hold personal models at the shared one, and that let them go


@dataclasses.dataclass(frozen=True)
class ChoiceFound:
    """One method's settings to choose from, and every client's choice."""

    path: Path  # of the folder
    found: Choice  # dial.json, or an entry of choices.json
    rows: list[ChoiceRow]  # its rows of dial.parquet or choices.parquet

    @property
    def words(self) -> ScoreWords:
        """How the score is written."""
        return score_words(self.found.score)

    @property
    def warm(self) -> bool:
        """Whether every value went on from where the one before ended."""
        return self.found.kind == "dial"

    @property
    def file(self) -> str:
        """Where all rows are."""
        return "dial.parquet" if self.warm else "choices.parquet"

    def named(self, value: Value) -> str:
        """A value with what it means where it is an end of the path: '0 (alone)'."""
        setting, end = self.found.setting, ""
        if setting == "personalization" and isinstance(value, int | float):
            end = {0.0: " (alone)", 1.0: " (one model)"}.get(float(value), "")
        if setting == "penalty" and isinstance(value, int | float) and not _LETS_GO < value < _HOLDS:
            end = " (nearly alone)" if value <= _LETS_GO else " (nearly one model)"
        return shown(value) + end

    def of_clients(self) -> dict[str, list[ChoiceRow]]:
        """The rows of every client, by value in that order; clients in the natural order of their names."""
        names = self.found.clients
        rows: dict[str, list[ChoiceRow]] = {names[place]: [] for place in self.found.order or range(len(names))}
        for row in self.rows:
            rows[row.client].append(row)
        return rows

    def training_rows(self, row: ChoiceRow) -> int:
        """Of a client: rows that the tested models were trained on, validation rows among them after a refit."""
        return int(row.train_rows) + (int(row.validation_rows) if self.found.refit else 0)

    def seeds_about(self) -> str:
        """', mean over 3 seeds', or nothing."""
        seeds = len(self.found.seeds)
        return f", mean over {counted(seeds, 'seed')}" if seeds > 1 else ""


def shown(value: Value) -> str:
    """A value in a few characters."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def chosen_of(rows: list[ChoiceRow]) -> tuple[int, ChoiceRow]:
    """(place, row) of what a client chose."""
    return next((place, row) for place, row in enumerate(rows) if row.chosen)


def read_dial(folder: str | os.PathLike[str]) -> ChoiceFound:
    """Read a dial's folder; RequestError says in one sentence why it cannot be."""
    path = Path(folder)
    check_report_files(path)
    found = read_record(Choice, path / "dial.json")
    return ChoiceFound(path, found, read_rows(ChoiceRow, path / "dial.parquet"))


def read_choices(folder: str | os.PathLike[str]) -> list[ChoiceFound]:
    """What the clients of a sweep would choose, one entry per method; none for any other run."""
    path = Path(folder)
    if not (path / "choices.json").is_file():
        return []
    check_report_files(path)
    found, rows = read_record(Choices, path / "choices.json"), read_rows(ChoiceRow, path / "choices.parquet")
    return [ChoiceFound(path, one, [row for row in rows if row.method == one.method]) for one in found.choices]


def choice_text(choice: ChoiceFound, width: int = WIDTH) -> str:
    """The answer in words, then two tables."""
    choice = plainly(choice)
    more = more_clients(len(choice.found.clients) - MOST_CLIENTS, f" in {choice.file}")
    values, clients = tables_of(_by_value(choice), width, gap=2, below=1), tables_of(_by_client(choice), width, gap=2)
    return printed(answer(choice), "", *values, legend(choice), "", *clients, *more, width=width)


def legend(choice: ChoiceFound) -> str:
    """What the columns mean."""
    price = "for the stretch, and in all so far" if choice.warm else "for its own run, and in all"
    prepared = choice.found.total.preparation_bytes
    once = f" (MB with the {size(prepared)} that prepared the rows)" if prepared else ""
    refit = " (on test rows after training on validation rows, too)" if choice.found.refit else ""
    # this end of the path is not to the last digit what `compare` and `advise` have for training alone
    alone = (
        " alone: every client's own fit with the ridge of the whole path; `compare` holds it back by few steps, "
        "`advise` by a ridge chosen for it, so that theirs differ, most for clients of few rows."
    )
    has_alone = choice.warm and any("(alone)" in choice.named(entry.value) for entry in choice.found.values)
    return (
        f"{choice.words.title} of the personal models{choice.seeds_about()} [95 % over clients]{refit}, "
        f"{better(choice.found.higher_is_better)}; worst 10 %: mean of the worst tenth of clients; MB both ways and "
        f"delivered, gradients per example: {price}{once}. * best mean on validation rows of the fixed values."
        f"{alone if has_alone else ''}"
    )


def answer(choice: ChoiceFound) -> str:
    """What the choice on validation rows is worth, and what it all cost."""
    return " ".join(sentences(choice))


def sentences(choice: ChoiceFound) -> list[str]:
    """The answer, sentence by sentence."""
    found, words = choice.found, choice.words
    best, total, chosen = found.best, found.total, found.chosen
    own, fixed = (
        f"{words.show(entry.test.mean)} (worst tenth {words.show(entry.test.worst_decile)})" for entry in (chosen, best)
    )
    # what the ends of the path give, as far as it is not said yet
    ends = [
        f"{choice.named(entry.value)} gives {words.show(entry.test.mean)}"
        for entry in found.values
        if choice.named(entry.value) != shown(entry.value) and entry.value != best.value
    ]
    whole = ("The whole path" if choice.warm else "All runs together") + ", walked twice," * found.refit
    a_seed = " a seed" if len(found.seeds) > 1 else ""
    without = sum(not own for own in chosen.own)
    return [
        f"Each client's own {found.setting}, chosen on its validation rows, gives {words.spoken} "
        f"{own} on test rows; one value for all, chosen in the same way, {choice.named(best.value)}, gives {fixed}."
        f"{_decider(choice)}",
        *([f"{listed(ends)}."] if ends else []),
        f"{whole} cost {size(total.total_bytes)} and {count(total.gradients)} gradients{a_seed}.",
        *([f"{counted(without, 'client')} {_WITHOUT}"] if without else []),
    ]


def _decider(choice: ChoiceFound) -> str:
    """The client of few test rows that decides which of the two is better."""
    found, own = choice.found, {row.client: row.test_rows for row in choice.rows}
    sign = 1 if found.higher_is_better else -1
    pairs = zip(found.chosen.test.clients, found.best.test.clients)
    gains = [sign * difference(mine, fixed) for mine, fixed in pairs]
    what = f"what an own {found.setting} gains over it"
    return decider(choice.words, what, found.clients, gains, [own[name] for name in found.clients])


def _by_value(choice: ChoiceFound) -> list[TextColumn]:
    """One line per value and one for the clients' own choices: scores, then what they cost."""
    found, words, values = choice.found, choice.words, choice.found.values
    entries: list[ValueTried | OwnChoice] = [*values, found.chosen]
    unit = f" {words.unit}" if words.unit else ""
    # only the test mean has its interval: it is the number that is quoted
    tested = [words.bare(one.test.mean) + words.around(*one.test.interval) for one in entries]
    names = [starred(choice.named(entry.value), entry.value == found.best_fixed) for entry in values]
    return [
        TextColumn(found.setting, [*names, "own choice"], words=True, least=LABEL),
        TextColumn(f"validation\nmean{unit}", [words.bare(one.validation.mean) for one in entries], rank=1),
        TextColumn("worst\n10 %", [words.bare(one.validation.worst_decile) for one in entries], rank=1),
        TextColumn(f"test mean{unit}\n[95 %]", tested),
        TextColumn("worst\n10 %", [words.bare(one.test.worst_decile) for one in entries]),
        TextColumn("chosen\nby", [*(str(one.chosen_by) for one in values), str(len(found.clients))]),
        *_costs(found),
    ]


def _costs(found: Choice) -> list[TextColumn]:
    """What each value cost by itself and with those before it; below them what the whole path did."""
    values, total, rounds = found.values, found.total, [one.rounds for one in found.values]
    return [
        TextColumn("rounds", [count(number) for number in (*rounds, sum(rounds))], rank=1),
        TextColumn("MB", [*(megabytes(one.spent.traffic_bytes) for one in values), megabytes(total.total_bytes)]),
        TextColumn("MB\nin all", [*(megabytes(one.spent_so_far.total_bytes) for one in values), ""], rank=1),
        TextColumn("gradients", [*(count(one.spent.gradients) for one in values), count(total.gradients)], rank=1),
        TextColumn("gradients\nin all", [*(count(one.spent_so_far.gradients) for one in values), ""], rank=1),
    ]


def _by_client(choice: ChoiceFound) -> list[TextColumn]:
    """Every client's test score at every value, brackets mark its choice; and the bytes that its choice cost it."""
    clients = dict(list(choice.of_clients().items())[:MOST_CLIENTS])
    chosen = [chosen_of(own)[1] for own in clients.values()]
    bare, values = choice.words.bare, choice.found.values
    tested = [TextColumn("test at\nits choice", [bare(one.test) for one in chosen])]
    if len(values) <= MOST_VALUES:
        marks = [
            [f"[{bare(row.test)}]" if row.chosen else f"{bare(row.test)} " for row in own] for own in clients.values()
        ]
        tested = [TextColumn(f"test at\n{shown(one.value)}", cells) for one, cells in zip(values, zip(*marks))]
    return [
        TextColumn("client", list(clients), words=True, least=LABEL),
        TextColumn("training\nrows", [count(choice.training_rows(own[0])) for own in clients.values()], rank=1),
        *tested,
        TextColumn("chooses", [shown(one.value) for one in chosen]),
        TextColumn("its own\nkB there", [kilobytes(one.traffic_bytes) for one in chosen], rank=1),
    ]
