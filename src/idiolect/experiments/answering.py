# SPDX-License-Identifier: Apache-2.0
"""Which model answers each new row, its client's own or the shared one, and the sentences that say so."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.names import natural_key
from idiolect.experiments.kept_models import Kept

MODELS = ("auto", "personal", "shared")
NAMED = 10  # clients in a sentence
KEEP_ALL = "train again with --set \"output.models = 'all'\""


@dataclasses.dataclass(frozen=True)
class Routed:
    """Each row's model, a client's number or -1 for the shared one; who answers, in words, and what is doubtful."""

    own: np.ndarray
    counted: str
    doubts: tuple[str, ...]


def route_rows(label: str, kept: Kept, clients: Sequence[str | None], model: str) -> Routed:
    """Send each row to a model, or raise RequestError: none is answered by another model than its caller hears of.

    `clients` has each row's client, None where it has none. `model` is one of MODELS.
    """
    if model not in MODELS:
        raise RequestError(f"--model must be one of {', '.join(MODELS)}, got {model!r}.")
    _check_kept(label, kept, model)
    place = {name: number for number, name in enumerate(kept.names)}
    known = np.array([-1 if client is None else place.get(client, -1) for client in clients], np.int64)
    others = _others(clients, place)
    if model == "shared":
        return _routed(np.full(len(known), -1), kept, ())
    if kept.personal is None:
        also = f", also for {others}" if others else ""
        doubt = f"The run kept no personal models of {label!r}: the shared one answers for every client{also}."
        return _routed(np.full(len(known), -1), kept, (doubt,))
    if others and model == "personal":
        raise RequestError(
            f"--model personal needs rows of clients that trained, got {others}; leave these rows out, or use "
            "--model auto."
        )
    if others and kept.shared is None:
        raise RequestError(
            f"The run has no shared model of {label!r} that could answer {others}; predict for clients that trained, "
            "or choose another --method."
        )
    return _routed(known, kept, (f"The shared model answers {others}.",) if others else ())


def _check_kept(label: str, kept: Kept, model: str) -> None:
    if kept.shared is None and kept.personal is None:
        raise RequestError(f"The run kept no model of {label!r}; {KEEP_ALL} to keep them all.")
    if model == "shared" and kept.shared is None:
        raise RequestError(f"The run has no shared model of {label!r}; use --model personal.")
    if model == "personal" and kept.personal is None:
        raise RequestError(f"The run kept no personal models of {label!r}; {KEEP_ALL}, or use --model shared.")


def _others(clients: Sequence[str | None], place: dict[str, int]) -> str:
    """Rows of clients that did not train and of no client, counted and named; empty where there are none."""
    new = Counter(client for client in clients if client is not None and client not in place)
    parts = []
    if new:
        who = "1 client that did not train" if len(new) == 1 else f"{len(new)} clients that did not train"
        parts.append(f"{count_rows(sum(new.values()))} of {who} ({_names(list(new), place)})")
    nobody = sum(client is None for client in clients)
    if nobody:
        parts.append(f"{count_rows(nobody)} without a client")
    return " and ".join(parts)


def _routed(own: np.ndarray, kept: Kept, doubts: tuple[str, ...]) -> Routed:
    numbers = np.unique(own[own >= 0])
    parts = []
    if len(numbers):
        whose = f"the personal model of {kept.names[numbers[0]]!r}"
        whose = whose if len(numbers) == 1 else f"the personal models of {len(numbers)} clients"
        parts.append(f"{count_rows(int((own >= 0).sum()))} by {whose}")
    if (own < 0).any():
        parts.append(f"{count_rows(int((own < 0).sum()))} by the shared model")
    return Routed(own, ", ".join(parts), doubts)


def count_rows(count: int) -> str:
    """'1 row', '2 rows'."""
    return "1 row" if count == 1 else f"{count} rows"


def _names(names: list[str], known: Iterable[str]) -> str:
    """Some of the names, each beside the known one that it may be a slip of."""
    alike = {natural_key(name.strip())[0]: name for name in known}
    slips = [alike.get(natural_key(name.strip())[0]) for name in names[:NAMED]]
    shown = ", ".join(repr(name) if slip is None else f"{name!r}, not {slip!r}" for name, slip in zip(names, slips))
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
