# SPDX-License-Identifier: Apache-2.0
"""A folder of repeated splits as one HTML page, in the frame of a run's."""

from __future__ import annotations

from pathlib import Path

from idiolect.report.folder import read_machine, read_spec
from idiolect.report.html import (
    LIMIT,
    Frame,
    Grid,
    Head,
    Row,
    Tile,
    facts,
    fill,
    left_out,
    number,
    number_heads,
    text_cell,
    word_heads,
)
from idiolect.report.page import write_page
from idiolect.report.privacy import EACH_SPLIT, TITLE
from idiolect.report.splits_table import (
    TITLES,
    SplitsFound,
    answer,
    client_cells,
    legend,
    marked,
    method_cells,
)
from idiolect.report.wording import NONE, plural


def write_splits_page(splits: SplitsFound) -> Path:
    """Write report.html into the folder; return the page's path."""
    return write_page(splits.path, render(splits), [])


def render(splits: SplitsFound) -> str:
    """The page as text."""
    found = splits.found
    told = [f"Run {found.name}", plural(found.splits, "split"), plural(len(found.methods), "method")]
    frame = Frame(
        title=f"{found.name}: idiolect, {plural(found.splits, 'split')}",
        facts=[*told, plural(found.all_clients, "client")],
        answer=answer(splits),
        tiles=_tiles(splits),
        folder=splits.path.name,
    )
    settings = {key: getattr(found, key) for key in ("seeds", "score", "choose_by", "refit", "test_over_train")}
    return fill(
        "splits.html",
        frame,
        legend=legend(splits),
        methods=_methods(splits),
        each=_each(splits),
        personalized=found.personalized,
        clients=None if found.personalized is None else _clients(splits, found.personalized),
        remarked=[("Warnings", found.warnings), ("Notes on the data, first split", found.notes)],
        privacy_title=TITLE,
        each_split=EACH_SPLIT,
        folder_name=splits.path.name,
        settings=facts(settings),
        spec=read_spec(splits.path),
        machine=facts(read_machine(splits.path)),
    )


def _tiles(splits: SplitsFound) -> list[Tile]:
    found, words, announced = splits.found, splits.words, splits.found.announced
    if announced is None:
        return []
    times = next(line.announced for line in found.methods if line.method == announced.most)
    shown = [Tile("Announced most often", announced.most, f"in {times} of {found.splits} splits")]
    for title, gain in (("Against training alone", announced.gain), ("Against one model", announced.gain_over_one)):
        if gain is not None:
            about = f"the announced method {words.interval(gain.low, gain.high)}"
            shown.append(Tile(title, words.signed(gain.mean), about))
    right = f"{announced.best_or_tied} of {found.splits} splits"
    return [*shown, Tile("Announced rightly", right, "best or within noise of it on test rows")]


def _methods(splits: SplitsFound) -> Grid:
    rows = [
        Row(marked(splits, line), [number(*cell) for cell in method_cells(splits, line)])
        for line in splits.found.methods
    ]
    return Grid("Methods over all splits", [*word_heads(("method",)), *number_heads(TITLES)], rows)


def _each(splits: SplitsFound) -> Grid:
    """Every split's means on test rows, and whether its announcement was right."""
    found, words = splits.found, splits.words
    labels = [line.method for line in found.methods]
    heads = word_heads(("split", "announced", "best on test rows", "right"))
    heads += [Head(label, words.title) for label in labels]
    rows = []
    for line in found.each:
        right = {True: "yes, or within noise", False: "no", None: NONE}[line.best_or_tied]
        texts = (line.announced or NONE, ", ".join(line.best) or NONE, right)
        cells = [number(line.means[label], words.bare(line.means[label])) for label in labels]
        rows.append(Row(f"{line.folder} (seed {line.seed})", [*map(text_cell, texts), *cells]))
    return Grid("Split by split", heads, rows)


def _clients(splits: SplitsFound, method: str) -> Grid:
    words, rows = splits.words, splits.of_method(method)
    titles = ("splits", "training rows", words.title, "gain over alone [95 %]", "expected gain [95 %]")
    heads = [*word_heads(("client",)), *number_heads(titles), *word_heads(("verdict",))]
    lines = []
    for row in rows[:LIMIT]:
        *texts, verdict = client_cells(words, row)
        values = (row.splits, row.train_rows, row.score, row.gain, row.gain_expected)
        lines.append(Row(row.client, [*map(number, values, texts), text_cell(verdict)]))
    return Grid("Client by client", heads, lines, left_out(len(rows), "splits.parquet"))
