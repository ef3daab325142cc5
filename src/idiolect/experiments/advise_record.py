# SPDX-License-Identifier: Apache-2.0
"""What `advise` leaves behind: advise.json and the rows of advise.parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect.collaborate.advice import Advice
from idiolect.collaborate.blocks import Neighbourhoods
from idiolect.collaborate.map import SMALLEST_SHARE, collaboration_map
from idiolect.collaborate.options import OPTIONS, Options
from idiolect.collaborate.quadratic import Sample
from idiolect.collaborate.verdict import Estimate, Verdict, regrets, savings
from idiolect.core.data import Rows
from idiolect.core.order import natural_order
from idiolect.data.federation import Federation
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.spec import ModelSpec
from idiolect.experiments.trained import unit
from idiolect.record import advice as record
from idiolect.theory import client_constants, client_heterogeneity, gradient_noise, shared_optimum

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

    def scaled(numbers: dict[str, Estimate]) -> dict[str, record.Estimate]:
        return {name: record.Estimate(*(factor * value for value in one)) for name, one in numbers.items()}

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
