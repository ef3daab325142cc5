# SPDX-License-Identifier: Apache-2.0
"""Every registered algorithm against plain NumPy loops: three rounds, ragged clients, float64, agreement to 1e-12.

The references are written from the mathematics, over flat vectors, one client and one step at a time. They only take
the row numbers of each batch from the package, because those are random.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS, find
from idiolect.core import batches, keys
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


class Problem:
    """What a reference sees: plain rows, plain gradients (counted), the batches of every round, who is present."""

    def __init__(self, rows, steps, tuning_rows, present, gradient, exact):
        self.exact = exact  # every step is on all rows
        self.rows, self.steps, self.tuning_rows, self.present = rows, steps, tuning_rows, present
        self.uncounted, self.examples, self.passes = gradient, 0, 0

    def gradient(self, v, m, chosen, whole=False):
        """grad f'_m on some rows, counted."""
        x, y = self.rows[m][0][chosen], self.rows[m][1][chosen]
        self.examples += len(y)
        self.passes += self.exact or whole
        return self.uncounted(v, x, y)

    def full(self, m):
        return np.arange(len(self.rows[m][1]))

    def cohort(self, r):
        return np.flatnonzero(self.present[r])

    def weights(self, r, weighting):
        n = np.array([len(self.rows[m][1]) if weighting == "samples" else 1.0 for m in self.cohort(r)])
        return n / n.sum()


def local_sgd(p, s, w, personal):
    """FedAvg and relatives; server moments as in Reddi et al. 2021, algorithm 2."""
    first, second = np.zeros_like(w), np.full_like(w, 1e-6)
    for r in range(ROUNDS):
        moves = []
        for m in p.cohort(r):
            y = w.copy()
            for chosen in p.steps[r][m]:
                y = y - s["step_size"] * (p.gradient(y, m, chosen) + s.get("penalty", 0) * (y - w))
            moves.append(y - w)
        move = p.weights(r, s.get("weighting", "equal")) @ np.array(moves)
        if s.get("server_optimizer", "sgd") == "sgd":
            w = w + s.get("server_step_size", 1) * move
            continue
        first = 0.9 * first + 0.1 * move
        if s["server_optimizer"] == "fedadam":
            second = 0.99 * second + 0.01 * move**2
        else:
            second = second - 0.01 * move**2 * np.sign(second - move**2)
        w = w + s["server_step_size"] * first / (np.sqrt(second) + 1e-3)
    examples, passes, models = p.examples, p.passes, []
    for m in range(CLIENTS):
        v = w.copy()
        for chosen in p.tuning_rows[m]:
            v = v - s["fine_tuning_step_size"] * p.gradient(v, m, chosen)
        models.append(v)
    p.examples, p.passes = examples, passes  # fine-tuning happens at evaluation, outside the rounds
    return {"shared": w}, {}, np.array(models)


def minibatch_sgd(p, s, w, personal):
    for r in range(ROUNDS):
        gradients = []
        for m in p.cohort(r):
            steps = [(p.gradient(w, m, chosen), len(chosen)) for chosen in p.steps[r][m]]
            # the mean over all drawn rows: an epoch's last batch is short and weighs less
            gradients.append(sum(rows * gradient for gradient, rows in steps) / sum(rows for _, rows in steps))
        w = w - s["step_size"] * (p.weights(r, s.get("weighting", "equal")) @ np.array(gradients))
    return {"shared": w}, {}, np.tile(w, (CLIENTS, 1))


def local(p, s, w, personal):
    v = personal.copy()
    for r in range(ROUNDS):
        for m in p.cohort(r):
            for chosen in p.steps[r][m]:
                v[m] = v[m] - s["step_size"] * p.gradient(v[m], m, chosen)
    return {}, {"personal": v}, v


def scaffold(p, s, w, personal):
    """Scaffold."""
    eta, c, own = s["step_size"], np.zeros_like(w), np.zeros((CLIENTS, w.size))
    for r in range(ROUNDS):
        moves, changes = [], []
        for m in p.cohort(r):
            y = w.copy()
            for chosen in p.steps[r][m]:
                y = y - eta * (p.gradient(y, m, chosen) - own[m] + c)
            if s.get("option", 2) == 1:
                new = p.gradient(w, m, p.full(m), whole=True)
            else:
                new = own[m] - c + (w - y) / (len(p.steps[r][m]) * eta)
            moves.append(y - w)
            changes.append(new - own[m])
            own[m] = new
        w = w + s.get("server_step_size", 1) * np.mean(moves, axis=0)
        c = c + len(moves) / CLIENTS * np.mean(changes, axis=0)
    return {"shared": w, "control": c}, {"control": own}, np.tile(w, (CLIENTS, 1))


def personalized(p, s, w, personal):
    """Personalized local SGD, outputs I, II and III."""
    eta, alpha, theta = s["step_size"], s.get("personal_step_scale", 1), personal.copy()
    shared_means, own_means, own_models = [], [], [[] for _ in range(CLIENTS)]
    for r in range(ROUNDS):
        moves, walked, theta_mean = [], [], theta.copy()  # an absent client's theta stands still all round
        for m in p.cohort(r):
            y, seen, seen_theta = w.copy(), [], []
            for chosen in p.steps[r][m]:
                seen.append(y)
                seen_theta.append(theta[m].copy())
                own_models[m].append(y + theta[m])
                g = p.gradient(y + theta[m], m, chosen)
                theta[m] = theta[m] - alpha * eta * g
                y = y - eta * g
            moves.append(y - w)
            walked.append(np.mean(seen, axis=0))
            theta_mean[m] = np.mean(seen_theta, axis=0)
        weights = p.weights(r, s.get("weighting", "equal"))
        w = w + s.get("server_step_size", 1) * (weights @ np.array(moves))
        shared_means.append(weights @ np.array(walked))
        own_means.append(theta_mean)
    models = w + theta
    if s.get("output") == "mean_of_means":
        models = np.mean(shared_means, axis=0) + np.mean(own_means, axis=0)
    if s.get("output") == "own_mean":  # a client that never took part has no own iterates: where it would start
        models = np.array([np.mean(seen, axis=0) if seen else models[m] for m, seen in enumerate(own_models)])
    return {"shared": w}, {"personal": theta}, models


def lsgd_pfl(p, s, w, personal):
    """LSGD-PFL with the 1/M of E002-6; the average runs over k = 0..K, the last iterates included."""
    eta, beta, average = s["step_size"], personal.copy(), s.get("output") == "weighted_average"
    pairs = []  # (wbar^k, beta^k), kept as whole history
    for r in range(ROUNDS):
        cohort = p.cohort(r)
        copies = np.tile(w, (CLIENTS, 1))
        for k in range(max(len(p.steps[r][m]) for m in cohort)):
            pairs.append((copies[cohort].mean(0), beta.copy()))
            for m in cohort:
                if k < len(p.steps[r][m]):
                    g = p.gradient(copies[m] + beta[m], m, p.steps[r][m][k])
                    copies[m], beta[m] = copies[m] - eta * g, beta[m] - eta / CLIENTS * g
        w = copies[cohort].mean(0)
    pairs.append((w, beta))
    models = w + beta
    if average:
        weights = (1 - eta * s["strong_convexity"]) ** -(np.arange(len(pairs)) + 1.0)
        weights /= weights.sum()
        models = sum(q * (shared + own) for q, (shared, own) in zip(weights, pairs))
    return {"shared": w}, {"personal": beta}, models


class Case(NamedTuple):
    """A registered name, settings on top of its preset, and its reference."""

    name: str
    settings: dict[str, Any]
    reference: Any
    block: str = "shared"  # the one its gradients are taken of
    ragged: bool = False  # also run with unequal numbers of steps; the others would only repeat FedAvg's walk


PLSGD = "personalized_local_sgd"
TUNING = {"fine_tuning_steps": 4, "fine_tuning_step_size": 0.05}
CASES = [
    Case("local_sgd", {"server_step_size": 1.3}, local_sgd),
    Case("fedavg", {}, local_sgd, ragged=True),
    Case("fedprox", {"penalty": 0.7}, local_sgd),
    Case("fedavg_fine_tuning", TUNING, local_sgd),
    Case("fedavg_fine_tuning", {"fine_tuning_epochs": 2, "fine_tuning_step_size": 0.05}, local_sgd),
    Case("fedadam", {"server_step_size": 0.05}, local_sgd),
    Case("fedyogi", {"server_step_size": 0.05}, local_sgd),
    Case("minibatch_sgd", {"weighting": "samples"}, minibatch_sgd, ragged=True),
    Case("local", {}, local, "personal"),
    Case("scaffold", {"server_step_size": 0.8}, scaffold, ragged=True),
    Case("scaffold", {"option": 1}, scaffold),
    Case("lsgd_pfl", {}, lsgd_pfl, "both"),
    Case("lsgd_pfl", {"output": "weighted_average", "strong_convexity": 0.9}, lsgd_pfl, "both"),
    Case(PLSGD, {"personal_step_scale": 0.6, "server_step_size": 1.2}, personalized, "both"),
    Case(PLSGD, {"output": "mean_of_means", "weighting": "samples"}, personalized, "both", ragged=True),
    Case(PLSGD, {"output": "own_mean", "personal_step_scale": 0.4}, personalized, "both", ragged=True),
]


def batches_of(algorithm, data, sizes):
    """Row numbers [round][client][step], as the package draws them."""
    size = algorithm.batch_size
    if size == 0:
        return [[[np.arange(n)] * algorithm.local_steps for n in sizes]] * ROUNDS
    root, clients = keys.root_key(SEED), jnp.arange(CLIENTS)

    def draw(r, m, rows):
        return algorithm.draw_batches(keys.client_key(root, Purpose.RECEIVE, r, m), rows)

    every_round = jax.vmap(jax.vmap(draw, in_axes=(None, 0, 0)), in_axes=(0, None, None))
    drawn = np.asarray(jax.jit(every_round)(jnp.arange(ROUNDS), clients, data))

    def cut(orders, n):  # an order of the rows into batches; draws with replacement are batches already
        return [order[i : min(i + size, n)] for order in orders for i in range(0, n, size)]

    return [[cut(own, n) if algorithm.epochs else list(own) for own, n in zip(line, sizes)] for line in drawn]


def tuning_rows_of(algorithm, data, sizes):
    """Row numbers [client][step] of fine-tuning."""
    steps, size = getattr(algorithm, "fine_tuning_steps", 0), algorithm.batch_size
    epochs = getattr(algorithm, "fine_tuning_epochs", 0)
    if not size or not (steps or epochs):
        return [[np.arange(n)] * (epochs or steps) for n in sizes]
    root = keys.root_key(SEED)
    own = [keys.client_key(root, Purpose.PERSONAL_MODEL, ROUNDS, m) for m in range(CLIENTS)]
    if epochs:
        orders = [np.asarray(batches.draw_orders(own[m], epochs, take(data, m))) for m in range(CLIENTS)]
        return [
            [order[i : min(i + size, n)] for order in line for i in range(0, n, size)] for line, n in zip(orders, sizes)
        ]
    drawn = [batches.draw_with_replacement(own[m], steps, size, take(data, m)) for m in range(CLIENTS)]
    return [list(np.asarray(rows)) for rows in drawn]


@pytest.fixture(scope="module")
def plans():
    return {}


# whose rounds are of drawn length, who prepare, and who mix gradients: references in test_block_descent.py,
# test_l2gd.py, test_scafflix.py, test_all_for_all.py and, for its prox, test_pfedme.py; baselines of Flow 2023:
# test_personalization_rounds.py, test_baselines.py, test_flow.py
ELSEWHERE = {
    "acd_pfl",
    "asvrcd_pfl",
    "svrcd_pfl",
    "ascd_pfl",
    "scd_pfl",
    "ascd_then_asvrcd",
    "l2gd",
    "l2sgd_plus",
    "pfedme",
    "scafflix",
    "i_scaffnew",
    "scaffnew",
    "flix_gd",
    "flix_sgd",
    "all_for_all",
    "all_for_all_adaptive",
    "all_for_all_naive",
    "all_for_one",
    "apfl",
    "ditto",
    "fedper",
    "fedrep",
    "lg_fedavg",
    "fedbabu",
    "fedbn",
    "knn_per",
    "ifca",
    "hypcluster",
    "per_fedavg",
    "partialfed",
    "flow",
    "flow_printed",
    "pi_flow",
    "pc_flow",  # another name of fedavg_fine_tuning
}


def test_every_registered_algorithm_has_a_reference():
    assert {case.name for case in CASES} | ELSEWHERE == set(ALGORITHMS)


def close(ours, reference):
    np.testing.assert_allclose(ours, reference, rtol=1e-12, atol=1e-12 * np.abs(reference).max())


PAIRS = [(c, b) for c in CASES for b in BATCHING if b != "epochs" or c.ragged]


@pytest.mark.parametrize(
    ("case", "batching"), PAIRS, ids=["-".join([c.name, *map(str, c.settings.values()), b]) for c, b in PAIRS]
)
def test_three_rounds_equal_the_reference(lab, plans, case, batching):
    method = find(case.name)
    client_loss, data, rows = lab.softmax_problem()
    settings = {"step_size": 0.3} | dict(method.preset) | case.settings
    objective = OBJECTIVES[method.objective](client_loss)
    algorithm = method.algorithm(objective, clients=CLIENTS, **settings, **BATCHING[batching])
    check_settings(algorithm)
    assert fit_of(algorithm).refused is None
    server, states = lab.begin(algorithm, data, SEED, scale=0.5)
    w = lab.flat(server.shared) if hasattr(server, "shared") else None
    personal = lab.flat_rows(states.personal) if hasattr(states, "personal") else None
    sizes = [len(y) for _, y in rows]
    if batching not in plans:  # the draws are the same for every algorithm
        plans[batching] = batches_of(algorithm, data, sizes)
    plan = plans[batching], tuning_rows_of(algorithm, data, sizes)
    for present in (ALL_PRESENT, PARTIAL):
        run = lab.simulate(algorithm, data, ROUNDS, present=present, start=(server, states), seed=SEED)
        p = Problem(rows, *plan, present, lab.softmax_gradient, batching == "full")
        server_truth, client_truth, models = case.reference(p, settings, w, personal)
        for field, truth in server_truth.items():
            close(lab.flat(getattr(run.server, field)), truth)
        for field, truth in client_truth.items():
            close(lab.flat_rows(getattr(run.states, field)), truth)
        close(lab.personal_models(algorithm, data, run, ROUNDS, SEED), models)
        tally = run.tally()
        counted = {block: tally[block] for block in ("shared", "personal", "both", "forward", "samples")}
        nothing = dict.fromkeys(counted, 0)
        assert counted == nothing | {case.block: p.examples, "samples": p.examples}
        full = {block: p.passes if case.block in (block, "both") else 0 for block in ("shared", "personal")}
        assert (tally["full_shared"], tally["full_personal"]) == (full["shared"], full["personal"])
