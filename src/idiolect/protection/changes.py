# SPDX-License-Identifier: Apache-2.0
"""The part of an Upload that says how something moved, taken out and put back."""

from __future__ import annotations

from typing import NamedTuple, cast

import jax

from idiolect.core import Algorithm, Changes, tree
from idiolect.core.kinds import SendsChanges
from idiolect.core.reduction import GroupedMean
from idiolect.core.types import Tree

Moves = dict[str, Tree]  # field of the Upload -> its change


class Beside(NamedTuple):
    """A tuple of the contract with something beside it that only the protection reads; it reads as that tuple."""

    own: Tree
    more: Tree

    # reductions read `weight` and `group` off whatever was uploaded
    def __getattr__(self, name: str) -> Tree:
        return getattr(self.own, name)


def own_part(value: Tree) -> Tree:
    """The algorithm's own tuple."""
    return value.own if isinstance(value, Beside) else value


def changes_of(algorithm: Algorithm) -> Changes:
    """What its uploads state; only for one that was not refused."""
    return cast(SendsChanges, algorithm).changes


def take_moves(changes: Changes, sent: Tree, upload: Tree) -> Moves:
    """The changes of an upload: what holds whole parameters, less what was sent."""
    # a field that is () with these settings has no start to be taken from
    return {
        name: move if start is None or not jax.tree.leaves(move) else tree.subtract(move, getattr(sent, start))
        for name, start in changes.fields.items()
        for move in [getattr(upload, name)]
    }


def add_starts(changes: Changes, sent: Tree, received: Tree) -> Tree:
    """What the server received, with whole parameters where the algorithm expects them."""

    part = "means" if isinstance(received, GroupedMean) else "mean"
    mean = getattr(received, part)
    moved = {
        name: tree.add(getattr(mean, name), getattr(sent, start))
        for name, start in changes.fields.items()
        if start is not None and jax.tree.leaves(getattr(mean, name))
    }
    return received._replace(**{part: mean._replace(**moved)})
