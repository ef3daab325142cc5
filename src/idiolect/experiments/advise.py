# SPDX-License-Identifier: Apache-2.0
"""Advice on the user's own table: for every client train alone, join all clients, or join these neighbours.

Test rows are never read unless the advice is verified: training and validation rows together are dealt to folds, and
everything - penalties, weights, gains - is chosen on rows that the models in question have not seen.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from idiolect.collaborate import options as trying
from idiolect.collaborate.advice import advise
from idiolect.collaborate.many import BLOCK
from idiolect.collaborate.options import OPTIONS, fit_options, try_options
from idiolect.collaborate.quadratic import Sample, fold_rows, make_sample, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.collaborate.verdict import Verdict, judge
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.experiments.advise_record import Trial, client_rows, make_record, make_verdict, regime, shortened
from idiolect.experiments.collaboration import plain_loss
from idiolect.experiments.execute import Say
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.privacy import advice_statement
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.sources import build_data, refuse_weights
from idiolect.experiments.spec import DataSpec
from idiolect.experiments.strict import fill, refuse_unknown
from idiolect.experiments.work import Progress
from idiolect.record.advice import Advice

if TYPE_CHECKING:
    import pyarrow as pa


FOLDS = 5


def advise_on(
    spec: Mapping[str, Any],
    path: Path,
    *,
    name: str,
    verify: bool = False,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
    rows: pa.Table | None = None,
) -> Advice:
    """Measure, advise, verify if asked; leave a folder with advise.json, advise.parquet and what is needed to draw.

    `spec` holds a [data] table. The first seed's split is advised on; verification averages over all of them. Without
    `seeds` the split is that of data.seed, the very one that `compare` trains on. `rows` is a table that is in memory.
    """
    folder = RunFolder(path, "advise")
    folder.check(resume=False)
    refuse_unknown(spec, ("data",), "advise")
    splits = choose_splits(spec["data"], seeds, verify)
    report = progress or (lambda label, done, total: None)
    tell = say or (lambda text: None)
    began = time.perf_counter()
    trial = _measure(spec["data"], splits[0], verify, tell, report, rows)
    facts = regime(trial)
    seconds, verdict = {"advice": time.perf_counter() - began}, None
    if verify:
        began = time.perf_counter()
        # the first split is the one that was advised on; the others measure and advise anew, each on its own rows
        verdicts = [_judge(trial, splits[0])]
        for seed in splits[1:]:
            verdicts.append(_judge(_measure(spec["data"], seed, verify, lambda text: None, report, rows), seed))
            report("splits", len(verdicts), len(splits))
        verdict = make_verdict(verdicts, trial.federation, splits)
        seconds["verify"] = time.perf_counter() - began
    found = dataclasses.replace(make_record(name, trial), seed=splits[0], regime=facts, verify=verdict, seconds=seconds)
    with folder.open(resume=False, request={"command": "advise"}):
        used = {"name": name, "data": {**spec["data"], "seed": splits[0]}, "seeds": splits, "verify": verify}
        folder.write_text("spec.toml", tomli_w.dumps(used))
        folder.write_table("advise.parquet", client_rows(found))
        statement = advice_statement(trial.federation, trial.options, len(splits), verify)
        folder.complete("advise.json", shortened(found), statement)
    return found


def choose_splits(data: Mapping[str, Any], seeds: Sequence[int] | None, verify: bool) -> list[int]:
    """The seeds of the splits: those given, or data.seed; RequestError where the two contradict each other."""
    asked = data.get("seed")
    if seeds is None:
        return [0 if asked is None else int(asked)]
    if asked is not None and int(asked) != seeds[0]:
        raise RequestError(
            f"--seeds begins with the split {seeds[0]}, --seed (data.seed) asks for {asked}; give one of them."
        )
    if len(seeds) > 1 and not verify:
        raise RequestError(
            f"--seeds names {len(seeds)} splits, and without --verify only one is looked at; add --verify, or give one."
        )
    return [int(seed) for seed in seeds]


def _measure(
    data: Mapping[str, Any], seed: int, verify: bool, tell: Say, report: Progress, table: pa.Table | None
) -> Trial:
    """Split by the seed, try the three ways on held-out rows, advise."""
    asked = fill(DataSpec, {**data, "seed": seed}, "data")
    refuse_weights(asked, "advise")
    federation, _ = build_data(asked, "float64", table)
    _check(federation, verify)
    federation, copies = align_copies(federation)
    loss, learning = plain_loss(federation), with_validation_rows(federation)
    blocks = None if learning.groups is None else learning.groups[0]
    sample = make_sample(loss, learning.train, FOLDS, seed, blocks, least=fold_rows(loss))
    notes = (*federation.describe(), *federation.notes, *copies, *_remarks(sample, federation))
    for text in (*notes, *(f"Warning: {text}" for text in federation.warnings)):
        tell(text)
    with one_thread():
        options = try_options(sample, least=fold_rows(loss), report=report)
    return Trial(federation, learning.train, sample, options, advise(sample, options.losses), notes)


def _check(federation: Federation, verify: bool) -> None:
    if federation.clients < 2:
        raise RequestError(
            f"advise compares clients, and there is {federation.clients}; name a --client column of at least 2 values."
        )
    if federation.train.inputs.dtype.kind != "f":
        raise RequestError("advise needs numeric inputs or a table; this data set holds tokens: choose another.")
    if verify and federation.test.counts.sum() == 0:
        raise RequestError(
            "--verify needs test rows, and no client has one; give more with --set 'data.test = 0.2', or bring more "
            "rows per client."
        )


def _remarks(sample: Sample, federation: Federation) -> list[str]:
    """Sentences about clients that need a default, and which one they get."""
    counts, least, single = sample.counts, fold_rows(sample.loss), np.zeros(sample.agents, bool)
    if federation.task.kind == "classification":
        labels = sample.goals if sample.goals.shape[1] > 1 else np.hstack([1 - sample.goals, sample.goals])
        single = (sample.sums(labels) > 0).sum(axis=1) == 1
    remarks = []
    if sample.agents > trying.MOST_PAIRS:
        remarks.append(
            f"{sample.agents:,} clients are too many to judge every pair (more than {trying.MOST_PAIRS}): like clients "
            f"were sorted into blocks of at most {BLOCK}, and neighbours looked for inside them. Training alone and "
            "joining all are judged for every client as usual."
        )
    found = {
        f"fewer rows than the model has coefficients ({sample.size}); alone they rely on the penalty, which was chosen "
        "on held-out rows.": counts < sample.size,
        "one class only; a small penalty on the bias keeps their own model from being infinitely sure.": single,
        f"fewer than {least} rows to learn from, so that sums would give rows away: they send nothing, others learn "
        "without them, and they judge what is learnt.": counts < least,
        "a single row to learn from: advice for them is what clients of their size gain.": counts < 2,
    }
    for what, places in found.items():
        names = [repr(federation.names[client]) for client in np.flatnonzero(places)]
        if names:
            kind, have = ("Client", "has") if len(names) == 1 else ("Clients", "have")
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            remarks.append(f"{kind} {', '.join(names[:3])}{more} {have} {what}")
    return remarks


def _judge(trial: Trial, seed: int) -> Verdict:
    """Train all three ways on every row that is not a test row; read the test rows once."""
    with one_thread():
        models = fit_options(trial.sample, trial.options)
    groups = None if trial.federation.groups is None else trial.federation.groups[2]
    test = make_sample(trial.sample.loss, trial.federation.test, 2, seed, groups)
    losses = np.stack([score_own(test, models[way]) for way in OPTIONS], axis=1)
    return judge(test, losses, trial.advice.pick)


NAMED = 5  # sentences about copies


def align_copies(federation: Federation) -> tuple[Federation, list[str]]:
    """The federation with every copy's rows split like its original's, and the sentences that say so."""
    originals = _originals(federation)
    copies = [client for client, first in enumerate(originals) if first != client]
    if not copies:
        return federation, []
    order = np.array(originals)
    parts = {name: getattr(federation, name).select(order) for name in ("train", "validation", "test")}
    groups = None
    if federation.groups is not None:
        first, second, third = (
            Rows(numbers, numbers, getattr(federation, name).offsets).select(order).targets
            for name, numbers in zip(parts, federation.groups)
        )
        groups = first, second, third
    names = federation.names
    notes = [
        f"Clients {names[originals[copy]]!r} and {names[copy]!r} hold the same rows; their rows are split alike, so "
        "that neither is judged on what the other has learnt by heart."
        for copy in copies[:NAMED]
    ]
    if len(copies) > NAMED:
        notes.append(f"{len(copies) - NAMED} more clients are copies of others.")
    # a copy's rows are now its original's: where they came from in the source is no longer known
    return dataclasses.replace(federation, groups=groups, places=None, **parts), notes


def _originals(federation: Federation) -> list[int]:
    """For every client the first one with the same rows in any order; rows that repeat themselves prove no copy."""
    seen: dict[bytes, int] = {}
    found = []
    every = (federation.train, federation.validation, federation.test)
    for client in range(federation.clients):
        whole = np.concatenate([_columns(part, client) for part in every])
        ordered = whole[np.lexsort(whole.T[::-1])]
        distinct = 1 + int((np.diff(ordered, axis=0) != 0).any(axis=1).sum())
        content = ordered.tobytes() if 2 * distinct > len(ordered) > 1 else f"client {client}".encode()
        found.append(seen.setdefault(content, client))
    return found


def _columns(rows: Rows, client: int) -> np.ndarray:
    """All that is known of a client's rows, one of them per line."""
    inputs, targets = rows.of(client)
    weights = () if rows.weights is None else (rows.weights[rows.offsets[client] : rows.offsets[client + 1]],)
    # not -1: a client may have no row
    flat = (np.reshape(part, (len(part), int(np.prod(part.shape[1:])))) for part in (targets, inputs, *weights))
    return np.hstack([np.asarray(part, np.float64) for part in flat])
