# SPDX-License-Identifier: Apache-2.0
"""A session into a checkpoint and back: what must agree, what is kept, what is taken up again."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.population import OnDisk
from idiolect.engines.recording import Recorder

if TYPE_CHECKING:
    from idiolect.engines.session import Session


def save(session: Session, checkpoint: Checkpoint) -> None:
    """Keep the session as it stands."""
    facts = {
        "round": session.round,
        "seconds": session.seconds,
        "fingerprint": _fingerprint(session),
        "plan": {name: getattr(session.training, name) for name in ("executor", "chunk", "block")},
        "recorders": [recorder.to_facts() for recorder in session.recorders],
    }
    leaves = [*jax.tree.leaves(session.server), *session.population.leaves(), *jax.tree.leaves(session.selected)]
    history = list(zip(*(recorder.history for recorder in session.recorders)))
    folder, mark = session.kept_history
    mark = checkpoint.save(leaves, facts, _records(session), history, mark if folder == checkpoint.folder else None)
    session.kept_history = checkpoint.folder, mark


def load(session: Session, checkpoint: Checkpoint) -> None:
    """Take the session up where the checkpoint stands; RequestError where it is of another request."""
    leaves, facts, history, mark = checkpoint.load(_records(session))
    if facts["fingerprint"] != _fingerprint(session):
        raise RequestError(
            f"The checkpoint in {checkpoint.folder} belongs to other settings or data; resume with the run's own "
            "spec.toml, or start in a new run folder."
        )
    _adopt(session, facts["plan"], checkpoint.folder)
    if facts["round"] > session.training.rounds:
        raise RequestError(
            f"The checkpoint in {checkpoint.folder} stands at round {facts['round']}, beyond training.rounds = "
            f"{session.training.rounds}; ask for at least that many rounds."
        )
    whole = (session.server, session.population.leaves(), session.selected)
    counts = len(jax.tree.leaves(whole))
    if len(leaves) != counts:
        raise RequestError(f"The checkpoint in {checkpoint.folder} has {len(leaves)} arrays where {counts} are needed.")
    restored = jax.tree.unflatten(jax.tree.structure(whole), [jnp.asarray(leaf) for leaf in leaves])
    session.server, states, selected = restored
    session.population.restore(states)
    session.selected = [snapshot._replace(round=int(snapshot.round)) for snapshot in selected]
    own = [list(rows) for rows in zip(*history)] or [[] for _ in facts["recorders"]]
    session.recorders = [Recorder.from_facts(lane, rows) for lane, rows in zip(facts["recorders"], own)]
    session.kept_history = checkpoint.folder, mark
    session.round, session.seconds = facts["round"], facts["seconds"]


def _fingerprint(session: Session) -> str:
    """What a checkpoint must agree on to be continued: program, settings, seeds, rows, precision."""
    leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(session.algorithm)]
    training = dataclasses.replace(session.training, rounds=0, executor="", chunk=0, block=0)
    kinds = jax.tree.structure(session.algorithm)
    facts = repr((kinds, leaves, session.seeds, training, session.row_digests, session.scores))
    return hashlib.sha256(facts.encode()).hexdigest()


def digests(rows: Any) -> list[tuple[tuple[int, ...], int]]:
    """What several splits' rows are, in few bytes."""
    parts = [part for split in rows for part in (split.inputs, split.targets, split.offsets)]
    parts += [split.weights for split in rows if split.weights is not None]
    return [(part.shape, zlib.crc32(np.ascontiguousarray(part).data)) for part in parts]


def _adopt(session: Session, plan: dict[str, Any], where: Path) -> None:
    """Go on with the program a checkpoint was made by, where the request left the choice to us."""
    asked = session.requested
    mine = dataclasses.asdict(session.training)
    free = {"executor": asked.executor == "auto", "chunk": asked.executor == "auto", "block": asked.block == 0}
    for name, value in plan.items():
        if mine[name] != value and not free[name]:
            raise RequestError(
                f"The checkpoint in {where} was made with {name} = {value!r}, the request says {mine[name]!r}; "
                "resume with the run's own settings."
            )
    session.training = dataclasses.replace(session.training, **plan)


def _records(session: Session) -> Any:
    """The file of the clients' states, where they are on disk."""
    return session.population.file if isinstance(session.population, OnDisk) else None
