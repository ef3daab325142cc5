# SPDX-License-Identifier: Apache-2.0
"""What a run has cost, in exact Python integers."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import SupportsIndex

import jax

from idiolect.core.checks import RequestError, nearest
from idiolect.core.tally import Tally
from idiolect.record.schema import Costs


@dataclasses.dataclass(frozen=True)
class Ledger(Costs):
    """Totals over all clients so far; gradients, forward passes and samples in per-example counts (`Tally`).

    One backward pass that yields both blocks is one of `gradients_both`. Bytes of the final delivery of models, and
    those of preparing the rows before round 0, are kept apart from those of the rounds. `executed_steps` includes steps
    that padding made idle; `useful_steps` does not.
    """

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, _count(name, getattr(self, name)))

    @property
    def total_bytes(self) -> int:
        """Everything that crossed the wire."""
        return self.download_bytes + self.upload_bytes + self.delivery_bytes + self.preparation_bytes

    @property
    def gradients(self) -> int:
        """Backward passes, per example, whatever block they were for."""
        return self.gradients_shared + self.gradients_personal + self.gradients_both

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(**{name: getattr(self, name) + getattr(other, name) for name in FIELDS})

    def __sub__(self, earlier: Ledger) -> Ledger:
        """What was charged since `earlier`; refused when `earlier` is not earlier."""
        return Ledger(**{name: getattr(self, name) - getattr(earlier, name) for name in FIELDS})

    def charge(self, **amounts: SupportsIndex) -> Ledger:
        """This ledger with the named amounts added, in the units of the fields."""
        _refuse_unknown(amounts)
        return dataclasses.replace(
            self, **{name: getattr(self, name) + _count(name, amount) for name, amount in amounts.items()}
        )

    def charge_download(self, clients: int, bytes_each: int) -> Ledger:
        """One message of `bytes_each` down to each of `clients` (a broadcast, or what `settle` receives)."""
        clients, bytes_each = _count("clients", clients), _count("bytes_each", bytes_each)
        return self.charge(download_bytes=clients * bytes_each, messages_down=clients)

    def charge_upload(self, clients: int, bytes_each: int) -> Ledger:
        """One message of `bytes_each` up from each of `clients`."""
        clients, bytes_each = _count("clients", clients), _count("bytes_each", bytes_each)
        return self.charge(upload_bytes=clients * bytes_each, messages_up=clients)

    def charge_delivery(self, clients: int, bytes_each: int) -> Ledger:
        """The final models' delivery: billed once per client, apart from the rounds' traffic."""
        return self.charge(delivery_bytes=_count("clients", clients) * _count("bytes_each", bytes_each))

    def charge_work(self, tally: Tally, useful_steps: int = 0, executed_steps: int = 0) -> Ledger:
        """Local work: a Tally summed over clients, and its local steps."""
        return self.charge(
            gradients_shared=tally.shared,
            gradients_personal=tally.personal,
            gradients_both=tally.both,
            forward_passes=tally.forward,
            samples=tally.samples,
            full_gradients_shared=tally.full_shared,
            full_gradients_personal=tally.full_personal,
            proximal_calls=tally.proximal,
            useful_steps=useful_steps,
            executed_steps=executed_steps,
        )

    def charge_rounds(self, rounds: int = 1) -> Ledger:
        """`rounds` more rounds."""
        return self.charge(rounds=rounds)

    def to_dict(self) -> dict[str, int]:
        """Field name to integer, for JSON and history columns."""
        return {name: getattr(self, name) for name in FIELDS}

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> Ledger:
        """The ledger `to_dict` wrote; refuses a name too many or too few."""
        _refuse_unknown(counts)
        absent = [name for name in FIELDS if name not in counts]
        if absent:
            raise RequestError(f"A ledger needs all of its {len(FIELDS)} counts, got none for {', '.join(absent)}.")
        return cls(**counts)


FIELDS = tuple(field.name for field in dataclasses.fields(Ledger))
jax.tree_util.register_dataclass(Ledger, data_fields=FIELDS, meta_fields=())  # it is part of a run's state


def _count(name: str, value: SupportsIndex) -> int:
    """A Python integer, exactly: NumPy and JAX integers pass, floats never do."""
    try:
        # refuses floats, also whole ones: beyond 2^53 they would have been rounded already
        number = operator.index(value)
    except TypeError:
        raise RequestError(f"Ledger.{name} must be an integer, got {value!r}. Count in whole units.") from None
    if number < 0:
        raise RequestError(f"Ledger.{name} must be at least 0, got {number}. Costs only grow.")
    return number


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name not in FIELDS:
            raise RequestError(f"Ledger has no count {name!r}.{nearest(name, FIELDS)}")
