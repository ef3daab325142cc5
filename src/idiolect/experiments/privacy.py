# SPDX-License-Identifier: Apache-2.0
"""The statement of a run: which arrays left each client, how often, how large, from how many rows, how protected."""

from __future__ import annotations

from typing import Any

import numpy as np

from idiolect.accounting.bytes import Leaf, leaves_of
from idiolect.data.federation import Federation
from idiolect.data.preparation import WAYS, Preparation
from idiolect.engines.billing import delivers, sends
from idiolect.engines.run import Run
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.refit import with_validation_rows
from idiolect.experiments.trained import Trained

UNPROTECTED = "none: sent as computed, and the server sees each client's own"


def privacy_statement(prepared: Prepared, trained: list[Trained]) -> dict[str, Any]:
    """Everything that left clients in a run, as plain values for privacy.json."""
    federation = prepared.federation
    fitted = with_validation_rows(federation) if prepared.spec.tuning.refit else federation
    return {
        "schema": 1,
        "preparation": _preparation(federation.preparation, federation.names),
        "also": _also(prepared, trained),
        "methods": [_method(entry, fitted) for entry in trained],
    }


def _preparation(preparation: Preparation | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    if preparation is None:
        return None
    least = int(preparation.rows.argmin())
    return {
        "way": preparation.way,
        "meaning": WAYS[preparation.way],
        "columns": [
            {
                "column": part.column,
                "content": part.content,
                "upload_bytes": [int(part.upload_bytes.min()), int(part.upload_bytes.max())],
                "download_bytes": part.download_bytes,
            }
            for part in preparation.sent
        ],
        "total_bytes": preparation.total_bytes,
        "rows_at_least": {"rows": int(preparation.rows[least]), "client": names[least]},
        "protection": UNPROTECTED,
    }


def _also(prepared: Prepared, trained: list[Trained]) -> list[dict[str, Any]]:
    """What is sent beside preparation and rounds: constants, scores on validation rows, who is alike."""
    found = []
    if prepared.constants is not None:
        found.append({"what": "smoothness and convexity of its loss, for step sizes", "numbers": 3, "times": 1})
    if any(entry.choice is not None for entry in trained):
        scores = len(prepared.scores)
        found.append({"what": "scores on its validation rows, to choose settings and rounds", "numbers": scores})
    collaboration = prepared.spec.collaboration
    if prepared.collaboration is not None and collaboration.source is not None:
        found.append({"what": f"who is alike, by {collaboration.source} (docs/collaboration.md says what is sent)"})
    return found


def _method(entry: Trained, fitted: Federation) -> dict[str, Any]:
    run = entry.runs[0]
    silent = not sends(run.algorithm)
    wire = run.session.wire
    least = int(fitted.train.counts.argmin())
    rows = _rows_of_an_upload(run, int(fitted.train.counts[least]))
    return {
        "method": entry.method.label,
        "uploads": [] if silent else list(map(_array, leaves_of(wire.upload))),
        "downloads": [] if silent else list(map(_array, leaves_of(wire.sent))),
        "deliveries": [] if not delivers(run.algorithm) else list(map(_array, leaves_of(wire.delivered))),
        "rounds": run.ledger.rounds,
        "rounds_to_choose": 0 if entry.choice is None else entry.choice.spent,
        "uploads_in_all": run.ledger.messages_up,
        "upload_bytes": run.ledger.upload_bytes,
        "rows_at_least": {"rows": rows, "client": fitted.names[least]},
        "protection": UNPROTECTED if not silent else _silence(entry),
    }


def _silence(entry: Trained) -> str:
    """Training alone sends no model; where clients do not choose for themselves, scores choose for all of them."""
    chosen_alike = entry.choice is not None and not entry.choice.common
    return "nothing is sent but scores on validation rows, to choose" if chosen_alike else "nothing is sent"


def _array(leaf: Leaf) -> dict[str, Any]:
    return {"array": leaf.path, "shape": list(leaf.shape), "dtype": leaf.dtype, "bytes": leaf.bytes}


def _rows_of_an_upload(run: Run, rows: int) -> int:
    """Rows that one upload of a client with so many rows is computed from: a batch per step, or all of them."""
    batch, epochs, steps = (getattr(run.algorithm, name, None) for name in ("batch_size", "epochs", "local_steps"))
    return rows if not batch or epochs else min(rows, int(batch) * int(np.max(steps or 1)))
