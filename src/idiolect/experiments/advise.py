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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tomli_w

from idiolect.collaborate import options as trying
from idiolect.collaborate.advice import Advice, advise
from idiolect.collaborate.blocks import Neighbourhoods
from idiolect.collaborate.many import BLOCK
from idiolect.collaborate.map import SMALLEST_SHARE, collaboration_map
from idiolect.collaborate.options import OPTIONS, Options, fit_options, try_options
from idiolect.collaborate.quadratic import Sample, fold_rows, make_sample, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.collaborate.verdict import Estimate, Verdict, judge, regrets, savings
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.core.order import natural_order
from idiolect.data.federation import Federation
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.collaboration import plain_loss
from idiolect.experiments.execute import Say
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.privacy import advice_statement
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.sources import build_data, refuse_weights
from idiolect.experiments.spec import DataSpec, ModelSpec
from idiolect.experiments.strict import fill, refuse_unknown
from idiolect.experiments.units import unit
from idiolect.experiments.work import Progress
from idiolect.record import advice as record
from idiolect.record import schema
from idiolect.theory import client_constants, client_heterogeneity, gradient_noise, shared_optimum

if TYPE_CHECKING:
    import pyarrow as pa

FOLDS = 5
NAMED = 5  # sentences about copies
MOST_LISTED = 2_000  # clients in advise.json; all of them are in advise.parquet
MOST_NEIGHBOURS = 20  # of a client, in either file
SURE = 0.9  # probability from which advice is given without reservation


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
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
    rows: pa.Table | None = None,
) -> record.Advice:
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


def make_record(name: str, trial: Trial) -> record.Advice:
    """advise.json, but for what is verified; "clients" holds all of them."""
    federation, _, sample, options, advice, notes = trial
    score, factor = score_unit(federation)
    own = factor * sample.means(options.losses)
    clients = tuple(_clients(trial, own, factor))
    taken = advice.expected[np.arange(sample.agents), advice.pick] * factor
    return record.Advice(
        name=name,
        score=score,
        task=federation.task.kind,
        model=sample.loss.criterion,
        coefficients=sample.size,
        folds=sample.folds,
        penalties=dict(options.penalties),
        mixture=dict(options.mixture),
        held_out={way: factor * value for way, value in options.held_out.items()},
        all_clients=sample.agents,
        rows=_spread(sample.counts),
        picks=dict(zip(OPTIONS, np.bincount(advice.pick, minlength=len(OPTIONS)).tolist())),
        unsure=sum(entry.is_unsure(SURE) for entry in clients),
        sure=SURE,
        mean_loss=_by_way([column.mean() for column in own.T]),
        mean_gain=float(taken.mean()),
        clients=clients,
        order=tuple(natural_order(federation.names)),
        notes=notes,
        warnings=tuple(federation.warnings),
        map=_map(sample, options),
        blocks=None if options.all_pairs else tuple(len(members) for members in options.neighbours.blocks),
        exchange=record.Exchange(**options.neighbours.exchange.to_dict()),
    )


def score_unit(federation: Federation) -> tuple[str, float]:
    """What losses are called for a reader, and the factor that takes them there: (1/2) squares become squares."""
    if federation.task.kind == "regression":
        return "squared_error", 2 * unit("squared_error", federation)
    return "log_loss", 1.0


def regime(trial: Trial) -> dict[str, Any]:
    """Which regime are we in: zeta*, sigma, kappa, B and what they rest on (PLSGD 2023), on the clients' own rows.

    Nothing where clients are so many that only blocks of them were compared.
    """
    federation, rows = trial.federation, trial.rows
    if not trial.options.all_pairs:
        return {}
    l2 = trial.options.penalties["alone"] / max(float(np.mean(trial.sample.counts)), 1.0)  # makes optima unique
    spec = ModelSpec(loss="logistic" if len(federation.task.classes) == 2 else "cross_entropy", l2=l2)
    loss = build_client_loss(spec, federation, None)
    constants, measured = client_constants(loss, rows), client_heterogeneity(loss, rows)
    shared = shared_optimum(loss, rows)
    if constants is None or measured is None or shared is None:
        return {}
    noise = gradient_noise(loss, rows, shared, stacked=False)
    assert noise is not None
    return {
        "zeta": measured.zeta,
        "sigma": float(np.sqrt(noise.mean())),
        "kappa": measured.condition_number,
        "radius": measured.radius,
        "smoothness": constants.smoothness,
        "strong_convexity": constants.strong_convexity,
        "optimum_spread": measured.optimum_spread,
        "value_gap": measured.value_gap,
        "gradient_dissimilarity": measured.gradient_dissimilarity,
        "l2": l2,
        "rows": dataclasses.asdict(_spread(rows.counts)),
        "label_skew": federation.label_skew(),
    }


def effective_rows(lists: Neighbourhoods, counts: np.ndarray) -> np.ndarray:
    """N_i = (1/n_i) / sum_j lambda_ij^2 / n_j: how many times its own rows a client's weighted rows are worth."""
    rows = np.maximum(counts, 1).astype(float)
    pairs = zip(lists.members, lists.shares)
    totals = [float((shares.astype(float) ** 2 / rows[there]).sum()) for there, shares in pairs]
    return (1 / rows) / np.maximum(totals, 1e-300)


def _by_way(values: Sequence[float] | np.ndarray) -> record.Ways[Any]:
    return {way: float(value) for way, value in zip(OPTIONS, values)}


def _spread(counts: np.ndarray) -> record.RowCounts:
    return record.RowCounts(int(counts.min()), float(np.median(counts)), int(counts.max()))


def _map(sample: Sample, options: Options) -> record.CollaborationMap | None:
    """The matrix of weights and where a drawing puts the clients; None where only blocks were looked into."""
    if not options.all_pairs:
        return None
    found = collaboration_map(options.neighbours.dense(), sample.counts)
    shares, places = (tuple(map(tuple, matrix.tolist())) for matrix in (found.shares, found.places))
    return record.CollaborationMap(shares, tuple(found.order.tolist()), places, found.speed_up, found.sample_saving)


def _clients(trial: Trial, own: np.ndarray, factor: float) -> list[record.ClientAdvice]:
    federation, sample, advice, lists = trial.federation, trial.sample, trial.advice, trial.options.neighbours
    names, worth, model_bytes = federation.names, effective_rows(lists, sample.counts), 4 * sample.size
    block = np.zeros(sample.agents, int)
    for number, members in enumerate(lists.blocks):
        block[members] = number
    gains = factor * np.stack([advice.measured, advice.expected, advice.low, advice.high], axis=-1)
    clients = []
    for client, label in enumerate(names):
        own_share, named, listening = _neighbours(lists, client, names)
        pick = int(advice.pick[client])
        over = (own[client, :2] - own[client, pick]).tolist()
        clients.append(
            record.ClientAdvice(
                client=label,
                rows=int(sample.counts[client]),
                advice=OPTIONS[pick],
                surety=float(advice.chance[client]),
                loss=_by_way(own[client]),
                gain={way: record.ExpectedGain(*each.tolist()) for way, each in zip(OPTIONS, gains[client])},
                own_share=own_share,
                neighbours=named,
                block=int(block[client]),
                worth=float(worth[client]),
                all_for_one=float(sample.agents / worth[client]),
                measured={f"over_{way}": loss for way, loss in zip(OPTIONS, over)},
                round_bytes={
                    "alone": 0,
                    "everybody": 2 * model_bytes,
                    "neighbours": 2 * model_bytes,
                    "neighbours, peer to peer": 2 * model_bytes * listening,
                },
            )
        )
    return clients


def _neighbours(
    lists: Neighbourhoods, client: int, names: tuple[str, ...]
) -> tuple[float, tuple[record.Neighbour, ...], int]:
    """A client's own weight, the largest of its neighbours' by name, and how many count."""
    members, shares = lists.members[client], lists.shares[client]
    order = np.argsort(-shares, kind="stable")
    counted = [place for place in order if members[place] != client and shares[place] >= SMALLEST_SHARE]
    named = tuple(record.Neighbour(names[members[place]], float(shares[place])) for place in counted[:MOST_NEIGHBOURS])
    return float(shares[members == client].sum()), named, len(counted)


def make_verdict(verdicts: list[Verdict], federation: Federation, seeds: Sequence[int]) -> record.Verification:
    """How good the advice was, over all splits, and client by client on the first one."""
    factor, first = score_unit(federation)[1], verdicts[0]
    tested, right, decided = (
        np.stack([getattr(one, part) for one in verdicts]) for part in ("tested", "right", "decidable")
    )
    picks = np.stack([one.pick for one in verdicts])

    def scaled(numbers: dict[str, Estimate]) -> dict[str, schema.Estimate]:
        return {name: schema.Estimate(*(factor * value for value in one)) for name, one in numbers.items()}

    seen = tested.any(axis=0)  # splits averaged per client first
    means = np.nanmean(np.stack([one.losses for one in verdicts])[:, seen], axis=0).mean(axis=0)
    taken = np.nanmean(np.stack([one.taken for one in verdicts])[:, seen], axis=0).mean()
    return record.Verification(
        tested=int(tested.sum()),
        right=int(right.sum()),
        decidable=int(decided.sum()),
        right_of_decidable=int((right & decided).sum()),
        test_loss={way: factor * float(mean) for way, mean in zip((*OPTIONS, "advice"), (*means, taken))},
        regret=scaled(regrets(verdicts, OPTIONS)),
        saved_against=scaled(savings(verdicts, OPTIONS)),
        advised={
            way: record.Times(int((picks == place).sum()), int((right & (picks == place)).sum()))
            for place, way in enumerate(OPTIONS)
        },
        clients=tuple(
            record.ClientVerdict(
                loss=_by_way(factor * first.losses[client]),
                test_rows=int(federation.test.counts[client]),
                right=bool(first.right[client]) if first.tested[client] else None,
                decidable=bool(first.decidable[client]),
            )
            for client in range(federation.clients)
        ),
        seeds=tuple(seeds),
    )


def client_rows(found: record.Advice) -> list[dict[str, Any]]:
    """advise.parquet: one row per client."""
    rows = []
    for place, entry in enumerate(found.clients):
        names = ("client", "rows", "advice", "surety", "own_share", "worth", "block")
        row: dict[str, Any] = {name: getattr(entry, name) for name in names}
        for way in OPTIONS:
            row[f"held_out_{way}"] = entry.loss[way]
            row |= {f"gain_{way}_{part}": getattr(entry.gain[way], part) for part in ("expected", "low", "high")}
        row |= {f"measured_{name}": value for name, value in entry.measured.items()}
        row["neighbours"] = ", ".join(f"{one.client} {one.share:.3f}" for one in entry.neighbours)
        row["round_bytes"] = entry.round_bytes[entry.advice]
        if found.verify is not None:
            tested = found.verify.clients[place]
            row |= {"test_rows": tested.test_rows, "right": tested.right, "decidable": tested.decidable}
            row |= {f"test_{way}": tested.loss[way] for way in OPTIONS}
        rows.append(row)
    return rows


def shortened(found: record.Advice) -> record.Advice:
    """advise.json with the first clients only, in the natural order of their names, where there are very many."""
    if len(found.clients) <= MOST_LISTED:
        return found
    first, verify = found.order[:MOST_LISTED], found.verify
    if verify is not None:
        verify = dataclasses.replace(verify, clients=tuple(verify.clients[place] for place in first))
    clients = tuple(found.clients[place] for place in first)
    return dataclasses.replace(found, clients=clients, order=tuple(range(MOST_LISTED)), verify=verify)
