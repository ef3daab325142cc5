# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of reproductions: a spec, what was measured, how far that is, and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from idiolect import RequestError
from idiolect.core.checks import nearest

Spec = Mapping[str, Any]  # a parsed spec.toml
Progress = Callable[[str, int, int], None]  # what is measured, parts done, parts in all


class Measured(NamedTuple):
    """What measuring brings: named numbers, to be held against expected.toml, and what the figure shows."""

    numbers: dict[str, float]
    curves: Any
    table: str = ""  # further numbers with their intervals, printed above the comparison


def count_parts(progress: Progress, total: int, label: str = "") -> Callable[..., None]:
    """A function that reports one more of `total` parts done at each call, under this label or its own."""
    done = iter(range(1, total + 1))
    return lambda own=label: progress(own, next(done), total)


def mean_and_half_width(own: np.ndarray) -> tuple[float, float]:
    """Of one value per client: the mean, and half of its 95 % interval over clients; those without a value are out."""
    known = own[np.isfinite(own)]
    return float(known.mean()), float(1.96 * known.std(ddof=1) / np.sqrt(len(known)))


def chosen_size(spec: Spec, slug: str) -> Mapping[str, Any]:
    """The settings of the size that the spec names."""
    sizes = [key for key, value in spec.items() if isinstance(value, Mapping)]
    if spec["size"] not in sizes:
        raise RequestError(f"[{slug}] There is no size {spec['size']!r}.{nearest(spec['size'], sizes)}")
    return spec[spec["size"]]
