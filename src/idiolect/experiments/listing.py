# SPDX-License-Identifier: Apache-2.0
"""Every name that can be used, with one line about it."""

from __future__ import annotations

import inspect

from idiolect.algorithms import ALGORITHMS
from idiolect.experiments.reproductions import are_installed, reproductions
from idiolect.experiments.sources import READERS, SOURCES
from idiolect.experiments.spec import MODEL_NAMES
from idiolect.metrics.scores import SCORES
from idiolect.models import MODELS
from idiolect.objectives import OBJECTIVES


def names(group: str = "all") -> dict[str, dict[str, str]]:
    """Group -> name -> summary, of the named group or of all; RequestError for papers where there are none."""
    readers = {name: f"your own file: [data] source = '{name}', path = ..." for name in READERS}
    listed = {
        "algorithms": {name: method.summary for name, method in ALGORITHMS.items()},
        "objectives": {name: _line(cls) for name, cls in OBJECTIVES.items()},
        "models": {name: _line(MODELS[name]) for name in MODEL_NAMES},
        "data": {name: _line(source) for name, source in SOURCES.items()} | readers,
        "scores": {name: _line(score.function) for name, score in SCORES.items()},
    }
    if group == "papers" or (group == "all" and are_installed()):
        with reproductions("catalogue") as papers:
            listed["papers"] = {slug: entry.title for slug, entry in papers.all_entries().items()}
    return listed if group == "all" else {group: listed[group]}


def _line(subject: object) -> str:
    return (inspect.getdoc(subject) or "").splitlines()[0]
