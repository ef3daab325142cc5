# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of Unified 2023 share: its parameters, many seeds as one program, curves and their figures.

The constants of F are those of the paper's table, corrected (E002-7), with mu' given: what the paper's theory takes as
known is measured at the truth or chosen there, not proven everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect import Algorithm, Federation, Objective
from idiolect.algorithms import find
from idiolect.core import ClientData, Rows
from idiolect.core.addressing import address, axes
from idiolect.core.checks import unset
from idiolect.core.keys import root_key
from idiolect.core.settings import know_population
from idiolect.core.tree import Params
from idiolect.engines.door import PRECISIONS, run_precision
from idiolect.engines.population import load
from idiolect.objectives import Mixture
from idiolect.theory import (
    BlockConstants,
    Complexity,
    Constants,
    Question,
    client_constants,
    lower_bounds,
    predict,
    table_constants,
)
from papers import lanes
from papers.lanes import Curves, Standing

Extra = Callable[[Standing], dict[str, float]]  # further numbers from where a lane stands


@dataclasses.dataclass(frozen=True)
class Setup:
    """An objective on a federation, and the constants that its solvers are told."""

    objective: Objective  # knows its population
    federation: Federation
    own: Constants  # of the plain losses f'_m, with mu' given
    blocks: BlockConstants  # of F

    @property
    def clients(self) -> int:
        """M."""
        return self.federation.train.clients

    @property
    def rows(self) -> float:
        """n: the mean number of training rows per client."""
        return float(self.federation.train.counts.mean())


def set_up(
    objective: Objective,
    federation: Federation,
    strong_convexity: float,
    component_smoothness: float | None = None,
) -> Setup:
    """The objective told its population, and the table's constants of F from mu' and Lc'.

    Lc' is the largest curvature of a row's loss on these rows, unless it is given; L' is then no larger than it.
    """
    objective = know_population(objective, federation.train.clients)
    with jax.enable_x64(True):
        own = client_constants(objective, federation.train)
    assert own is not None  # all models of the paper are linear
    own = own.assuming(strong_convexity)
    if component_smoothness is not None:
        own = dataclasses.replace(
            own,
            client_smoothness=np.minimum(own.client_smoothness, component_smoothness),
            client_component_smoothness=np.full(own.clients, component_smoothness),
            source=f"Lc' = {component_smoothness:.3g} is given; {own.source}",
        )
    blocks = table_constants(objective, own)
    assert blocks is not None  # the table has all objectives of the paper
    return Setup(objective, federation, own, blocks)


def solver(name: str, setup: Setup, **given: Any) -> Algorithm:
    """The named algorithm on the setup's objective: fields as given, and what is left to theory from the table."""
    algorithm = find(name).algorithm(setup.objective, **given)
    left = unset(algorithm)
    if not left:
        return algorithm
    numbers = {key: float(value) for key, value in given.items() if type(value) is float}
    parameters = find(name).theory.derive(Question(algorithm, setup.own, setup.blocks, setup.rows, numbers))
    chosen: dict[str, Any] = {parameter.name: parameter.value for parameter in parameters}
    return dataclasses.replace(algorithm, **{field: chosen[field] for field in left})


def run(
    algorithm: Algorithm,
    setup: Setup,
    *,
    rounds: int,
    record_every: int,
    seeds: Sequence[int],
    precision: str = lanes.PRECISION,
    extra: Extra | None = None,
    scores: tuple[str, ...] = (),
) -> Curves:
    """All seeds of one method in one compiled program, with F at every record.

    `scores` are of the personal models on the federation's validation rows, in columns `validation_personal_NAME_mean`.
    """
    value = value_of(setup.objective, setup.federation.train, precision)

    def measure(lane: int, where: Standing) -> dict[str, float]:
        return {"loss": value(where)} | (extra(where) if extra is not None else {})

    training = lanes.schedule(rounds, record_every, precision)
    return lanes.train([algorithm] * len(seeds), setup.federation, training, seeds, measure, scores)


def value_of(objective: Objective, rows: Rows, precision: str = "float64") -> Callable[[Standing], float]:
    """F at where a method stands, compiled once for all lanes and records; any objective with a loss."""
    with run_precision(precision):
        data = load(rows, np.arange(rows.clients), int(rows.counts.max()), PRECISIONS[precision])
        objective = jax.tree.map(lambda leaf: jnp.asarray(leaf, PRECISIONS[precision]), objective)

    def value(where: Standing) -> float:
        with run_precision(precision):
            return float(_mean_loss(objective, where.shared, where.personal, data))

    return value


@jax.jit
def _mean_loss(objective: Objective, shared: Params, personal: Params, data: ClientData) -> Any:
    if isinstance(objective, Mixture) and jax.tree.leaves(shared) == []:
        shared = objective.from_model(jax.tree.map(lambda leaf: leaf.mean(axis=0), personal))
    clients = data.count.shape[0]

    def one(own: Objective, beta: Params, rows: ClientData) -> Any:
        return own.loss(root_key(0), shared, beta, rows.batch())[0]

    numbers = jnp.arange(clients)
    view, in_axes = address(objective, numbers), (axes(objective), 0, 0)
    return jnp.mean(jax.vmap(one, in_axes=in_axes, axis_size=clients)(view, personal, data))


class Bound(NamedTuple):
    """A relative gap (F - F*)/(F_0 - F*) against what it costs, both decreasing in the other."""

    gap: np.ndarray
    cost: list[Complexity]

    def costs(self, field: str) -> np.ndarray:
        """One kind of cost, per client."""
        return np.array([getattr(cost, field) for cost in self.cost])


def upper_bound(name: str, algorithm: Algorithm, setup: Setup, gaps: Sequence[float]) -> Bound | None:
    """What the method's theorem promises for every relative gap; None where it promises nothing."""
    promised = [predict(find(name).theory, algorithm, setup.own, setup.blocks, setup.rows, float(gap)) for gap in gaps]
    costs = [promise.cost for promise in promised if promise is not None]
    return Bound(np.asarray(gaps), costs) if len(costs) == len(promised) else None


def lower_bound(setup: Setup, gaps: Sequence[float]) -> Bound:
    """What every first-order method needs, up to a constant factor (Unified 2023, theorem 6)."""
    return Bound(np.asarray(gaps), [lower_bounds(setup.blocks, setup.rows, float(gap)) for gap in gaps])
