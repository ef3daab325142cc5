# SPDX-License-Identifier: Apache-2.0
"""The errors that the command line answers with one sentence and an exit code."""

from __future__ import annotations


class RequestError(ValueError):
    """The request was wrong: one sentence with the rule, the value and the way out. The command line exits 2."""


class DamagedError(RequestError):
    """A file is not what was written: cut short, changed or gone. The command line exits 2."""


class AbsentDataError(RequestError):
    """The file of a data set is not here; the sentence names the command that gets it. The command line exits 2."""


class NeedsRidgeError(RequestError):
    """A method needs a strongly convex loss, and this one has no ridge: a command can say so by its own option."""


class DivergedError(RuntimeError):
    """Training left the finite numbers: says at which round and client. The command line exits 1."""


class LostHostError(RuntimeError):
    """Another host of a run over several was lost: says what is kept. The command line exits 1."""


class FetchError(RuntimeError):
    """A data set could not be had: no network, or another file than the known one. The command line exits 1."""
