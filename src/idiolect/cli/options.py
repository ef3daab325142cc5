# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, so that they read and behave alike, and refusals in their words."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.output import Format, remark
from idiolect.record.errors import NeedsRidgeError, RequestError

Table = Annotated[Path | None, typer.Argument(help="A CSV, Parquet or Feather file, one row per example.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override the spec, as TOML: 'training.rounds = 50'.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, bit for bit.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks on standard error.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Draws the split and the training. Default: 0.")]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds such as 0,1,2 or 0-9.")]
Plugins = Annotated[
    Path | None,
    typer.Option("--plugins", help="Folder of your own modules that 'module:name' may name, besides installed ones."),
]
Details = Annotated[
    bool,
    typer.Option(
        "--details",
        help="All columns: bytes each way, gradients by block, before and after adaptation, theory's choices.",
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Serve the page on this machine while training goes on; prints its address.")
]
AsFormat = Annotated[
    Format, typer.Option("--format", help="Print text, JSON or CSV; with the latter two, nothing else.")
]


@dataclasses.dataclass(frozen=True)
class Printing:
    """How a command prints what it found."""

    as_format: AsFormat = Format.text
    quiet: Quiet = False

    def say(self, text: str) -> None:
        """A line on standard error, but for a quiet command."""
        if not self.quiet:
            remark(text)


@dataclasses.dataclass(frozen=True)
class Writing(Printing):
    """What every command has that leaves a folder."""

    out: Path | None = None  # with its default by command, see `command`
    override: Set = None

    @property
    def overrides(self) -> list[str]:
        """What --set gave."""
        return self.override or []


@dataclasses.dataclass(frozen=True)
class Running(Writing):
    """What every command has that trains what a spec describes."""

    resume: Resume = False
    plugins: Plugins = None


_FOLDERS = {
    "sweep": "runs/NAME-sweep",
    "dial": "runs/NAME-dial",
    "advise": "runs/NAME-advise, or the first free one of ...-2, ...-3",
    "pack": "runs/NAME-pack, or the first free one of ...-2, ...-3",
    "reproduce": "runs/SLUG, or the first free one of ...-2, ...-3",
}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A function as typer takes it: in the place of each parameter that is a dataclass stand its fields as options.

    A command with `Running` may import what a spec names, from installed packages and from its option --plugins.
    """
    # typer reads a signature: it is shown one in which every group of options is spread out, and the call is put
    # together again below. So a group is written once, however many commands have it.
    signature = inspect.signature(function, eval_str=True)
    hints = {name: own.annotation for name, own in signature.parameters.items()}
    kinds = {name: kind for name, kind in hints.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    spread: list[inspect.Parameter] = []
    for name, own in signature.parameters.items():
        spread += _parameters(kinds[name], function.__name__) if name in kinds else [own.replace(kind=own.KEYWORD_ONLY)]

    @functools.wraps(function)
    def called(**given: object) -> None:
        groups = {
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in kinds.items()
        }
        # code that a spec names may only be imported by commands that train, and only while they do
        running = next((group for group in groups.values() if isinstance(group, Running)), None)
        if running is None:
            return function(**given, **groups)
        from idiolect.core.importing import own_code

        with own_code(running.plugins):
            return function(**given, **groups)

    called.__signature__ = signature.replace(parameters=spread)  # type: ignore[attr-defined]
    return called


def _parameters(kind: type, command: str) -> list[inspect.Parameter]:
    """One for each field; help stands in an annotation, or as plain text in the field's metadata."""
    hints, found = typing.get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):
        default, text = field.default, field.metadata.get("help")
        if field.name == "out":
            text = f"Folder to write. Default: {_FOLDERS.get(command, 'runs/NAME')}."
        if text is not None:
            default = typer.Option(default, help=text)
        hint = hints[field.name]
        found.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return found


def parse_seeds(text: str) -> list[int]:
    """'0,1,5-7' as numbers."""
    from idiolect.experiments.spec import check_seeds

    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise RequestError(f"--seeds needs numbers such as 0,1,2 or 0-9, got {text!r}.")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        # before the range is made: a slip such as 0-99999999 would take all memory
        if last - first > 10_000:
            raise RequestError(f"--seeds {text!r} names more than 10000 seeds; use fewer.")
        seeds += range(first, last + 1)
    return list(check_seeds(seeds, "--seeds"))


def free_folder(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that holds nothing: repeating loses nothing."""
    number, free = 2, folder
    while free.exists():
        number, free = number + 1, folder.with_name(f"{folder.name}-{number}")
    return free


_OPTIONS = {  # by the setting that a sentence begins with
    "training.rounds": "--rounds",
    "training.cohort": "--cohort",
    "privacy.epsilon": "--epsilon",
    "tuning.minutes": "--minutes",
    "tuning.step_size": "--step-sizes",
    "data.held_out": "--held-out",
    "held_out": "--held-out",
    "data.task": "--task",
    "data.seed": "--seed",
    "model.name": "--model",
    "model.l2": "--l2",
    "seeds": "--seed or --seeds",
    "name": "--name",
}
_OF_METHODS = {"batch_size": "--batch-size", "epochs": "--epochs"}  # one option for every method
_SETTING = re.compile(r"(?:methods\.[^.\s]+\.)?(?P<name>[a-z_.0-9]+)(?= )")


@contextlib.contextmanager
def in_options(
    overrides: Sequence[str] = (), of_methods: Mapping[str, str] = _OF_METHODS, ridge: bool = False
) -> Iterator[None]:
    """A RequestError that begins with a setting begins with its option, unless a --set of `overrides` gave it.

    `of_methods` has the options that set something of every method; `ridge`: --l2 was given.
    """
    try:
        yield
    except RequestError as error:
        if ridge and isinstance(error, NeedsRidgeError):
            raise RequestError(
                "--l2 must be above 0 here: the method needs a loss with a ridge; leave --l2 out to have one chosen."
            ) from error
        error.args = (said_by_option(str(error), overrides, of_methods),)
        raise


def said_by_option(sentence: str, overrides: Sequence[str] = (), of_methods: Mapping[str, str] = _OF_METHODS) -> str:
    """The sentence with an option in the place of the setting that it begins with, where there is one."""
    found = _SETTING.match(sentence)
    if found is None:
        return sentence
    # `methods.LABEL.` in front says that the setting is a method's own
    name = found["name"]
    options = of_methods if found[0] != name else _OPTIONS
    if name not in options or any(name.rpartition(".")[2] in text.partition("=")[0] for text in overrides):
        return sentence
    return options[name] + sentence[found.end() :]
