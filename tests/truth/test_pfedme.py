# SPDX-License-Identifier: Apache-2.0
"""pFedMe against a plain NumPy loop, at the solution of MX2, and what a round costs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of, model_units, wire
from idiolect.algorithms.pfedme import PFedMe
from idiolect.core import RequestError, keys
from idiolect.core.algorithm import fit_of
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.core.tree import take
from idiolect.engines import door
from idiolect.engines.start import wire_types
from idiolect.models import MLP, Linear
from idiolect.objectives import ClientLoss, GlobalModel
from idiolect.objectives.mx2 import MX2

ROUNDS, CLIENTS, SEED, PENALTY = 3, 5, 7, 0.7
ALL_PRESENT = np.ones((ROUNDS, CLIENTS), bool)
PARTIAL = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 0], [1, 0, 1, 1, 0]], bool)
STEPS = {"step_size": 0.3, "inner_step": 0.2, "inner_steps": 3}
CASES = [
    {"local_steps": 4, "batch_size": 2},
    {"local_steps": 2, "batch_size": 0, "restart": True, "weighting": "samples", "server_step_size": 1.5},
]


def batches_of(algorithm, data, r, m, n):
    """Row numbers of each outer iteration, as the package draws them."""
    size = algorithm.batch_size
    if size == 0:
        return [np.arange(n)] * algorithm.local_steps
    drawn = np.asarray(
        algorithm.draw_batches(keys.client_key(keys.root_key(SEED), Purpose.RECEIVE, r, m), take(data, m))
    )
    return list(drawn)


@pytest.mark.parametrize("case", CASES, ids=["persists", "restarts"])
def test_rounds_equal_a_plain_loop(lab, case):
    client_loss, data, rows = lab.softmax_problem()
    settings = STEPS | case
    objective = MX2(client_loss, penalty=PENALTY, clients=CLIENTS, rescale=settings.pop("rescale", True))
    algorithm = PFedMe(objective, clients=CLIENTS, **settings)
    assert fit_of(algorithm).refused is None
    start = lab.begin(algorithm, data, SEED, scale=0.5)
    eta, a, inner_steps = STEPS["step_size"], STEPS["inner_step"], STEPS["inner_steps"]
    for present in (ALL_PRESENT, PARTIAL):
        w, theta = lab.flat(start[0].shared), lab.flat_rows(start[1].personal)
        outer = examples = passes = 0
        for r in range(ROUNDS):
            copies, weights = [], []
            for m in np.flatnonzero(present[r]):
                x, y = rows[m]
                own = w.copy()
                if settings.get("restart"):
                    theta[m] = w
                for chosen in batches_of(algorithm, data, r, m, len(y)):
                    for _ in range(inner_steps):
                        g = lab.softmax_gradient(theta[m], x[chosen], y[chosen])
                        theta[m] = theta[m] - a * (g + PENALTY * (theta[m] - own))
                    own = own - eta * PENALTY * (own - theta[m])
                    outer, examples = outer + 1, examples + inner_steps * len(chosen)
                    passes += inner_steps * (algorithm.batch_size == 0)
                copies.append(own)
                weights.append(len(y) if settings.get("weighting") == "samples" else 1)
            b = settings.get("server_step_size", 1)
            w = (1 - b) * w + b * np.average(copies, axis=0, weights=weights)
        run = lab.simulate(algorithm, data, ROUNDS, present=present, start=start, seed=SEED)
        np.testing.assert_allclose(lab.flat(run.server.shared), w, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(lab.flat_rows(run.states.personal), theta, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            lab.personal_models(algorithm, data, run, ROUNDS, SEED), theta, rtol=1e-12, atol=1e-12
        )
        nothing = dict.fromkeys(("shared", "both", "forward", "full_shared"), 0)
        work = {"personal": examples, "samples": examples, "full_personal": passes, "proximal": outer}
        assert run.tally() == nothing | work


def least_squares():
    """Five clients, 12 rows, d = 3; (objective, data, u*, beta*), from one linear system in all beta_m."""
    draw = np.random.default_rng(4)
    n, d = 12, 3
    x = draw.normal(size=(CLIENTS, n, d))
    y = np.einsum("mnd,md->mn", x, draw.normal(size=(CLIENTS, d))) + 0.3 * draw.normal(size=(CLIENTS, n))
    system = np.kron(PENALTY * (np.eye(CLIENTS) - 1 / CLIENTS), np.eye(d))  # lam (beta_m - mean beta)
    for m in range(CLIENTS):
        system[m * d : (m + 1) * d, m * d : (m + 1) * d] += x[m].T @ x[m] / n
    beta = np.linalg.solve(system, np.einsum("mnd,mn->md", x, y).ravel() / n).reshape(CLIENTS, d)
    data = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.full(CLIENTS, n, jnp.int32))
    client_loss = ClientLoss(model=Linear(d, bias=False), criterion="squared")
    largest = max(np.linalg.eigvalsh(x[m].T @ x[m] / n)[-1] for m in range(CLIENTS))
    return MX2(client_loss, penalty=PENALTY, clients=CLIENTS), data, beta.mean(0), beta, 1 / (largest + PENALTY)


def solver(objective, inner_step, **settings):
    """Exact gradients and an inner problem solved to rounding: (1 - a lam)^200 < 1e-20."""
    assert (1 - inner_step * PENALTY) ** 200 < 1e-20
    given = {"clients": CLIENTS, "batch_size": 0, "inner_steps": 200, "inner_step": inner_step} | settings
    return PFedMe(objective, **given)


@pytest.mark.parametrize("restart", [False, True])
def test_the_solution_of_mx2_is_stationary(lab, restart):
    objective, data, u, beta, inner_step = least_squares()
    algorithm = solver(objective, inner_step, local_steps=1, step_size=0.8, restart=restart)
    server, states = lab.begin(algorithm, data)
    start = (
        server._replace(shared={"weights": jnp.asarray(u)}),
        states._replace(personal={"weights": jnp.asarray(beta)}),
    )
    run = lab.simulate(algorithm, data, 3, start=start)
    np.testing.assert_allclose(lab.flat(run.server.shared), u, rtol=1e-11)
    np.testing.assert_allclose(lab.flat_rows(run.states.personal), beta, rtol=1e-11)


def test_one_outer_iteration_finds_the_solution_and_more_stop_near_it(lab):
    objective, data, u, beta, inner_step = least_squares()

    def run(rounds, **settings):
        ended = lab.simulate(solver(objective, inner_step, **settings), data, rounds)
        return lab.flat(ended.server.shared), lab.flat_rows(ended.states.personal)

    # R = 1 is gradient descent on the mean envelope, of curvatures lam h / (h + lam) < lam, with step 1 / lam
    shared, personal = run(100, local_steps=1, step_size=1 / PENALTY)
    np.testing.assert_allclose(shared, u, rtol=1e-10)
    np.testing.assert_allclose(personal, beta, rtol=1e-10)
    # R = 4: clients drift apart within a round, which costs a distance of order eta
    coarse, fine = (
        np.linalg.norm(run(rounds, local_steps=4, step_size=eta)[0] - u) for eta, rounds in ((0.2, 60), (0.05, 240))
    )
    assert 1e-4 < coarse < 0.1 * np.linalg.norm(u)
    assert 3 < coarse / fine < 5


def test_one_model_each_way_and_one_delivered(lab):
    client_loss, data, _ = lab.softmax_problem()
    objective = MX2(client_loss, penalty=PENALTY, clients=CLIENTS)
    algorithm = PFedMe(objective, clients=CLIENTS, inner_step=0.1)
    model = client_loss.init(None)
    sent, upload, delivered, _ = wire_types(algorithm, data)
    assert (model_units(sent, model), model_units(upload, model), model_units(delivered, model)) == (1, 1, 1)
    assert bytes_of((sent, upload)) - 2 * bytes_of(model) == 8  # the weight
    assert wire(sent, upload).warnings == ()  # theta_m stays at home


def test_personal_models_start_at_the_shared_one(lab):
    _, data, _ = lab.softmax_problem()
    client_loss = ClientLoss(model=MLP(data.inputs.shape[-1], 3, (4,)))
    algorithm = PFedMe(MX2(client_loss, penalty=PENALTY, clients=CLIENTS), clients=CLIENTS, **STEPS)
    server, states = lab.begin(algorithm, data, SEED)
    start = algorithm.shared_model(server)
    for mine, own in zip(jax.tree.leaves(states.personal), jax.tree.leaves(start), strict=True):
        np.testing.assert_array_equal(mine, np.broadcast_to(own, mine.shape))


def test_where_it_stands(lab):
    client_loss, data, _ = lab.softmax_problem()
    objective = MX2(client_loss, penalty=PENALTY, clients=CLIENTS)
    algorithm = PFedMe(objective, clients=CLIENTS, inner_step=0.1, local_steps=2, inner_steps=2)
    run = lab.simulate(algorithm, data, 1)
    w, client = lab.flat(run.server.shared), take(run.states, 1)
    assert np.any(w)
    np.testing.assert_array_equal(lab.flat(algorithm.shared_model(run.server)), w)
    shared, personal = algorithm.point(algorithm.deliver(None, run.server), client)
    np.testing.assert_allclose(lab.flat(shared), CLIENTS**0.5 * w, rtol=1e-14)  # w of F is sqrt(M) u
    np.testing.assert_array_equal(lab.flat(personal), lab.flat(client.personal))


def test_defaults_are_the_papers_text(lab):
    # Unified 2023, section 5.1: R = 20, K = 5, batch 5, eta = 0.005, b = 1, theta persists, clients weigh equally
    algorithm = PFedMe(MX2(lab.softmax_problem()[0]))
    assert (algorithm.local_steps, algorithm.inner_steps, algorithm.batch_size) == (20, 5, 5)
    assert (algorithm.step_size, algorithm.server_step_size) == (0.005, 1.0)
    assert (algorithm.restart, algorithm.weighting) == (False, "equal")


def test_what_does_not_fit_is_refused(lab):
    client_loss, _, _ = lab.softmax_problem()
    assert "mx2" in fit_of(PFedMe(GlobalModel(client_loss), inner_step=0.1)).refused
    with pytest.raises(RequestError, match=r"PFedMe cannot minimise GlobalModel: .* mx2"):
        door.admit(PFedMe(GlobalModel(client_loss), inner_step=0.1), CLIENTS, "float64")
    with pytest.raises(RequestError, match="PFedMe needs inner_step:"):
        door.admit(PFedMe(MX2(client_loss)), CLIENTS, "float64")
    with pytest.raises(RequestError, match=r"PFedMe\.inner_steps must be at least 1, got 0"):
        door.admit(PFedMe(MX2(client_loss), inner_step=0.1, inner_steps=0), CLIENTS, "float64")
