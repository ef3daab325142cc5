# SPDX-License-Identifier: Apache-2.0
"""From names of layers to a model with routes."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from idiolect.core.checks import RequestError, nearest
from idiolect.models.layered import Layer, Layered
from idiolect.models.model import Model
from idiolect.models.routed_pass import WHOLE, RoutedModel
from idiolect.models.routing_net import FixedShares, RoutingNet
from idiolect.models.stepped_pass import SteppedModel, seen_width


@functools.lru_cache(maxsize=64)
def routed_model(
    model: Model,
    routed: str,
    widths: tuple[int, ...],
    fixed: bool = False,
    token_routing: str = "states",
) -> RoutedModel:
    """The model with the routes that `routed` asks for; RequestError where it names no layer.

    Names or patterns separated by commas; each has an exit of its own, which routes all layers it names. Empty: every
    layer with parameters but normalisation, each by an exit of its own. "model": the outputs of whole models.
    """
    if not widths:
        raise RequestError("routing_widths must have at least one width, got none; the paper's are [350, 150, 50].")
    groups = _groups(model, routed)
    parts = model, tuple(groups), tuple(groups.values())
    if fixed:
        return RoutedModel(*parts, FixedShares(len(groups)))
    # a layer of the trunk behind the last exit would weigh nothing
    widths = widths[: len(groups)]
    if model.reads_tokens and token_routing == "states":
        if WHOLE in groups:
            raise RequestError(
                f'token_routing must be "frequencies" where routed is {WHOLE!r}, got "states": two whole models have '
                "no states in common; route by layer, or by frequencies."
            )
        return SteppedModel(*parts, RoutingNet(seen_width(model), len(groups), widths))
    return RoutedModel(*parts, RoutingNet(model.input_width, len(groups), widths, model.reads_tokens))


def _groups(model: Model, routed: str) -> dict[str, tuple[str, ...]]:
    """The layers of every exit, by what it is called."""
    parts = [part.strip() for part in routed.split(",")] if routed else []
    if not isinstance(model, Layered):
        if parts not in ([], [WHOLE]):
            raise RequestError(
                f"routed must be {WHOLE!r} or left out for {type(model).__name__}, which has no named layers, "
                f"got {routed!r}; a subclass of idiolect.models.Layered routes by layer."
            )
        return {WHOLE: (WHOLE,)}
    layers, order = model.named_layers, _order_of_use(model)
    if parts == [WHOLE] and WHOLE not in layers:
        return {WHOLE: (WHOLE,)}
    if not parts:
        return {name: (name,) for name in order if not getattr(layers[name], "normalizes", False)}
    return _parted(parts, tuple(order), layers)


def _parted(parts: Sequence[str], order: tuple[str, ...], layers: Mapping[str, Layer]) -> dict[str, tuple[str, ...]]:
    """The layers that each part names, one or a pattern; no layer twice."""
    taken: set[str] = set()
    groups = {}
    for part in parts:
        group = tuple(name for name in order if fnmatch.fnmatchcase(name, part))
        if not group:
            raise RequestError(f"routed names no layer with {part!r}.{nearest(part, layers)}")
        if taken & set(group):
            raise RequestError(
                f"routed must name a layer once, got {sorted(taken & set(group))[0]!r} again with {part!r}; "
                "leave one of them out."
            )
        taken |= set(group)
        groups[part] = group
    return groups


def _order_of_use(model: Layered) -> tuple[str, ...]:
    """The layers in the order in which an input meets them."""
    seen: list[str] = []
    # one row is enough to see which layers it meets, and two tokens where inputs name tokens
    shape, kind = ((1, 2), jnp.int32) if model.reads_tokens else ((1, model.input_width), jnp.result_type(float))
    params = jax.eval_shape(lambda: model.init(jax.random.key(0)))
    look = functools.partial(model.watch, see=lambda name, flow: seen.append(name))
    jax.eval_shape(look, params, jax.ShapeDtypeStruct(shape, kind))
    return tuple(dict.fromkeys(seen))
