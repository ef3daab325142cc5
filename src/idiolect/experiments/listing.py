# SPDX-License-Identifier: Apache-2.0
"""Every name that can be used, with one line about it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from idiolect.algorithms import ALGORITHMS
from idiolect.experiments.reproductions import are_installed, reproductions
from idiolect.experiments.sources import READERS, SOURCES
from idiolect.experiments.spec import MODEL_NAMES
from idiolect.metrics.scores import SCORES
from idiolect.models import MODELS
from idiolect.objectives import OBJECTIVES


def names(group: str = "all") -> dict[str, dict[str, str]]:
    """Group -> name -> summary, of the named group or of all; RequestError for papers where there are none."""
    listed = {
        "algorithms": {name: method.summary for name, method in ALGORITHMS.items()},
        "objectives": _lines(OBJECTIVES),
        "models": _lines({name: MODELS[name] for name in MODEL_NAMES}),
        "data": _lines(SOURCES) | {name: f"your own rows: [data] source = '{name}', path = ..." for name in READERS},
        "scores": _lines({name: score.function for name, score in SCORES.items()}),
    }
    if group == "papers" or (group == "all" and are_installed()):
        with reproductions("catalogue") as papers:
            listed["papers"] = {slug: entry.title for slug, entry in papers.all_entries().items()}
    return listed if group == "all" else {group: listed[group]}


def _lines(named: Mapping[str, object]) -> dict[str, str]:
    """The first line of each docstring."""
    return {name: (inspect.getdoc(subject) or "").splitlines()[0] for name, subject in named.items()}
