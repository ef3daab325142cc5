# SPDX-License-Identifier: Apache-2.0
"""The run's answer in one sentence: which method, for whom, and at what price."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.record.schema import Announced, MethodSummary
from idiolect.record.words import counted
from idiolect.report.clients import ClientTable, client_table
from idiolect.report.decider import decider
from idiolect.report.folder import Run
from idiolect.report.wording import gains_said, known, listed, score_words, size, ties, upper, verdicts_said

_NAMED = 3  # methods level with the best that are named; more are counted
_TIED = 7  # methods within noise of the announced one that are named; more would fill a paragraph
LITTLE = 0.01  # of the score: a smaller difference is said to be little, however sure it is


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the run says in words, and its parts; a part is None where the run does not tell."""

    sentence: str
    headline: str = ""  # of a page: the sentence as far as the gains
    further: str = ""  # below the headline: the rest of the sentence
    best: str | None = None  # the announced method: the best on validation rows, or else the best mean on test rows
    announced: bool = False  # whether validation rows chose it
    best_mean: float | None = None  # its mean on test rows
    tied: tuple[str, ...] = ()  # methods that validation rows cannot tell from it
    worst_decile_best: str | None = None  # method with the best mean over the worst tenth of clients
    worst_decile: float | None = None
    best_level: tuple[str, ...] = ()  # methods whose mean on test rows differs from the best one's by rounding only
    worst_decile_level: tuple[str, ...] = ()
    personalized: str | None = None  # the announced method, or where that is training alone the best other
    helped: int | None = None  # its clients that are clearly better off than alone
    hurt: int | None = None
    compared: int | None = None
    traffic_bytes: int | None = None  # of `personalized`, everything that crossed the wire
    rounds: int | None = None


class _Contest(NamedTuple):
    """Who won, on average and for the worst tenth of clients, and whom to hold against training alone."""

    run: Run
    announced: Announced | None  # on validation rows
    ranked: list[MethodSummary]  # that have a score, the best one first
    best: MethodSummary  # the announced one; without validation rows the first
    level: list[MethodSummary]  # others whose mean differs from the best one's by rounding only
    worst: MethodSummary  # the best for the worst tenth
    worst_level: list[MethodSummary]
    together: MethodSummary | None
    clients: ClientTable | None  # of `together`


def answer(run: Run) -> Answer:
    """Read the answer off the summary and the client table."""
    ranked = rank(run, "mean")
    if not ranked:
        reason = f"No method of this run is scored by {run.words.name} on test rows, so there is no answer."
        if all(entry.diverged for entry in run.methods):
            reason = "Every method of this run diverged, so there is no answer; use smaller step sizes."
        return Answer(reason, headline=reason)
    found = _judge(run, ranked)
    best, worst, together = found.best, found.worst, found.together
    alone, counts = _against_alone(found)
    announced, first = found.announced, _choice(run) + (_announced(found) if found.announced else _average(found))
    others = "; ".join(filter(None, [_worst(found), alone, _price(found)]))
    doubts = _doubts(found)
    return Answer(
        sentence=f"{first}; {others}.{doubts}",
        headline=f"{first}.",
        further=f"{upper(others)}.{doubts}",
        best=best.method,
        announced=announced is not None,
        best_mean=best.score.mean,
        tied=announced.tied if announced else (),
        worst_decile_best=worst.method,
        worst_decile=worst.score.worst_decile,
        best_level=tuple(one.method for one in found.level),
        worst_decile_level=tuple(one.method for one in found.worst_level),
        personalized=getattr(together, "method", None),
        # a program finds None where nothing was compared, which is not the same as nobody helped
        helped=counts.get("helped"),
        hurt=counts.get("hurt"),
        compared=counts.get("compared"),
        traffic_bytes=getattr(together, "traffic_bytes", None),
        rounds=getattr(together, "rounds", None),
    )


def _judge(run: Run, ranked: list[MethodSummary]) -> _Contest:
    announced = run.summary.announced
    best = next((one for one in ranked if announced and one.method == announced.method), ranked[0])
    together = _together(run, ranked) if best.alone else best
    # without validation rows the means on test rows rank, and some may be level; an announced method stands by itself
    level = [] if announced else _leaders(ranked, "mean")
    worst_level = _leaders(rank(run, "worst_decile"), "worst_decile")
    # one method that is best in both ways makes the shorter sentence
    worst = best if best in worst_level else worst_level[0]
    return _Contest(
        run=run,
        announced=announced,
        ranked=ranked,
        best=best,
        level=[one for one in level if one is not best],
        worst=worst,
        worst_level=[one for one in worst_level if one is not worst],
        together=together,
        clients=client_table(run, together.method) if together else None,
    )


def _together(run: Run, ranked: list[MethodSummary]) -> MethodSummary | None:
    """The method to hold against training alone: the best on validation rows, as far as they were asked."""
    others = [one for one in ranked if not one.alone]
    if run.summary.announced:
        return max(others, key=lambda one: _validated(run, one), default=None)
    return next(iter(others), None)


def _validated(run: Run, entry: MethodSummary) -> float:
    """Its score on validation rows, larger being better."""
    sign = 1 if run.summary.higher_is_better.get(run.choose_by, run.higher_is_better) else -1
    return sign * entry.choosing_mean if known(entry.choosing_mean) else -math.inf


def _against_alone(found: _Contest) -> tuple[str, dict[str, int]]:
    """Whether clients do better than alone: in words, and as counts where something was compared."""
    together, clients = found.together, found.clients
    if together is None or clients is None:  # nothing but training alone was run
        return "", {}
    if not clients.compared:
        return "whether clients would do better alone is not known", {}
    if not (clients.verdict != "").any():  # a deployed run has scores, and no rows to tell a gain from noise by
        return "which clients are clearly helped or hurt is not known, as that needs their rows", {}
    counts = {"compared": clients.compared, "helped": clients.counted("helped"), "hurt": clients.counted("hurt")}
    return verdicts_said(counts["compared"], together.method, counts["helped"], counts["hurt"]), counts


def _announced(found: _Contest) -> str:
    """The winner on validation rows, who is level with it there, and what it reaches on test rows."""
    best, words, announced = found.best, found.run.words, found.announced
    subject = upper(best.name) if best.alone else best.method
    gains = gains_said(words, None if best.alone else best.gain, best.gain_over_one)
    if len(found.ranked) == 1:
        return f"{subject}: {words.spoken} {words.show(best.score.mean)} on test rows{gains}"
    tied = [one for one in found.run.methods if announced and one.method in announced.tied]
    few = listed([one.name for one in tied]) if 0 < len(tied) <= _TIED else f"{len(tied)} others"
    level = f"within noise of {few}" if tied else _ahead(found)
    on_test = f"its {words.spoken} on test rows is {words.show(best.score.mean)}{gains}"
    return f"{subject} does best on validation rows, {level}{_cheapest(best, tied)}; {on_test}"


def _ahead(found: _Contest) -> str:
    """How far the best method is ahead of the others, none of which is within noise of it."""
    run = found.run
    # a lead over a method that was stopped early says nothing about its end
    if any(one.converged is False for one in run.methods):
        return "ahead of the others as far as they were trained"
    mine, second = (
        _validated(run, found.best),
        max(_validated(run, one) for one in found.ranked if one is not found.best),
    )
    if min(mine, second) > -math.inf:
        # relative to the larger of both, so that it means the same for losses and for fractions
        part = abs(mine - second) / max(abs(mine), abs(second), 1e-300)
        if part < LITTLE:
            little = f"{100 * part:.1g} % of the {score_words(run.choose_by).spoken}"
            return f"ahead of the others beyond noise, but by little ({little})"
    return "clearly ahead of the others"


def _cheapest(best: MethodSummary, tied: list[MethodSummary]) -> str:
    """Which of the methods that are level with the best one costs least, where that is not the best one itself."""
    # within noise the cheaper method is as good: worth a clause
    least = min(tied, key=lambda one: one.traffic_bytes, default=best)
    if least.traffic_bytes >= best.traffic_bytes:
        return ""
    silent = "sends nothing after the preparation" if least.preparation_bytes else "sends nothing"
    price = f"sends {size(least.traffic_bytes)}" if least.traffic_bytes else silent
    return f", of which {least.name} {price}" if len(tied) > 1 else f", which {price}"


def _doubts(found: _Contest) -> str:
    """Means that one client decides, methods that may yet do better or never moved, and clients that no mean counts."""
    run = found.run
    unscored = "" if run.summary.unscored is None else f" {run.summary.unscored.sentence}"
    late = [entry.method for entry in run.methods if entry.converged is False and not entry.diverged]
    still = [entry.method for entry in run.methods if entry.chosen_start]
    more = (
        f" {listed(late)} had not converged when training stopped and may do better with more rounds." if late else ""
    )
    none = (
        f" Validation rows prefer the start of {listed(still)} to every later round: nothing was shared."
        if still
        else ""
    )
    return _lone(found) + none + more + unscored


def _lone(found: _Contest) -> str:
    """The client of few test rows that decides the mean gain, if there is one, as a sentence after a blank."""
    together, clients = found.together, found.clients
    gain = None if together is None else together.gain
    if clients is None or gain is None:
        return ""
    gains = np.where(clients.held_out, np.nan, clients.gain)
    what = "the mean gain over training alone"
    return decider(found.run.words, what, clients.client, gains, clients.test_rows, (gain.low, gain.high))


def _choice(run: Run) -> str:
    """What was chosen among the settings of a sweep, as a sentence of its own; nothing where there was no sweep."""
    chosen = [entry.method for entry in run.methods if entry.chosen]
    if chosen:
        return f"Chosen on validation rows: {listed(chosen)}. "
    if any(entry.swept and not entry.diverged and entry.choosing_mean is None for entry in run.methods):
        return (
            "Without validation rows nothing was chosen among the settings, and what is best here is so on test rows. "
        )
    return ""


def rank(run: Run, statistic: str) -> list[MethodSummary]:
    """Methods that finished and have this statistic of the primary score, best first.

    Of the settings of a sweep those that validation rows choose: test rows must not choose.
    """
    entries = [
        entry
        for entry in run.methods
        if not entry.diverged and entry.chosen is not False and known(getattr(entry.score, statistic))
    ]
    return sorted(entries, key=lambda entry: getattr(entry.score, statistic), reverse=run.higher_is_better)


def level_with(methods: Sequence[str]) -> str:
    """', level with a and b': what follows the best method where it is not alone; nothing where it is."""
    names = list(methods) if len(methods) <= _NAMED else [f"{len(methods)} others"]
    return f", level with {listed(names)}" if names else ""


def nothing_right(value: float | None, unit: str) -> bool:
    """Whether the best method's score is the least there is, so that no method is better than another."""
    return unit == "%" and value == 0


def _leaders(ranked: list[MethodSummary], statistic: str) -> list[MethodSummary]:
    return [entry for entry in ranked if ties(getattr(entry.score, statistic), getattr(ranked[0].score, statistic))]


def _average(found: _Contest) -> str:
    """The best on average where validation rows chose nothing."""
    best, words, several = found.best, found.run.words, len(found.ranked) > 1
    level, reached = level_with([entry.name for entry in found.level]), words.show(best.score.mean)
    value = f"{words.spoken} {reached}"
    if best.alone:
        text = f"Training alone is best on average ({value})" if several else f"Training alone: {value}"
        if found.together is None:
            return text + ", and nothing else was compared with it"
        if level:
            return f"{text}{level} ({reached})"
        return f"{text}, ahead of {found.together.method} ({words.show(found.together.score.mean)})"
    text = f"{best.method} is best on average{level}" if several else best.method
    if best.gain is None or not known(best.gain.mean):
        return f"{text} ({value})"
    gain = words.gain(best.gain.mean, best.gain.low, best.gain.high)
    return f"{text} ({value}, {gain} against training alone{'' if best.gain.is_clear else ': not a clear difference'})"


def _worst(found: _Contest) -> str:
    """Who is best for the worst tenth."""
    worst, methods = found.worst, len(found.ranked)
    value, words = worst.score.worst_decile, found.run.words
    shown = words.show(value)
    every = "both methods" if methods == 2 else "every method"
    if nothing_right(value, words.unit):
        subject = "its" if methods == 1 else f"with {every} the"
        return f"{subject} worst tenth of clients gets no test row right"
    if methods == 1:
        return f"its worst tenth of clients reaches {shown}"
    if len(found.worst_level) == methods - 1:
        return f"the worst tenth of clients fares the same with {every} ({shown})"
    others = level_with([entry.name for entry in found.worst_level])
    if worst is found.best:
        return f"it is also best for the worst tenth of clients{others} ({shown})"
    return f"for the worst tenth of clients {worst.name} is best{others} ({shown})"


def _price(found: _Contest) -> str:
    if found.together is None:
        return ""
    together, total = found.together, found.together.traffic_bytes
    if not total:
        return f"{together.method} sends nothing"
    trained = 0 if found.clients is None else int((~found.clients.held_out).sum())  # held-out ones never communicated
    each = f", {size(total / trained)} per client" if trained else ""
    delivered = " and the delivery of the models" if together.delivery_bytes else ""
    before = found.run.rounds_to_choose.get(together.method, 0)
    chosen = f", after {counted(before, 'round')} to choose its settings" if before else ""
    rounds = counted(together.rounds, "round")
    return f"{together.method} communicates {size(total)} over {rounds}{delivered}{each}{chosen}"
