# SPDX-License-Identifier: Apache-2.0
"""What protections cost: scores against epsilon, attackers and bytes, of one shared model and of personal ones.

Three data sets whose clients are real: 4 hospitals, 29 minefields, 139 schools. Columns are scaled by each client's own
rows, settings are fixed, the last round counts. The score is that of the clients that do not attack, on test rows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.measure import Result
from idiolect.engines.plan import Options
from idiolect.engines.simulate import open_session
from idiolect.experiments.prepare import Prepared, prepare
from idiolect.experiments.protection import attackers_of, write_epsilon
from idiolect.experiments.spec import Spec, from_table

SETS = {"heart_disease": "accuracy", "landmine": "auc", "school": "rmse"}
METHODS = {  # one shared model, then four that personalize
    "fedavg": {},
    "fedavg_fine_tuning": {"fine_tuning_steps": 20},
    "ditto": {},
    "apfl": {},
    "fedper": {"personal_part": "bias"},
}
EPSILONS = (10.0, 3.0, 1.0)
FRACTIONS = (0.1, 0.25)  # of the clients that attack; at least one, fewer than half
CODECS = {
    "8 bits": {"kind": "quantise", "bits": 8},
    "3 bits": {"kind": "quantise", "bits": 3},
    "top 1 in 10": {"kind": "top_k"},
}


def run(quick: bool) -> Result:
    """One table per question, a row per data set and method."""
    rounds, seeds = (4, (0,)) if quick else (40, (0, 1, 2))
    sets = ("heart_disease",) if quick else tuple(SETS)
    numbers: dict[str, object] = {}
    for source in sets:
        for method in ("fedavg", "ditto") if quick else METHODS:
            numbers[f"{source} {method}"] = measure(source, method, rounds, seeds)
        numbers[f"{source} local"] = {"plain": score_of(spec_of(source, "local", rounds, seeds))}
    return Result(numbers, text=table_text(numbers))


def spec_of(source: str, method: str, rounds: int, seeds: Sequence[int], **sections: dict[str, object]) -> Spec:
    """The spec of one method with some protections."""
    settings = {"step_size": 0.1, "local_steps": 5, "batch_size": 0} | METHODS.get(method, {})
    return from_table({
        "name": "protection",
        "seeds": list(seeds),
        "data": {"source": source, "preparation": "local"},
        "evaluation": {"scores": [SETS[source]]},
        "training": {"rounds": rounds, "record_every": rounds, "executor": "batched"},
        "methods": {method: settings},
        **sections,
    })  # fmt: skip


def score_of(spec: Spec) -> dict[str, float]:
    """Mean over seeds and over the clients that do not attack, the half-width of its 95 % interval, bytes up."""
    return scores_of([spec])[0]


def scores_of(specs: Sequence[Spec]) -> list[dict[str, float]]:
    """`score_of` several specs that differ in floats alone, as lanes of one program."""
    prepared: list[Prepared] = [prepare(spec) for spec in specs]
    first, count = specs[0], len(specs[0].seeds)
    lanes = [one.built[0].algorithm for one in prepared for _ in range(count)]
    options = Options(select_last=True)
    seeds = list(first.seeds) * len(specs)
    session = open_session(lanes, prepared[0].federation, first.training, seeds, (SETS[first.data.source],), options)
    runs, found = session.run(), []
    for place, (spec, one) in enumerate(zip(specs, prepared)):
        own = runs[place * count : (place + 1) * count]
        each = np.mean([run.recorder.last["test"]["personal"][SETS[spec.data.source]] for run in own], axis=0)
        honest = np.delete(each, attackers_of(spec, len(each)))
        honest = honest[np.isfinite(honest)]
        spread = 1.96 * float(honest.std(ddof=1)) / np.sqrt(len(honest))
        facts = {"score": float(honest.mean()), "half_width": spread, "upload_bytes": own[0].ledger.upload_bytes}
        if spec.privacy.is_on:
            write_epsilon(one.built[0].spending, own)
            facts |= {
                "epsilon": own[0].history[-1]["epsilon"],
                "noise_multiplier": one.built[0].spending.noise_multiplier,
            }
        found.append(facts)
    return found


def measure(source: str, method: str, rounds: int, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Everything about one method on one data set: what was done -> what came out."""

    def spec(**sections: dict[str, object]) -> Spec:
        return spec_of(source, method, rounds, seeds, **sections)

    found = {"plain": score_of(spec())}
    if importlib.util.find_spec("dp_accounting") is not None:  # without the extra `privacy` nothing can be accounted
        private = scores_of([spec(privacy={"epsilon": epsilon, "clip": 0.5}) for epsilon in EPSILONS])
        found |= {f"epsilon {epsilon:g}": one for epsilon, one in zip(EPSILONS, private)}
    clients = prepare(spec()).federation.clients
    attacks = [{"kind": "sign_flip", "strength": 3.0, "clients": attackers(clients, part)} for part in FRACTIONS]
    rules: dict[str, dict[str, dict[str, object]]] = {"mean": {}, "median": {"robustness": {"rule": "median"}}}
    for rule, section in rules.items():
        attacked = scores_of([spec(attack=attack, **section) for attack in attacks])
        found |= {f"{part:.0%} attack, {rule}": one for part, one in zip(FRACTIONS, attacked)}
    for name, codec in CODECS.items():
        found[name] = score_of(spec(compression=codec))
    return found


def attackers(clients: int, part: float) -> int:
    """At least one, fewer than half."""
    return min(max(1, round(part * clients)), (clients - 1) // 2)


def table_text(numbers: dict[str, object]) -> str:
    """A table per question, for the documentation."""
    asked: dict[str, Callable[[str], bool]] = {
        "Score against epsilon": lambda name: name == "plain" or name.startswith("epsilon"),
        "Score against attackers": lambda name: name == "plain" or "attack" in name,
        "Score (and upload bytes) against bytes": lambda name: name == "plain" or name in CODECS,
    }
    lines = []
    for title, chosen in asked.items():
        columns = list(dict.fromkeys(name for found in numbers.values() for name in found if chosen(name)))  # type: ignore[attr-defined]
        lines += [title, "", "| data, method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row, found in numbers.items():
            cells = [cell(found.get(column), "bytes" in title) for column in columns]  # type: ignore[attr-defined]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def cell(found: dict[str, float] | None, with_bytes: bool) -> str:
    """A score with the half-width of its interval."""
    if found is None:
        return "-"
    shown = f"{found['score']:.3f} ± {found['half_width']:.3f}"
    return f"{shown} ({found['upload_bytes'] / 1000:.0f} kB)" if with_bytes else shown
