# SPDX-License-Identifier: Apache-2.0
"""A choice as a person reads it: score and price of every value, and what the clients' own choices give."""

from __future__ import annotations

from collections.abc import Callable

from idiolect.record.choices import Choice, OwnChoice, ValueTried
from idiolect.report.choice import ChoiceFound, chosen_of, shown
from idiolect.report.text import LABEL, WIDTH, TextColumn, more_clients, printed, starred, tables_of
from idiolect.report.wording import count, kilobytes, listed, megabytes, plural, size
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; more are in the Parquet file
MOST_VALUES = 8  # columns of that table


def choice_text(choice: ChoiceFound, width: int = WIDTH) -> str:
    """The answer in words, then two tables."""
    choice = plainly(choice)
    more = more_clients(len(choice.found.clients) - MOST_CLIENTS, f"in {choice.file}")
    values, clients = tables_of(_by_value(choice), width, gap=2, below=1), tables_of(_by_client(choice), width, gap=2)
    return printed(answer(choice), "", *values, legend(choice), "", *clients, *more, width=width)


def legend(choice: ChoiceFound) -> str:
    """What the columns mean."""
    direction = "higher" if choice.found.higher_is_better else "lower"
    price = "for the stretch, and in all so far" if choice.warm else "for its own run, and in all"
    prepared = choice.found.total.preparation_bytes
    once = f" (MB with the {size(prepared)} that prepared the rows)" if prepared else ""
    refit = " (on test rows after training on validation rows, too)" if choice.found.refit else ""
    return (
        f"{choice.words.title} of the personal models{choice.seeds_about()} [95 % over clients]{refit}, {direction} is "
        "better; worst 10 %: mean of the worst tenth of clients; MB both ways and delivered, gradients per example: "
        f"{price}{once}. * best mean on validation rows of the fixed values.{_about_alone(choice)}"
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
    return " ".join(sentences(choice))


def sentences(choice: ChoiceFound) -> list[str]:
    """The answer, sentence by sentence."""
    found, words = choice.found, choice.words
    best, total, chosen = found.best, found.total, found.chosen
    own, fixed = (
        f"{words.show(entry.test.mean)} (worst tenth {words.show(entry.test.worst_decile)})" for entry in (chosen, best)
    )
    whole = "The whole path" if choice.warm else "All runs together"
    whole += ", walked twice," if found.refit else ""
    a_seed = " a seed" if len(found.seeds) > 1 else ""
    said = [
        f"Each client's own {found.setting}, chosen on its validation rows, gives {words.spoken} "
        f"{own} on test rows; one value for all, chosen in the same way, {choice.named(best.value)}, gives {fixed}.",
        *_ends(choice, best),
        f"{whole} cost {size(total.total_bytes)} and {count(total.gradients)} gradients{a_seed}.",
    ]
    without = sum(not own for own in chosen.own)
    if without:
        said.append(
            f"{plural(without, 'client')} without a score on validation rows took the value that is best on average."
        )
    return said


def _ends(choice: ChoiceFound, best: ValueTried) -> list[str]:
    """What the ends of the path give, as far as the answer has not said it."""
    ends = [
        f"{choice.named(entry.value)} gives {choice.words.show(entry.test.mean)}"
        for entry in choice.found.values
        if choice.named(entry.value) != shown(entry.value) and entry.value != best.value
    ]
    return [f"{listed(ends)}."] if ends else []


def _by_value(choice: ChoiceFound) -> list[TextColumn]:
    """One line per value and one for the clients' own choices: scores, then what they cost."""
    found = choice.found
    names = [starred(choice.named(entry.value), entry.value == found.best_fixed) for entry in found.values]
    chosen = [str(entry.chosen_by) for entry in found.values]
    return [
        TextColumn(found.setting, [*names, "own choice"], words=True, least=LABEL),
        *_score_columns(choice),
        TextColumn("chosen\nby", [*chosen, str(len(found.clients))]),
        *_cost_columns(found),
    ]


def _score_columns(choice: ChoiceFound) -> list[TextColumn]:
    unit = f" {choice.words.unit}" if choice.words.unit else ""
    entries: list[ValueTried | OwnChoice] = [*choice.found.values, choice.found.chosen]
    rows = []
    for entry in entries:
        both = entry.validation, entry.test
        cells = [choice.words.bare(value) for one in both for value in (one.mean, one.worst_decile)]
        # only the test mean has its interval: it is the number that is quoted
        cells[2] += choice.interval(entry.test)
        rows.append(cells)
    heads = (f"validation\nmean{unit}", "worst\n10 %", f"test mean{unit}\n[95 %]", "worst\n10 %")
    return [TextColumn(head, cells, rank=place in (0, 1)) for place, (head, cells) in enumerate(zip(heads, zip(*rows)))]


def _cost_columns(found: Choice) -> list[TextColumn]:
    """What each value cost by itself and with those before it; below them what the whole path did."""
    total, rounds = found.total, sum(one.rounds for one in found.values)
    costs: tuple[tuple[str, Callable[[ValueTried], float], float | None, Callable[[float], str], int], ...] = (
        ("rounds", lambda one: one.rounds, rounds, count, 1),
        ("MB", lambda one: one.spent.traffic_bytes, total.total_bytes, megabytes, 0),
        ("MB\nin all", lambda one: one.spent_so_far.total_bytes, None, megabytes, 1),
        ("gradients", lambda one: one.spent.gradients, total.gradients, count, 1),
        ("gradients\nin all", lambda one: one.spent_so_far.gradients, None, count, 1),
    )
    return [
        TextColumn(head, [*(show(of(one)) for one in found.values), "" if whole is None else show(whole)], rank)
        for head, of, whole, show, rank in costs
    ]


def _by_client(choice: ChoiceFound) -> list[TextColumn]:
    """Every client's test score at every value, brackets mark its choice; and the bytes that its choice cost it."""
    clients = dict(list(choice.of_clients().items())[:MOST_CLIENTS])
    chosen = [chosen_of(own)[1] for own in clients.values()]
    bare = choice.words.bare
    tested = [TextColumn("test at\nits choice", [bare(one.test) for one in chosen])]
    if len(choice.values) <= MOST_VALUES:
        marks = [
            [f"[{bare(row.test)}]" if row.chosen else f"{bare(row.test)} " for row in own] for own in clients.values()
        ]
        tested = [TextColumn(f"test at\n{value}", cells) for value, cells in zip(choice.values, zip(*marks))]
    return [
        TextColumn("client", list(clients), words=True, least=LABEL),
        TextColumn("training\nrows", [count(choice.training_rows(own[0])) for own in clients.values()], rank=1),
        *tested,
        TextColumn("chooses", [shown(one.value) for one in chosen]),
        TextColumn("its own\nkB there", [kilobytes(one.traffic_bytes) for one in chosen], rank=1),
    ]
