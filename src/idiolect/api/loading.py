# SPDX-License-Identifier: Apache-2.0
"""Finished folders back into Python, whichever command or function wrote them."""

from __future__ import annotations

import os
from pathlib import Path

from idiolect.api.advising import Advice
from idiolect.api.answers import Answer, SplitsAnswer, TrainedRun
from idiolect.api.results import Workplace
from idiolect.api.sentences import in_python
from idiolect.record.errors import RequestError
from idiolect.record.manifest import DONE, check_report_files
from idiolect.report.folder import Kind, kind_of, read


@in_python()
def load(path: str | os.PathLike[str]) -> Answer | TrainedRun | SplitsAnswer | Advice:
    """The result in a finished folder of `compare`, `run`, `sweep` or `advise`; one method is a `TrainedRun`."""
    folder = Path(path)
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give the path of a finished run, such as runs/NAME.")
    if not (folder / DONE).is_file():
        raise RequestError(f"The folder {folder} holds no finished run: it has no file {DONE!r}; finish it first.")
    check_report_files(folder)
    place = Workplace(folder, folder.name)
    kind = kind_of(folder)
    if kind is Kind.advice:
        return Advice(place)
    if kind is Kind.splits:
        return SplitsAnswer(place)
    return TrainedRun(place) if len(read(folder).methods) == 1 else Answer(place)
