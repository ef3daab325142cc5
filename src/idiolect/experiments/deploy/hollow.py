# SPDX-License-Identifier: Apache-2.0
"""The coordinator's federation: how many rows each site has, of which form and class, and not one of them.

Sites that join in the middle have their numbers, after all others, from the beginning, and no rows until then. Methods
count them as clients that are absent, so what states sum to holds when they come: a state that never moved. How columns
are prepared and which steps theory gives is settled by those that were there.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from idiolect.core.data import Rows
from idiolect.data.federation import Federation
from idiolect.data.preparation import Preparation
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.site_sums import SiteSums
from idiolect.data.split import PARTS
from idiolect.data.task import Task
from idiolect.experiments.build import build_client_loss
from idiolect.experiments.collaboration import find_collaboration
from idiolect.experiments.prepare import Prepared, choose_by_of, choose_scores, with_methods
from idiolect.experiments.protection import check_preparation, check_protections
from idiolect.experiments.spec import Spec
from idiolect.theory.constants import Constants


class Hollow(Federation):
    """A federation without rows: it does not describe what it does not know."""

    def describe(self) -> list[str]:
        """Sites and their rows; how classes are spread among them stays with the sites."""
        return super().describe()[:3]


def hollow_federation(
    recipe: Preprocessing, preparation: Preparation, sums: Mapping[str, SiteSums], weighted: bool
) -> Federation:
    """Counts, shapes and classes; inputs are one zero that all rows share, so that they take no memory."""
    return Hollow(
        _rows(recipe, sums, "train", weighted),
        _rows(recipe, sums, "validation", weighted),
        _rows(recipe, sums, "test", weighted),
        tuple(sums),
        recipe.task,
        preprocessing=recipe,
        notes=recipe.notes,
        warnings=recipe.warnings,
        preparation=preparation,
    )


def with_unknown(sums: Mapping[str, SiteSums], names: Sequence[str]) -> dict[str, SiteSums]:
    """What sites said, in the order of their numbers; of those that have not, a client without rows."""
    task = next(iter(sums.values())).task
    # like a client that is absent in every round: it has a number and no row
    nothing = SiteSums(task, dict.fromkeys(PARTS, 0), {}, {}, {}, {})
    return {name: sums.get(name, nothing) for name in names}


def padded(preparation: Preparation, clients: int) -> Preparation:
    """The same with clients at its end that sent nothing; what they receive to begin with is the recipe."""
    more = np.zeros(clients - len(preparation.rows), np.int64)
    sent = tuple(
        dataclasses.replace(part, upload_bytes=np.concatenate([part.upload_bytes, more])) for part in preparation.sent
    )
    return dataclasses.replace(preparation, rows=np.concatenate([preparation.rows, more]), sent=sent)


def _rows(recipe: Preprocessing, sums: Mapping[str, SiteSums], split: str, weighted: bool) -> Rows:
    counts = np.array([one.rows[split] for one in sums.values()])
    total = int(counts.sum())
    # strides of 0: a million rows take no more room than one
    inputs = np.broadcast_to(np.zeros((), np.float32), (total, len(recipe.feature_names)))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weights = np.broadcast_to(np.ones(()), (total,)) if weighted else None
    return Rows(inputs, _targets(recipe.task, len(recipe.target.names), sums, split, total), offsets, weights)


def _targets(task: Task, width: int, sums: Mapping[str, SiteSums], split: str, total: int) -> np.ndarray:
    """Of training rows the classes as often as they occur, where sites said so: a score is chosen by their balance."""
    if task.kind != "classification":
        return np.broadcast_to(np.zeros((), np.float32), (total,) if width == 1 else (total, width))
    place = {name: number for number, name in enumerate(task.classes)}
    if split == "train" and all(one.class_counts for one in sums.values() if one.rows[split]):
        names, counts = zip(*itertools.chain.from_iterable(one.class_counts.items() for one in sums.values()))
        # which row has which class is not known, nor asked: the score is chosen by how many have it
        found = np.repeat(np.array([place[name] for name in names], np.int32), counts)
        if len(found) == total:
            return found
    return np.broadcast_to(np.zeros((), np.int32), (total,))


def prepare_hollow(spec: Spec, federation: Federation, constants: Constants | None) -> Prepared:
    """What `prepare` makes of rows, made of what sites said of theirs."""
    check_protections(spec)
    check_preparation(spec, federation)
    scores, reason = choose_scores(spec, federation)
    choose_by = choose_by_of(spec, federation)
    return with_methods(
        Prepared(
            spec,
            federation,
            False,
            build_client_loss(spec.model, federation, None),
            constants,
            find_collaboration(spec.collaboration, federation),
            scores if choose_by in scores else (*scores, choose_by),
            choose_by,
            reason,
            deployed=True,
        ),
        {},
    )
