# SPDX-License-Identifier: Apache-2.0
"""Around the final fit: the steps that it takes, and the evidence by which they were chosen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from idiolect.engines.recording import Recorder
from idiolect.experiments.build import Number
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import Spec
from idiolect.experiments.tuning import Tuned, from_json
from idiolect.theory.constants import Constants


def shorten_steps(chosen: Mapping[str, Number], before: Constants | None, after: Constants | None) -> dict[str, Number]:
    """Settings with steps above 1 / smoothness shortened by as much as the loss is less smooth on the rows to fit.

    Where validation rows are unlike training rows (a split by time), a long step that was good on the one may diverge
    on both together. Steps are never made longer, and shorter ones are safe as they are.
    """
    settings = dict(chosen)
    if before is None or after is None:
        return settings
    for name in settings:
        if name.endswith("step_size"):
            own = isinstance(chosen[name], list)  # a step of each client's own follows the client's own rows
            was, now = (known.client_smoothness if own else known.smoothness for known in (before, after))
            rougher = (np.asarray(was) > 0) & (np.asarray(was) < now)
            now = np.where(rougher, now, 1.0)
            shorter = np.minimum(chosen[name], np.maximum(np.multiply(chosen[name], was) / now, 1 / now))
            shorter = np.where(rougher, shorter, chosen[name])
            settings[name] = shorter.tolist() if own else float(shorter)
    return settings


def step_notes(chosen: Mapping[str, Number], fitted: Mapping[str, Number]) -> list[str]:
    """Sentences about the steps that are shorter in the final fit than those that were chosen."""
    return [
        f"{name.replace('_', ' ')} {np.max(fitted[name]):.3g}{' at most' if np.ndim(fitted[name]) else ''} "
        "in the final fit, because the loss is less smooth on training and validation rows together."
        for name in chosen
        if name.endswith("step_size") and name in fitted and np.any(np.less(fitted[name], chosen[name]))
    ]


def take_evidence(recorder: Recorder, choice: Tuned, refitted: bool) -> None:
    """Put the validation scores of the choice into the record of the final fit.

    A model that is fitted on validation rows too has no score of its own on them: the history and the validation
    columns tell of the fit on training rows by which everything was chosen. The ledger is the final fit's.
    """
    if choice.diverged is not None:
        recorder.diverged = choice.diverged
        return
    if not refitted:
        return
    last = recorder.history[-1]
    earlier = [row for row in choice.history if row["round"] < last["round"]]
    same = next((row for row in choice.history if row["round"] == last["round"]), {})
    scored = {key: value for key, value in same.items() if key.startswith("validation_")}
    recorder.history = [*earlier, last | scored]
    recorder.last = recorder.last | {"validation": choice.validation}
    recorder.selected = recorder.selected | {"validation": choice.validation}


def take_over(spec: Spec, source: Path, folder: RunFolder) -> int:
    """Copy what was found out when the settings in the spec's [resolved] were chosen, from the run that it records.

    A repeat then chooses nothing anew. Returns for how many methods there was something to copy.
    """
    taken = 0
    for label in spec.resolved:
        name = tuning_file(label)
        known = RunFolder(source).read_sealed(name)
        if known is not None and folder.read_sealed(name) is None:
            folder.write_sealed(name, known)
            taken += 1
    return taken


def read_tuned(folder: RunFolder, label: str) -> Tuned | None:
    """What was chosen for a method before, in this run or in the one that it repeats."""
    known = folder.read_sealed(tuning_file(label))
    return None if known is None else from_json(known)


def tuning_file(label: str) -> str:
    """Where a run folder keeps how a method's settings were chosen."""
    return f"tuning/{safe_name(label)}.json"
