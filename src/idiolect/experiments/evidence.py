# SPDX-License-Identifier: Apache-2.0
"""A final fit's record, completed by what its settings and rounds were chosen by."""

from __future__ import annotations

from idiolect.engines.recording import Recorder
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
