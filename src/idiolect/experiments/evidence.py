# SPDX-License-Identifier: Apache-2.0
"""What settings and rounds were chosen by: in a final fit's record, and in a repeat of the run."""

from __future__ import annotations

from pathlib import Path

from idiolect.engines.recording import Recorder
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import Spec
from idiolect.experiments.tuning import Tuned


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


def tuning_file(label: str) -> str:
    """Where a run folder keeps how a method's settings were chosen."""
    return f"tuning/{safe_name(label)}.json"
