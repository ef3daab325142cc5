# SPDX-License-Identifier: Apache-2.0
"""Sentences about a spec's settings, in the words of who gave options: '--rounds must be ...'."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from idiolect.record.errors import NeedsRidgeError, RequestError

_OPTIONS = {
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
