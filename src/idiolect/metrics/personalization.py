# SPDX-License-Identifier: Apache-2.0
"""The generalized and the personalized accuracy of one method, on one definition for all (Flow 2023).

Acc_g is the accuracy of the model that a client receives, before its rows have moved a parameter; Acc_p that of the
model it predicts with. Both are means over clients, each on its own held-back rows. With s_m the shares of client m's
rows by who is right: Acc_g = mean_m (both + shared only), Acc_p = mean_m (both + personal only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.metrics.instances import KINDS
from idiolect.metrics.scores import correct_positions, mean_of_rows
from idiolect.metrics.summary import summarise
from idiolect.record.schema import Breakdown, Personalization

_NAN = float("nan")
_TIE = 1e-6  # float32 shares of sequences: the same number of positions right in other rows is a tie


def personalization_metrics(
    shared: ArrayLike | None, personal: ArrayLike, targets: ArrayLike, mask: ArrayLike
) -> Personalization:
    """From both models' answers to the same rows: (clients, rows, classes), or (clients, rows, time, classes).

    `shared` is None where a client receives no whole model. `targets` are class numbers (clients, rows) or (clients,
    rows, time), a negative one being none; `mask` is (clients, rows).
    """
    if np.ndim(mask) != 2 or np.shape(targets)[:2] != np.shape(mask):
        raise RequestError(
            f"personalization_metrics needs targets and a mask of the same clients and rows, got shapes "
            f"{np.shape(targets)} and {np.shape(mask)}. Stack the clients, padded to the same number of rows."
        )
    outputs = {"personal": jnp.asarray(personal)} | ({} if shared is None else {"shared": jnp.asarray(shared)})
    return personalization_of(_SHARES(outputs, jnp.asarray(targets), jnp.asarray(mask)))


def personalization_of(instances: Mapping[str, Any]) -> Personalization:
    """From `instance_shares` of every client: one entry per client and name.

    What compares with a received model is not-a-number where none is received.
    """
    # float32 shares have seven digits; their sums must not have more, or pass 1
    shares = {name: np.round(np.asarray(values, float), 7) for name, values in instances.items()}
    own = shares["personal_only"] + shares.get("both", 0.0)
    acc_p = summarise(own, higher_is_better=True)
    received = "both" in shares and acc_p.clients > 0
    acc_g = summarise(shares["both"] + shares["shared_only"] if received else own + _NAN, higher_is_better=True)
    helped, hurt, same, means = _NAN, _NAN, _NAN, [_NAN] * len(KINDS)
    if received:
        known = ~np.isnan(own)
        gain = (shares["personal_only"] - shares["shared_only"])[known]
        verdicts = (gain > _TIE, gain < -_TIE, np.abs(gain) <= _TIE)
        helped, hurt, same = (100.0 * float(np.mean(verdict)) for verdict in verdicts)
        means = [float(shares[name][known].mean()) for name in KINDS]
    return Personalization(
        acc_g=acc_g.mean,
        acc_p=acc_p.mean,
        helped=helped,
        hurt=hurt,
        same=same,
        breakdown=Breakdown(*means),
        deciles_g=acc_g.deciles,
        deciles_p=acc_p.deciles,
        worst_tenth_g=acc_g.worst_decile,
        worst_tenth_p=acc_p.worst_decile,
        clients=acc_p.clients,
        missing=acc_p.missing,
    )


def instance_shares(
    outputs: Mapping[str, Array], targets: Array, mask: Array, weights: Array | None = None
) -> dict[str, Array]:
    """ONE client's fractions of rows by who is right, named as `Breakdown`; not-a-number without a row. `vmap` it.

    Of a sequence each position is an instance, and the row counts as the mean of its positions, as in `accuracy`.
    Rows count by their weights, where they have some.
    Without a "shared" answer what remains is "personal_only" and "neither".
    """
    right = {kind: correct_positions(answer, targets, mask) for kind, answer in outputs.items()}
    personal = right["personal"]
    if "shared" not in right:
        alone = mean_of_rows(personal, targets, mask, weights)
        return {"personal_only": alone, "neither": 1 - alone}
    shared = right["shared"]
    kinds = {"both": shared & personal, "shared_only": shared & ~personal, "personal_only": ~shared & personal}
    shares = {name: mean_of_rows(kind, targets, mask, weights) for name, kind in kinds.items()}
    return shares | {"neither": jnp.maximum(1 - sum(shares.values()), 0)}


_SHARES = jax.jit(jax.vmap(instance_shares))
