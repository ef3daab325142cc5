# SPDX-License-Identifier: Apache-2.0
"""What the reproductions of Scafflix 2023 share: logistic regression on LIBSVM sets, exact optima, many alpha at once.

f'_m is the mean logistic loss of client m plus (l2/2) |x|^2 over all coefficients, intercept included: the p that the
paper prints come out only with a column of ones (and the released script's constants, E001-7).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from idiolect import Algorithm, ClientLoss, Federation, Linear, PerClient, Tally
from idiolect.algorithms import Scafflix, find
from idiolect.core import NOTHING, ClientData, Rows, settings
from idiolect.core.tree import Params
from idiolect.data import Partition, shared_files
from idiolect.data.dataset_files import dataset_file, find_file
from idiolect.objectives import FLIX
from idiolect.objectives.flix import Prepared
from idiolect.theory import Constants, client_constants, from_theory
from idiolect.theory.scafflix import contraction
from papers import lanes
from papers.catalogue import load_spec
from papers.lanes import Standing
from papers.reproduction import Spec

# the paper's word -> our partitioner and its options
SPLITS: dict[str, tuple[str, dict[str, Any]]] = {
    "iid": ("iid", {}),
    "label-wise": ("label_ratio", {}),
    "feature-wise": ("feature_clusters", {}),
    "quantity-wise": ("dirichlet_quantity", {"concentration": 0.5}),
}
IN_ORDER = "in-order"


@settings
class Known(FLIX):
    """FLIX whose x*_m are `known`: they depend on neither alpha nor step, and lanes need not solve them again."""

    known: PerClient | None = None  # else solved

    def prepare(self, key: jax.Array, data: ClientData) -> tuple[Prepared, Tally]:
        """What is known, for nothing."""
        if self.known is None:
            return super().prepare(key, data)
        return Prepared(cast(Params, self.known), jnp.asarray(True)), NOTHING


@settings
class FromOnes(Known):
    """FLIX started at x = (1, ..., 1), as the released script does; x*_m that are not known are solved from 0."""

    def init_shared(self, key: jax.Array) -> Params:
        """All ones."""
        return jax.tree.map(jnp.ones_like, self.client_loss.init(key))


def reduce(spec: Spec) -> Spec:
    """The spec with the data sets that are here, and those of the full experiment that are not in `left_out`."""
    present = [name for name in spec["data_sets"] if find_file(f"libsvm/{name}.bz2")]
    if not present:
        dataset_file(f"libsvm/{spec['data_sets'][0]}.bz2")  # says which is absent, and how to get it
    absent = [name for name in load_spec(spec["name"])["data_sets"] if name not in present]
    return {**spec, "data_sets": present, "left_out": absent}


def deal(data_set: str, split: str, spec: Spec) -> Federation:
    """The rows of a LIBSVM set on the spec's clients; all of them train."""
    if split == IN_ORDER:
        return deal_in_order(data_set, spec)
    name, options = SPLITS[split]
    return shared_files.libsvm(data_set, spec["clients"], name, seed=spec["data_seed"], **options)


def deal_in_order(data_set: str, spec: Spec) -> Federation:
    """The released script's split: equal parts of the file, one after another."""
    rows = int(shared_files.libsvm(data_set, spec["clients"]).train.counts.sum())
    parts = np.array_split(np.arange(rows), spec["clients"])
    owner = np.repeat(np.arange(spec["clients"]), [len(part) for part in parts])
    return shared_files.libsvm(data_set, spec["clients"], Partition(owner))


def flix(federation: Federation, spec: Spec, alpha: float, **fields: Any) -> FLIX:
    """FLIX of logistic regression with one alpha for all."""
    model = Linear(features=federation.train.inputs.shape[1], outputs=0, bias=True)
    loss = ClientLoss(model=model, criterion="logistic", l2=spec["l2"])
    return FromOnes(client_loss=loss, personalization=alpha, **({"tolerance": spec.get("tolerance", 1e-6)} | fields))


def constants_of(objective: FLIX, federation: Federation) -> Constants:
    """L_m = lambda_max(X^T X)/(4 n_m) + l2 and mu_m = l2 of the clients' plain losses."""
    with jax.enable_x64(True):
        own = client_constants(objective, federation.train)
    assert own is not None  # a linear model
    return own


def solver(name: str, objective: FLIX, own: Constants, **given: Any) -> Scafflix:
    """The named method, preset, with what is not given from theory: gamma_m = 1/L_m, p = 1/sqrt(max L_m/mu_m)."""
    method = find(name)
    algorithm = method.algorithm(objective=objective, **(dict(method.preset) | given))
    return cast(Scafflix, from_theory(method.theory, algorithm, own, 1.0)[0])


def common_step(own: Constants) -> PerClient:
    """gamma = 1/max L_m on every client."""
    return PerClient(np.full(own.clients, 1 / own.smoothness))


class Traces(NamedTuple):
    """What lanes of one program went through."""

    rounds: np.ndarray  # (records,) communications
    shared: np.ndarray  # (lanes, records, d): w, intercept last
    models: np.ndarray  # (lanes, records, clients, d): xt_m
    columns: Mapping[str, np.ndarray]  # the ledger, (lanes, records)


def run(
    algorithms: Sequence[Algorithm], federation: Federation, *, rounds: int, every: int, seeds: Sequence[int]
) -> Traces:
    """All algorithms, which differ in floats only, as lanes of one compiled program in float64."""
    points: list[list[np.ndarray]] = [[] for _ in algorithms]
    models: list[list[np.ndarray]] = [[] for _ in algorithms]

    def measure(lane: int, where: Standing) -> dict[str, float]:
        points[lane].append(_flat(where.shared))
        models[lane].append(_flat(where.models))
        return {}

    curves = lanes.train(algorithms, federation, lanes.schedule(rounds, every), seeds, measure)
    return Traces(curves.rounds, np.array(points), np.array(models), curves.columns)


def _flat(params: Params) -> np.ndarray:
    """(..., d): weights, then the intercept."""
    weights, bias = np.asarray(params["weights"], np.float64), np.asarray(params["bias"], np.float64)
    return np.concatenate([weights, bias[..., None]], axis=-1)


@dataclasses.dataclass(frozen=True)
class Problem:
    """The plain losses f'_m in matrix form, their minimisers, and FLIX's, all in float64 on the host."""

    designs: tuple[np.ndarray, ...]  # -y_i (x_i, 1), so that a row's loss is log(1 + exp(row . v))
    l2: float
    own: np.ndarray  # (clients, d): x*_m
    solved: dict[float, np.ndarray] = dataclasses.field(default_factory=dict)  # what optimum() has found

    @classmethod
    def of(cls, rows: Rows, l2: float) -> Problem:
        """Solves every client's own problem to rounding."""
        designs = []
        for inputs, targets in map(rows.of, range(rows.clients)):
            columns = np.concatenate([np.asarray(inputs, np.float64), np.ones((len(inputs), 1))], axis=1)
            designs.append((1 - 2.0 * targets)[:, None] * columns)
        start = np.zeros(designs[0].shape[1])
        own = [_newton((design,), l2, start, start[None]) for design in designs]
        return cls(tuple(designs), l2, np.array(own))

    @property
    def known(self) -> PerClient:
        """The x*_m as the objective takes them."""
        return PerClient({"weights": self.own[:, :-1], "bias": self.own[:, -1]})

    def gradient(self, client: int, point: np.ndarray) -> np.ndarray:
        """grad f'_m."""
        design = self.designs[client]
        return _sigmoid(design @ point) @ design / len(design) + self.l2 * point

    def optimum(self, alpha: float) -> np.ndarray:
        """alpha w*, w* the minimiser of F; unlike w* it does not lose digits as alpha goes to 0."""
        if alpha not in self.solved:
            start = alpha * self.own.mean(axis=0)
            self.solved[alpha] = _newton(self.designs, self.l2, start, (1 - alpha) * self.own)
        return self.solved[alpha]

    def gaps(self, alpha: float, shared: np.ndarray) -> np.ndarray:
        """F(w) - F* at every w of (records, d).

        As grad F vanishes at w*, this is the Bregman distance, which is computed row by row without subtracting
        losses: gaps far below the precision of F itself are true.
        """
        best = self.optimum(alpha)
        way = alpha * shared - best  # xt_m - xt*_m, the same for all clients
        total = self.l2 / 2 * (way**2).sum(axis=1)
        for design, own in zip(self.designs, self.own):
            at = _sigmoid(design @ (best + (1 - alpha) * own))
            total += _softplus_distance(design @ way.T, at[:, None]).mean(axis=0) / len(self.designs)
        return total

    def squared_gradients(self, alpha: float, shared: np.ndarray) -> np.ndarray:
        """|grad F(w)|^2 at every w of (records, d)."""
        gradient = np.zeros_like(shared)
        for design, own in zip(self.designs, self.own):
            models = alpha * shared + (1 - alpha) * own
            gradient += (_sigmoid(design @ models.T).T @ design / len(design) + self.l2 * models) / len(self.designs)
        return alpha**2 * (gradient**2).sum(axis=1)

    def value(self, alpha: float) -> float:
        """F*."""
        models = self.optimum(alpha) + (1 - alpha) * self.own
        losses = [np.logaddexp(0, design @ model).mean() for design, model in zip(self.designs, models)]
        return float(np.mean(losses) + self.l2 / 2 * (models**2).sum(axis=1).mean())

    def theorem_4(self, alpha: float, own: Constants, algorithm: Scafflix, rounds: np.ndarray) -> np.ndarray:
        """The bound on E F - F* from x = (1, ..., 1) and h = 0 after as many iterations as have `rounds` on average.

        F - F* <= Psi/(2 gmin), since f'_m is L_m-smooth and gamma_m <= 1/L_m; Psi falls by 1 - zeta per iteration.
        """
        steps, chance = np.broadcast_to(_values(algorithm.local_step), own.clients), algorithm.communication_probability
        best = self.optimum(alpha)
        models = best + (1 - alpha) * self.own
        gradients = np.array([self.gradient(client, model) for client, model in enumerate(models)])
        apart = ((alpha - best) ** 2).sum() * np.mean(1 / steps)  # xt_m - xt*_m is the same for all clients
        start = (apart + np.mean(steps * (gradients**2).sum(axis=1)) / chance**2) / 2
        zeta = contraction(steps, own, np.ones(own.clients), chance)
        return start * (1 - zeta) ** (rounds / chance)

    def distances(self, alpha: float, models: np.ndarray) -> np.ndarray:
        """mean_m |xt_m - xt*_m|^2 at models of (..., clients, d)."""
        return ((models - self.optimum(alpha) - (1 - alpha) * self.own) ** 2).sum(axis=-1).mean(axis=-1)


def _values(setting: Any) -> np.ndarray:
    return np.asarray(setting.values if isinstance(setting, PerClient) else setting, np.float64)


def released_probability(rows: Rows, l2: float) -> float:
    """p = 1/sqrt(mean L_m/l2) with the released script's L_m = lambda_max(X^T X + l2 I)/(4 n_m) (E001-7)."""
    curvatures = []
    for inputs, _ in map(rows.of, range(rows.clients)):
        columns = np.concatenate([np.asarray(inputs, np.float64), np.ones((len(inputs), 1))], axis=1)
        curvatures.append((np.linalg.eigvalsh(columns.T @ columns)[-1] + l2) / (4 * len(columns)))
    return float(1 / np.sqrt(np.mean(curvatures) / l2))


def _newton(designs: Sequence[np.ndarray], l2: float, start: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """argmin over u of mean_m f'_m(u + shift_m), to rounding: Newton steps, halved until the gradient falls.

    A Hessian, as dear as hundreds of gradients, is kept as long as its steps divide the gradient by four.
    """

    def gradient(point: np.ndarray) -> np.ndarray:
        parts = [
            _sigmoid(design @ (point + shift)) @ design / len(design) + l2 * (point + shift)
            for design, shift in zip(designs, shifts)
        ]
        return np.mean(parts, axis=0)

    def inverse_hessian(point: np.ndarray) -> np.ndarray:
        total = l2 * np.eye(len(point))
        for design, shift in zip(designs, shifts):
            at = _sigmoid(design @ (point + shift))
            scaled = design * np.sqrt(at * (1 - at) / (len(design) * len(designs)))[:, None]
            total += scaled.T @ scaled
        return np.linalg.inv(total)

    point, now = start, gradient(start)
    inverse, fresh = inverse_hessian(point), True
    for _ in range(200):
        step, norm = inverse @ now, np.linalg.norm(now)
        after = gradient(point - step)
        if np.linalg.norm(after) <= norm / 4:
            point, now, fresh = point - step, after, False
        elif not fresh:
            inverse, fresh = inverse_hessian(point), True
        elif norm <= 1e-10:  # a new Hessian's step squares so small a gradient: the rest is rounding
            return point - step if np.linalg.norm(after) < norm else point
        else:
            while np.linalg.norm(after) >= norm:  # Newton's step points down |gradient|^2: it ends
                step = step / 2
                after = gradient(point - step)
            point, now = point - step, after
            inverse = inverse_hessian(point)
    return point


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * values))


def _softplus_distance(way: np.ndarray, at: np.ndarray) -> np.ndarray:
    """log(1 + exp(z + way)) - log(1 + exp(z)) - s way, with s = sigmoid(z) given as `at`."""
    with np.errstate(over="ignore"):
        plain = np.log1p(at * np.expm1(np.minimum(way, 500.0))) - at * way
    series = at * (1 - at) * way**2 * (0.5 + (1 - 2 * at) * way / 6)  # the rest is below way^2/24 of it
    return np.where(np.abs(way) < 1e-4, series, plain)


def communications_to(rounds: np.ndarray, gaps: np.ndarray, target: float) -> float:
    """The first communication count at which the gap is below target, between records on the log scale; else nan."""
    below = np.flatnonzero(gaps <= target)
    if not below.size:
        return float("nan")
    last = int(below[0])
    if last == 0:
        return float(rounds[0])
    high, low = np.log(gaps[last - 1]), np.log(max(gaps[last], np.finfo(float).tiny))
    return float(rounds[last - 1] + (rounds[last] - rounds[last - 1]) * (high - np.log(target)) / (high - low))
