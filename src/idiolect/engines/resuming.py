# SPDX-License-Identifier: Apache-2.0
"""A session into a checkpoint and back: what must agree, what is kept, what is taken up again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.tree import Tree
from idiolect.data.store import RecordFile
from idiolect.engines import door
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.on_disk import OnDisk
from idiolect.engines.plan import Plan
from idiolect.engines.state import lay_out, take_up

if TYPE_CHECKING:
    from idiolect.engines.session import Session

FORMAT = 3  # of the file; changes with what a `State` holds, and with the form of what models hold


def save(session: Session, checkpoint: Checkpoint) -> None:
    """Keep the state, whole: its arrays as arrays, its plain numbers exactly."""
    plan, leaves = session.plan, jax.tree.leaves(take_up(session.plan, session.state))
    facts = {
        "format": FORMAT,
        "round": session.state.round,
        "fingerprint": plan.fingerprint,
        "plan": {name: getattr(plan.training, name) for name in ("executor", "chunk", "block")},
        "numbers": [leaf for leaf in leaves if isinstance(leaf, (int, float))],
    }
    arrays = [leaf for leaf in leaves if not isinstance(leaf, (int, float))]
    folder, mark = session.kept_history
    history = list(zip(*session.histories))
    if jax.process_index() == 0:  # of several hosts, each of which has the whole state here, one writes it
        mark = checkpoint.save(arrays, facts, _records(plan), history, mark if folder == checkpoint.folder else None)
    session.kept_history, session.saved = (checkpoint.folder, mark), session.state.round


def load(session: Session, checkpoint: Checkpoint) -> None:
    """Take the session up where the checkpoint stands; RequestError where it is of another request."""
    plan, where = session.plan, checkpoint.folder
    stored, facts, history, mark = checkpoint.load(_records(plan))
    if facts.get("format") != FORMAT:
        raise RequestError(
            f"The checkpoint in {where} was written by another version of idiolect, in a format that this one does not "
            "read; finish the run with that version, or delete the folder to train this part again."
        )
    if facts["fingerprint"] != plan.fingerprint:
        raise RequestError(
            f"The checkpoint in {where} belongs to other settings or data; resume with the run's own spec.toml, or "
            "start in a new run folder."
        )
    session.plan = plan = dataclasses.replace(plan, training=_adopt(plan, facts["plan"], where))
    if facts["round"] > plan.training.rounds:
        raise RequestError(
            f"The checkpoint in {where} stands at round {facts['round']}, beyond training.rounds = "
            f"{plan.training.rounds}; ask for at least that many rounds."
        )
    leaves, structure = jax.tree.flatten(session.state)
    needed = len(leaves) - len(facts["numbers"])
    if len(stored) != needed:
        raise RequestError(f"The checkpoint in {where} has {len(stored)} arrays where {needed} are needed.")
    arrays, numbers = iter(stored), iter(facts["numbers"])
    with door.run_precision(plan.training.precision):
        restored = [_restore(leaf, arrays, numbers) for leaf in leaves]
    session.state = lay_out(plan, jax.tree.unflatten(structure, restored))
    plan.population.mark(session.state.round)
    session.histories = [list(rows) for rows in zip(*history)] or [[] for _ in plan.seeds]
    session.kept_history, session.saved = (where, mark), session.state.round


def _restore(leaf: Tree, arrays: Iterator[np.ndarray], numbers: Iterator[float]) -> Tree:
    """The stored leaf in the place of one of the same kind: a plain number, on the host, or on the device."""
    if isinstance(leaf, (int, float)):
        return next(numbers)
    stored = next(arrays)
    return jnp.asarray(stored) if isinstance(leaf, jax.Array) else stored


def _adopt(plan: Plan, chosen: dict[str, Any], where: Path) -> door.Training:
    """The program a checkpoint was made by, where the request left the choice to us."""
    asked = plan.requested
    mine = dataclasses.asdict(plan.training)
    # another program rounds otherwise: a resumed run must give the same bits as one that was never stopped
    free = {"executor": asked.executor == "auto", "chunk": asked.executor == "auto", "block": asked.block == 0}
    for name, value in chosen.items():
        if mine[name] != value and not free[name]:
            raise RequestError(
                f"The checkpoint in {where} was made with {name} = {value!r}, the request says {mine[name]!r}; "
                "resume with the run's own settings."
            )
    return dataclasses.replace(plan.training, **chosen)


def _records(plan: Plan) -> RecordFile | None:
    """The file of the clients' states, where they are on disk."""
    return plan.population.file if isinstance(plan.population, OnDisk) else None
