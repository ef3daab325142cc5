# SPDX-License-Identifier: Apache-2.0
"""Reductions: how a cohort's uploads become what the server receives.

All but `gather` are lift, add, lower: a sum under `vmap`, a `psum` under sharding, a running total in deployment, and
what secure aggregation can compute. A client that dropped out is lifted to zero, so it adds nothing.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from idiolect.core.tree import Tree


class Mean(NamedTuple):
    """The weighted mean of the uploads; zero when the cohort is empty."""

    mean: Tree
    weight: jax.Array
    cohort: jax.Array


class Total(NamedTuple):
    """The plain sum of the uploads."""

    total: Tree
    weight: jax.Array
    cohort: jax.Array


class GroupedMean(NamedTuple):
    """One weighted mean and one total weight per group; an empty group has mean and weight zero."""

    means: Tree
    weights: jax.Array
    cohort: jax.Array


class Gathered(NamedTuple):
    """Every upload, by ascending client id; rows whose `present` is false came from no client."""

    uploads: Tree
    weight: jax.Array
    cohort: jax.Array
    clients: jax.Array
    present: jax.Array


class Reduction(Protocol):
    """What an engine needs of a reduction. `collect` takes a chunk of stacked uploads to a partial result."""

    stacks: bool  # partial results are concatenated instead of added

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> Tree:
        """Lift a chunk of uploads (leading axis: clients) and sum them."""

    def lower(self, partial: Tree) -> Tree:
        """Turn the sum of all partial results into what `server_step` receives."""


def _sum_rows(weights: jax.Array, leaf: jax.Array, present: jax.Array) -> jax.Array:
    """sum_m weights_m leaf_m over present clients; an absent client may hold anything, even NaN."""
    # As a table: on a CPU the sum of ten clients' (9216, 128) takes 0.03 s, and 0.22 s where the leaf keeps its axes.
    table = jnp.reshape(leaf, (len(weights), math.prod(jnp.shape(leaf)[1:])))
    # Weights that are known while compiling would let the compiler undo the table.
    weights = jax.lax.optimization_barrier(weights)
    rows = jnp.where(present[:, None], table, 0)
    return jnp.sum(weights[:, None].astype(leaf.dtype) * rows, axis=0).reshape(jnp.shape(leaf)[1:])


def _present_weights(uploads: Tree, present: jax.Array) -> jax.Array:
    return jnp.where(present, uploads.weight, 0)


def _cohort(present: jax.Array) -> jax.Array:
    return jnp.sum(present, dtype=jnp.int32)


@dataclasses.dataclass(frozen=True)
class WeightedMean:
    """sum_m weight_m upload_m / sum_m weight_m; reads `Upload.weight`."""

    sends: bool = True  # False: the server has no use for it, and no byte goes down or up
    stacks = False

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> Mean:
        """Weighted sums, total weight, number of clients."""
        weights = _present_weights(uploads, present)
        sums = jax.tree.map(lambda leaf: _sum_rows(weights, leaf, present), uploads)
        return Mean(sums, jnp.sum(weights), _cohort(present))

    def lower(self, partial: Mean) -> Mean:
        """Divide by the total weight."""
        # an empty cohort has weight 0: its sum, also 0, stays the "mean"
        divisor = jnp.where(partial.weight > 0, partial.weight, 1)
        mean = jax.tree.map(lambda leaf: leaf / divisor.astype(leaf.dtype), partial.mean)
        return partial._replace(mean=mean)


@dataclasses.dataclass(frozen=True)
class Sum:
    """sum_m upload_m; weights are only added up."""

    stacks = False

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> Total:
        """Plain sums, total weight, number of clients."""
        ones = jnp.ones_like(uploads.weight)
        sums = jax.tree.map(lambda leaf: _sum_rows(ones, leaf, present), uploads)
        return Total(sums, jnp.sum(_present_weights(uploads, present)), _cohort(present))

    def lower(self, partial: Total) -> Total:
        """Nothing is left to do."""
        return partial


@dataclasses.dataclass(frozen=True)
class WeightedMeanByGroup:
    """One weighted mean per group of clients; reads `Upload.weight` and `Upload.group`."""

    groups: int
    stacks = False

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> GroupedMean:
        """Weighted sums and weights, one row per group."""
        # as a mask and not by segments: groups are few, and sums of chunks add up whatever the order
        member = uploads.group[:, None] == jnp.arange(self.groups, dtype=uploads.group.dtype)[None]
        weights = jnp.where(member, _present_weights(uploads, present)[:, None], 0)

        def group_sums(leaf: jax.Array) -> jax.Array:
            return jax.vmap(lambda column: _sum_rows(column, leaf, present), in_axes=1)(weights)

        return GroupedMean(jax.tree.map(group_sums, uploads), jnp.sum(weights, axis=0), _cohort(present))

    def lower(self, partial: GroupedMean) -> GroupedMean:
        """Divide each group by its weight."""
        divisor = jnp.where(partial.weights > 0, partial.weights, 1)

        def divide(leaf: jax.Array) -> jax.Array:
            return leaf / divisor.reshape(-1, *(1,) * (leaf.ndim - 1)).astype(leaf.dtype)

        return partial._replace(means=jax.tree.map(divide, partial.means))


@dataclasses.dataclass(frozen=True)
class Gather:
    """Every upload as it is, with client ids. Cannot run under secure aggregation."""

    stacks = True

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> Gathered:
        """Keep the rows; zero those of absent clients."""
        kept = jax.tree.map(lambda leaf: jnp.where(present.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0), uploads)
        return Gathered(kept, _present_weights(uploads, present), present, clients, present)

    def lower(self, partial: Gathered) -> Gathered:
        """Order by client id, so that the result does not depend on how the cohort was chunked."""
        order = jnp.argsort(partial.clients)
        stacked = jax.tree.map(lambda leaf: leaf[order], partial)
        return stacked._replace(weight=jnp.sum(stacked.weight), cohort=_cohort(stacked.present))


weighted_mean = WeightedMean()
nothing = WeightedMean(sends=False)
total = Sum()
gather = Gather()


def grouped_mean(groups: int) -> WeightedMeanByGroup:
    """The weighted mean of each of `groups` groups."""
    return WeightedMeanByGroup(groups)
