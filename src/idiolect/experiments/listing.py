# SPDX-License-Identifier: Apache-2.0
"""Every name that can be used, with one line about it."""

from __future__ import annotations

import inspect

from idiolect.algorithms import ALGORITHMS
from idiolect.experiments.papers import REPRODUCTIONS
from idiolect.experiments.sources import READERS, SOURCES
from idiolect.experiments.spec import MODEL_NAMES
from idiolect.metrics.scores import SCORES
from idiolect.models import MODELS
from idiolect.objectives import OBJECTIVES


def names() -> dict[str, dict[str, str]]:
    """Group -> name -> summary."""
    readers = {name: f"your own file: [data] source = '{name}', path = ..." for name in READERS}
    return {
        "algorithms": {name: method.summary for name, method in ALGORITHMS.items()},
        "objectives": {name: _line(cls) for name, cls in OBJECTIVES.items()},
        "models": {name: _line(MODELS[name]) for name in MODEL_NAMES},
        "data": {name: _line(source) for name, source in SOURCES.items()} | readers,
        "scores": {name: _line(score.function) for name, score in SCORES.items()},
        "papers": {slug: entry.title for slug, entry in REPRODUCTIONS.items()},
    }


def _line(subject: object) -> str:
    return (inspect.getdoc(subject) or "").splitlines()[0]
