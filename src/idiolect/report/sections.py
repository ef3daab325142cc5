# SPDX-License-Identifier: Apache-2.0
"""The parts of a run's page as values that its template shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idiolect.record.schema import MethodSummary
from idiolect.report.answer import Answer, level_with, nothing_right
from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.columns import Column
from idiolect.report.folder import Run
from idiolect.report.html import LIMIT, Cell, Grid, Head, Row, Tile, facts, number, number_heads, text_cell, word_heads
from idiolect.report.table import ComparisonTable, title_of
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    absent,
    count,
    finite,
    listed,
    megabytes,
    percent,
    plural,
    score_words,
    size,
)

FLOPS = ("a round", "to adapt", "a prediction")


def tiles(answer: Answer, words: ScoreWords) -> list[Tile]:
    """The four parts of the answer, one to a tile."""
    shown: list[Tile] = []
    if answer.best is not None:
        name = words.name.replace("_", " ")
        tied = f", within noise of {listed(list(answer.tied))}" if answer.tied else level_with(answer.best_level)
        title = "Chosen on validation rows" if answer.announced else "Best on average"
        shown.append(Tile(title, answer.best, f"{name} {words.show(answer.best_mean)}{tied}"))
        worst, best = f"{name} {words.show(answer.worst_decile)}", answer.worst_decile_best or NONE
        if nothing_right(answer.worst_decile, words):
            best = "no method"
        else:
            worst += level_with(answer.worst_decile_level)
        shown.append(Tile("Best for the worst tenth", best, worst))
    if answer.compared is not None:
        about = f"{answer.hurt or 'none'} clearly hurt; {answer.personalized} against alone"
        shown.append(Tile("Clearly helped", f"{answer.helped or 0:,} of {answer.compared:,} clients", about))
    if answer.traffic_bytes is not None:
        rounds = f"{NONE} rounds" if answer.rounds is None else plural(answer.rounds, "round")
        about = f"{answer.personalized}, {rounds}, all clients"
        shown.append(Tile("Communication", size(answer.traffic_bytes), about))
    return shown


def methods_grid(table: ComparisonTable, columns: tuple[Column, ...], label: str) -> Grid:
    """Methods against some columns, the best values marked; the first column is the method's label."""
    heads = [Head(title_of(columns, place), column.about, not place) for place, column in enumerate(columns)]
    rows = []
    for row, ((name, _), *texts) in zip(table.rows, table.cells(columns)):
        cells = []
        for column, (text, best) in zip(columns[1:], texts):
            shown, bracket, interval = text.partition(" [")  # quieter than the number before it
            value = number(row[column.key], shown)
            cells.append(value._replace(small=f"[{interval}" if bracket else "", mark="best" if best else ""))
        rows.append(Row(name, cells, row.method))
    return Grid(label, heads, rows)


def remarks(run: Run, missing: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Warnings, notes on the data, and what could not be found."""
    reason = run.summary.score_reason
    return [
        ("Warnings", run.summary.warnings),
        ("Notes", [*([reason] if reason else []), *run.summary.notes]),
        ("What this report could not find", missing),
    ]


class ClientLine(NamedTuple):
    """One client before the page's script takes over."""

    client: str
    new: bool
    rows: str
    scores: Sequence[str]
    gain: str
    interval: str
    verdict: str


class ClientsShown(NamedTuple):
    """Controls and the first rows of one method's clients."""

    methods: Sequence[str]
    shown: int
    verdicts: Sequence[str]
    heads: Sequence[tuple[str, int | None]]  # with the place in the script's rows; None: the drawn gain
    lines: Sequence[ClientLine]


def clients(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> ClientsShown | None:
    """The table of one method's clients; None where there are no scores of single clients."""
    if not tables:
        return None
    unit = f" ({words.unit})" if words.unit else ""
    titles = ("client", "training rows", f"alone{unit}", f"shared{unit}", f"personal{unit}", "expected gain [95 %]")
    heads = (*((title, place) for place, title in enumerate(titles)), ("", None), ("verdict", 8))
    table = tables[shown]
    lines = [_client_line(table, m, words) for m in table.order()[:LIMIT]]
    return ClientsShown([one.method for one in tables], shown, ("", *VERDICTS), heads, lines)


def _client_line(table: ClientTable, m: int, words: ScoreWords) -> ClientLine:
    return ClientLine(
        client=str(table.client[m]),
        new=bool(table.held_out[m]),
        rows=NONE if absent(table.train_rows[m]) else f"{table.train_rows[m]:.0f}",
        scores=[words.bare(scores[m]) for scores in (table.alone, table.shared, table.personal)],
        gain=words.signed(table.expected[m]),
        interval=words.interval(table.expected_low[m], table.expected_high[m]),
        verdict=str(table.verdict[m]),
    )


def client_data(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> dict[str, object]:
    """Every method's clients for the page's script."""
    return {
        "limit": LIMIT,
        "shown": shown,
        "scale": words.scale,
        "decimals": int(words.specification[1]) if words.specification.endswith("f") else None,
        "methods": [{"method": table.method, "rows": _client_rows(table)} for table in tables],
    }


def _client_rows(table: ClientTable) -> list[list[str | float | None]]:
    gain = (table.expected, table.expected_low, table.expected_high)
    numbers = (table.alone, table.shared, table.personal, *gain)
    rows = []
    for m in range(len(table)):
        scores = [_rounded(values[m]) for values in numbers]
        trained = finite(float(table.train_rows[m]))
        trained = None if trained is None else round(trained)
        rows.append([str(table.client[m]), trained, *scores, str(table.verdict[m]), int(table.held_out[m])])
    return rows


def _rounded(value: float) -> float | None:
    """Six digits: more than is shown, a third of the page's size."""
    known = finite(float(value))
    return None if known is None else float(f"{known:.6g}")


_LEDGER = (
    *("rounds", "MB up", "MB down", "MB delivery", "MB per client"),
    *("gradients shared", "gradients personal", "gradients both", "useful steps %", "seconds"),
    *("bytes kept by a client", "bytes kept by the server", "bytes of a model"),
)


def ledger(run: Run) -> Grid:
    """Bytes, gradients and steps of every method."""
    members = len(run.names())  # new clients never communicated
    counted = any(entry.flops for entry in run.methods)
    heads = [*word_heads(("method",)), *number_heads(_LEDGER)]
    if counted:
        heads += [Head(f"FLOPs, {what}", "Of one client, counted by the compiler.") for what in FLOPS]
    rows = [Row(entry.method, _ledger_cells(entry, members, counted)) for entry in run.methods]
    return Grid("What it cost", heads, rows)


def _ledger_cells(entry: MethodSummary, members: int, counted: bool) -> list[Cell]:
    each = entry.traffic_bytes / members if members else None
    sent = (entry.upload_bytes, entry.download_bytes, entry.delivery_bytes, each)
    useful = 100 * entry.useful_steps / entry.executed_steps if entry.executed_steps else None
    kept, flops = entry.storage, entry.flops
    counts: list[float | None] = (
        [None] * 3 if kept is None else [kept.client_bytes, kept.server_bytes, kept.model_bytes]
    )
    if counted:
        counts += [None] * 3 if flops is None else [flops.training, flops.adaptation, flops.prediction]
    return [
        number(entry.rounds, count(entry.rounds)),
        *(number(value, megabytes(value)) for value in sent),
        *(number(n, count(n)) for n in (entry.gradients_shared, entry.gradients_personal, entry.gradients_both)),
        number(useful, percent(useful)),
        number(entry.seconds, f"{entry.seconds:.3g}"),
        *(number(value, count(value)) for value in counts),
    ]


def seeds(run: Run) -> Grid:
    """Selected and last round, each seed, the shared model, new clients."""
    words = score_words(run.score)
    titles = ("mean, selected round", "95 % interval", "mean, last round", "shared model", "new clients")
    heads = [*word_heads(("method",)), *number_heads(titles), *word_heads(("each seed", "selected rounds"))]
    rows = []
    for entry in run.methods:
        low, high = entry.interval or (None, None)
        interval = NONE if absent(low) or absent(high) else f"{words.bare(low)} to {words.bare(high)}"
        new = None if entry.new_clients is None else entry.new_clients.mean
        cells = [number(entry.score.mean, words.bare(entry.score.mean)), number(low, interval)]
        cells += [number(value, words.bare(value)) for value in (entry.last_mean, entry.shared_mean, new)]
        each = ", ".join(map(words.bare, entry.seed_means)) or NONE
        rounds = ", ".join(map(str, entry.selected_rounds)) or NONE
        rows.append(Row(entry.method, [*cells, text_cell(each), text_cell(rounds)]))
    return Grid("Every seed, and the last round", heads, rows)


class MethodFacts(NamedTuple):
    """One method with its settings and reference."""

    label: str
    summary: str
    facts: Sequence[tuple[str, str]]


def settings(run: Run) -> list[MethodFacts]:
    """Each method with its settings and reference."""
    shown = []
    for entry in run.methods:
        unknown = f"not recorded in the run folder; `idiolect explain {entry.algorithm}` prints it"
        values = {
            "algorithm": entry.algorithm,
            "objective": entry.objective,
            **entry.settings,
            "seeds": entry.seeds,
            "tuned": entry.tuned,
            "diverged": entry.diverged and str(entry.diverged),
            "reference": entry.reference or unknown,
        }
        shown.append(MethodFacts(entry.method, entry.summary, facts(values)))
    return shown
