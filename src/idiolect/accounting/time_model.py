# SPDX-License-Identifier: Apache-2.0
"""Modelled seconds: what the counted traffic and gradients would take on machines of a stated speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from idiolect.accounting.ledger import Ledger
from idiolect.core.checks import Range, RequestError, check, nearest

_LIMITS = {
    "download_bits_per_second": Range(above=0, way_out="Use inf for a link that costs nothing."),
    "upload_bits_per_second": Range(above=0, way_out="Use inf for a link that costs nothing."),
    "latency_seconds": Range(at_least=0, way_out="Use 0 to ignore latency."),
    "seconds_per_gradient": Range(at_least=0, way_out="Use 0 to ignore computation."),
}


@dataclasses.dataclass(frozen=True)
class TimeModel:
    """The speed of one client's link and machine, the same for every client; the server costs nothing.

    A round lasts as long as its slowest client. All send messages of equal size in parallel, so it takes

        latency_seconds x (messages down + messages up) + 8 x bytes down / download_bits_per_second
            + 8 x bytes up / upload_bits_per_second + largest gradients x seconds_per_gradient

    with the messages and bytes of ONE client and the largest per-example gradient count in the cohort.
    """

    download_bits_per_second: float
    upload_bits_per_second: float
    latency_seconds: float  # one way, per message
    seconds_per_gradient: float  # one example, forward and backward

    def __post_init__(self) -> None:
        for name, limits in _LIMITS.items():
            check("TimeModel", name, getattr(self, name), limits)

    def round_seconds(
        self,
        download_bytes: ArrayLike,
        upload_bytes: ArrayLike,
        largest_gradients: ArrayLike,
        messages_down: ArrayLike = 1,
        messages_up: ArrayLike = 1,
    ) -> np.ndarray:
        """Seconds per round from ONE client's bytes and messages and the cohort's largest gradient count."""
        down, up, gradients = (np.asarray(n, float) for n in (download_bytes, upload_bytes, largest_gradients))
        messages = np.asarray(messages_down, float) + np.asarray(messages_up, float)
        return (
            self.latency_seconds * messages
            + 8 * down / self.download_bits_per_second
            + 8 * up / self.upload_bits_per_second
            + self.seconds_per_gradient * gradients
        )

    def history_seconds(
        self, increments: Sequence[Ledger], cohort: ArrayLike, largest_gradients: ArrayLike
    ) -> np.ndarray:
        """Seconds of each increment of a run's ledger; `np.cumsum` gives the time axis.

        `cohort` is the number of clients that share the increment's traffic equally. An increment may cover
        several rounds: the formula is linear, so `largest_gradients` is then the sum of the rounds' largest
        counts.
        """
        length = (len(increments),)
        clients, gradients = (np.broadcast_to(np.asarray(n, float), length) for n in (cohort, largest_gradients))
        share = 1 / np.where(clients > 0, clients, np.inf)  # an increment without clients takes no time

        def one_client(field: str) -> np.ndarray:
            return np.asarray([getattr(ledger, field) for ledger in increments], float) * share

        return self.round_seconds(
            one_client("download_bytes"),
            one_client("upload_bytes"),
            np.where(clients > 0, gradients, 0),
            one_client("messages_down"),
            one_client("messages_up"),
        )


# Round numbers of our choosing, to compare methods by; none is measured. State your own for a real system.
TIME_MODELS: dict[str, TimeModel] = {
    # A mobile link whose way up is the slow one; a gradient of a small network in a millisecond.
    "phone": TimeModel(20e6, 5e6, 0.05, 1e-3),
    # A site's symmetric office line; a workstation ten times a phone.
    "hospital": TimeModel(100e6, 100e6, 0.02, 1e-4),
    # One network switch apart; an accelerator.
    "datacenter": TimeModel(10e9, 10e9, 1e-4, 1e-6),
}


def find_time_model(name: str) -> TimeModel:
    """The preset of that name."""
    if name not in TIME_MODELS:
        raise RequestError(f"There is no time model {name!r}.{nearest(name, TIME_MODELS)}")
    return TIME_MODELS[name]
