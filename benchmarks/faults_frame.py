# SPDX-License-Identifier: Apache-2.0
"""What the fault trials share: a small table, the command line in this process, file operations that can be stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

SPEC = """
[data]
source = "table"
path = "{folder}/visits.csv"
client = "site"
target = "ill"
[training]
rounds = 4
record_every = 2
block = 2
executor = "batched"
[defaults]
step_size = 0.1
batch_size = 4
epochs = 1
[methods.local]
[methods.fedavg]
[output]
models = "all"
checkpoint_every = 2
"""
TIMED = ("machine.json", "report.html", "manifest.json", "done", "cost.png", "cost.svg")
CLOCKS = ("seconds", "date", "load_average", "command")


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def unexpected(self) -> bool:
        """Whether it ended in an error that nobody had thought of."""
        return "Unexpected" in self.err or "Traceback" in self.err


@dataclasses.dataclass
class Counts:
    """How many trials ended how; `kinds` says what each ending is called, `failures` what went wrong, in words."""

    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, kind: str, words: str | None = None) -> None:
        """One trial more; with `words` it is a failure."""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if words is not None:
            self.failures.append(f"{kind}: {words}")

    @property
    def trials(self) -> int:
        """All of them."""
        return sum(self.kinds.values())


def make_table(folder: Path) -> Path:
    """Three clients of 20 rows whose relation differs."""
    draw = np.random.default_rng(7)
    lines = ["site,age,dose,ill"]
    for client in range(3):
        for age, dose in draw.normal(size=(20, 2)):
            lines.append(f"s{client},{age:.4f},{dose:.4f},{int(age + (client - 1) * dose > 0)}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "visits.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "spec.toml").write_text(SPEC.format(folder=folder), encoding="utf-8")
    return folder / "visits.csv"


def idiolect(*arguments: str) -> Answer:
    """The command line in this process: programs that are compiled once serve all trials."""
    from idiolect.cli import app
    from idiolect.cli.failures import exit_code_of

    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before, path = sys.argv, list(sys.path)
    sys.argv = ["idiolect", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code_of(app)
    finally:
        sys.argv, sys.path[:] = before, path
        out.flush()
    return Answer(code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


def commands(home: Path) -> dict[str, list[str]]:
    """The commands that write a folder, by name; the folder is added behind --out."""
    table = [str(home / "visits.csv"), "--client", "site", "--target", "ill"]
    spec = str(home / "spec.toml")
    quick = ["--methods", "local,fedavg", "--rounds", "2", "--quiet"]
    return {
        "run": ["run", spec, "--quiet"],
        "compare": ["compare", *table, *quick, "--step-sizes", "0.1,0.3"],
        "compare --splits": ["compare", *table, *quick, "--step-sizes", "0.3", "--splits", "2"],
        "sweep": ["sweep", spec, "--over", "step_size = [0.1, 0.2]", "--quiet"],
        "dial": ["dial", *table, "--values", "1,0", "--rounds", "2", "--l2", "0.1", "--quiet"],
        "advise": ["advise", *table, "--quiet"],
    }


@contextlib.contextmanager
def drawn_once() -> Iterator[None]:
    """Figures are drawn for the first report of a kind and reused: they are no part of what is tried here."""
    from idiolect.report import page

    kept: dict[Any, Any] = {}

    def once(function: Callable[..., Any]) -> Callable[..., Any]:
        def cached(*arguments: Any, **named: Any) -> Any:
            key = (function, arguments[1:], tuple(named.items()))
            if key not in kept:
                kept[key] = function(*arguments, **named)
            return kept[key]

        return cached

    places = [(page, "draw_all"), (page, "drawn_choice"), (page, "drawn_map")]
    before = [(module, name, getattr(module, name)) for module, name in places]
    for module, name, function in before:
        setattr(module, name, once(function))
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def end_state(folder: Path) -> dict[str, str]:
    """Every file of a folder with a digest of what is in it, clocks left out."""
    return {path.relative_to(folder).as_posix(): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _digest(path: Path) -> str:
    if path.name in TIMED:
        return "timed"
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        kept = [name for name in table.column_names if not name.endswith("seconds")]
        return hashlib.sha256(repr(table.select(kept).to_pydict()).encode()).hexdigest()
    if path.suffix == ".json":
        return hashlib.sha256(repr(_without_clocks(json.loads(path.read_text(encoding="utf-8")))).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_clocks(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_clocks(value) for key, value in content.items() if key not in (*CLOCKS, "sha256")}
    return [_without_clocks(value) for value in content] if isinstance(content, list) else content


class Stopped(BaseException):
    """The process is dead: nothing catches it."""


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


Refuse = Callable[[int, str], BaseException | None]  # (number of the operation, its path) -> what to raise


class FileOperations:
    """Every operation of this process that changes a file below a folder, and a way to stop at one of them.

    Operations are heard before they happen. `refuse` is asked for each, with its number; what it returns is raised,
    there and, where it is `Stopped`, at all that follow: a killed process does not clean up.
    """

    def __init__(self) -> None:
        self.home = ""
        self.seen: list[str] = []
        self.refuse: Refuse | None = None
        self._dead: BaseException | None = None
        sys.addaudithook(self._hear)  # for the life of the process: there is no way to take it back

    @contextlib.contextmanager
    def below(self, home: Path, refuse: Refuse | None = None) -> Iterator[list[str]]:
        """Inside, operations below `home` are listed, and refused as asked."""
        self.home, self.seen, self.refuse, self._dead = str(home), [], refuse, None
        try:
            yield self.seen
        finally:
            self.home, self.refuse, self._dead = "", None, None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.home or not self._changes(event, arguments):
            return
        if self._dead is not None:
            raise self._dead
        named = arguments[:1] if event == "open" else arguments[:2]  # the second of `open` is a mode
        paths = [os.fsdecode(one) for one in named if isinstance(one, str | bytes | os.PathLike)]
        within = any(path.startswith(self.home) for path in paths)
        if not within and not (event == "os.remove" and arguments[1] != -1):
            return
        self.seen.append(f"{event} {paths[-1].removeprefix(self.home)}")
        error = None if self.refuse is None else self.refuse(len(self.seen) - 1, paths[-1])
        if error is not None:
            self._dead = error if isinstance(error, Stopped) else None
            raise error

    @staticmethod
    def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            return isinstance(arguments[0], str | bytes | os.PathLike) and bool(arguments[2] & _WRITES)
        return event in _EVENTS


_OPERATIONS: list[FileOperations] = []


def file_operations() -> FileOperations:
    """The one listener of this process."""
    if not _OPERATIONS:
        _OPERATIONS.append(FileOperations())
    return _OPERATIONS[0]


def run_killed(arguments: list[str], folder: Path, place: int) -> None:
    """A command that is killed before its file operation of that number below the folder."""
    error = Stopped(place)
    try:
        with file_operations().below(folder, lambda number, path: error if number == place else None):
            idiolect(*arguments, "--out", str(folder))
    except Stopped:
        pass


def go_on(command: str, arguments: list[str], folder: Path) -> list[Answer]:
    """What a user does after a failure: give the command again, and follow what it says, to the end."""
    said = [idiolect(*arguments, "--out", str(folder))]
    while said[-1].code and len(said) < 4:
        text = said[-1].err
        if "idiolect report" in text:
            said.append(idiolect("report", str(folder)))
        elif "--resume" in text and command == "dial":
            said.append(idiolect(*arguments, "--out", str(folder), "--resume"))
        elif "--resume" in text:
            said.append(idiolect("run", str(folder), "--resume", "--quiet"))
        else:
            break
    return said


def within(seconds: float) -> Callable[[], bool]:
    """Whether there is time left."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() < ends
