# SPDX-License-Identifier: Apache-2.0
"""The personalization baselines of Flow 2023 against plain NumPy loops: three rounds, ragged clients, to 1e-12.

The references are written from the papers' algorithms, over flat vectors (bias first), one client and one step at a
time. They only take random numbers from the package: rows of batches, and PartialFed's noise.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import find
from idiolect.core import keys
from idiolect.core.algorithm import fit_of
from idiolect.core.keys import Purpose
from idiolect.core.settings import check_settings
from idiolect.core.tree import take
from idiolect.objectives import OBJECTIVES

ROUNDS, CLIENTS, SEED = 3, 5, 7
ALL_PRESENT = np.ones((ROUNDS, CLIENTS), bool)
PARTIAL = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 0], [1, 0, 1, 1, 0]], bool)  # client 4 never takes part
BATCHING: dict[str, dict[str, int]] = {
    "full": {"local_steps": 3},
    "drawn": {"local_steps": 3, "batch_size": 2},
    "epochs": {"epochs": 2, "batch_size": 3},  # 2, 4, 4, 6 and 2 steps, some batches short
}
FIRST, SECOND = 2**31 - 1, 2**31 - 2  # the numbers that name draws beside those of the round's own steps


DRAWN: dict[Any, np.ndarray] = {}  # what a key draws does not depend on the algorithm


class Problem:
    """What a reference sees: plain rows, gradients counted by block, batches, who is present."""

    def __init__(self, lab, algorithm, data, rows, present):
        self.lab, self.algorithm, self.data, self.rows, self.present = lab, algorithm, data, rows, present
        self.counts = dict.fromkeys(("shared", "personal", "both", "forward"), 0)
        self.passes = dict.fromkeys(("shared", "personal"), 0)

    def key(self, purpose, r, m, fold=None):
        key = keys.client_key(keys.root_key(SEED), purpose, r, m)
        return key if fold is None else jax.random.fold_in(key, fold)

    def batches(self, r, m, key=None, **plan):
        """Row numbers, step by step, of the round's own steps or of a walk drawn with another key."""
        algorithm, n = dataclasses.replace(self.algorithm, **plan), len(self.rows[m][1])
        if algorithm.batch_size == 0:
            return [np.arange(n)] * (algorithm.epochs or algorithm.local_steps)
        key, size = self.key(Purpose.RECEIVE, r, m) if key is None else key, algorithm.batch_size
        asked = (np.asarray(jax.random.key_data(key)).tobytes(), algorithm.local_steps, algorithm.epochs, size)
        if asked not in DRAWN:
            DRAWN[asked] = np.asarray(algorithm.draw_batches(key, take(self.data, m)))
        drawn = DRAWN[asked]
        if not algorithm.epochs:
            return list(drawn)
        return [order[i : min(i + size, n)] for order in drawn for i in range(0, n, size)]

    def gradient(self, v, m, chosen, block):
        """grad f'_m on some rows, counted."""
        x, y = self.rows[m][0][chosen], self.rows[m][1][chosen]
        self.counts[block] += len(y)
        if self.algorithm.batch_size == 0:
            for one in ("shared", "personal") if block == "both" else (block,):
                self.passes[one] += 1
        return self.lab.softmax_gradient(v, x, y)

    def loss(self, v, m):
        """f'_m on all rows, counted as a forward pass."""
        x, y = self.rows[m]
        self.counts["forward"] += len(y)
        logits = x @ v[3:].reshape(3, 3).T + v[:3]
        return np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]) + self.lab.l2 / 2 * v @ v

    def cohort(self, r):
        return np.flatnonzero(self.present[r])

    def mean(self, r, moves, members=None):
        """The weighted mean over the cohort, or over some members of it."""
        chosen = self.cohort(r) if members is None else members
        rows = [len(self.rows[m][1]) if self.algorithm.weighting == "samples" else 1 for m in chosen]
        return np.average([moves[m] for m in chosen], axis=0, weights=rows)

    def without_counting(self, function):
        """Evaluation is not part of the rounds."""
        counts, passes = dict(self.counts), dict(self.passes)
        found = function()
        self.counts, self.passes = counts, passes
        return found


def apfl(p, s, w, v):
    eta, a = s["step_size"], np.full(CLIENTS, s["own_share"])
    first, second = np.zeros_like(w), np.full_like(w, 1e-6)
    for r in range(ROUNDS):
        moves = {}
        for m in p.cohort(r):
            y = w.copy()
            for chosen in p.batches(r, m):
                gradient = p.gradient(y, m, chosen, "shared")
                own = p.gradient(a[m] * v[m] + (1 - a[m]) * y, m, chosen, "personal")
                learnt = np.clip(a[m] - eta * (v[m] - y) @ own, 0, 1)
                v[m] = v[m] - eta * a[m] * own
                y = y - eta * gradient
                a[m] = learnt if s.get("learn_share") else a[m]
            moves[m] = y - w
        move = p.mean(r, moves)
        if s.get("server_optimizer") == "fedadam":  # Reddi et al. 2021, algorithm 2
            first, second = 0.9 * first + 0.1 * move, 0.99 * second + 0.01 * move**2
            move = first / (np.sqrt(second) + 1e-3)
        w = w + s.get("server_step_size", 1) * move
    kept = {"own_share": a[:, None]} if s.get("learn_share") else {}
    return {"shared": w}, {"personal": v} | kept, a[:, None] * v + (1 - a[:, None]) * w


def ditto(p, s, w, v):
    eta, steps = s["step_size"], s.get("personal_steps", 0)

    def pulled(m, chosen):
        gradient = p.gradient(v[m], m, chosen, "personal") + s["penalty"] * (v[m] - w)
        v[m] = v[m] - s.get("personal_step_size", eta) * gradient

    for r in range(ROUNDS):
        moves = {}
        for m in p.cohort(r):
            y = w.copy()
            for chosen in p.batches(r, m):
                y = y - eta * p.gradient(y, m, chosen, "shared")
                if not steps:
                    pulled(m, chosen)
            for chosen in p.batches(r, m, p.key(Purpose.SEND, r, m), local_steps=steps, epochs=0) if steps else ():
                pulled(m, chosen)
            moves[m] = y - w
        w = w + p.mean(r, moves)
    return {"shared": w}, {"personal": v}, v


def parts(p, s, w, b):
    """FedPer, FedRep, LG-FedAvg and FedBABU: of the vector [bias, weights] one part is shared."""
    eta, head, trains = s["step_size"], s["personal_part"] == "head", s.get("trains", "both")

    def whole(shared, own):
        return np.concatenate([own, shared] if head else [shared, own])

    def split(gradient):
        return (gradient[3:], gradient[:3]) if head else (gradient[:3], gradient[3:])

    for r in range(ROUNDS):
        moves = {}
        for m in p.cohort(r):
            y = w.copy()
            if trains == "personal_then_shared":
                tau, own = s["personal_passes"], p.key(Purpose.RECEIVE, r, m, FIRST)
                more = {"local_steps": tau * p.algorithm.local_steps, "epochs": tau * p.algorithm.epochs}
                for chosen in p.batches(r, m, own, **more):
                    b[m] = b[m] - eta * split(p.gradient(whole(w, b[m]), m, chosen, "personal"))[1]
            for chosen in p.batches(r, m):
                block = "both" if trains == "both" else "shared"
                gradient, own = split(p.gradient(whole(y, b[m]), m, chosen, block))
                y, b[m] = y - eta * gradient, b[m] - eta * own * (trains == "both")
            moves[m] = y - w
        w = w + p.mean(r, moves)

    def tuned(m):
        own, steps = b[m].copy(), s.get("fine_tuning_steps", 0)
        key = p.key(Purpose.PERSONAL_MODEL, ROUNDS, m)
        for chosen in p.batches(ROUNDS, m, key, local_steps=steps, epochs=0) if steps else ():
            own = own - s["fine_tuning_step_size"] * split(p.gradient(whole(w, own), m, chosen, "personal"))[1]
        return whole(w, own)

    models = p.without_counting(lambda: np.array([tuned(m) for m in range(CLIENTS)]))
    return {"shared": w}, {"personal": b}, models


def ifca(p, s, w, _):
    clusters = np.hstack([w[:6].reshape(2, 3), w[6:].reshape(2, 9)])  # stacked biases come first, then weights

    def choose(m):
        return int(np.argmin([p.loss(v, m) for v in clusters]))

    used = set()
    for r in range(ROUNDS):
        chosen_by = {m: choose(m) for m in p.cohort(r)}
        moves = {}
        for m, c in chosen_by.items():
            y = clusters[c].copy()
            for chosen in p.batches(r, m):
                y = y - s["step_size"] * p.gradient(y, m, chosen, "shared")
            moves[m] = y - clusters[c]
        used |= set(chosen_by.values())
        for c in set(chosen_by.values()):
            clusters[c] = clusters[c] + p.mean(r, moves, [m for m in chosen_by if chosen_by[m] == c])
    models = p.without_counting(lambda: np.array([clusters[choose(m)] for m in range(CLIENTS)]))
    assert used == {0, 1}  # or nothing is tested
    return {"shared": np.concatenate([clusters[:, :3].ravel(), clusters[:, 3:].ravel()])}, {}, models


def per_fedavg(p, s, w, _):
    eta, a, d = s["step_size"], s["inner_step"], s.get("difference", 1e-3)
    for r in range(ROUNDS):
        moves = {}
        for m in p.cohort(r):
            y = w.copy()
            inner, third = (p.batches(r, m, p.key(Purpose.RECEIVE, r, m, fold)) for fold in (FIRST, SECOND))
            for one, two, three in zip(inner, p.batches(r, m), third, strict=True):
                g = p.gradient(y - a * p.gradient(y, m, one, "shared"), m, two, "shared")
                if s.get("variant") == "hessian_free":
                    ahead, behind = (p.gradient(y + sign * d * g, m, three, "shared") for sign in (1, -1))
                    g = g - a * (ahead - behind) / (2 * d)
                y = y - eta * g
            moves[m] = y - w
        w = w + p.mean(r, moves)
    every = [np.arange(len(y)) for _, y in p.rows]
    adapt = lambda: np.array([w - a * p.gradient(w, m, every[m], "shared") for m in range(CLIENTS)])  # noqa: E731
    return {"shared": w}, {}, p.without_counting(adapt)


def partialfed(p, s, w, v):
    eta, layers, preference = s["step_size"], (slice(0, 3), slice(3, 12)), np.zeros((CLIENTS, 2))

    def mixed(q, m):
        return np.concatenate([q[i] * w[at] + (1 - q[i]) * v[m, at] for i, at in enumerate(layers)])

    def noise(key):
        return np.asarray(jax.random.logistic(jax.random.fold_in(key, SECOND), (2,), jnp.float64))

    for r in range(ROUNDS):
        moves = {}
        for m in p.cohort(r):
            own = p.key(Purpose.RECEIVE, r, m, FIRST)
            for t, chosen in enumerate(p.batches(r, m, own, local_steps=s["strategy_steps"], epochs=0)):
                q = 1 / (1 + np.exp(-(preference[m] + noise(keys.step_key(own, t))) / s["temperature"]))
                gradient = p.gradient(mixed(q, m), m, chosen, "personal")
                along = np.array([gradient[at] @ (w[at] - v[m, at]) for at in layers])
                preference[m] -= s["strategy_step_size"] * along * q * (1 - q) / s["temperature"]
            start = preference[m] + noise(p.key(Purpose.RECEIVE, r, m))
            y = mixed((start >= 0).astype(float), m)
            for chosen in p.batches(r, m):
                y = y - eta * p.gradient(y, m, chosen, "shared")
            moves[m], v[m] = y - w, y
        w = w + p.mean(r, moves)
    models = np.array([mixed((preference[m] >= 0).astype(float), m) for m in range(CLIENTS)])
    return {"shared": w}, {"personal": v, "preference": preference}, models


class Case(NamedTuple):
    """A registered name, settings on top of its preset, its reference, and the batchings it is run with."""

    name: str
    settings: dict[str, Any]
    reference: Any
    batchings: tuple[str, ...] = ("drawn",)


TUNING = {"fine_tuning_steps": 4, "fine_tuning_step_size": 0.05}
CASES = [
    Case("apfl", {"own_share": 0.4, "server_optimizer": "fedadam", "server_step_size": 0.05}, apfl),
    Case("apfl", {"own_share": 0.4, "learn_share": True, "weighting": "samples"}, apfl, ("full",)),
    Case("ditto", {"penalty": 0.7}, ditto, ("full",)),
    Case("ditto", {"penalty": 0.7, "personal_steps": 2, "personal_step_size": 0.2}, ditto),
    Case("fedper", {}, parts),
    Case("fedrep", {"personal_passes": 2}, parts, ("drawn", "epochs")),
    Case("lg_fedavg", {}, parts),
    Case("fedbabu", TUNING, parts),
    Case("hypcluster", {}, ifca, ("full",)),
    Case("per_fedavg", {"inner_step": 0.2}, per_fedavg),
    Case("per_fedavg", {"inner_step": 0.2, "variant": "hessian_free", "difference": 0.1}, per_fedavg, ("epochs",)),
    Case("partialfed", {"strategy_steps": 2, "strategy_step_size": 0.5, "temperature": 0.7}, partialfed),
]
PAIRS = [(case, batching) for case in CASES for batching in case.batchings]


def close(ours, reference):
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-12 * np.abs(reference).max())


@pytest.mark.parametrize(
    ("case", "batching"), PAIRS, ids=["-".join([c.name, *map(str, c.settings.values()), b]) for c, b in PAIRS]
)
def test_three_rounds_equal_the_reference(lab, case, batching):
    method = find(case.name)
    client_loss, data, rows = lab.softmax_problem()
    given = {"step_size": 0.3, **method.preset, **method.objective_preset, **case.settings}
    cls = OBJECTIVES[method.objective]
    of_objective = {field.name for field in dataclasses.fields(cls)} & set(given)
    objective = cls(client_loss, **{name: given[name] for name in of_objective})
    own = {name: value for name, value in given.items() if name not in of_objective}
    algorithm = method.algorithm(objective, clients=CLIENTS, **own, **BATCHING[batching])
    check_settings(algorithm)
    assert fit_of(algorithm).refused is None
    server, states = lab.begin(algorithm, data, SEED, scale=0.5)
    if case.reference is ifca:  # one model steps toward client 0, the other toward client 3: each finds some clients
        near = np.array([-lab.softmax_gradient(np.zeros(12), *rows[m]) for m in (0, 3)])
        shared = {"bias": jnp.asarray(near[:, :3]), "weights": jnp.asarray(near[:, 3:].reshape(2, 3, 3))}
        server = server._replace(shared=shared)
    for present in (ALL_PRESENT, PARTIAL):
        run = lab.simulate(algorithm, data, ROUNDS, present=present, start=(server, states), seed=SEED)
        p = Problem(lab, algorithm, data, rows, present)
        personal = lab.flat_rows(states.personal) if hasattr(states, "personal") else None
        server_truth, client_truth, models = case.reference(p, given, lab.flat(server.shared), personal)
        for field, truth in server_truth.items():
            close(lab.flat(getattr(run.server, field)), truth)
        for field, truth in client_truth.items():
            close(lab.flat_rows(getattr(run.states, field)), truth)
        close(lab.personal_models(algorithm, data, run, ROUNDS, SEED), models)
        tally = run.tally()
        assert {block: tally[block] for block in p.counts} == p.counts
        assert tally["samples"] == sum(p.counts.values())
        assert {block: tally[f"full_{block}"] for block in p.passes} == p.passes
