# SPDX-License-Identifier: Apache-2.0
"""Clients laid over several devices: one mesh with one axis, and what of a round crosses it.

Rows and states of clients are cut along it, server and settings are on every device. A round stays as it is: its
devices work on their own clients, and one collective adds up what their uploads were lifted to, or stacks it. Where
devices do not divide the clients, the last client stands again in the rows that are left over, absent from every round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.core.reduction import Reduction
from idiolect.core.tree import Tree
from idiolect.engines.cohorts import PADDING
from idiolect.record.cores import physical_cores

CLIENTS = "clients"  # the mesh's axis
EVERYWHERE = PartitionSpec()


def by_client(axis: int) -> PartitionSpec:
    """Of arrays whose axis of that number has an entry per client."""
    return PartitionSpec(*[None] * axis, CLIENTS)


class Dealt(NamedTuple):
    """Cohorts by device: (..., devices x width), a device's members side by side."""

    clients: np.ndarray
    rows: np.ndarray  # where they stand on their device
    present: np.ndarray


class Shards(NamedTuple):
    """Where so many clients are: device d has `own` of them, in order."""

    mesh: Mesh
    clients: int

    @property
    def devices(self) -> int:
        """How many there are."""
        return int(self.mesh.size)

    @property
    def own(self) -> int:
        """Rows of a device."""
        # rounded up: one program needs the same shape on every device
        return -(-self.clients // self.devices)

    @property
    def width(self) -> int:
        """Rows of all devices."""
        return self.own * self.devices

    @property
    def numbers(self) -> np.ndarray:
        """(width,) whose row each one is."""
        # real rows stand in what is left over: means over none at all would be 0 / 0
        return np.minimum(np.arange(self.width), self.clients - 1).astype(np.int32)

    def over(self, function: Callable[..., Tree], taken: Any, returned: Any) -> Callable[..., Tree]:
        """`function` on every device at once; `taken` and `returned` say how its arguments and results are cut."""
        # what is on every device is computed on every device: nothing checks that, and a test of every method does
        return jax.shard_map(function, mesh=self.mesh, in_specs=taken, out_specs=returned, check_vma=False)

    def add_up(self, reduction: Reduction, partial: Tree) -> Tree:
        """What the uploads of all devices come to; within `over`."""
        if reduction.stacks:
            # tiled: parts one after the other, as the chunks of one device are
            return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, CLIENTS, tiled=True), partial)
        return jax.lax.psum(partial, CLIENTS)

    def load(self, read: Callable[[np.ndarray], Tree]) -> Tree:
        """What `read` returns of each device's clients, laid over the mesh; a process reads its own alone."""
        cut = NamedSharding(self.mesh, by_client(0))
        # a process can fill its own devices alone, and no host need hold the rows of all
        places = cut.addressable_devices_indices_map((self.width,))
        pieces = [jax.device_put(read(self.numbers[place]), device) for device, place in places.items()]

        def join(*leaves: jax.Array) -> jax.Array:
            shape = (self.width, *leaves[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, cut, list(leaves))

        return jax.tree.map(join, *pieces)

    def lay(self, tree: Tree, axis: int) -> Tree:
        """Arrays with a row per client along `axis`, laid over the mesh; those that are there stay."""
        cut = NamedSharding(self.mesh, by_client(axis))

        def one(leaf: Array) -> jax.Array:
            if isinstance(leaf, jax.Array) and leaf.sharding == cut:
                return leaf  # through the host and back, every record would copy all states
            rows = to_host(leaf)
            # what comes from a checkpoint or another number of devices has a row per client, and no more
            rows = rows if rows.shape[axis] == self.width else np.take(rows, self.numbers, axis)
            return jax.make_array_from_callback(rows.shape, cut, lambda place: rows[place])

        return jax.tree.map(one, tree)

    def spread(self, tree: Tree) -> Tree:
        """Arrays on every device."""
        whole = NamedSharding(self.mesh, EVERYWHERE)

        def one(leaf: Array) -> jax.Array:
            if isinstance(leaf, jax.Array) and leaf.sharding == whole:
                return leaf
            values = to_host(leaf)
            return jax.make_array_from_callback(values.shape, whole, lambda place: values[place])

        return jax.tree.map(one, tree)

    def some(self, count: int) -> Shards:
        """The same devices for so many clients."""
        return self._replace(clients=count)

    def pick(self, tree: Tree, rows: np.ndarray, axis: int) -> Tree:
        """Some rows of arrays that are laid along `axis`, laid along it again."""
        return pick(tree, rows, axis=axis, cut=NamedSharding(self.mesh, by_client(axis)))

    def cut(self, tree: Tree, axis: int) -> Tree:
        """Arrays of all devices on the host, a row per client: what was left over is gone."""
        return jax.tree.map(lambda leaf: to_host(leaf)[(slice(None),) * axis + (slice(self.clients),)], tree)

    def deal(self, clients: np.ndarray, present: np.ndarray, width: int) -> Dealt:
        """Cohorts (..., cohort) to the devices of their clients, at least `width` places each, padding in the rest."""
        homes = np.where(clients == PADDING, -1, clients // self.own)
        # all blocks have the shape of the rounds that were looked ahead: another one would be compiled anew
        width = max(width, self.widest(clients))
        shape = (*clients.shape[:-1], self.devices * width)
        dealt = Dealt(np.full(shape, PADDING, np.int32), np.zeros(shape, np.int32), np.zeros(shape, bool))
        for device in range(self.devices):
            here = homes == device
            at = np.nonzero(here)
            # members keep their order; the k-th one of this device takes its k-th place
            places = (np.cumsum(here, axis=-1) - 1)[at] + device * width
            dealt.clients[(*at[:-1], places)] = clients[at]
            dealt.rows[(*at[:-1], places)] = clients[at] - device * self.own
            dealt.present[(*at[:-1], places)] = present[at]
        return dealt

    def widest(self, clients: np.ndarray) -> int:
        """The most members of one cohort that one device has."""
        homes = np.where(clients == PADDING, -1, clients // self.own)
        return max(1, *(int(np.sum(homes == device, axis=-1).max(initial=0)) for device in range(self.devices)))


@functools.partial(jax.jit, static_argnames=("axis", "cut"))
def pick(tree: Tree, rows: Array, *, axis: int, cut: NamedSharding | None = None) -> Tree:
    """Some rows along `axis`, on one device or cut over several."""
    picked = jax.tree.map(lambda leaf: leaf[(slice(None),) * axis + (rows,)], tree)
    return picked if cut is None else jax.lax.with_sharding_constraint(picked, cut)


def to_host(leaf: Array) -> np.ndarray:
    """The whole array, also where other processes have parts of it: then all of them must ask."""
    # a replicated array is whole in every process: any copy will do, and nothing is sent
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    return np.asarray(leaf)


def start_devices(asked: int | str) -> None:
    """Have JAX divide the CPU into so many devices, "auto": by its cores; it can only before it computes anything."""
    count = asked if isinstance(asked, int) else physical_cores()
    if count > 1:
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError:  # it has: there are as many as there are
            return


def make_shards(count: int, clients: int) -> Shards:
    """So many devices for so many clients, or RequestError."""
    start_devices(count)
    there = jax.devices()
    if len(there) < count:
        way_out = f"use at most {len(there)}"
        if there[0].platform == "cpu":
            way_out += (
                f", or have JAX divide this CPU before it computes anything: jax.config.update('jax_num_cpu_devices', "
                f"{count}) first in the program; `idiolect run` and il.train do so themselves"
            )
        raise RequestError(f"training.devices = {count}, and JAX has {len(there)} {there[0].platform}; {way_out}.")
    return Shards(Mesh(np.asarray(there[:count]), (CLIENTS,)), clients)
