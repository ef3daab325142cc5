# SPDX-License-Identifier: Apache-2.0
"""Repeated splits: the same run on other draws of training, validation and test rows, each in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from idiolect.core.checks import DivergedError, RequestError
from idiolect.experiments.execute import Executed, Say, execute
from idiolect.experiments.run_folder import REQUEST, RunFolder
from idiolect.experiments.spec import Spec, resumed
from idiolect.experiments.splits_summary import client_rows, read_splits, summarise_splits
from idiolect.experiments.work import Overall, Progress
from idiolect.record.manifest import check_report_files
from idiolect.record.reading import read_summary
from idiolect.record.splits import SplitsSummary
from idiolect.record.words import option

MOST = 1000  # splits; more is almost surely a slip
SPLITS = "compare --splits"
# sources whose clients are the data's own and whose rows the seed splits; of the others the seed deals the clients too
REPEATABLE = (
    *("table", "npz", "leaf", "heart_disease", "school", "landmine"),
    *("vehicle", "uci_har", "uci_har_summary", "mnist_writers"),
)

Started = Callable[[int, int], None]  # number of the split that starts, from 1, and of splits in all


def split_folder(path: Path, place: int) -> Path:
    """Where the split of that place, from 0, is kept: split-01, split-02, ..."""
    return path / f"split-{place + 1:02d}"


def asked_splits(path: Path) -> int | None:
    """The number of splits that a folder was started with; None for any other folder."""
    return (RunFolder(path).read_request() or {}).get("splits")


def check_splits(spec: Spec, splits: int) -> None:
    """RequestError where the rows of this spec cannot be split so often."""
    if not 1 <= splits <= MOST:
        raise RequestError(f"--splits must be a whole number from 1 to {MOST}, got {splits}; 10 is usual.")
    if splits == 1:
        return
    if spec.data.split_column is not None:
        raise RequestError(
            f"--splits {splits} draws the split anew, and {option('--split-column', spec.data.split_column)} gives it; "
            "leave one of the two out."
        )
    if spec.data.time_column is not None:
        raise RequestError(
            f"--splits {splits} draws the split anew, and {option('--time', spec.data.time_column)} allows one split "
            "only: oldest rows train, newest rows test; leave one of the two out."
        )
    if spec.data.source not in REPEATABLE:
        raise RequestError(
            f"--splits needs clients of the data's own whose rows are split by a seed, and the rows of "
            f"{spec.data.source!r} are dealt, made or split otherwise; use a table, or one of: "
            f"{', '.join(REPEATABLE[3:])}."
        )


def run_splits(
    spec: Spec,
    path: Path,
    splits: int,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    overall: Overall | None = None,
    say: Say | None = None,
    started: Started | None = None,
    rows: pa.Table | None = None,
) -> SplitsSummary:
    """Run the spec with data.seed = s, s + 1, ...; leave one run folder per split and what they say together.

    With `resume`, finished splits are kept and an interrupted one goes on. `rows` is a table that is in memory.
    """
    check_splits(spec, splits)
    folder = RunFolder(path, SPLITS)
    folder.check(resume)
    if resume:
        spec = _resumed(folder, spec, splits)
    tell = say or (lambda text: None)
    made = not path.exists()
    seeds = [spec.data.seed + place for place in range(splits)]
    folders = [split_folder(path, place) for place in range(splits)]
    try:
        with folder.open(resume, {"splits": splits}), _undone(folder):
            folder.write_spec(spec)
            tell(f"{splits} splits of the rows, seeds {seeds[0]} to {seeds[-1]}, each a run folder: {folders[0]} ...")
            run = functools.partial(execute, progress=progress, overall=overall, rows=rows, theory=False)
            _train(spec, folders, seeds, run, tell, started)
            for one in folders:
                check_report_files(one)
            read = read_splits(folders, seeds)
            summary, judged = summarise_splits(spec.name, read)
            folder.write_table("splits.parquet", [vars(row) for row in client_rows(read, judged)])
            folder.complete("splits.json", summary, time_model=spec.evaluation.time_model)
            return summary
    except RequestError:
        if made:
            with contextlib.suppress(OSError):  # there is something in it
                path.rmdir()
        raise


@contextlib.contextmanager
def _undone(folder: RunFolder) -> Iterator[None]:
    """A wrong request leaves nothing behind: the folder is as before where no split has begun in it."""
    try:
        yield
    except RequestError:
        for name in () if any(folder.path.glob("split-*")) else ("spec.toml", REQUEST):
            (folder.path / name).unlink(missing_ok=True)
        raise


def _train(
    spec: Spec,
    folders: Sequence[Path],
    seeds: Sequence[int],
    run: Callable[..., Executed],
    tell: Say,
    started: Started | None,
) -> None:
    """Every split that is not finished yet, in turn: programs that are compiled for one serve the others."""
    every = [RunFolder(folder) for folder in folders]
    waiting = [place for place, folder in enumerate(every) if not folder.done]
    for folder in every:
        if folder.done:
            folder.tidy()
    said: set[str] = set()
    for number, place in enumerate(waiting):
        begun, folder = time.monotonic(), every[place]
        if started is not None:
            started(place + 1, len(folders))

        def say(text: str, first: bool = number == 0) -> None:
            # all that the first split says; of the others only warnings that none has given before
            if first or (text.startswith("Warning: ") and text not in said):
                tell(text)
            said.add(text)

        try:
            run(_spec_of(spec, folders, place, seeds[place]), folder.path, resume=folder.begun, say=say)
        except DivergedError as error:
            raise DivergedError(f"{folder.path.name}: {error}") from None
        gc.collect()  # a split's models and rows are on disk; the next one needs their memory
        left = _time_left((len(waiting) - number - 1) * (time.monotonic() - begun))
        announced = read_summary(folder.path).announced
        who = f"{announced.method} was announced" if announced else "no method was announced"
        tell(f"Split {place + 1} of {len(folders)} is finished: {who}{left}.")


def _time_left(seconds: float) -> str:
    """For the splits to come, if each takes as long as the last one."""
    if seconds >= 90:
        return f"; about {seconds / 60:.0f} min left"
    return f"; about {seconds:.0f} s left" if seconds > 0 else ""


def _resumed(folder: RunFolder, spec: Spec, splits: int) -> Spec:
    before = asked_splits(folder.path)
    if before != splits:
        was = "without --splits" if before is None else f"with --splits {before}"
        raise RequestError(
            f"The run in {folder.path} was started {was}, and this asks for --splits {splits}; go on with `idiolect "
            f"run {folder.path} --resume`, or choose another --out."
        )
    return resumed(folder.read_spec(), spec, folder.path)


def _spec_of(spec: Spec, folders: Sequence[Path], place: int, seed: int) -> Spec:
    """The spec of one split: its seed, its part of the minutes, and the first split's scores.

    Scores that are chosen by the balance of classes could differ from split to split, and have no mean then.
    """
    evaluation, tuning = spec.evaluation, spec.tuning
    if place > 0 and not evaluation.scores:
        chosen = read_summary(folders[0]).scores
        evaluation = dataclasses.replace(evaluation, scores=list(chosen))
    if tuning.minutes is not None:
        tuning = dataclasses.replace(tuning, minutes=tuning.minutes / len(folders))
    data, name = dataclasses.replace(spec.data, seed=seed), f"{spec.name}-{folders[place].name}"
    return dataclasses.replace(spec, name=name, data=data, evaluation=evaluation, tuning=tuning)
