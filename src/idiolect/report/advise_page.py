# SPDX-License-Identifier: Apache-2.0
"""A folder of `idiolect advise` as one HTML page: the answer, the clients, the map, what test rows say."""

from __future__ import annotations

from pathlib import Path

from idiolect.record.advice import Verification
from idiolect.record.reading import read_statement
from idiolect.report.advise_figure import drawn_map
from idiolect.report.advise_table import (
    WORDS,
    Advised,
    advice_words,
    answer,
    gain_words,
    technical,
    tested_words,
    verification,
    with_whom,
)
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
from idiolect.report.privacy import privacy_section
from idiolect.report.style import Drawn
from idiolect.report.wording import count, plural, size, upper

_NAMED = 8  # neighbours in a line of the page


def write_advice_page(advised: Advised) -> Path:
    """Write figures/map.png, map.svg and report.html into a folder of advice; return the page's path."""
    drawn = drawn_map(advised)
    return write_page(advised.path, render(advised, drawn), [drawn])


def render(advised: Advised, drawn: Drawn) -> str:
    """The page as text."""
    found = advised.found
    first, *unsure = answer(advised)
    frame = Frame(
        title=f"{found.name}: idiolect advise",
        facts=[f"Advice on {found.name}", plural(found.all_clients, "client"), f"split {found.seed}"],
        answer=first,
        tiles=_tiles(advised),
        folder=advised.path.name,
    )
    return fill(
        "advise.html",
        frame,
        unsure=unsure,
        clients=_clients(advised),
        drawn=[drawn],
        verification=[] if found.verify is None else verification(advised, found.verify),
        tested=None if found.verify is None else _tested(advised, found.verify),
        folds=[
            ("Warnings", found.warnings),
            ("Notes on the data", found.notes),
            ("Details for specialists", technical(advised)),
        ],
        privacy=privacy_section(read_statement(advised.path)),
        spec=read_spec(advised.path),
        machine=facts(read_machine(advised.path)),
    )


def _tiles(advised: Advised) -> list[Tile]:
    found, words = advised.found, advised.words
    alone, gain = found.mean_loss["alone"], found.mean_gain
    ways = ("neighbours", "everybody", "alone")
    shown = [Tile(upper(WORDS[way]), f"{found.picks[way]:,}", "clients") for way in ways]
    part = f"{100 * gain / max(alone, 1e-300):.2g} % of {advised.score} alone"
    shown.append(Tile("Expected gain", words.signed(gain), part))
    if found.verify is not None:
        saved = found.verify.saved_against["always alone"]
        shown.append(Tile("On test rows", words.signed(saved.mean), "saved against training alone"))
    return shown


def _clients(advised: Advised) -> Grid:
    found, words = advised.found, advised.words
    verdict = found.verify
    heads = [Head("client", words=True), *number_heads(("training rows", f"{advised.score} alone"))]
    heads += [Head("advice", words=True)]
    heads += number_heads(("expected gain [95 %]", "everybody [95 %]", "bytes a round"))
    heads += [] if verdict is None else word_heads(("on test rows",))
    rows = []
    for place in advised.order[:LIMIT]:
        entry = found.clients[place]
        every, paid, alone = entry.gain["everybody"], entry.round_bytes[entry.advice], entry.loss["alone"]
        joined = words.gain(every.expected, every.low, every.high)
        cells = [
            number(entry.rows, count(entry.rows)),
            number(alone, words.bare(alone)),
            text_cell(advice_words(found, entry)),
            number(entry.advised_gain.expected, gain_words(words, entry)),
            number(every.expected, joined),
            number(paid, size(paid)),
        ]
        cells += [] if verdict is None else [text_cell(tested_words(verdict.clients[place]))]
        rows.append(Row(entry.client, [*cells, text_cell(with_whom(entry, _NAMED))]))
    more = left_out(found.all_clients, "advise.parquet")
    return Grid("Advice client by client", [*heads, *word_heads(("with whom (weight)",))], rows, more)


def _tested(advised: Advised, verdict: Verification) -> Grid:
    words = advised.words
    titles = (f"mean {advised.score}", "the advice saves [95 %]", "times advised", "of these best, or within noise")
    rows = []
    for way in WORDS:
        mean, saved, given = verdict.test_loss[way], verdict.saved_against[f"always {way}"], verdict.advised[way]
        cells = [number(mean, words.bare(mean)), number(saved.mean, words.gain(saved.mean, saved.low, saved.high))]
        cells += [number(times, str(times)) for times in (given.times, given.right)]
        rows.append(Row(f"always {way}", cells, way))
    return Grid("All three ways on test rows", [*word_heads(("way",)), *number_heads(titles)], rows)
