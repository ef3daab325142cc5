# SPDX-License-Identifier: Apache-2.0
"""Clients laid over several devices: one mesh with one axis, and what of a round crosses it.

Rows and states of clients are cut along it, server and settings are on every device. A round stays as it is: each
device works on an equal part of the cohort, and one collective adds up what their uploads were lifted to, or stacks it.
All clients are worked on where they are; of a cohort of some, rows and states are brought, and states taken home again.
Where devices do not divide the clients, the last client stands again in the rows that are left over, absent always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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

    def lay(self, tree: Tree, axis: int | None) -> Tree:
        """Arrays with a row per client along `axis`, laid over the mesh; without an axis, whole on every device."""
        wanted = NamedSharding(self.mesh, EVERYWHERE if axis is None else by_client(axis))

        def one(leaf: Array) -> jax.Array:
            if isinstance(leaf, jax.Array) and leaf.sharding == wanted:
                return leaf  # through the host and back, every record would copy all states
            values = to_host(leaf)
            # what comes from a checkpoint or another number of devices has a row per client, and no more
            if axis is not None and values.shape[axis] != self.width:
                values = np.take(values, self.numbers, axis)
            return jax.make_array_from_callback(values.shape, wanted, lambda place: values[place])

        return jax.tree.map(one, tree)

    def pick(self, tree: Tree, rows: np.ndarray, axis: int) -> Tree:
        """Some rows of arrays that are laid along `axis`, laid along it again."""
        return pick(tree, rows, axis=axis, cut=NamedSharding(self.mesh, by_client(axis)))

    def cut(self, tree: Tree, axis: int) -> Tree:
        """Arrays of all devices on the host, a row per client: what was left over is gone."""
        return jax.tree.map(lambda leaf: to_host(leaf)[(slice(None),) * axis + (slice(self.clients),)], tree)

    def bring(self, tables: Tree, rows: jax.Array) -> Tree:
        """Of tables with a row per client, some rows: from the devices that have them to this one; within `over`.

        `rows` are those that this device asks for, as many as every other; what it gets has a row for each.
        """
        here, held = self._places_of_all(rows)
        places = jnp.where(held, here, 0)

        def one(table: jax.Array) -> jax.Array:
            # one device has a row, the others add zeros: of whole numbers, so that every bit arrives as it was
            bits = table[places].view(f"uint{8 * table.dtype.itemsize}")
            given = jnp.where(held.reshape(-1, *(1,) * (bits.ndim - 1)), bits, 0)
            return jax.lax.psum_scatter(given, CLIENTS, tiled=True).view(table.dtype)

        return jax.tree.map(one, tables)

    def collect(self, tree: Tree, rows: jax.Array) -> tuple[Tree, jax.Array, jax.Array]:
        """What all devices made of the rows they asked for: (it, their places on this device, which it has)."""
        whole = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, CLIENTS, tiled=True), tree)
        return whole, *self._places_of_all(rows)

    def _places_of_all(self, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where the rows that all devices asked for stand on this one, and which of them it has."""
        asked = jax.lax.all_gather(rows, CLIENTS, tiled=True)
        here = asked - jax.lax.axis_index(CLIENTS).astype(jnp.int32) * self.own
        return here, (here >= 0) & (here < self.own)

    def deal(self, clients: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cohorts (..., cohort) in as many equal parts as there are devices: (clients, their rows, who is present)."""
        fill = [(0, 0)] * (clients.ndim - 1) + [(0, -clients.shape[-1] % self.devices)]
        clients, present = np.pad(clients, fill, constant_values=PADDING), np.pad(present, fill)
        return clients, np.where(clients == PADDING, 0, clients), present


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


def make_shards(count: int | str, clients: int) -> Shards | None:
    """So many devices for so many clients, or RequestError; None: there is one, with which "auto" begins."""
    if not isinstance(count, int) or count == 1:
        return None
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
