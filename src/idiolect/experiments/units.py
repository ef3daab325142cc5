# SPDX-License-Identifier: Apache-2.0
"""Scores in the units of the user's table: a numeric target is scaled for training, never for the reader."""

from __future__ import annotations

from idiolect.data.federation import Federation
from idiolect.engines.recording import ClientScores, Recorder
from idiolect.metrics.scores import SCORES


def unit(score: str, federation: Federation) -> float:
    """What 1 of a recorded score is worth in the table's own units. Several scaled targets have no common unit: 1."""
    scales = federation.preprocessing.target.scales if federation.preprocessing is not None else ()
    return float(scales[0] ** SCORES[score].power) if len(scales) == 1 else 1.0


def unit_sentence(score: str, federation: Federation) -> str:
    """Which units the errors are in, where a target was scaled; otherwise nothing."""
    power = SCORES[score].power
    if not power or federation.preprocessing is None:
        return ""
    names = federation.preprocessing.target.names
    own = f"Errors are in {'squared ' if power == 2 else ''}units of {names[0]!r} as the table has it."
    return own if len(names) == 1 else "Errors are summed over the targets, each divided by its standard deviation."


def in_table_units(scores: ClientScores, federation: Federation) -> ClientScores:
    """Per-client scores in the table's own units."""
    return {
        split: {
            model: {name: [unit(name, federation) * value for value in values] for name, values in named.items()}
            for model, named in models.items()
        }
        for split, models in scores.items()
    }


def restore_units(recorder: Recorder, federation: Federation) -> None:
    """Put a finished record into the table's own units."""
    recorder.last, recorder.selected = (
        in_table_units(scores, federation) for scores in (recorder.last, recorder.selected)
    )
    units = {
        f"validation_{model}_{name}_{part}": unit(name, federation)
        for model in ("shared", "personal")
        for name in recorder.scores
        for part in ("mean", "worst_decile", "spread")
    }
    recorder.history = [
        {key: value * units[key] if key in units else value for key, value in row.items()} for row in recorder.history
    ]
