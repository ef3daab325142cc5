# SPDX-License-Identifier: Apache-2.0
"""What a name means: equations, settings, wire types with their bytes, what leaves a client, the citation."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any

import jax.numpy as jnp

from idiolect.accounting.bytes import wire
from idiolect.algorithms import ALGORITHMS, find
from idiolect.core.checks import RequestError, nearest
from idiolect.core.data import ClientData
from idiolect.engines.start import wire_types
from idiolect.experiments.build import build_objective
from idiolect.models import Linear
from idiolect.objectives import OBJECTIVES, ClientLoss

EXAMPLE = Linear(64, 10)  # softmax regression on 8 x 8 images


def explain(name: str, objective: str | None = None) -> dict[str, Any]:
    """The explanation as plain values."""
    if name in OBJECTIVES:
        return {"name": name, "kind": "objective", "text": _text(OBJECTIVES[name])}
    if ":" not in name and name not in ALGORITHMS:
        raise RequestError(f"There is nothing called {name!r}.{nearest(name, [*ALGORITHMS, *OBJECTIVES])}")
    method = find(name)
    chosen = objective or method.objective
    if chosen is None:
        raise RequestError(f"{name} needs --objective; one of {', '.join(sorted(OBJECTIVES))}.")
    built = build_objective(chosen, ClientLoss(model=EXAMPLE))
    algorithm = dataclasses.replace(method.algorithm(built, **method.preset), clients=20)
    reason = algorithm.skip()
    if reason is not None:
        raise RequestError(f"{name} cannot minimise {chosen}: {reason}.")
    rows = ClientData(jnp.zeros((1, 8, 64)), jnp.zeros((1, 8), jnp.int32), jnp.zeros(1, jnp.int32))
    types = wire_types(algorithm, rows)
    table = wire(types.sent, types.upload)
    sends_nothing = algorithm.traffic(types.sent, 1) == (0, 0)
    return {
        "name": name,
        "kind": "algorithm",
        "summary": method.summary,
        "text": _text(method.algorithm),
        "objective": chosen,
        "settings": [_setting(field, method.preset) for field in _fields(algorithm)],
        "example": "softmax regression, 64 inputs, 10 classes, float32",
        "wire": {"down": [], "up": [], "download_bytes": 0, "upload_bytes": 0, "warnings": []}
        if sends_nothing
        else table.to_dict(),
        "leaves_the_client": [] if sends_nothing else [leaf.path for leaf in table.up],
        "stays_on_the_client": _client_fields(method.algorithm),
        "reference": method.reference,
    }


def _text(cls: type) -> str:
    module = sys.modules[cls.__module__]
    return inspect.cleandoc(module.__doc__ or cls.__doc__ or "")


def _fields(algorithm: Any) -> list[Any]:
    return [field for field in dataclasses.fields(algorithm) if field.name not in ("objective", "clients")]


def _setting(field: Any, preset: Any) -> dict[str, Any]:
    limits = field.metadata.get("range")
    default = preset.get(field.name, field.default)
    return {
        "name": field.name,
        "default": None if default is dataclasses.MISSING else default,
        "rule": limits.rule() if limits is not None else "",
        "doc": field.metadata.get("doc", ""),
    }


def _client_fields(algorithm: type) -> list[str]:
    state = getattr(sys.modules[algorithm.__module__], "ClientState", None)
    return list(state._fields) if state is not None else []
