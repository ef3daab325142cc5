# SPDX-License-Identifier: Apache-2.0
"""A choice as a person reads it: score and price of every value, and what the clients' own choices give."""

from __future__ import annotations

import io

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from idiolect.record.choices import ChoiceScores, OwnChoice, ValueTried
from idiolect.report.choice import ChoiceFound, chosen_of, shown
from idiolect.report.wording import NONE, ScoreWords, count, listed, megabytes, plural, size
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; more are in the Parquet file
MOST_VALUES = 8  # columns of that table


def choice_text(choice: ChoiceFound, width: int = 120) -> str:
    """The answer in words, then two tables."""
    choice = plainly(choice)
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, emoji=False)
    console.print(escape(answer(choice)) + "\n", soft_wrap=True)
    console.print(_by_value(choice))
    console.print(escape(legend(choice)))
    console.print()
    console.print(_by_client(choice))
    hidden = len(choice.found.clients) - MOST_CLIENTS
    if hidden > 0:
        console.print(f"{plural(hidden, 'more client')} in {file_of(choice)}.")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def file_of(choice: ChoiceFound) -> str:
    """Where all rows are."""
    return "dial.parquet" if choice.warm else "choices.parquet"


def legend(choice: ChoiceFound) -> str:
    """What the columns mean."""
    direction = "higher" if choice.found.higher_is_better else "lower"
    price = "for the stretch, and in all so far" if choice.warm else "for its own run, and in all"
    over = " [95 % over seeds]" if len(choice.found.seeds) > 1 else ""
    refit = " (on test rows after training on validation rows, too)" if choice.found.refit else ""
    return (
        f"{choice.words.title} of the personal models{choice.seeds_about()}{over}{refit}, {direction} is better; "
        "worst 10 %: mean of the worst tenth of clients; MB both ways and delivered, gradients per example: "
        f"{price}. * best mean on validation rows of the fixed values.{_about_alone(choice)}"
    )


def _about_alone(choice: ChoiceFound) -> str:
    """Why this end of the path is not to the last digit what `compare` and `advise` have for training alone."""
    if not (choice.warm and any("(alone)" in choice.named(entry.value) for entry in choice.found.values)):
        return ""
    return (
        " alone: every client's own fit with the ridge of the whole path; `compare` holds it back by few steps, "
        "`advise` by a ridge chosen for it, so that theirs differ a little."
    )


def answer(choice: ChoiceFound) -> str:
    """What the choice on validation rows is worth, and what it all cost."""
    found, words = choice.found, choice.words
    best, total, chosen = found.best, found.total, found.chosen
    own, fixed = (
        f"{words.show(entry.test.mean)} (worst tenth {words.show(entry.test.worst_decile)})" for entry in (chosen, best)
    )
    whole = "The whole path" if choice.warm else "All runs together"
    whole += ", walked twice," if found.refit else ""
    a_seed = " a seed" if len(found.seeds) > 1 else ""
    sentence = (
        f"Each client's own {found.setting}, chosen on its validation rows, gives {words.name.replace('_', ' ')} "
        f"{own} on test rows; one value for all, chosen in the same way, {choice.named(best.value)}, gives {fixed}."
        f"{_ends(choice, best)} {whole} cost {size(total.total_bytes)} and {count(total.gradients)} "
        f"gradients{a_seed}."
    )
    without = sum(not own for own in chosen.own)
    if without:
        sentence += (
            f" {plural(without, 'client')} without a score on validation rows took the value that is best on average."
        )
    return sentence


def _ends(choice: ChoiceFound, best: ValueTried) -> str:
    """What the ends of the path give, as far as the answer has not said it."""
    ends = [
        f"{choice.named(entry.value)} gives {choice.words.show(entry.test.mean)}"
        for entry in choice.found.values
        if choice.named(entry.value) != shown(entry.value) and entry.value != best.value
    ]
    return f" {listed(ends)}." if ends else ""


def interval(words: ScoreWords, entry: ChoiceScores) -> str:
    """' [low, high]' of a mean, or nothing where it is unknown."""
    return f" [{words.bare(entry.interval[0])}, {words.bare(entry.interval[1])}]" if entry.interval else ""


def _by_value(choice: ChoiceFound) -> Table:
    words, found = choice.words, choice.found
    unit = f" {words.unit}" if words.unit else ""
    several = len(found.seeds) > 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0, 0, 1) if several else (0, 1))
    table.add_column(escape(found.setting), overflow="fold")
    titles = (
        f"validation\nmean{unit}",
        "worst\n10 %",
        f"test mean{unit}\n[95 %]" if several else f"test\nmean{unit}",
        "worst\n10 %",
        "chosen\nby",
        "rounds",
        "MB",
        "MB\nin all",
        "gradients",
        "gradients\nin all",
    )
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for entry in found.values:
        star = "*" if entry.value == found.best_fixed else " "
        table.add_row(
            escape(f"{choice.named(entry.value)}{star}"),
            *_four(entry, words, several),
            str(entry.chosen_by),
            count(entry.rounds),
            megabytes(entry.spent.total_bytes),
            megabytes(entry.spent_so_far.total_bytes),
            count(entry.spent.gradients),
            count(entry.spent_so_far.gradients),
        )
    last = found.total
    rounds = sum(entry.rounds for entry in found.values)
    totals = (megabytes(last.total_bytes), "", count(last.gradients), "")
    table.add_row("own choice", *_four(found.chosen, words, several), str(len(found.clients)), count(rounds), *totals)
    return table


def _four(entry: ValueTried | OwnChoice, words: ScoreWords, several: bool) -> list[str]:
    """Mean and worst tenth on both splits; the test mean with its interval over seeds where there are `several`."""
    cells = [words.bare(value) for one in (entry.validation, entry.test) for value in (one.mean, one.worst_decile)]
    if several:
        cells[2] = escape(cells[2] + interval(words, entry.test))
    return cells


def _by_client(choice: ChoiceFound) -> Table:
    """Every client's test score at every value, brackets mark its choice; and the bytes that its choice cost it."""
    words, few = choice.words, len(choice.values) <= MOST_VALUES
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("client", overflow="fold")
    table.add_column("training\nrows", justify="right", no_wrap=True)
    for value in choice.values if few else ["its choice"]:
        table.add_column(escape(f"test at\n{value}"), justify="right")
    table.add_column("chooses", justify="right")
    table.add_column("its own\nkB there", justify="right", no_wrap=True)
    for name, own in list(choice.of_clients().items())[:MOST_CLIENTS]:
        _, chosen = chosen_of(own)
        cells = [escape(f"[{words.bare(row.test)}]") if row.chosen else f"{words.bare(row.test)} " for row in own]
        cells = cells if few else [words.bare(chosen.test)]
        paid = NONE if chosen.traffic_bytes is None else f"{chosen.traffic_bytes / 1e3:.3g}"
        table.add_row(escape(name), count(choice.training_rows(own[0])), *cells, escape(shown(chosen.value)), paid)
    return table
