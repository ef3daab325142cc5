# SPDX-License-Identifier: Apache-2.0
"""The run's answer in one sentence: which method, for whom, and at what price."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect.report.clients import client_table
from idiolect.report.folder import Run, is_alone
from idiolect.report.wording import ScoreWords, absent, plural, score_words, size, ties


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the headline says, and its parts; a part is None where the run does not tell."""

    sentence: str
    best: str | None = None  # method with the best mean over clients
    best_mean: float | None = None
    worst_decile_best: str | None = None  # method with the best mean over the worst tenth of clients
    worst_decile: float | None = None
    personalized: str | None = None  # the best method that is not training alone
    better_alone: int | None = None  # its clients that score strictly better alone
    clearly_alone: int | None = None  # of these, the ones whose interval excludes 0
    compared: int | None = None
    traffic_bytes: int | None = None  # of `personalized`, everything that crossed the wire
    rounds: int | None = None


def answer(run: Run) -> Answer:
    """Read the answer off the summary and the client table."""
    words = score_words(run.score)
    ranked = rank(run, "mean")
    if not ranked:
        return Answer(f"No method of this run is scored by {words.name} on test rows, so there is no answer.")
    best, worst = ranked[0], rank(run, "worst_decile")[0]
    together = next((entry for entry in ranked if not is_alone(entry)), None)
    clients = client_table(run, together["method"]) if together else None
    judged = clients if clients is not None and clients.compared else None
    parts = Answer(
        "",
        best["method"],
        best["score"]["mean"],
        worst["method"],
        worst["score"]["worst_decile"],
        together["method"] if together else None,
        judged.better_alone if judged else None,
        judged.counted("hurt") if judged else None,
        judged.compared if judged else None,
        traffic_bytes(together) if together else None,
        together.get("rounds") if together else None,
    )
    clauses = [
        _average(best, together, words, len(ranked)),
        _worst(best, worst, words, len(ranked)),
        _alone(parts),
        _price(best, together, clients),
    ]
    return dataclasses.replace(parts, sentence="; ".join(clause for clause in clauses if clause) + ".")


def rank(run: Run, statistic: str) -> list[dict[str, Any]]:
    """Methods that finished and have this statistic of the primary score, best first."""
    entries = [
        entry
        for entry in run.methods
        if not entry.get("diverged") and not absent((entry.get("score") or {}).get(statistic))
    ]
    return sorted(entries, key=lambda entry: entry["score"][statistic], reverse=run.higher_is_better)


def traffic_bytes(entry: dict[str, Any]) -> int:
    """Everything that crossed the wire: up, down, and the delivery of the models."""
    return sum(int(entry.get(f"{way}_bytes") or 0) for way in ("upload", "download", "delivery"))


def _average(best: dict[str, Any], together: dict[str, Any] | None, words: ScoreWords, methods: int) -> str:
    name = words.name.replace("_", " ")
    value = f"{name} {words.show(best['score']['mean'])}"
    if is_alone(best):
        text = f"Training alone is best on average ({value})" if methods > 1 else f"Training alone: {value}"
        if together is None:
            return text + ", and nothing else was compared with it"
        own, theirs = (entry["score"]["mean"] for entry in (best, together))
        place = "level with" if ties(own, theirs) else "ahead of"
        return f"{text}, {place} {together['method']} ({words.show(theirs)})"
    text = f"{best['method']} is best on average ({value}" if methods > 1 else f"{best['method']} ({value}"
    gain = best.get("gain")
    if gain is None or absent(gain.get("mean")):
        return text + ")"
    interval = words.interval(gain.get("low"), gain.get("high"))
    text += f", {words.signed(gain['mean'])} {interval}".rstrip() + " against training alone"
    if interval and gain["low"] <= 0 <= gain["high"]:
        text += ": not a clear difference"
    return text + ")"


def _worst(best: dict[str, Any], worst: dict[str, Any], words: ScoreWords, methods: int) -> str:
    value = words.show(worst["score"]["worst_decile"])
    if methods == 1:
        return f"its worst tenth of clients reaches {value}"
    own = best["score"].get("worst_decile")
    if not absent(own) and ties(own, worst["score"]["worst_decile"]):
        return f"it is also best for the worst tenth of clients ({value})"
    subject = "training alone" if is_alone(worst) else worst["method"]
    return f"for the worst tenth of clients {subject} is best ({value})"


def _alone(parts: Answer) -> str:
    if parts.personalized is None:
        return ""
    if parts.compared is None:
        return "whether clients would do better alone is not known"
    clear = f" ({parts.clearly_alone or 'none'} clearly)" if parts.better_alone else ""
    verb = "does" if parts.better_alone == 1 else "do"
    few = "none" if parts.better_alone == 0 else f"{parts.better_alone:,}"
    return f"{few} of {plural(parts.compared, 'client')} {verb} better alone than with {parts.personalized}{clear}"


def _price(best: dict[str, Any], together: dict[str, Any] | None, clients: Any) -> str:
    if together is None:
        return ""
    total = traffic_bytes(together)
    subject = "it" if together is best else together["method"]
    rounds = plural(int(together["rounds"]), "round") if together.get("rounds") is not None else "its rounds"
    trained = 0 if clients is None else int((~clients.held_out).sum())  # held-out clients never communicated
    each = f", {size(total / trained)} per client" if trained else ""
    delivered = " and the delivery of the models" if together.get("delivery_bytes") else ""
    return f"{subject} communicates {size(total)} over {rounds}{delivered}{each}"
