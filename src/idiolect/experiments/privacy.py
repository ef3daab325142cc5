# SPDX-License-Identifier: Apache-2.0
"""The statement of a run: which arrays left each client, how often, how large, from how many rows, how protected."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from idiolect.accounting.bytes import leaves_of
from idiolect.accounting.ledger import Ledger
from idiolect.collaborate.exchange import Exchange
from idiolect.collaborate.options import Options
from idiolect.core.kinds import Listens, SendsInLegs
from idiolect.data.federation import Federation
from idiolect.data.preparation import WAYS
from idiolect.engines.run import Run
from idiolect.experiments.choice import Tried
from idiolect.experiments.folds import with_validation_rows
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.protection import RowSpending
from idiolect.experiments.ridge import RIDGES
from idiolect.experiments.trained import Trained
from idiolect.record import privacy as record

UNPROTECTED = "none: sent as computed, and the server sees each client's own"
_CONSTANTS = record.Aside("smoothness and convexity of its loss, for step sizes", 3)
_RIDGE = record.Aside(
    "losses on its validation rows, alone and with one model for all, to choose the ridge, and the sums that this one "
    "model is fitted by",
    2 * len(RIDGES),
)


def privacy_statement(prepared: Prepared, trained: list[Trained]) -> record.Statement:
    """Everything that left clients in a run: privacy.json."""
    spec, federation = prepared.spec, prepared.federation
    chosen = [entry for entry in trained if entry.choice is not None]
    also = []
    used = prepared.constants is not None and not spec.privacy.is_on
    if used and any(not entry.method.alone for entry in trained):
        also.append(_CONSTANTS)
    if chosen:
        also.append(record.Aside("scores on its validation rows, to choose settings and rounds", len(prepared.scores)))
    fitted = with_validation_rows(federation) if spec.tuning.refit else federation
    return _statement(federation, also, _likeness(prepared, chosen), [_trained(entry, fitted) for entry in trained])


def _likeness(prepared: Prepared, chosen: list[Trained]) -> record.LikenessSent | None:
    """What finding out who is alike sent, where that is found and not given."""
    found = prepared.collaboration
    if found is None or found.exchange is None:
        return None
    again = any(isinstance(entry.runs[0].algorithm, Listens) for entry in chosen)
    folds = ", and again for each fold of a choice" if again else ""
    return _exchange(f"who is alike, by {prepared.spec.collaboration.source}{folds}", found.exchange)


def dial_statement(
    federation: Federation, label: str, setting: str, tried: Sequence[Tried], ridge_chosen: bool
) -> record.Statement:
    """The same of a dial: every value is a fit of its own, which begins where the one before ended."""
    methods = [_method(f"{label}, {setting} {one.value}", one.runs, one.cost, federation) for one in tried]
    scores = record.Aside("scores on its validation rows, where it does not choose its value itself", len(tried))
    also = [_CONSTANTS, scores]
    return _statement(federation, [*also, _RIDGE] if ridge_chosen else also, None, methods)


def advice_statement(federation: Federation, options: Options, splits: int, verified: bool) -> record.Statement:
    """The same of advice: sums over folds, models and judgements; no method is trained in rounds."""
    also = [
        record.Aside("sums of gradients and Hessians over all of its rows, at each step to the model of all clients"),
        record.Aside("mean losses of its rows, alone and with all clients, to choose the penalties"),
        record.Aside("its mean gains and their covariance, to draw gains toward those of other clients", 5),
    ]
    if options.all_pairs:
        also.append(record.Aside("curvature, gradient noise and distance from the common optimum, for the regime"))
    if verified:
        also.append(
            record.Aside("gradients to fit the models of all clients and of neighbours, and losses on test rows")
        )
    if splits > 1:
        also.append(record.Aside("all of this once more for each further split", times=splits - 1))
    return _statement(federation, also, _exchange("advice, by models", options.neighbours.exchange), [])


def _statement(
    federation: Federation,
    also: list[record.Aside],
    exchange: record.LikenessSent | None,
    methods: list[record.MethodSent],
) -> record.Statement:
    prepared, sent = federation.preparation, None
    if prepared is not None:
        columns = tuple(
            record.PreparedColumn(part.column, part.content, (int(each.min()), int(each.max())), part.download_bytes)
            for part in prepared.sent
            for each in [part.upload_bytes]
        )
        least = _fewest(prepared.rows, federation.names)
        words = WAYS[prepared.way]
        sent = record.PreparationSent(prepared.way, words, columns, prepared.total_bytes, least, UNPROTECTED)
    return record.Statement(sent, tuple(also), exchange, tuple(methods))


def _fewest(rows: np.ndarray, names: tuple[str, ...]) -> record.FewestRows:
    least = int(rows.argmin())
    return record.FewestRows(int(rows[least]), names[least])


def _exchange(what: str, found: Exchange) -> record.LikenessSent:
    arrays = [
        record.Array(one.what, one.shape, "float32", one.bytes, one.uploads, one.downloads) for one in found.parcels
    ]
    sent = (found.upload_bytes, found.download_bytes)
    return record.LikenessSent(what, tuple(arrays), *sent, found.rows, found.reveals, UNPROTECTED)


def _trained(entry: Trained, fitted: Federation) -> record.MethodSent:
    run, choice = entry.runs[0], entry.choice
    sent = _method(entry.method.label, entry.runs, run.ledger, fitted)
    protection, epsilons = sent.protection, sent.epsilons
    if protection == UNPROTECTED:
        protection = "; ".join(entry.built.protected) or UNPROTECTED
    elif choice is not None and not choice.common:
        # training alone sends no model; where clients do not choose for themselves, scores choose for all of them
        protection = "nothing is sent but scores on validation rows, to choose"
    if isinstance(entry.built.spending, RowSpending):
        epsilons = entry.built.spending.of_clients(run.ledger.rounds, fitted.names)
    spent = 0 if choice is None else choice.spent
    return dataclasses.replace(sent, rounds_to_choose=spent, protection=protection, epsilons=epsilons)


def _method(label: str, runs: Sequence[Run], ledger: Ledger, federation: Federation) -> record.MethodSent:
    """What training on the rows of `federation` sent, and what it cost; of several seeds the first stands for all."""
    run, least = runs[0], _fewest(federation.train.counts, federation.names)
    wire = run.plan.wire
    # rows that one upload is computed from: a batch per step, or all of the client's
    batch, epochs, steps = (getattr(run.algorithm, name, None) for name in ("batch_size", "epochs", "local_steps"))
    rows = least.rows if not batch or epochs else min(least.rows, int(batch) * int(np.max(steps or 1)))
    sent = ledger.upload_bytes + ledger.download_bytes + ledger.delivery_bytes > 0
    return record.MethodSent(
        method=label,
        uploads=_legs(run, up=True) or _arrays(wire.upload, ledger.upload_bytes),
        downloads=_arrays(wire.sent, ledger.download_bytes) + _legs(run, up=False),
        deliveries=_arrays(wire.delivered, ledger.delivery_bytes),
        rounds=ledger.rounds,
        rounds_to_choose=0,
        seeds=len(runs),
        uploads_in_all=ledger.messages_up if ledger.upload_bytes else 0,
        upload_bytes=ledger.upload_bytes,
        rows_at_least=dataclasses.replace(least, rows=rows),
        protection=UNPROTECTED if sent else "nothing is sent",
    )


def _legs(run: Run, up: bool) -> tuple[record.Array, ...]:
    """What a protocol around the upload sends in its place, in bytes; nothing where there is none."""
    reduction = run.algorithm.reduction
    if not isinstance(reduction, SendsInLegs):
        return ()
    legs = reduction.legs(run.plan.wire.upload, run.plan.participations[0].cohort)
    return tuple(record.Array(leg.what, (leg.bytes,), "uint8", leg.bytes) for leg in legs if leg.up is up)


def _arrays(tree: object, sent: int) -> tuple[record.Array, ...]:
    """Every array of a wire type; none where not a byte of it was sent."""
    leaves = leaves_of(tree) if sent else ()
    return tuple(record.Array(leaf.path, leaf.shape, leaf.dtype, leaf.bytes) for leaf in leaves)
