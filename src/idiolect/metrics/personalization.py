# SPDX-License-Identifier: Apache-2.0
"""The generalized and the personalized accuracy of one method, on one definition for all (paper 003).

Acc_g is the accuracy of the model that a client receives, before its rows have moved a parameter; Acc_p that of the
model it predicts with. Both are means over clients, each on its own held-back rows. With s_m the shares of client m's
rows by who is right: Acc_g = mean_m (both + shared only), Acc_p = mean_m (both + personal only).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.metrics.instances import Breakdown
from idiolect.metrics.scores import correct_positions, mean_of_rows
from idiolect.metrics.summary import summarise

_NAN = float("nan")
_TIE = 1e-6  # float32 shares of sequences: the same number of positions right in other rows is a tie


class Personalization(NamedTuple):
    """One method's clients; what compares with a received model is not-a-number where none is received."""

    acc_g: float  # mean over clients of the received model's accuracy
    acc_p: float  # mean over clients of the personal model's accuracy
    helped: float  # percent of clients whose personal model is strictly better than the received one
    hurt: float  # percent: strictly worse
    same: float
    breakdown: Breakdown  # mean over clients of their shares of rows; sums to 1
    deciles_g: tuple[float, ...]  # p10, p20, .. p90 over clients
    deciles_p: tuple[float, ...]
    worst_tenth_g: float  # mean over the worst tenth of clients, at least one of them
    worst_tenth_p: float
    clients: int  # clients that have a row
    missing: int  # clients that have none

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what there is not."""
        return {name: _plain(value) for name, value in self._asdict().items()}


def personalization_metrics(shared: Any | None, personal: Any, targets: Any, mask: Any) -> Personalization:
    """From both models' answers to the same rows: (clients, rows, classes), or (clients, rows, time, classes).

    `shared` is None where a client receives no whole model. `targets` are class numbers (clients, rows) or (clients,
    rows, time), a negative one being none; `mask` is (clients, rows).
    """
    if np.ndim(mask) != 2 or np.shape(targets)[:2] != np.shape(mask):
        raise RequestError(
            f"personalization_metrics needs targets and a mask of the same clients and rows, got shapes "
            f"{np.shape(targets)} and {np.shape(mask)}. Stack the clients, padded to the same number of rows."
        )
    answers = (personal if shared is None else shared, personal, targets, mask)
    shares = _SHARES(*(jnp.asarray(part) for part in answers))
    return personalization_of(Breakdown(*(np.asarray(part, float) for part in shares)), shared is not None)


def personalization_of(shares: Breakdown, receives: bool = True) -> Personalization:
    """From each client's shares of rows, as `row_shares` gives them, one entry per client.

    Without a received model (`receives` false) only `both` + `personal_only`, the personal accuracy, is read.
    """
    both, shared_only, personal_only, neither = (np.asarray(part, float) for part in shares)
    acc_p = summarise(both + personal_only, higher_is_better=True)
    if not receives or not acc_p.clients:
        nothing = (_NAN,) * 9
        counts = (acc_p.clients, acc_p.missing)
        no_rows = Breakdown(_NAN, _NAN, _NAN, _NAN)
        shown = (no_rows, nothing, _deciles(both + personal_only), _NAN, acc_p.worst_decile)
        return Personalization(_NAN, acc_p.mean, _NAN, _NAN, _NAN, *shown, *counts)
    acc_g = summarise(both + shared_only, higher_is_better=True)
    gain = (personal_only - shared_only)[~np.isnan(both)]
    helped, hurt = (100.0 * float(np.mean(sign * gain > _TIE)) for sign in (1, -1))
    return Personalization(
        acc_g.mean,
        acc_p.mean,
        helped,
        hurt,
        100.0 - helped - hurt,
        Breakdown(*(float(np.nanmean(part)) for part in (both, shared_only, personal_only, neither))),
        _deciles(both + shared_only),
        _deciles(both + personal_only),
        acc_g.worst_decile,
        acc_p.worst_decile,
        acc_p.clients,
        acc_p.missing,
    )


def row_shares(shared: Array, personal: Array, targets: Array, mask: Array) -> Breakdown:
    """ONE client's shares of rows by which of two answers is right; not-a-number without a row. `vmap` it.

    Of a sequence each position is an instance, and the row counts as the mean of its positions, as in `accuracy`.
    """
    ours, theirs = (correct_positions(outputs, targets, mask) for outputs in (shared, personal))
    kinds = (ours & theirs, ours & ~theirs, ~ours & theirs)
    both, shared_only, personal_only = (mean_of_rows(kind, targets, mask) for kind in kinds)
    return Breakdown(both, shared_only, personal_only, jnp.maximum(1 - both - shared_only - personal_only, 0))


_SHARES = jax.jit(jax.vmap(row_shares))


def _deciles(values: np.ndarray) -> tuple[float, ...]:
    present = np.sort(values[~np.isnan(values)])
    if not present.size:
        return (_NAN,) * 9
    return tuple(float(value) for value in np.percentile(present, range(10, 100, 10)))


def _plain(value: Any) -> Any:
    if isinstance(value, Breakdown):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return None if np.isnan(value) else value
