# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation as a reduction: exact sums of fixed-point numbers, and the protocol's messages in the ledger.

What goes up is the upload *lifted* by the algorithm's own reduction, weight and count with it, as fixed-point numbers.
Masks cancel exactly, so that a simulation need not draw them: the sum is the same whole number as that of real sites.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from idiolect.core.algorithm import Algorithm
from idiolect.core.kinds import Leg
from idiolect.core.reduction import Reduction
from idiolect.core.settings import settings
from idiolect.core.tree import Tree
from idiolect.protection.choices import SecureAggregation
from idiolect.protection.fixed_point import NUMBER_BYTES, Digits, fits, from_digits, to_digits
from idiolect.protection.masked_rounds import SIZES, ClientMasks, ServerMasks

Owner = TypeVar("Owner", bound=Algorithm)

if TYPE_CHECKING:  # it stands before the algorithm's class in the order of bases, and is no algorithm by itself
    _Base = Any
else:
    _Base = object


class FixedSum(NamedTuple):
    """The sum of some lifted uploads."""

    numbers: Tree  # of Digits
    stayed: jax.Array  # clients in it
    beyond: jax.Array  # clients of them with a number that the sum has no room for


@dataclasses.dataclass(eq=False)
class MaskedReduction:
    """Another reduction's lift, add and lower, with fixed-point numbers in between."""

    own: Reduction
    rules: SecureAggregation
    stacks: bool = False
    sizes = SIZES

    def collect(self, uploads: Tree, clients: jax.Array, present: jax.Array) -> FixedSum:
        """The exact sum of a chunk."""
        bits, cohort = self.rules.fraction_bits, self.rules.cohort
        lifted = jax.vmap(self.lift)(uploads, clients, present)
        numbers = jax.tree.map(
            lambda leaf: Digits(jnp.sum(to_digits(leaf, bits), axis=1, dtype=jnp.uint32), leaf.dtype), lifted
        )
        rooms = [jax.vmap(lambda row: fits(row, bits, cohort))(leaf) for leaf in jax.tree.leaves(lifted)]
        beyond = present & ~functools.reduce(jnp.logical_and, rooms)
        return FixedSum(numbers, jnp.sum(present, dtype=jnp.int32), jnp.sum(beyond, dtype=jnp.int32))

    def lift(self, upload: Tree, client: jax.Array, present: jax.Array) -> Tree:
        """What one client adds to the sum; zero where it is absent."""
        return self.own.collect(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (upload, client, present)))

    def lower(self, partial: FixedSum) -> Tree:
        """What the algorithm receives; NaN where the protocol would have refused the round."""
        refused = (partial.beyond > 0) | (partial.stayed < self.rules.threshold)

        def one(number: Digits) -> jax.Array:
            value = from_digits(number, self.rules.fraction_bits)
            real = jnp.issubdtype(value.dtype, jnp.floating)
            return jnp.where(refused, jnp.nan, value).astype(value.dtype) if real else value

        return self.own.lower(jax.tree.map(one, partial.numbers, is_leaf=lambda node: isinstance(node, Digits)))

    @property
    def least(self) -> int:
        """Clients that must stay to the end of a round."""
        return self.rules.threshold

    def masking_client(self, number: int, session: bytes) -> ClientMasks:
        """A site's end of one round."""
        return ClientMasks(self.rules, number, session)

    def masking_server(self, upload: Tree, session: bytes) -> ServerMasks:
        """The coordinator's end of one round; `upload` is a type."""
        return ServerMasks(self.rules, self.lifted_form(upload), session)

    def partial_of(self, numbers: Tree, stayed: int) -> FixedSum:
        """What `collect` would have made of the uploads whose exact sum this is."""
        return FixedSum(numbers, jnp.int32(stayed), jnp.int32(0))

    def lifted_form(self, upload: Tree) -> Tree:
        """The form of what each client adds to the sum."""
        form: Tree = jax.eval_shape(self.lift, upload, jnp.zeros((), jnp.int32), jnp.ones((), bool))
        return form

    def legs(self, upload: Tree, cohort: int) -> tuple[Leg, ...]:
        """Keys, sealed shares, masked numbers, who stayed (a bit each), and a share of a secret of each client.

        A client that drops out is billed as the protocol's dearest: it leaves after it sent its shares.
        """
        numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.lifted_form(upload)))
        others = cohort - 1
        return (
            Leg("public keys", up=True, bytes=SIZES.advert, stayed=False),
            Leg("public keys of the others", up=False, bytes=SIZES.advert * others, stayed=False),
            Leg("sealed shares of keys", up=True, bytes=SIZES.sealed * others, stayed=False),
            Leg("sealed shares of the others' keys", up=False, bytes=SIZES.sealed * others, stayed=False),
            Leg("masked numbers", up=True, bytes=NUMBER_BYTES * numbers, stayed=True),
            Leg("whose numbers came", up=False, bytes=-(-cohort // 8), stayed=True),
            Leg("shares that take the masks off the sum", up=True, bytes=SIZES.share * cohort, stayed=True),
        )


def mask_sums(algorithm: Owner, rules: SecureAggregation) -> Owner:
    """The algorithm with sums as secure aggregation computes them; only for one that was not refused."""
    values = {field.name: getattr(algorithm, field.name) for field in dataclasses.fields(algorithm)}
    made: Owner = _masked_class(type(algorithm))(**values, secure_aggregation=rules)
    return made


@functools.cache
def _masked_class(cls: type[Algorithm]) -> Any:
    def fill(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {"secure_aggregation": SecureAggregation}
        namespace["secure_aggregation"] = dataclasses.field(default_factory=SecureAggregation)
        namespace["__module__"], namespace["__doc__"] = cls.__module__, cls.__doc__

    return settings(types.new_class(cls.__name__, (Masked, cls), exec_body=fill))


class Masked(_Base):  # type: ignore[misc]
    """All that secure aggregation changes of an algorithm."""

    if TYPE_CHECKING:
        secure_aggregation: SecureAggregation

    @property
    def reduction(self) -> Reduction:
        """The algorithm's, of fixed-point numbers."""
        return MaskedReduction(super().reduction, self.secure_aggregation)
