# SPDX-License-Identifier: Apache-2.0
"""What a stage of an algorithm hands on has the names and shapes of what it was handed: else no loop could carry it."""

from __future__ import annotations

import jax
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.tree import Tree


def check_form(stage: str, what: str, before: Tree, after: Tree) -> None:
    """RequestError where `after`, which `stage` returned as the new `what`, has other names or shapes than `before`."""
    forms: list[object] = [jax.tree.structure(value) for value in (before, after)]
    if forms[0] != forms[1]:
        raise RequestError(
            f"{stage} must return the {what} with the form it had, {_form(before)}, got {_form(after)}; return all of "
            "its fields, and nothing else."
        )
    old, _ = jax.tree_util.tree_flatten_with_path(before)
    for (path, leaf), other in zip(old, jax.tree.leaves(after)):
        if np.shape(leaf) != np.shape(other):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise RequestError(
                f"{stage} must return the {what} with the shapes it had, {np.shape(leaf)} of {name}, got "
                f"{np.shape(other)}; keep the shape, or make it so in the first place."
            )


def _form(value: Tree) -> str:
    """'ClientState(personal, control)', or the paths of its arrays where it has no name."""
    fields = getattr(value, "_fields", None)
    if fields is not None:
        return f"{type(value).__name__}({', '.join(fields)})"
    paths = jax.tree_util.tree_flatten_with_path(value)[0]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    return (
        f"{type(value).__name__} of {', '.join(names[:4])}{', ...' if len(names) > 4 else ''}" if paths else "nothing"
    )
