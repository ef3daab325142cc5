# SPDX-License-Identifier: Apache-2.0
"""What a name means: equations, settings, wire types with their bytes, what leaves a client, theory, the citation."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.accounting.bytes import Wire, wire
from idiolect.algorithms import ALGORITHMS, find
from idiolect.algorithms.errata import ERRATA, anchor
from idiolect.core import Method, tree
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, nearest, setting, unset
from idiolect.core.data import ClientData
from idiolect.core.keys import StartKeys, root_key
from idiolect.core.settings import check_settings, know_population
from idiolect.engines.billing import sends
from idiolect.engines.start import wire_types
from idiolect.experiments.build import Assembled, assemble, build_objective
from idiolect.experiments.spec import MethodSpec, Table, own_settings, parse_line, setting_names
from idiolect.experiments.strict import refuse_unknown
from idiolect.models import MLP, Linear
from idiolect.objectives import OBJECTIVES, WS2, ClientLoss, Objective
from idiolect.record.codec import to_json
from idiolect.theory.complexity import gradient_descent, lower_bounds, predict
from idiolect.theory.constants import Constants, block_constants, condition
from idiolect.theory.convex import convex_loss
from idiolect.theory.parameters import Advice, from_theory
from idiolect.theory.rule import Complexity, Prediction

Facts: TypeAlias = dict[str, Any]  # plain values for the terminal, for JSON and for pages
FEATURES, CLASSES = 64, 10
EXAMPLE = Linear(FEATURES, CLASSES)  # softmax regression on 8 x 8 images
EXAMPLES: dict[type, str] = {Linear: "softmax regression", MLP: "a network with one hidden layer"}


@dataclasses.dataclass(frozen=True)
class Example:
    """The problem that theory is asked about; the defaults are those of the image data of Unified 2023."""

    clients: int = setting(default=20, at_least=1)  # M
    rows: int = setting(default=100, at_least=1)  # n, per client
    smoothness: float = setting(default=1.0, above=0)  # L' of every client's loss
    convexity: float = setting(default=0.01, at_least=0)  # mu'
    component_smoothness: float | None = setting(default=None, above=0)  # Lc' of a single row's; unset: L'
    epsilon: float = setting(default=1e-6, above=0, below=1)  # accuracy, as a fraction of the start's gap

    def checked(self) -> Example:
        """The same with Lc' filled in, or RequestError."""
        check_settings(self)
        single = self.smoothness if self.component_smoothness is None else self.component_smoothness
        if not self.convexity <= self.smoothness <= single:
            raise RequestError(
                "An example needs mu' <= L' <= Lc' (--convexity, --smoothness, --component-smoothness), got "
                f"{self.convexity:g}, {self.smoothness:g}, {single:g}; change one of them."
            )
        return dataclasses.replace(self, component_smoothness=single)

    def constants(self, loss: ClientLoss) -> Constants:
        """Every client alike, whichever columns a block sees."""
        assert self.component_smoothness is not None  # `checked` fills it in
        return Constants(
            client_smoothness=np.full(self.clients, self.smoothness),
            client_strong_convexity=np.full(self.clients, self.convexity),
            client_component_smoothness=np.full(self.clients, self.component_smoothness),
            exact=False,
            source="L', mu' and Lc' of the example",
            loss=convex_loss(loss),
        )


def explain(
    name: str, objective: str | None = None, example: Example | None = None, changes: Sequence[str] = ()
) -> Facts:
    """The explanation as plain values; `changes` are lines of TOML such as 'penalty = 0.1'."""
    asked = (example or Example()).checked()
    settings: Table = {}
    for text in changes:
        settings |= parse_line(text, example="penalty = 0.1")
    if name in OBJECTIVES:
        return _explain_objective(name, settings, asked)
    if ":" not in name and name not in ALGORITHMS:
        raise RequestError(f"There is nothing called {name!r}.{nearest(name, [*ALGORITHMS, *OBJECTIVES])}")
    method = find(name)
    chosen = objective or method.objective
    if chosen is None:
        raise RequestError(f"{name} needs --objective; one of {', '.join(sorted(OBJECTIVES))}.")
    if chosen in OBJECTIVES:
        refuse_unknown(settings, setting_names(name, chosen), name)
    preset = method.objective_preset if chosen == method.objective else {}
    loss = _client_loss(chosen, {**preset, **settings}, asked.convexity)
    ready = _assemble(MethodSpec(name, name, chosen, settings), loss, asked.clients)
    return {
        "name": name,
        "kind": "algorithm",
        "summary": method.summary,
        "text": _text(method.algorithm),
        "objective": chosen,
        "settings": _settings(method.algorithm, method.preset),
        "objective_settings": _settings(OBJECTIVES[chosen], preset),
        "example": f"{EXAMPLES[type(loss.model)]}, {FEATURES} inputs, {CLASSES} classes, float32",
        **_traffic(ready.algorithm),
        "theory": _theory_of(name, ready, settings, loss, asked),
        "reference": method.reference,
        "errata": _errata_of(method),
    }


def _errata_of(method: Method) -> list[Facts]:
    return [{"number": one, "text": ERRATA[one], "link": anchor(one)} for one in method.errata]


def _explain_objective(name: str, settings: Table, example: Example) -> Facts:
    refuse_unknown(settings, own_settings(OBJECTIVES[name]), name)
    loss = _client_loss(name, settings, example.convexity)
    objective = know_population(build_objective(name, loss, settings, example.clients, name), example.clients)
    return {
        "name": name,
        "kind": "objective",
        "text": _text(OBJECTIVES[name]),
        "settings": _settings(OBJECTIVES[name], {}),
        "theory": _facts(example, objective, example.constants(loss)),
    }


def _assemble(method: MethodSpec, loss: ClientLoss, clients: int) -> Assembled:
    try:
        return assemble(method, loss, clients, method.label)
    except RequestError as error:
        raise RequestError(str(error).removeprefix(f"[{method.label}] ")) from None


def _client_loss(objective: str, settings: Table, convexity: float) -> ClientLoss:
    """Softmax regression; sharing whole layers needs a model that has several."""
    if objective == "ws2":
        part = settings.get("personal_part", WS2.personal_part)
        for model in (EXAMPLE, MLP(FEATURES, CLASSES)):
            with contextlib.suppress(RequestError):
                WS2(ClientLoss(model=model), personal_part=part).split  # noqa: B018  # refuses what a model has not
                return ClientLoss(model=model, l2=convexity)
        return ClientLoss(model=MLP(FEATURES, CLASSES, normalize="layer"), l2=convexity)
    return ClientLoss(model=EXAMPLE, l2=convexity)


def _traffic(algorithm: Algorithm) -> Facts:
    """What crosses the wire, and what never does."""
    # types do not depend on numbers that theory could not find
    complete = dataclasses.replace(algorithm, **dict.fromkeys(unset(algorithm), 0.5))  # type: ignore[arg-type]
    rows = ClientData(jnp.zeros((1, 8, FEATURES)), jnp.zeros((1, 8), jnp.int32), jnp.zeros(1, jnp.int32))
    types = wire_types(complete, rows)
    table = wire(types.sent, types.upload) if sends(complete) else Wire((), (), ())
    keys = StartKeys(root_key(0), root_key(0))
    state, _ = jax.eval_shape(address(complete, 0).init_client, keys, tree.take(rows, 0))
    # the fields of a client's state that hold something
    kept = [name for name in getattr(state, "_fields", ()) if jax.tree.leaves(getattr(state, name))]
    return {
        "wire": table.to_dict(),
        "leaves_the_client": [leaf.path for leaf in table.up],
        "stays_on_the_client": kept,
    }


def _theory_of(name: str, ready: Assembled, settings: Table, loss: ClientLoss, example: Example) -> Facts:
    """Parameters, promise and limits on the example; a refusal is reported, not raised."""
    own = example.constants(loss)
    rule = find(name).theory
    steps = rule is not None and rule.step is not None and "step_size" not in settings
    wanted = list(dict.fromkeys([*ready.wanted, *(["step_size"] if steps else [])]))
    try:
        algorithm, advice = from_theory(
            rule, ready.algorithm, own, example.rows, wanted=wanted, defaulted=ready.defaulted, owner=name
        )
    except RequestError as error:
        return _facts(example, ready.algorithm.objective, own) | {"silent": str(error)}
    blocks = block_constants(algorithm.objective, own)
    promise = None if blocks is None else predict(rule, algorithm, own, blocks, example.rows, example.epsilon)
    return _facts(example, algorithm.objective, own, advice, promise)


def _facts(
    example: Example,
    objective: Objective,
    own: Constants,
    advice: Advice | None = None,
    promise: Prediction | None = None,
) -> Facts:
    """What theory says; nothing of what it cannot know."""
    blocks, broken = block_constants(objective, own), condition(objective, own)
    least: Complexity | None = None
    plain: Prediction | None = None
    if blocks is not None and blocks.strong_convexity > 0:
        asked = (blocks, example.rows, example.epsilon)
        least, plain = lower_bounds(*asked), gradient_descent(*asked)
    advice = advice or Advice(warnings=(broken,) if broken else ())
    parts = ("name", "value", "formula", "by_hand")
    return {
        "example": dataclasses.asdict(example),
        "constants": blocks and {**blocks.symbols, "source": blocks.source},
        "theorem": advice.theorem,
        "parameters": to_json([{part: getattr(one, part) for part in parts} for one in advice.parameters]),
        "warnings": list(advice.warnings),
        "silent": None,
        "predicted": _prediction(promise),
        "gradient_descent": _prediction(plain),
        "at_least": least and least._asdict(),
        "ratio": _ratio(promise, least),
    }


def _prediction(promise: Prediction | None) -> Facts | None:
    if promise is None:
        return None
    named = {name: getattr(promise, name) for name in ("iterations", "exact", "statement")}
    return named | promise.cost._asdict()


def _ratio(promise: Prediction | None, least: Complexity | None) -> dict[str, float] | None:
    """Promise over limit, of what the method counts in: full gradients or components, of the blocks it uses."""
    if promise is None or least is None:
        return None
    kinds = ("full_shared_gradients", "full_personal_gradients")
    names = ("rounds", *(kinds if promise.exact else ("shared_gradients", "personal_gradients")))
    counts = {name: (getattr(promise.cost, name), getattr(least, name)) for name in names}
    return {name: count / limit for name, (count, limit) in counts.items() if count > 0 and limit > 0}


def _text(cls: type) -> str:
    module = sys.modules[cls.__module__]
    return inspect.cleandoc(module.__doc__ or cls.__doc__ or "")


def _settings(cls: type, preset: Mapping[str, Any]) -> list[Facts]:
    named = own_settings(cls)
    return [_setting(field, preset) for field in dataclasses.fields(cls) if field.name in named]


def _setting(field: dataclasses.Field[Any], preset: Mapping[str, Any]) -> Facts:
    limits, default = field.metadata.get("range"), preset.get(field.name, field.default)
    return {
        "name": field.name,
        "default": None if default is dataclasses.MISSING else default,
        "rule": limits.rule() if limits is not None else "",
        "doc": field.metadata.get("doc", ""),
        "theory": bool(field.metadata.get("theory")),
    }
