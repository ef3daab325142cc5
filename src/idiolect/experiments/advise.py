# SPDX-License-Identifier: Apache-2.0
"""Advice on the user's own table: for every client train alone, join everybody, or join these neighbours.

Test rows are never read unless the advice is verified: training and validation rows together are dealt to folds, and
everything - penalties, weights, gains - is chosen on rows that the models in question have not seen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from idiolect.collaborate.advice import Advice, advise
from idiolect.collaborate.map import collaboration_map
from idiolect.collaborate.options import OPTIONS, Options, fit_options, try_options
from idiolect.collaborate.quadratic import Sample, make_sample, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.collaborate.verdict import Estimate, Verdict, judge, regrets, savings
from idiolect.collaborate.weights import exchange_of
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.experiments.collaboration import plain_loss
from idiolect.experiments.copies import align_copies
from idiolect.experiments.execute import Progress, Say
from idiolect.experiments.regime import regime
from idiolect.experiments.run_folder import SCHEMA, RunFolder, machine_facts
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import DataSpec
from idiolect.experiments.strict import fill, refuse_unknown
from idiolect.experiments.units import unit

FOLDS = 5
MOST_CLIENTS = 400  # every pair is judged; more belong into `collaborate.blocks`


class Trial(NamedTuple):
    """One split of the data, measured."""

    federation: Federation
    rows: Rows
    sample: Sample
    options: Options
    advice: Advice
    notes: tuple[str, ...]


def advise_on(
    spec: Mapping[str, Any],
    path: Path,
    *,
    name: str,
    verify: bool = False,
    seeds: Sequence[int] = (0,),
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, Any]:
    """Measure, advise, verify if asked; leave a folder with advise.json, advise.parquet and what is needed to draw.

    `spec` holds a [data] table. The first seed's split is advised on; verification averages over all of them.
    """
    folder = RunFolder(path)
    folder.check(resume=False)
    refuse_unknown(spec, ("data",), "advise")
    splits = list(seeds if verify else seeds[:1])
    report = progress or (lambda label, done, total: None)
    began = time.perf_counter()
    trial = _measure(spec["data"], splits[0], verify, say or (lambda text: None))
    report("splits", 1, len(splits))
    found = _found(name, trial) | {"seed": int(seeds[0])}
    penalty = trial.options.penalties["alone"] / max(float(np.mean(trial.sample.counts)), 1.0)
    found["regime"] = regime(trial.federation, trial.rows, penalty)
    found["seconds"] = {"advice": time.perf_counter() - began}
    if verify:
        began = time.perf_counter()
        verdicts = [_judge(trial, splits[0])]
        for seed in splits[1:]:
            verdicts.append(_judge(_measure(spec["data"], seed, verify, lambda text: None), seed))
            report("splits", len(verdicts), len(splits))
        found["verify"] = _verified(verdicts, trial.federation) | {"seeds": splits}
        found["seconds"]["verify"] = time.perf_counter() - began
    folder.open(resume=False)
    table = {"name": name, "data": dict(spec["data"]), "seeds": splits, "verify": verify}
    folder.write_text("spec.toml", tomli_w.dumps(table))
    folder.write_table("advise.parquet", _client_rows(found))
    folder.write_json("machine.json", machine_facts(""))
    folder.write_json("advise.json", found)
    folder.finish()
    return found


def _measure(data: Mapping[str, Any], seed: int, verify: bool, tell: Say) -> Trial:
    """Split by the seed, try the three ways on held-out rows, advise."""
    federation, _ = build_data(fill(DataSpec, {**data, "seed": seed}, "data"), "float64")
    _check(federation, verify)
    federation, copies = align_copies(federation)
    rows, blocks = learning_rows(federation)
    sample = make_sample(plain_loss(federation), rows, FOLDS, seed, blocks)
    doubts = [f"Warning: {text}" for text in federation.warnings]
    notes = (*federation.describe(), *federation.notes, *doubts, *copies, *_remarks(sample, federation))
    for text in notes:
        tell(text)
    with one_thread():
        options = try_options(sample)
    return Trial(federation, rows, sample, options, advise(sample, options.losses), notes)


def learning_rows(federation: Federation) -> tuple[Rows, np.ndarray | None]:
    """Training and validation rows of every client, one after the other, and their groups."""
    train, validation = federation.train, federation.validation
    owner = np.concatenate([np.repeat(np.arange(federation.clients), part.counts) for part in (train, validation)])
    order = np.argsort(owner, kind="stable")
    inputs = np.concatenate([train.inputs, validation.inputs])[order]
    targets = np.concatenate([train.targets, validation.targets])[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=federation.clients))]).astype(np.int64)
    groups = None if federation.groups is None else np.concatenate(federation.groups[:2])[order]
    return Rows(inputs, targets, offsets), groups


def _check(federation: Federation, verify: bool) -> None:
    if federation.clients > MOST_CLIENTS:
        raise RequestError(
            f"advise compares every pair of at most {MOST_CLIENTS} clients, got {federation.clients}; group small "
            "clients in the table, or call idiolect.collaborate.blocks.learn_in_blocks from Python."
        )
    if federation.train.inputs.dtype.kind != "f":
        raise RequestError("advise needs numeric inputs or a table; this data set holds tokens: choose another.")
    if verify and federation.test.counts.sum() == 0:
        raise RequestError("--verify needs test rows, and no client has one; give [data] test a larger share.")


def _remarks(sample: Sample, federation: Federation) -> list[str]:
    """Sentences about clients that need a default, and which one they get."""
    names, counts = federation.names, sample.counts
    remarks = []
    few = np.flatnonzero(counts < sample.size)
    if len(few):
        remarks.append(
            f"{_some([names[i] for i in few])} {_have(few)} fewer rows than the model has coefficients "
            f"({sample.size}); alone they rely on the penalty, which was chosen on held-out rows."
        )
    if federation.task.kind == "classification":
        labels = sample.goals if sample.goals.shape[1] > 1 else np.hstack([1 - sample.goals, sample.goals])
        single = np.flatnonzero((sample.sums(labels) > 0).sum(axis=1) == 1)
        if len(single):
            remarks.append(
                f"{_some([names[i] for i in single])} {_have(single)} one class only; a small penalty on the bias "
                "keeps their own model from being infinitely sure."
            )
    lonely = np.flatnonzero(counts < 2)
    if len(lonely):
        remarks.append(
            f"{_some([names[i] for i in lonely])} {_have(lonely)} a single row to learn from: advice for them is what "
            "clients of their size gain."
        )
    return remarks


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    kind = "Client" if len(names) == 1 else "Clients"
    return f"{kind} {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _have(places: np.ndarray) -> str:
    return "has" if len(places) == 1 else "have"


def _found(name: str, trial: Trial) -> dict[str, Any]:
    """advise.json, but for what is verified."""
    federation, _, sample, options, advice, notes = trial
    shared = collaboration_map(options.learned.shares, sample.counts)
    score, factor = _score(federation)
    names = list(federation.names)
    own = factor * sample.means(options.losses)
    exchange = exchange_of(sample)
    model_bytes = 4 * sample.size
    clients = []
    for client, label in enumerate(names):
        neighbours = shared.neighbours(client)
        gains = {
            way: {
                "measured": factor * advice.measured[client, place],
                "expected": factor * advice.expected[client, place],
                "low": factor * advice.low[client, place],
                "high": factor * advice.high[client, place],
            }
            for place, way in enumerate(OPTIONS)
        }
        clients.append(
            {
                "client": label,
                "rows": int(sample.counts[client]),
                "advice": OPTIONS[advice.pick[client]],
                "surety": float(advice.chance[client]),
                "loss": {way: own[client, place] for place, way in enumerate(OPTIONS)},
                "gain": gains,
                "own_share": float(shared.shares[client, client]),
                "neighbours": [{"client": names[other], "share": share} for other, share in neighbours],
                "worth": float(shared.effective[client]),
                "all_for_one": float(sample.agents / shared.effective[client]),
                "measured": {
                    f"over_{way}": own[client, place] - own[client, advice.pick[client]]
                    for place, way in enumerate(OPTIONS[:2])
                },
                "round_bytes": {
                    "alone": 0,
                    "everybody": 2 * model_bytes,
                    "neighbours": 2 * model_bytes,
                    "neighbours, peer to peer": 2 * model_bytes * len(neighbours),
                },
            }
        )
    return {
        "schema": SCHEMA,
        "kind": "advise",
        "name": name,
        "score": score,
        "task": federation.task.kind,
        "model": sample.loss.criterion,
        "coefficients": sample.size,
        "folds": sample.folds,
        "penalties": options.penalties,
        "mixture": options.learned.mixture,
        "held_out": {way: factor * value for way, value in options.learned.held_out.items()},
        "clients": clients,
        "notes": list(notes),
        "mean_loss": {way: float(own[:, place].mean()) for place, way in enumerate(OPTIONS)},
        "map": {
            "shares": shared.shares.tolist(),
            "order": shared.order.tolist(),
            "places": shared.places.tolist(),
            "speed_up": shared.speed_up,
            "sample_saving": shared.sample_saving,
        },
        "exchange": exchange._asdict(),
        "verify": None,
    }


def _score(federation: Federation) -> tuple[str, float]:
    """What losses are called for a reader, and the factor that takes them there: (1/2) squares become squares."""
    if federation.task.kind == "regression":
        return "squared_error", 2 * unit("squared_error", federation)
    return "log_loss", 1.0


def _judge(trial: Trial, seed: int) -> Verdict:
    """Train all three ways on every row that is not a test row; read the test rows once."""
    with one_thread():
        models = fit_options(trial.sample, trial.options)
    groups = None if trial.federation.groups is None else trial.federation.groups[2]
    test = make_sample(trial.sample.loss, trial.federation.test, 2, seed, groups)
    losses = np.stack([score_own(test, models[way]) for way in OPTIONS], axis=1)
    return judge(test, losses, trial.advice.pick)


def _verified(verdicts: list[Verdict], federation: Federation) -> dict[str, Any]:
    """How good the advice was, over all splits, and client by client on the first one."""
    factor, first = _score(federation)[1], verdicts[0]
    tested, right, decided = (
        np.stack([getattr(one, part) for one in verdicts]) for part in ("tested", "right", "decidable")
    )
    picks = np.stack([one.pick for one in verdicts])

    def scaled(numbers: dict[str, Estimate]) -> dict[str, dict[str, float]]:
        return {name: {key: factor * value for key, value in one._asdict().items()} for name, one in numbers.items()}

    return {
        "tested": int(tested.sum()),
        "right": int(right.sum()),
        "decidable": int(decided.sum()),
        "right_of_decidable": int((right & decided).sum()),
        "regret": scaled(regrets(verdicts, OPTIONS)),
        "saved_against": scaled(savings(verdicts, OPTIONS)),
        "advised": {
            way: {"times": int((picks == place).sum()), "right": int((right & (picks == place)).sum())}
            for place, way in enumerate(OPTIONS)
        },
        "clients": [
            {
                "loss": {way: factor * first.losses[client, place] for place, way in enumerate(OPTIONS)},
                "test_rows": int(federation.test.counts[client]),
                "right": bool(first.right[client]) if first.tested[client] else None,
                "decidable": bool(first.decidable[client]),
            }
            for client in range(federation.clients)
        ],
    }


def _client_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """advise.parquet: one row per client."""
    rows = []
    for place, entry in enumerate(found["clients"]):
        row = {key: entry[key] for key in ("client", "rows", "advice", "surety", "own_share", "worth")}
        for way in OPTIONS:
            row[f"held_out_{way}"] = entry["loss"][way]
            row |= {f"gain_{way}_{part}": entry["gain"][way][part] for part in ("expected", "low", "high")}
        row |= {f"measured_{name}": value for name, value in entry["measured"].items()}
        row["neighbours"] = ", ".join(f"{one['client']} {one['share']:.3f}" for one in entry["neighbours"])
        row["round_bytes"] = entry["round_bytes"][entry["advice"]]
        if found["verify"] is not None:
            tested = found["verify"]["clients"][place]
            row |= {"test_rows": tested["test_rows"], "right": tested["right"], "decidable": tested["decidable"]}
            row |= {f"test_{way}": tested["loss"][way] for way in OPTIONS}
        rows.append(row)
    return rows
