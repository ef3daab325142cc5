# SPDX-License-Identifier: Apache-2.0
"""An algorithm's reduction with what protections do to it: unpack, attack, combine robustly, divide by a constant."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from idiolect.core import Changes, tree
from idiolect.core.reduction import Gathered, GroupedMean, gather
from idiolect.core.types import Mean, Reduction, Tree
from idiolect.protection.attacks import attack_together
from idiolect.protection.changes import Moves
from idiolect.protection.choices import JOINT_ATTACKS, ClientPrivacy, Protection
from idiolect.protection.clipping import clip
from idiolect.protection.packing import unpack_tree
from idiolect.protection.robust_means import robust_mean


@dataclasses.dataclass(eq=False)
class ProtectedReduction:
    """Lift, add, lower as before, or every upload apart where a robust mean or attackers need them."""

    own: Reduction
    changes: Changes
    protection: Protection
    stacks: bool  # partial results are concatenated

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> Tree:
        """A chunk of uploads, unpacked."""
        if self.protection.compression is not None:
            uploads = jax.vmap(self._unpack)(uploads)
        if self.stacks:
            return gather.collect(uploads, clients, present)
        return self.own.collect(uploads, clients, present)

    def _unpack(self, upload: Tree) -> Tree:
        upload, privacy = unpack_tree(upload), self.protection.privacy
        if privacy is None:
            return upload
        # what compression lost may have made a change longer, and the noise hides no more than the clip
        return upload._replace(**clip(self._moves(upload), privacy.clip))

    def lower(self, partial: Tree) -> Tree:
        """What the algorithm's `server_step` receives, in changes."""
        if self.stacks:
            partial = self._combine(gather.lower(partial))
            if self.protection.robustness is not None:
                return partial
        privacy = self.protection.privacy
        return self.own.lower(partial) if privacy is None else _by_expected_number(privacy, partial)

    def _combine(self, gathered: Gathered) -> Tree:
        """All uploads, attackers' too: a partial result of the algorithm's own reduction, or a robust mean."""
        uploads, clients, present = gathered.uploads, gathered.clients, gathered.present
        attack = self.protection.attack
        if attack is not None and attack.kind in JOINT_ATTACKS:
            uploads = uploads._replace(**attack_together(attack, self._moves(uploads), clients, present))
        if self.protection.robustness is None:
            return self.own.collect(uploads, clients, present)
        uploads = uploads._replace(weight=jnp.ones_like(uploads.weight))  # a weight is a claim of the client
        # the algorithm's own mean first: fields that are no changes keep it
        received = self.own.lower(self.own.collect(uploads, clients, present))
        if isinstance(received, GroupedMean):
            groups = jnp.arange(received.weights.shape[0], dtype=uploads.group.dtype)
            robust = jax.vmap(lambda group: self._robust(uploads, present & (uploads.group == group)))(groups)
            return received._replace(means=received.means._replace(**robust))
        return received._replace(mean=received.mean._replace(**self._robust(uploads, present)))

    def _robust(self, uploads: Tree, there: jax.Array) -> Moves:
        assert self.protection.robustness is not None
        moves = self._moves(uploads)
        # one row per client of all its arrays: Krum and the geometric median judge whole uploads by their distance
        table = jax.vmap(lambda own: ravel_pytree(own)[0])(moves)
        _, read = ravel_pytree(tree.take(moves, 0))
        moved: Moves = read(robust_mean(self.protection.robustness, table, there))
        return moved

    def _moves(self, upload: Tree) -> Moves:
        return {name: getattr(upload, name) for name in self.changes.fields}


def _by_expected_number(privacy: ClientPrivacy, partial: Mean) -> Mean:
    """The sum over how many clients are expected: who came, and how many, must not show."""
    expected = jnp.asarray(privacy.expected, partial.weight.dtype)
    cohort = jnp.maximum(jnp.round(expected), 1).astype(partial.cohort.dtype)
    return Mean(tree.scale(1 / expected, partial.mean), expected, cohort)
