# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of paper 002 share: its parameters, many seeds as one program, curves and how they are drawn.

The constants of F are those of the paper's table, corrected (E002-7), with mu' given: what the paper's theory takes as
known is measured at the truth or chosen there, not proven everywhere.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from idiolect.algorithms import find
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import unset
from idiolect.core.data import ClientData, Rows
from idiolect.core.keys import root_key
from idiolect.core.objective import Mixture, Objective
from idiolect.core.settings import know_population
from idiolect.core.tree import Params
from idiolect.engines.door import PRECISIONS, Training, run_precision
from idiolect.engines.evaluate import Standing
from idiolect.engines.population import load
from idiolect.engines.run import Splits
from idiolect.engines.simulate import Session
from idiolect.theory.complexity import Complexity, lower_bounds, predict
from idiolect.theory.constants import BlockConstants, Constants, client_constants, table_constants
from idiolect.theory.parameters import RULES, Question

SCORE = ("log_loss",)  # engines want a score to record; nothing is read from it unless a federation has validation rows
Extra = Callable[[Standing], dict[str, float]]  # further numbers from where a lane stands


@dataclasses.dataclass(frozen=True)
class Setup:
    """An objective on a federation, and the constants that its solvers are told."""

    objective: Objective  # knows its population
    federation: Splits
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
    federation: Splits,
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
    parameters = RULES[name].derive(Question(algorithm, setup.own, setup.blocks, setup.rows, numbers))
    chosen: dict[str, Any] = {parameter.name: parameter.value for parameter in parameters}
    return dataclasses.replace(algorithm, **{field: chosen[field] for field in left})


class Curves(NamedTuple):
    """What was recorded of several seeds of one method: (seeds, records) per column of the history."""

    rounds: np.ndarray  # (records,)
    columns: Mapping[str, np.ndarray]
    clients: int
    diverged: tuple[str, ...]  # one sentence per seed that did

    @property
    def loss(self) -> np.ndarray:
        """F at the method's point, (seeds, records)."""
        return self.columns["loss"]

    @property
    def personal_gradients(self) -> np.ndarray:
        """Component gradients by beta so far, alone or with w in one pass, per client: (seeds, records)."""
        return (self.columns["gradients_personal"] + self.columns["gradients_both"]) / self.clients

    @property
    def shared_gradients(self) -> np.ndarray:
        """Component gradients by w so far, alone or with beta in one pass, per client: (seeds, records)."""
        return (self.columns["gradients_shared"] + self.columns["gradients_both"]) / self.clients

    def last(self, name: str) -> np.ndarray:
        """A column after the last round, one number per seed."""
        return self.columns[name][:, -1]

    def seconds_per_seed(self) -> float:
        """Seconds that one seed took for all rounds, evaluation left out.

        The first stretch contains compiling and counts as long as the others. Seeds that ran as one batch share.
        """
        spent, rounds = self.columns["seconds"][0], self.rounds
        if len(rounds) < 3:
            return float("nan")
        pace = (spent[-1] - spent[1]) / (rounds[-1] - rounds[1])
        return float(pace * rounds[-1] / len(self.loss))


def run(
    algorithm: Algorithm,
    setup: Setup,
    *,
    rounds: int,
    record_every: int,
    seeds: Sequence[int],
    precision: str = "float64",
    extra: Extra | None = None,
    scores: tuple[str, ...] = SCORE,
) -> Curves:
    """All seeds of one method in one compiled program, with F at every record.

    `scores` are of the personal models on the federation's validation rows, in columns `validation_personal_NAME_mean`.
    """
    # evaluating wants few programs: `batched` is compiled once, where auto would compile and time the others too
    training = Training(rounds=rounds, record_every=record_every, precision=precision, executor="batched")
    value = value_of(setup.objective, setup.federation.train, precision)

    def measure(lane: int, where: Standing) -> dict[str, float]:
        return {"loss": value(where)} | (extra(where) if extra is not None else {})

    session = Session([algorithm] * len(seeds), setup.federation, training, list(seeds), scores, None, measure)
    session.train()
    histories = [recorder.history for recorder in session.recorders]
    names = [name for name, entry in histories[0][-1].items() if isinstance(entry, (int, float))]
    columns = {name: np.array([[row[name] for row in lane] for lane in histories], np.float64) for name in names}
    diverged = tuple(str(recorder.diverged) for recorder in session.recorders if recorder.diverged is not None)
    return Curves(columns["round"][0].astype(np.int64), columns, setup.clients, diverged)


def seconds_of_one(algorithm: Algorithm, setup: Setup, *, rounds: int, block: int, precision: str = "float64") -> float:
    """Seconds of one seed for `rounds` rounds, in compiled blocks of `block`; compiling and evaluating are left out."""
    training = Training(rounds=rounds, record_every=block, precision=precision, executor="batched")
    session = Session([algorithm], setup.federation, training, [0], SCORE, None)
    with run_precision(precision):
        jax.block_until_ready(session.block(0, 1, session.training))
        began = time.perf_counter()
        for first in range(0, rounds, block):
            server, states, _ = session.block(first, min(block, rounds - first), session.training)
            session.server = server
            session.population.scatter(states)
        jax.block_until_ready(session.server)
    return time.perf_counter() - began


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
    promised = [predict(name, algorithm, setup.own, setup.blocks, setup.rows, float(gap)) for gap in gaps]
    costs = [promise.cost for promise in promised if promise is not None]
    return Bound(np.asarray(gaps), costs) if len(costs) == len(promised) else None


def lower_bound(setup: Setup, gaps: Sequence[float]) -> Bound:
    """What every first-order method needs, up to a constant factor (paper 002, theorem 6)."""
    return Bound(np.asarray(gaps), [lower_bounds(setup.blocks, setup.rows, float(gap)) for gap in gaps])


def draw_mean(
    axes: Axes, x: np.ndarray, values: np.ndarray, *, floor: float = 0.0, spread: bool = True, **line: Any
) -> None:
    """The mean over seeds, and around it where 8 of 10 seeds lie; nothing below `floor`, for logarithmic axes.

    `x` is common to all seeds or has a row for each, of which the mean is taken.
    """
    place = x if x.ndim == 1 else x.mean(axis=0)
    shown = np.maximum(values, floor) if floor else values
    (drawn,) = axes.plot(place, shown.mean(axis=0), **line)
    if spread and len(values) > 1:
        low, high = np.quantile(shown, [0.1, 0.9], axis=0)
        axes.fill_between(place, low, high, color=drawn.get_color(), alpha=0.16, linewidth=0)
