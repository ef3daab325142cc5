# SPDX-License-Identifier: Apache-2.0
"""From a table to a federation: choose columns, drop unusable rows, split, fit and apply preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.columns import as_labels, is_text
from idiolect.data.federation import Federation, assemble
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.split import TRAIN, HeldOut, Split, plan
from idiolect.data.tables import read_table, require_columns
from idiolect.data.task import check_kind, encode_labels, infer_kind

if TYPE_CHECKING:
    import pyarrow as pa


def federation_from_table(
    cls: type[Federation],
    source: Any,
    client: str,
    target: str | Sequence[str],
    features: Sequence[str] | None,
    task: str | None,
    split: Split,
    held_out: HeldOut,
    seed: int,
    scaling: str,
    target_scaling: str,
    dtype: Any,
) -> Federation:
    """What `Federation.from_table` documents."""
    check_kind(task)
    split.check()
    table = read_table(source)
    targets = (target,) if isinstance(target, str) else tuple(target)
    chosen = _choose_features(table, client, targets, features, split)
    total = table.num_rows
    table, kept, notes = _drop_incomplete(table, client, targets, split)
    names, owner = encode_labels(as_labels(table.column(client)))
    groups = None if split.group_column is None else as_labels(table.column(split.group_column))
    planned = plan(
        owner,
        names,
        split,
        seed,
        held_out,
        groups=groups,
        given=None if split.split_column is None else as_labels(table.column(split.split_column)),
    )
    if task is None:
        task, reason = _infer(table, targets)
        notes.append(reason)
    fitted = Preprocessing.fit(
        table,
        features=chosen,
        target=targets,
        kind=task,
        training=(planned.parts == TRAIN) & ~planned.held_out[owner],
        scaling=scaling,
        target_scaling=target_scaling,
    )
    inputs, values = fitted.apply(table, dtype), fitted.apply_targets(table, dtype)
    said = (*notes, *fitted.notes)
    return assemble(cls, inputs, values, owner, names, fitted.task, planned, said, fitted, groups, kept, total)


def _choose_features(
    table: pa.Table, client: str, targets: tuple[str, ...], features: Sequence[str] | None, split: Split
) -> list[str]:
    """The feature columns: those named, or all that have no other role."""
    require_columns(table, [client], "client")
    require_columns(table, targets, "target")
    roles = {client, *targets}
    for word, name in (("split", split.split_column), ("group", split.group_column)):
        if name is not None:
            require_columns(table, [name], word)
            roles.add(name)
    if features is None:
        chosen = [name for name in table.column_names if name not in roles]
    else:
        chosen = list(features)
        require_columns(table, chosen, "feature")
        taken = roles.intersection(chosen)
        if taken:
            raise RequestError(f"Column {sorted(taken)[0]!r} already has another role; take it out of features.")
    if not chosen:
        raise RequestError("No column is left to be a feature; the table needs more than client and target.")
    return chosen


def _drop_incomplete(
    table: pa.Table, client: str, targets: tuple[str, ...], split: Split
) -> tuple[pa.Table, np.ndarray, list[str]]:
    """Without the rows that miss their client, target, group or part, which rows are left, and what to say."""
    import pyarrow.compute as pc

    notes, kept = [], np.arange(table.num_rows)
    for name in (client, *targets, split.split_column, split.group_column):
        if name is None:
            continue
        missing = pc.is_null(table.column(name), nan_is_null=True)
        amount = pc.sum(missing).as_py() or 0
        if amount:
            present = pc.invert(missing)
            table, kept = table.filter(present), kept[present.to_numpy()]
            notes.append(f"{amount} rows without a value in {name!r} were dropped.")
    if table.num_rows == 0:
        raise RequestError("No row has both a client and a target; fill these columns.")
    return table, kept, notes


def _infer(table: pa.Table, targets: tuple[str, ...]) -> tuple[str, str]:
    if len(targets) > 1:
        return infer_kind(np.zeros((1, len(targets))))
    column = table.column(targets[0])
    return infer_kind(np.empty(0, str) if is_text(column) else as_labels(column))
