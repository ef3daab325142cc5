# SPDX-License-Identifier: Apache-2.0
"""The run's answer in one sentence: which method, for whom, and at what price."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from idiolect.report.clients import client_table
from idiolect.report.folder import Run, is_alone
from idiolect.report.wording import ScoreWords, absent, known, listed, plural, score_words, size, ties

_SWEPT = re.compile(r"\[.+=.+\]$")  # 'ditto[step_size=0.1]'
_NAMED = 3  # methods level with the best that are named; more are counted
_TIED = 7  # methods within noise of the announced one that are named
LITTLE = 0.01  # of the score: a smaller difference is said to be little, however sure it is


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the headline says, and its parts; a part is None where the run does not tell."""

    sentence: str
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


def answer(run: Run) -> Answer:
    """Read the answer off the summary and the client table."""
    words = score_words(run.score)
    ranked = rank(run, "mean")
    if not ranked:
        if run.methods and all(entry.get("diverged") for entry in run.methods):
            return Answer("Every method of this run diverged, so there is no answer; use smaller step sizes.")
        return Answer(f"No method of this run is scored by {words.name} on test rows, so there is no answer.")
    announced = run.announced
    best = next((one for one in ranked if announced and one["method"] == announced["method"]), ranked[0])
    below = rank(run, "worst_decile")
    level = [] if announced else _leaders(ranked, "mean")
    worst_level = _leaders(below, "worst_decile")
    worst = best if best in worst_level else worst_level[0]
    others, worst_others = ([one for one in level if one is not best], [one for one in worst_level if one is not worst])
    together = best if not is_alone(best) else _first_together(run, ranked)
    clients = client_table(run, together["method"]) if together else None
    judged = clients if clients is not None and clients.compared else None
    parts = Answer(
        sentence="",
        best=best["method"],
        announced=announced is not None,
        best_mean=best["score"]["mean"],
        tied=tuple(announced["tied"]) if announced else (),
        worst_decile_best=worst["method"],
        worst_decile=worst["score"]["worst_decile"],
        best_level=tuple(str(one["method"]) for one in others),
        worst_decile_level=tuple(str(one["method"]) for one in worst_others),
        personalized=together["method"] if together else None,
        helped=judged.counted("helped") if judged else None,
        hurt=judged.counted("hurt") if judged else None,
        compared=judged.compared if judged else None,
        traffic_bytes=traffic_bytes(together) if together else None,
        rounds=together.get("rounds") if together else None,
    )
    clauses = [
        _announced(run, best, words, len(ranked))
        if announced
        else _average(best, others, together, words, len(ranked)),
        _worst(worst, worst is best, worst_others, words, len(ranked)),
        _alone(parts),
        _price(together, clients),
    ]
    said = "; ".join(clause for clause in clauses if clause) + "."
    doubts = "".join(f" {text}" for text in (*_unfinished(run), *_unscored(run)))
    return dataclasses.replace(parts, sentence=f"{_choice(run)}{said}{doubts}")


def _first_together(run: Run, ranked: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The method to hold against training alone: the best on validation rows, as far as they were asked."""
    others = [entry for entry in ranked if not is_alone(entry)]
    if not others or run.announced is None:
        return next(iter(others), None)
    first = [entry for entry in others if entry["method"] == run.announced.get("best")]
    validated = [entry for entry in others if not absent(entry.get("choosing_mean"))]
    validated.sort(key=lambda entry: entry["choosing_mean"], reverse=run.higher_chooses)
    return [*first, *validated, *others][0]


def _announced(run: Run, best: dict[str, Any], words: ScoreWords, methods: int) -> str:
    """The winner on validation rows, who is level with it there, and what it reaches on test rows."""
    found = run.announced or {}
    name = _name(best)
    subject = name[0].upper() + name[1:] if is_alone(best) else name
    measure, value = words.name.replace("_", " "), words.show(best["score"]["mean"])
    if methods == 1:
        return f"{subject}: {measure} {value} on test rows{_gains(best, words)}"
    tied = [one for one in run.methods if one["method"] in found.get("tied", ())]
    level = f", within noise of {_few([_name(one) for one in tied])}" if tied else f", {_ahead(run, best)}"
    on_test = f"its {measure} on test rows is {value}{_gains(best, words)}"
    return f"{subject} does best on validation rows{level}{_cheapest(best, tied)}; {on_test}"


def _few(names: list[str]) -> str:
    """All names, or how many where they would fill a paragraph."""
    return listed(names) if len(names) <= _TIED else f"{len(names)} others"


def _ahead(run: Run, best: dict[str, Any]) -> str:
    """How far the best method is ahead of the others, none of which is within noise of it."""
    if any(one.get("converged") is False for one in run.methods):
        return "ahead of the others as far as they were trained"
    means = [one.get("choosing_mean") for one in rank(run, "mean") if one is not best]
    mine, others = best.get("choosing_mean"), [mean for mean in means if known(mean)]
    if not known(mine) or not others:
        return "clearly ahead of the others"
    second = max(others) if run.higher_chooses else min(others)
    part = abs(mine - second) / max(abs(mine), abs(second), 1e-300)
    if part >= LITTLE:
        return "clearly ahead of the others"
    score = score_words(run.choose_by).name.replace("_", " ")
    return f"ahead of the others beyond noise, but by little ({100 * part:.1g} % of the {score})"


def _cheapest(best: dict[str, Any], tied: list[dict[str, Any]]) -> str:
    """Which of the methods that are level with the best one costs least, where that is not the best one itself."""
    least = min(tied, key=traffic_bytes, default=best)
    if traffic_bytes(least) >= traffic_bytes(best):
        return ""
    silent = "sends nothing after the preparation" if least.get("preparation_bytes") else "sends nothing"
    price = f"sends {size(traffic_bytes(least))}" if traffic_bytes(least) else silent
    return f", of which {_name(least)} {price}" if len(tied) > 1 else f", which {price}"


def _gains(entry: dict[str, Any], words: ScoreWords) -> str:
    """What it gains on both references, as the rest of a sentence; what is 0 by nature is left out."""
    told = []
    alone = None if is_alone(entry) else entry.get("gain")
    for gain, whom in ((alone, "training alone"), (entry.get("gain_over_one"), "one model for all")):
        if not gain or absent(gain.get("mean")) or gain["mean"] == gain.get("low") == gain.get("high") == 0:
            continue
        interval = words.interval(gain.get("low"), gain.get("high"))
        unclear = " (not clear)" if interval and gain["low"] <= 0 <= gain["high"] else ""
        told.append(f"{words.signed(gain['mean'])} {interval}".rstrip() + f" against {whom}{unclear}")
    return f", {' and '.join(told)}" if told else ""


def _unfinished(run: Run) -> list[str]:
    late = [
        str(entry["method"]) for entry in run.methods if entry.get("converged") is False and not entry.get("diverged")
    ]
    if not late:
        return []
    return [f"{listed(late)} had not converged when training stopped and may do better with more rounds."]


def _unscored(run: Run) -> list[str]:
    """Clients that no mean counts, and why."""
    found = run.summary.get("unscored")
    return [str(found["sentence"])] if isinstance(found, dict) and found.get("sentence") else []


def _choice(run: Run) -> str:
    """What was chosen among the settings of a sweep, as a sentence of its own; nothing where there was no sweep."""
    chosen = [str(entry["method"]) for entry in run.methods if entry.get("chosen")]
    if chosen:
        return f"Chosen on validation rows: {listed(chosen)}. "
    blind = [entry for entry in run.methods if not entry.get("diverged") and entry.get("choosing_mean", 0) is None]
    if any(_SWEPT.search(str(entry["method"])) for entry in blind):
        return (
            "Without validation rows nothing was chosen among the settings, and what is best here is so on test rows. "
        )
    return ""


def rank(run: Run, statistic: str) -> list[dict[str, Any]]:
    """Methods that finished and have this statistic of the primary score, best first.

    Of the settings of a sweep those that validation rows choose: test rows must not choose.
    """
    entries = [
        entry
        for entry in run.methods
        if not entry.get("diverged")
        and entry.get("chosen") is not False
        and not absent((entry.get("score") or {}).get(statistic))
    ]
    return sorted(entries, key=lambda entry: entry["score"][statistic], reverse=run.higher_is_better)


def traffic_bytes(entry: dict[str, Any]) -> int:
    """Everything that crossed the wire: up, down, and the delivery of the models."""
    return sum(int(entry.get(f"{way}_bytes") or 0) for way in ("upload", "download", "delivery"))


def level_with(methods: Sequence[str]) -> str:
    """', level with a and b': what follows the best method where it is not alone; nothing where it is."""
    names = list(methods) if len(methods) <= _NAMED else [f"{len(methods)} others"]
    return f", level with {listed(names)}" if names else ""


def nothing_right(value: float | None, words: ScoreWords) -> bool:
    """Whether the best method's score is the least there is, so that no method is better than another."""
    return words.unit == "%" and value == 0


def _leaders(ranked: list[dict[str, Any]], statistic: str) -> list[dict[str, Any]]:
    return [entry for entry in ranked if ties(entry["score"][statistic], ranked[0]["score"][statistic])]


def _name(entry: dict[str, Any]) -> str:
    return "training alone" if is_alone(entry) else str(entry["method"])


def _average(
    best: dict[str, Any],
    level: list[dict[str, Any]],
    together: dict[str, Any] | None,
    words: ScoreWords,
    methods: int,
) -> str:
    name = words.name.replace("_", " ")
    value = f"{name} {words.show(best['score']['mean'])}"
    if is_alone(best):
        text = f"Training alone is best on average ({value})" if methods > 1 else f"Training alone: {value}"
        if together is None:
            return text + ", and nothing else was compared with it"
        if level:
            return f"{text}{level_with([_name(entry) for entry in level])} ({words.show(best['score']['mean'])})"
        return f"{text}, ahead of {together['method']} ({words.show(together['score']['mean'])})"
    first = f"{best['method']} is best on average{level_with([_name(entry) for entry in level])}"
    text = f"{first} ({value}" if methods > 1 else f"{best['method']} ({value}"
    gain = best.get("gain")
    if gain is None or absent(gain.get("mean")):
        return text + ")"
    interval = words.interval(gain.get("low"), gain.get("high"))
    text += f", {words.signed(gain['mean'])} {interval}".rstrip() + " against training alone"
    if interval and gain["low"] <= 0 <= gain["high"]:
        text += ": not a clear difference"
    return text + ")"


def _worst(worst: dict[str, Any], too: bool, level: list[dict[str, Any]], words: ScoreWords, methods: int) -> str:
    """Who is best for the worst tenth; `too`: the method that is also best on average."""
    value = worst["score"]["worst_decile"]
    shown = words.show(value)
    every = "both methods" if methods == 2 else "every method"
    if nothing_right(value, words):
        subject = "its" if methods == 1 else f"with {every} the"
        return f"{subject} worst tenth of clients gets no test row right"
    if methods == 1:
        return f"its worst tenth of clients reaches {shown}"
    if len(level) == methods - 1:
        return f"the worst tenth of clients fares the same with {every} ({shown})"
    others = level_with([_name(entry) for entry in level])
    if too:
        return f"it is also best for the worst tenth of clients{others} ({shown})"
    return f"for the worst tenth of clients {_name(worst)} is best{others} ({shown})"


def _alone(parts: Answer) -> str:
    """Clients that are clearly better or worse off than alone."""
    if parts.personalized is None:
        return ""
    if parts.compared is None:
        return "whether clients would do better alone is not known"
    helped, hurt = parts.helped or "none", parts.hurt or "none"
    verb = "is" if parts.helped == 1 else "are"
    clients = f"{plural(parts.compared, 'client')} with {parts.personalized}"
    return f"of {clients} {helped} {verb} clearly helped and {hurt} clearly hurt against alone"


def _price(together: dict[str, Any] | None, clients: Any) -> str:
    if together is None:
        return ""
    total = traffic_bytes(together)
    rounds = plural(int(together["rounds"]), "round") if together.get("rounds") is not None else "its rounds"
    trained = 0 if clients is None else int((~clients.held_out).sum())  # held-out clients never communicated
    each = f", {size(total / trained)} per client" if trained else ""
    delivered = " and the delivery of the models" if together.get("delivery_bytes") else ""
    return f"{together['method']} communicates {size(total)} over {rounds}{delivered}{each}"
