# SPDX-License-Identifier: Apache-2.0
"""Advice as a person reads it: the answer, then one line per client, then what test rows say of it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from rich.table import Table

from idiolect.record.advice import Advice, ClientAdvice, ClientVerdict, Verification
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_record
from idiolect.record.words import counted
from idiolect.report.decider import decider, difference
from idiolect.report.text import LABEL, WIDTH, TextColumn, arrange, more_clients, printed, tables_of
from idiolect.report.wording import NONE, ScoreWords, known, listed, score_words, shortened, size, upper
from idiolect.visible import plainly

MOST_CLIENTS = 30  # lines of the table of clients; --details prints all that advise.json holds
MOST_NEIGHBOURS = 3  # named in a line
WORDS = {"alone": "train alone", "everybody": "join all clients", "neighbours": "join neighbours"}
_RIGHT = ("wrong", "right")
_WHOM = 40  # letters that the neighbours of a client need; where there are fewer, they stand in a table of their own
_LITTLE = 0.005  # of the loss alone: a gain below it is next to nothing


@dataclasses.dataclass(frozen=True)
class Advised:
    """A folder of `idiolect advise` in memory."""

    path: Path
    found: Advice

    @property
    def words(self) -> ScoreWords:
        """How the loss is written."""
        return score_words(self.found.score)

    @property
    def score(self) -> str:
        """The loss's name in prose."""
        return self.words.spoken

    def columns(self, *names: str) -> dict[str, np.ndarray]:
        """Columns of advise.parquet, which holds every client."""
        table = pq.read_table(self.path / "advise.parquet", columns=list(names))
        return {name: np.array(values) for name, values in table.to_pydict().items()}

    def rows(self) -> list[dict[str, object]]:
        """advise.parquet, client by client, in the natural order of names."""
        rows, order = pq.read_table(self.path / "advise.parquet").to_pylist(), self.found.order
        return [rows[place] for place in order] if len(rows) == len(order) else rows


def read_advice(folder: str | os.PathLike[str]) -> Advised:
    """Read the folder; RequestError says in one sentence why it cannot be."""
    path = Path(folder)
    check_report_files(path)
    return Advised(path, read_record(Advice, path / "advise.json"))


def advice_text(advised: Advised, details: bool = False, width: int = WIDTH) -> str:
    """Everything that is printed."""
    advised = plainly(advised)
    parts: list[str | Table] = [*answer(advised), "", *clients_tables(advised, details, width), about_alone(advised)]
    if advised.found.verify is not None:
        parts += ["", *verification(advised, advised.found.verify)]
    if details:
        parts += ["", *technical(advised)]
    return printed(*parts, width=width).rstrip("\n")


def answer(advised: Advised) -> list[str]:
    """The advice in a few sentences, and what a question mark means where there is one."""
    unsure = f"A question mark: another way may be as good for that client ({counted(advised.found.unsure, 'client')})."
    # nobody is asked to join: there is no other way to be unsure about
    alone = advised.found.picks["alone"] == advised.found.all_clients
    return [" ".join(sentences(advised)), *([unsure] if advised.found.unsure and not alone else [])]


def sentences(advised: Advised) -> list[str]:
    """How many should do what, what they gain, what it costs."""
    found, words = advised.found, advised.words
    alone, gain = found.mean_loss["alone"], found.mean_gain
    said = [_who(found)]
    if found.picks["alone"] == found.all_clients:
        return [*said, f"Joining others is not expected to lower the {advised.score} of any of them."]
    part = gain / alone if alone > 0 else 0.0
    fall = f"from {words.show(alone)} alone to {words.show(alone - gain)}, mean over clients"
    if part < _LITTLE:
        little = "Next to nothing is to be gained"
        said.append(f"{little}: {advised.score} is expected to go {fall}{_tested_part(advised)}.")
    else:
        less = f"{100 * part:.2g} % less{_tested_part(advised)}"
        said.append(f"{upper(advised.score)} is expected to fall {fall}: {less}.")
    if all(entry.advice == "alone" or entry.is_unsure(0) for entry in found.clients):
        said.append("But no client's gain is clear: every interval holds 0.")
    sent = found.exchange
    # four bytes for each coefficient, up and down
    each = 8 * found.coefficients
    said.append(
        f"The price: a client that joins sends and receives {size(each)} a round; finding this out between real "
        f"clients would send {size(sent.upload_bytes + sent.download_bytes)} once, in all."
    )
    return said


def _tested_part(advised: Advised) -> str:
    """What test rows say of the same percentage, so that the two are read together; nothing without --verify."""
    found = advised.found
    if found.verify is None or deciding(advised, found.verify):  # one client's row is no percentage
        return ""
    saved, alone = found.verify.saved_against["always alone"].mean, found.verify.test_loss["alone"]
    if not known(saved) or not known(alone) or alone <= 0:
        return ""
    return f" (on test rows {100 * abs(saved) / alone:.2g} % {'less' if saved >= 0 else 'more'})"


def about_alone(advised: Advised) -> str:
    """Why the column is not the number that `compare` and `dial` have for training alone."""
    return (
        f"{upper(advised.score)} alone: each row by a fit of the client's other rows, with a ridge; test rows are not "
        "read. `compare` and `dial` show it on test rows, as --verify does."
    )


def _who(found: Advice) -> str:
    total, picks = found.all_clients, {way: amount for way, amount in found.picks.items() if amount}
    if len(picks) == 1:
        (way,) = picks
        return f"All {counted(total, 'client')} should {WORDS[way]}."
    most = sorted(picks, key=lambda way: -picks[way])
    return f"Of {counted(total, 'client')}, {listed([f'{picks[way]:,} should {WORDS[way]}' for way in most])}."


def clients_tables(advised: Advised, details: bool, width: int) -> list[str | Table]:
    """A line per client, in the natural order of names, and whom it joins, which is folded and never cut."""
    found = advised.found
    shown = found.order if details else found.order[:MOST_CLIENTS]
    columns, below = _columns(advised, shown, details), 2 if details else 0
    joining = [place for place in shown if found.clients[place].advice == "neighbours"]
    if not joining:
        tables = tables_of(columns, width, gap=2, below=below)
    elif len(columns) in arrange([*columns, _whom(found, shown)], width, 2)[0]:
        tables = tables_of([*columns, _whom(found, shown)], width, gap=2, below=below)
    else:
        beside = [_names(found, joining), _whom(found, joining)]
        tables = [*tables_of(columns, width, gap=2, below=below), "", *tables_of(beside, width, gap=2)]
    where = ": all are in advise.parquet" if details else ": --details prints them, advise.parquet has all"
    return [*tables, *more_clients(found.all_clients - len(shown), where)]


def _columns(advised: Advised, shown: Sequence[int], details: bool) -> list[TextColumn]:
    """What is said of the clients at these places, short of whom they join."""
    found, words = advised.found, advised.words
    clients = [found.clients[place] for place in shown]
    columns = [
        _names(found, shown),
        TextColumn("training\nrows", [str(one.rows) for one in clients], rank=1),
        TextColumn(f"{advised.score}\nalone", [words.bare(one.loss["alone"]) for one in clients], rank=2),
        TextColumn("advice", [advice_words(found, one) for one in clients], words=True),
        TextColumn("expected gain\n[95 %]", [gain_words(words, one) for one in clients]),
    ]
    if found.verify is not None:
        verdicts = [tested_words(found.verify.clients[place]) for place in shown]
        columns.append(TextColumn("on test\nrows", verdicts, rank=1, words=True))
    if details:
        worth = [f"{one.worth:.3g}" if one.advice == "neighbours" else NONE for one in clients]
        columns.append(TextColumn("worth its\nrows x", worth, rank=1))
    return columns


def _names(found: Advice, shown: Sequence[int]) -> TextColumn:
    names = [shortened(found.clients[place].client, 20) for place in shown]
    return TextColumn("client", names, words=True, least=LABEL, cut=True)


def _whom(found: Advice, shown: Sequence[int]) -> TextColumn:
    others = [with_whom(found.clients[place]) for place in shown]
    return TextColumn("with whom (weight)", others, words=True, least=_WHOM)


def advice_words(found: Advice, entry: ClientAdvice) -> str:
    """'join neighbours', with a question mark where another way may be as good."""
    return WORDS[entry.advice] + ("?" if entry.is_unsure(found.sure) else "")


def gain_words(words: ScoreWords, entry: ClientAdvice) -> str:
    """The expected gain of what is advised, with its interval."""
    gain = entry.advised_gain
    said = f"{words.signed(gain.expected)} {words.interval(gain.low, gain.high)}"
    return NONE if entry.advice == "alone" else said


def with_whom(entry: ClientAdvice, most: int = MOST_NEIGHBOURS) -> str:
    """'itself 40 %, north 22 %, south 10 % and 3 more'."""
    if entry.advice == "alone":
        return ""
    if entry.advice == "everybody":
        return "all clients, by their rows"
    named = entry.neighbours
    shown = [f"{shortened(one.client, 16)} {100 * one.share:.0f} %" for one in named[:most]]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join([f"itself {100 * entry.own_share:.0f} %", *shown]) + more


def tested_words(entry: ClientVerdict) -> str:
    """What a client's test rows say of its advice."""
    if entry.right is None:
        return "no rows"
    return _RIGHT[entry.right] if entry.decidable else "cannot tell"


def verification(advised: Advised, verdict: Verification) -> list[str]:
    """What test rows say, in a few sentences."""
    words = advised.words
    tested, splits = verdict.tested, len(verdict.seeds)
    over = f" of {splits} splits" if splits > 1 else ""
    means, saved = verdict.test_loss, verdict.saved_against["always alone"]
    ways = listed([f"{way} {words.show(means[way])}" for way in WORDS])
    saves = words.gain(saved.mean, saved.low, saved.high)
    first = (
        f"On test rows{over}, read only now: mean {advised.score} {words.show(means['advice'])} with the advice; "
        f"always {ways}. Against training alone the advice saves {saves}."
    )
    first += deciding(advised, verdict)
    second = f"It was best, or within noise of best, for {verdict.right:,} of {tested:,} clients"
    if verdict.decidable:
        right, able = verdict.right_of_decidable, verdict.decidable
        judged = f"right for {right:,} of the {able:,} clients" if able > 1 else f"{_RIGHT[right]} for the one client"
        return [first, f"{second}; it was {judged} whose test rows can tell."]
    return [first, f"{second}; but no client has enough test rows to tell."]


def deciding(advised: Advised, verdict: Verification) -> str:
    """The client of few test rows that decides what the advice saves; with several splits only the first is known."""
    places, clients = advised.found.order, verdict.clients
    if len(verdict.seeds) > 1 or len(clients) < len(places):
        return ""
    saved = verdict.saved_against["always alone"]
    gains = [difference(one.loss["alone"], one.loss[own.advice]) for one, own in zip(clients, advised.found.clients)]
    names = [one.client for one in advised.found.clients]
    rows = [one.test_rows for one in clients]
    return decider(advised.words, "what the advice saves", names, gains, rows, (saved.low, saved.high))


def technical(advised: Advised) -> list[str]:
    """What a specialist asks next: quantities of theory, weights, regret, what is revealed."""
    found, words = advised.found, advised.words
    facts, rows = found.regime, found.rows
    lines = [
        f"{counted(found.all_clients, 'client')}, {rows.least} to {rows.most} rows each (median "
        f"{rows.median:g}), {found.coefficients} coefficients, {found.model.replace('_', ' ')} loss, split "
        f"{found.seed}."
    ]
    if facts:
        lines.append(
            "For theory: how far the clients' own best models lie from the best common one, times the steepest "
            f"curvature (zeta* = {facts['zeta']:.3g}); how far the gradients of single rows lie apart (sigma = "
            f"{facts['sigma']:.3g}); steepest over flattest curvature (kappa = {facts['kappa']:.3g}); the largest of "
            f"the clients' own best models (B = {facts['radius']:.3g}); ridge l2 = {facts['l2']:.2g}."
        )
    means = ", ".join(f"{way} {words.show(found.mean_loss[way])}" for way in WORDS)
    parts = ", ".join(f"{name} {100 * part:.0f} %" for name, part in found.mixture.items() if part >= 0.005)
    lines += [f"Held-out {advised.score}, mean over clients: {means}.", f"The neighbours' weights mix: {parts}."]
    if found.blocks:
        lines.append(
            f"Pairs were judged inside {counted(len(found.blocks), 'block')} of at most {max(found.blocks)} clients."
        )
    penalties, sent = ", ".join(f"{way} {value:g}" for way, value in found.penalties.items()), found.exchange
    lines += [
        f"Penalties, in rows: {penalties}.",
        f"Finding this out would send {size(sent.upload_bytes)} up and {size(sent.download_bytes)} down "
        f"({counted(sent.pairs, 'pair')} judged). {sent.reveals}",
    ]
    if found.verify is not None:
        lines.append(f"Regret, mean {advised.score} above each client's best way [95 %]:")
        lines += [
            f"  {way:<18} {words.bare(one.mean)}{words.around(one.low, one.high)}"
            for way, one in found.verify.regret.items()
        ]
    return lines
