# SPDX-License-Identifier: Apache-2.0
"""All-for-all against NumPy: its rounds, x = Lambda y, special cases, the asynchronous mean, fixed points, traffic."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import AllForAll, AllForAllAdaptive, AllForAllNaive, AllForOne, Local, MinibatchSGD
from idiolect.algorithms.one_point import Upload
from idiolect.core import keys, mixing
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.reduction import gather
from idiolect.core.settings import in_precision
from idiolect.engines.block import Lane, Rounds, run_lane
from idiolect.engines.cohorts import Participation
from idiolect.engines.debug import debug
from idiolect.engines.door import Training
from idiolect.engines.round import Cohort, How
from idiolect.engines.simulate import simulate
from idiolect.engines.start import wire_types
from idiolect.objectives import GlobalModel, LocalOnly
from idiolect.theory.all_for_all import spectral_radius

CLIENTS, ROUNDS, ETA = 5, 3, 0.3
LAMBDA = np.array(
    [
        [0.5, 0.5, 0.0, 0.0, 0.0],
        [0.2, 0.3, 0.5, 0.0, 0.0],
        [0.0, 0.0, 0.4, 0.6, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],  # does not listen to itself
        [0.0, 0.0, 0.0, 0.0, 1.0],  # alone, but not unheard
    ]
)
W = LAMBDA @ LAMBDA.T
FORMS = pytest.mark.parametrize("dense", [False, True], ids=["lists", "matrix"])


def all_for_all(client_loss, matrix=None, dense=None, clients=CLIENTS, **settings):
    """The algorithm as an engine admits it."""
    neighbours = None if matrix is None else mixing.from_dense(matrix, dense=dense)
    settings = {"step_size": ETA} | settings
    algorithm = AllForAll(LocalOnly(client_loss), neighbours=neighbours, clients=clients, **settings)
    assert fit_of(algorithm).refused is None
    return in_precision(algorithm, jnp.float64)


def one_at_a_time(algorithm, data, agents):
    """Rounds with a cohort of one agent each."""
    agents = jnp.asarray(agents, jnp.int32)[:, None]
    cohorts = Cohort(agents, agents, jnp.ones(agents.shape, bool))
    root = keys.root_key(0)
    server = algorithm.init_server(root)
    rounds = Rounds(jnp.arange(len(agents), dtype=jnp.int32), jnp.asarray(len(agents)))
    return run_lane(Lane(algorithm, root, server, (), cohorts), data, rounds, how=How(uniform=False, chunk=0))[0]


def gradients(lab, rows, x):
    return np.array([lab.softmax_gradient(x[m], *rows[m]) for m in range(len(rows))])


@FORMS
def test_rounds_equal_the_reference(lab, dense):
    client_loss, data, rows = lab.softmax_problem()
    algorithm = all_for_all(client_loss, LAMBDA, dense)
    present = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]], bool)
    for who in (np.ones((ROUNDS, CLIENTS), bool), present):
        x = np.zeros((CLIENTS, 12))
        for here in who:
            x = x - ETA * W @ (gradients(lab, rows, x) * here[:, None])
        run = lab.simulate(algorithm, data, ROUNDS, present=who)
        np.testing.assert_allclose(lab.flat_rows(run.server.models), x, rtol=0, atol=1e-13)
        assert run.tally()["personal"] == sum(int(n) for n in (who * np.asarray(data.count)).ravel())


def test_x_is_lambda_y(lab):
    """y does gradient descent on f^Lambda: with step eta N for all, with step eta N for one agent's gradient
    of (1/N) f_j, which is eta lambda_j g_j: both are y <- y - eta Lambda^T g."""
    client_loss, data, rows = lab.softmax_problem()
    algorithm = all_for_all(client_loss, LAMBDA, dense=False)
    y = np.zeros((CLIENTS, 12))
    for _ in range(20):
        y = y - ETA * LAMBDA.T @ gradients(lab, rows, LAMBDA @ y)
    run = lab.simulate(algorithm, data, 20)
    np.testing.assert_allclose(lab.flat_rows(run.server.models), LAMBDA @ y, rtol=0, atol=1e-13)

    order, y = [3, 0, 1, 1, 4, 2, 0], np.zeros((CLIENTS, 12))
    for agent in order:
        only = np.arange(CLIENTS)[:, None] == agent
        y = y - ETA * LAMBDA.T @ (gradients(lab, rows, LAMBDA @ y) * only)
    models = one_at_a_time(algorithm, data, order).models
    np.testing.assert_allclose(lab.flat_rows(models), LAMBDA @ y, rtol=0, atol=1e-13)


def test_the_asynchronous_update_has_the_synchronous_one_over_n_as_its_mean(lab):
    client_loss, data, _ = lab.softmax_problem()
    algorithm = all_for_all(client_loss, LAMBDA, dense=False)
    each = [lab.flat_rows(one_at_a_time(algorithm, data, [agent]).models) for agent in range(CLIENTS)]
    together = lab.flat_rows(lab.simulate(algorithm, data, 1).server.models)
    assert np.abs(together).max() > 0.01
    np.testing.assert_allclose(np.mean(each, axis=0), together / CLIENTS, rtol=0, atol=1e-15)


def test_identity_is_training_alone(lab):
    client_loss, data, _ = lab.softmax_problem()
    algorithm = all_for_all(client_loss, np.eye(CLIENTS), batch_size=2)
    alone = Local(LocalOnly(client_loss), step_size=ETA, batch_size=2, clients=CLIENTS)
    ours, theirs = (lab.simulate(one, data, 10) for one in (algorithm, alone))
    expected = lab.flat_rows(theirs.states.personal)
    np.testing.assert_allclose(lab.flat_rows(ours.server.models), expected, rtol=0, atol=1e-14)


def test_uniform_is_minibatch_sgd(lab):
    client_loss, data, _ = lab.softmax_problem()
    batching = {"batch_size": 2, "local_steps": 2}
    algorithm = all_for_all(client_loss, own_share=0.0, **batching)
    one = MinibatchSGD(GlobalModel(client_loss), step_size=ETA, clients=CLIENTS, **batching)
    models = lab.flat_rows(lab.simulate(algorithm, data, 10).server.models)
    shared = lab.flat(lab.simulate(one, data, 10).server.shared)
    np.testing.assert_allclose(models, np.tile(shared, (CLIENTS, 1)), rtol=0, atol=1e-14)


def test_a_mixture_is_its_matrix(lab):
    client_loss, data, _ = lab.softmax_problem()
    matrix = 0.3 * np.eye(CLIENTS) + 0.7 / CLIENTS
    short, long = (
        lab.flat_rows(lab.simulate(one, data, 5).server.models)
        for one in (all_for_all(client_loss, own_share=0.3), all_for_all(client_loss, matrix))
    )
    np.testing.assert_allclose(short, long, rtol=0, atol=1e-14)


def test_a_stream_uses_every_row_once(lab):
    """Three rows in rounds of two: 0 1 | 2 0 | 1 2, each agent on its own."""
    client_loss, data, rows = lab.softmax_problem(sizes=(3, 5))
    matrix = np.array([[0.7, 0.3], [0.1, 0.9]])
    algorithm = all_for_all(client_loss, matrix, clients=2, batch_size=2, order="stream")
    x = np.zeros((2, 12))
    for round_number in range(4):
        chosen = [[(2 * round_number + t) % len(y) for t in range(2)] for _, y in rows]
        g = np.array([lab.softmax_gradient(x[m], rows[m][0][chosen[m]], rows[m][1][chosen[m]]) for m in range(2)])
        x = x - ETA * matrix @ matrix.T @ g
    run = lab.simulate(algorithm, data, 4)
    np.testing.assert_allclose(lab.flat_rows(run.server.models), x, rtol=0, atol=1e-14)


def quadratics(lab, agents=20, seed=3):
    """Unequal curvatures and optima; b_ij = f_i(x*_j) - f_i(x*_i) exactly."""
    draw = np.random.default_rng(seed)
    curvature, optima = draw.uniform(0.5, 2.0, (agents, 2)), draw.normal(size=(agents, 2))
    b = 0.5 * (curvature[:, None] * (optima[None] - optima[:, None]) ** 2).sum(axis=2)
    return *lab.quadratic_problem(curvature, optima), curvature, optima, b


@pytest.mark.parametrize("accuracy", [0.2, 4.0])
def test_bias_and_fixed_point_at_the_limit(lab, accuracy):
    """Lemma 3: without noise F ends at most (1/N) sum lambda_ij b_ij above 0; there Lambda^T grad = 0."""
    client_loss, data, curvature, optima, b = quadratics(lab)
    close = b <= accuracy / 2
    matrix = close / close.sum(axis=1, keepdims=True)
    bias = (matrix * b).sum() / 20
    assert bias <= accuracy / 2

    def gap(x):
        return 0.5 * (curvature * (x - optima) ** 2).sum(axis=1).mean()

    # x = Lambda y minimises F over the range of Lambda: column by column, weighted least squares
    limit = np.column_stack(
        [
            matrix @ np.linalg.lstsq(np.sqrt(h)[:, None] * matrix, np.sqrt(h) * o, rcond=None)[0]
            for h, o in zip(curvature.T, optima.T)
        ]
    )
    gradients = curvature * (limit - optima)
    assert np.abs(gradients).max() > 1e-3  # agents do not end at their own optima
    np.testing.assert_allclose(matrix.T @ gradients, 0, atol=1e-12)

    radius = np.linalg.eigvalsh(matrix @ matrix.T).max()
    step_size = 1 / (2 * curvature.max() * radius)
    algorithm = all_for_all(client_loss, matrix, dense=True, clients=20, step_size=step_size)
    server = algorithm.init_server(keys.root_key(0))
    there = (server._replace(models={"location": jnp.asarray(limit)}), ())
    stays = lab.flat_rows(lab.simulate(algorithm, data, 50, start=there).server.models)
    np.testing.assert_allclose(stays, limit, rtol=0, atol=1e-12)
    # from a common start W's smallest eigenvalue sets the pace (E004-5), but F falls below the bias term long before
    reached = gap(lab.flat_rows(lab.simulate(algorithm, data, 2000).server.models))
    assert gap(limit) <= reached <= bias


def test_the_printed_step_diverges_on_a_star_and_the_corrected_one_converges(lab):
    """E004-4: rho(W) = 25 for 100 agents, so 1/(2L) is 12.5 times the step that 2/(L rho) would allow."""
    agents = 100
    optima = np.vstack([np.zeros(agents - 1), np.eye(agents - 1)])  # leaves at distance 1 from agent 0
    b = 0.5 * ((optima[:, None] - optima[None]) ** 2).sum(axis=2)
    close = b <= 0.5 + 1e-9  # eps = 1: leaves are 1 apart from each other
    matrix = close / close.sum(axis=1, keepdims=True)
    radius = spectral_radius(mixing.from_dense(matrix))
    assert 24.9 < radius < 25.5
    client_loss, data = lab.quadratic_problem(1.0, optima)
    printed, corrected = (
        lab.flat_rows(
            lab.simulate(all_for_all(client_loss, matrix, clients=agents, step_size=eta), data, 300).server.models
        )
        for eta in (1 / 2, 1 / (2 * radius))
    )
    assert not np.abs(printed).max() < 1e100
    gap = 0.5 * ((corrected - optima) ** 2).sum(axis=1).mean()
    assert gap <= (matrix * b).sum() / agents + 1e-3


def test_padding_of_chunks_is_no_client(lab):
    """10 of 11 agents in chunks of 4 come as 12 rows, more than there are agents: two are padding."""
    client_loss, _ = lab.quadratic_problem(1.0, np.zeros((11, 2)))
    draw = np.random.default_rng(0)
    matrix = draw.dirichlet(np.ones(11), size=11)
    algorithm = all_for_all(client_loss, matrix, clients=11)
    there = np.array([0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 2**31 - 1, 2**31 - 1], np.int32)
    present = jnp.asarray(there < 11)
    gradients = draw.normal(size=(12, 2)) * np.asarray(present)[:, None]
    uploads = Upload({"location": jnp.asarray(gradients)}, jnp.ones(12))
    received = gather.lower(gather.collect(uploads, jnp.asarray(there), present))
    server = algorithm.init_server(keys.root_key(0))
    moved = algorithm.server_step(keys.root_key(0), server, None, received)
    expected = -ETA * matrix @ (matrix.T[:, there[:10]] @ gradients[:10])
    np.testing.assert_allclose(moved.models["location"], expected, rtol=0, atol=1e-14)


@pytest.fixture(scope="module")
def six():
    """Lambda for the six clients of the shared federations."""
    matrix = (np.eye(6) + np.roll(np.eye(6), 1, axis=1)) / 2
    matrix[5] = np.eye(6)[5]
    return matrix


def test_peers_are_billed_by_their_neighbours(workbench, ragged, six):
    training = Training(rounds=4, cohort=2, dropout=0.4, record_every=4, executor="batched")
    algorithm = AllForAll(LocalOnly(workbench.client_loss()), neighbours=mixing.from_dense(six), route="peers")
    ledger = simulate(algorithm, ragged, training).recorder.ledger
    members, present = Participation(6, 2, 0.4).draw(0, range(4))
    assert 0 < present.sum() < 8
    # W_ij > 0 for neighbours on the chain; agents 5 and 0 do not meet
    others = np.array([1, 2, 2, 2, 2, 1])
    messages = int(others[members[present]].sum())
    unit = 4 * (workbench.features + 1) * workbench.classes
    assert (ledger.messages_up, ledger.messages_down) == (messages, messages)
    assert (ledger.upload_bytes, ledger.download_bytes) == (messages * unit, messages * unit)
    assert ledger.delivery_bytes == 0  # every client holds its own model already


def test_who_is_billed(six):
    """All clients, twice: chain, mixture and alone; through a server the types tell."""
    shape = SimpleNamespace(gradient=jax.ShapeDtypeStruct((10,), np.float32))
    everyone = (np.arange(2), np.tile(np.arange(6), (2, 1)), np.ones((2, 6), bool))
    cases = [({"neighbours": mixing.from_dense(six)}, 10), ({"own_share": 0.9}, 30), ({"own_share": 1.0}, 0)]
    for given, messages in cases:
        algorithm = AllForAll(LocalOnly(None), clients=6, route="peers", **given)
        assert algorithm.bill(None, shape, *everyone) == (2 * messages,) * 2 + (2 * messages * 40,) * 2
        assert dataclasses.replace(algorithm, route="server").bill(None, shape, *everyone) is None


def test_lists_run_alike_compiled_and_in_plain_python(workbench, ragged, six):
    training = Training(rounds=2, cohort=4, dropout=0.3, precision="float64", executor="batched", record_every=2)
    settings = {"neighbours": mixing.from_dense(six, dense=False), "batch_size": 2, "order": "stream"}
    algorithm = AllForAll(LocalOnly(workbench.client_loss()), **settings)
    run, plain = simulate(algorithm, ragged, training, seed=3), debug(algorithm, ragged, training, seed=3)
    assert workbench.distance(run.server, plain.server) < 1e-12
    places = [int(state.place) for state in plain.clients]
    assert np.asarray(run.states.place).tolist() == places
    assert any(places)


def test_what_does_not_fit_is_refused(workbench, ragged, six):
    loss = workbench.client_loss()
    with pytest.raises(RequestError, match="neighbours of all 6 clients, got those of 5"):
        simulate(AllForAll(LocalOnly(loss), neighbours=mixing.from_dense(LAMBDA)), ragged, Training(rounds=1))
    with pytest.raises(RequestError, match="use the local_only objective"):
        simulate(AllForAll(GlobalModel(loss)), ragged, Training(rounds=1))
    with pytest.raises(RequestError, match="a stream of rows needs batch_size above 0"):
        simulate(AllForAll(LocalOnly(loss), order="stream"), ragged, Training(rounds=1))


# Time-adaptive: three phases of unequal length over five agents on a line.
PLACES = np.array([0.0, 0.1, 0.25, 0.6, 0.7])
B = 0.5 * (PLACES[:, None] - PLACES[None]) ** 2
PHASES = mixing.Phases(np.array([1.0, 0.05, 0.011]), np.array([0.5, 0.3, 0.2]), np.array([2, 5, 6], np.int32))


def phase_weights(place):
    close = PHASES.accuracy[place] / 2 >= B
    return close / close.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("between", ["continue", "restart"])
@FORMS
def test_adaptive_rounds_equal_the_reference(lab, dense, between):
    client_loss, data, rows = lab.softmax_problem()
    algorithm = AllForAllAdaptive(
        LocalOnly(client_loss),
        clients=CLIENTS,
        step_size=0.9,
        discrepancies=mixing.discrepancies_from_dense(B, dense=dense),
        phases=PHASES,
        between_phases=between,
    )
    assert fit_of(dataclasses.replace(algorithm, clients=CLIENTS)).refused is None
    algorithm = in_precision(algorithm, jnp.float64)
    x, delivered = np.zeros((CLIENTS, 12)), []
    for number, place in enumerate([0, 0, 1, 1, 1, 2, 2, 2]):  # the last phase goes on
        if between == "restart" and number in PHASES.end:
            x = np.zeros_like(x)
        weights = phase_weights(place)
        x = x - 0.9 * PHASES.step_size[place] * weights @ weights.T @ gradients(lab, rows, x)
        delivered.append(x)
    for rounds in (1, 4, 8):
        run = lab.simulate(algorithm, data, rounds)
        np.testing.assert_allclose(lab.flat_rows(run.server.models), delivered[rounds - 1], rtol=0, atol=1e-13)
        out = algorithm.deliver(keys.root_key(0), run.server).model.values
        last = {1: 1, 4: 2, 8: 6}[rounds] if between == "restart" else rounds  # the end of the last finished phase
        np.testing.assert_allclose(lab.flat_rows(out), delivered[last - 1], rtol=0, atol=1e-13)


def test_adaptive_peers_are_billed_by_the_phase(six):
    shape = SimpleNamespace(gradient=jax.ShapeDtypeStruct((10,), np.float32))
    settings = {"clients": CLIENTS, "discrepancies": mixing.discrepancies_from_dense(B), "phases": PHASES}
    algorithm = AllForAllAdaptive(LocalOnly(None), route="peers", **settings)
    rounds = np.array([1, 2, 7])
    sent = [(phase_weights(place) @ phase_weights(place).T > 0).sum() - CLIENTS for place in range(3)]
    assert len(set(sent)) == 3
    everyone = (np.tile(np.arange(CLIENTS), (3, 1)), np.ones((3, CLIENTS), bool))
    assert algorithm.bill(None, shape, rounds, *everyone).up == sum(sent)


def test_adaptive_needs_all_of_its_parts(lab):
    client_loss, _, _ = lab.softmax_problem()
    algorithm = AllForAllAdaptive(LocalOnly(client_loss), discrepancies=mixing.discrepancies_from_dense(B))
    assert "needs phases" in fit_of(dataclasses.replace(algorithm, clients=CLIENTS)).refused
    assert "all 6 clients, got those of 5" in fit_of(dataclasses.replace(algorithm, phases=PHASES, clients=6)).refused
    twisted = PHASES._replace(end=PHASES.end[::-1])
    assert "ascend" in fit_of(dataclasses.replace(algorithm, phases=twisted, clients=CLIENTS)).refused


@FORMS
def test_naive_is_a_weighted_average_per_agent(lab, dense):
    """x_i moves along lambda_ij grad f_j(x_i); with a cohort of one the gradient weighs N times."""
    client_loss, data, rows = lab.softmax_problem()
    neighbours = mixing.from_dense(LAMBDA, dense=dense)
    algorithm = AllForAllNaive(LocalOnly(client_loss), clients=CLIENTS, step_size=ETA, neighbours=neighbours)
    algorithm = in_precision(algorithm, jnp.float64)
    x = np.zeros((CLIENTS, 12))
    for _ in range(4):
        at = [[lab.softmax_gradient(x[i], *rows[j]) for j in range(CLIENTS)] for i in range(CLIENTS)]
        x = x - ETA * np.einsum("ij,ijd->id", LAMBDA, np.array(at))
    run = lab.simulate(algorithm, data, 4)
    np.testing.assert_allclose(lab.flat_rows(run.server.models), x, rtol=0, atol=1e-13)
    # agent j takes a gradient for each of its listeners, and reads its rows once
    sizes, listeners = np.array([len(y) for _, y in rows]), (LAMBDA > 0).sum(axis=0)
    assert run.tally()["personal"] == 4 * (sizes * listeners).sum()
    assert run.tally()["samples"] == 4 * sizes.sum()
    alone = dataclasses.replace(algorithm, participation=1 / CLIENTS)
    each = [lab.flat_rows(one_at_a_time(alone, data, [agent]).models) for agent in range(CLIENTS)]
    together = lab.flat_rows(lab.simulate(algorithm, data, 1).server.models)
    np.testing.assert_allclose(np.mean(each, axis=0), together, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("route", "messages"), [("server", 9), ("peers", 10)])
def test_naive_bills_true_listeners(route, messages):
    """Nine pairs listen; of the five that are not an agent and itself both ends send one message."""
    everyone = (np.zeros(1, int), np.arange(CLIENTS)[None], np.ones((1, CLIENTS), bool))
    assert (LAMBDA > 0).sum() == 9
    for dense in (False, True):
        neighbours = mixing.from_dense(LAMBDA, dense=dense)
        algorithm = AllForAllNaive(LocalOnly(None), clients=CLIENTS, neighbours=neighbours, route=route)
        slots = algorithm._listeners()[0].shape[0]
        types = SimpleNamespace(gradient=jax.ShapeDtypeStruct((slots, 10), np.float32))
        assert algorithm.bill(None, types, *everyone) == (messages, messages, 40 * messages, 40 * messages)


@FORMS
def test_all_for_one(lab, dense):
    """One row of Lambda; an agent that does not count is not asked, counted or billed."""
    client_loss, data, rows = lab.softmax_problem()
    neighbours = mixing.from_dense(LAMBDA, dense=dense)
    settings = {"clients": CLIENTS, "step_size": ETA, "neighbours": neighbours, "target": 1}
    algorithm = in_precision(AllForOne(GlobalModel(client_loss), **settings), jnp.float64)
    x = np.zeros(12)
    for _ in range(4):
        x = x - ETA * LAMBDA[1] @ np.array([lab.softmax_gradient(x, *own) for own in rows])
    run = lab.simulate(algorithm, data, 4)
    np.testing.assert_allclose(lab.flat(run.server.shared), x, rtol=0, atol=1e-14)
    assert run.tally()["shared"] == 4 * sum(len(rows[j][1]) for j in (0, 1, 2))
    alone = dataclasses.replace(algorithm, participation=1 / CLIENTS)
    each = [lab.flat(one_at_a_time(alone, data, [agent]).shared) for agent in range(CLIENTS)]
    together = lab.flat(lab.simulate(algorithm, data, 1).server.shared)
    np.testing.assert_allclose(np.mean(each, axis=0), together, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(each[3], 0)
    wire = wire_types(algorithm, data)
    everyone = (np.zeros(1, int), np.arange(CLIENTS)[None], np.array([[True, False, True, True, True]]))
    bill = algorithm.bill(wire.sent, wire.upload, *everyone)
    assert bill == (3, 2, 3 * (12 * 8 + 8), 2 * (12 * 8 + 8))  # agent 1 was asked and vanished


def test_all_for_one_special_cases(lab):
    """lambda = e_i is SGD on f_i, 1/N minibatch SGD."""
    client_loss, data, rows = lab.softmax_problem()
    settings = {"clients": CLIENTS, "step_size": ETA, "target": 3}
    alone = in_precision(AllForOne(GlobalModel(client_loss), own_share=1.0, **settings), jnp.float64)
    v = np.zeros(12)
    for _ in range(5):
        v = v - ETA * lab.softmax_gradient(v, *rows[3])
    np.testing.assert_allclose(lab.flat(lab.simulate(alone, data, 5).server.shared), v, rtol=0, atol=1e-14)
    everyone = in_precision(AllForOne(GlobalModel(client_loss), own_share=0.0, **settings), jnp.float64)
    one = MinibatchSGD(GlobalModel(client_loss), step_size=ETA, clients=CLIENTS)
    found, expected = (lab.flat(lab.simulate(algorithm, data, 5).server.shared) for algorithm in (everyone, one))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert "clients are numbered from 0 to 4" in fit_of(dataclasses.replace(alone, target=5, clients=CLIENTS)).refused
