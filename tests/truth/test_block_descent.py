# SPDX-License-Identifier: Apache-2.0
"""The block-coordinate solvers of Unified 2023 against NumPy loops of the corrected algorithms.

The references only take from the package what is random: the schedule and the rows.
"""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import find
from idiolect.algorithms.ascd_then_asvrcd import EVALUATE, PLAIN, SWITCH
from idiolect.algorithms.block_descent import REFRESH, SAMPLE, SAMPLE_BEFORE_REFRESH, STEP_AND_REFRESH
from idiolect.algorithms.schedule import AHEAD
from idiolect.core import batches, keys
from idiolect.core.keys import Purpose
from idiolect.core.tree import take
from idiolect.engines import door
from idiolect.engines.billing import sends
from idiolect.objectives import MX2, GlobalModel, LocalOnly

CLIENTS, SEED, PENALTY = 5, 3, 0.4
MU, SHARED, PERSONAL = 0.05, 0.08, 0.5  # of F
DECIDED = {
    "acd_pfl": {"strong_convexity": MU, "shared_smoothness": SHARED, "personal_smoothness": PERSONAL},
    "asvrcd_pfl": {
        "step_size": 0.3,
        "momentum": 0.35,
        "anchor": 0.4,
        "mirror_step": 0.6,
        "strong_convexity": MU,
        "shared_probability": 0.3,
        "refresh_probability": 0.25,
    },
    "svrcd_pfl": {"step_size": 0.3, "shared_probability": 0.3, "refresh_probability": 0.25},
    "ascd_pfl": {
        "step_size": 0.3,
        "momentum": 0.6,
        "mirror_step": 0.5,
        "strong_convexity": MU,
        "shared_probability": 0.3,
    },
    "scd_pfl": {"step_size": 0.3, "shared_probability": 0.3},
}
DECIDED["ascd_then_asvrcd"] = DECIDED["asvrcd_pfl"] | {"early_momentum": 0.6, "check_every": 2, "slowdown": 1.5}


class Reference:
    """MX2 on softmax losses over flat vectors, its gradients counted, and the package's draws."""

    def __init__(self, lab, algorithm, data, rows):
        self.lab, self.algorithm, self.data, self.rows = lab, algorithm, data, rows
        self.root, self.size = keys.root_key(SEED), algorithm.batch_size
        self.tally = dict.fromkeys(("shared", "personal", "both", "forward", "samples"), 0)
        self.tally |= dict.fromkeys(("full_shared", "full_personal", "proximal"), 0)

    def charge(self, block, chosen, m, times=1, reads=1):
        for name, amount in ((block, len(chosen)), ("samples", reads * len(chosen))):
            self.tally[name] += times * amount
        if self.size == 0 or block == "both":
            for full in ("shared", "personal") if block == "both" else (block,):
                self.tally[f"full_{full}"] += times

    def plain(self, v, m, chosen):
        """grad f'_m."""
        return self.lab.softmax_gradient(v, self.rows[m][0][chosen], self.rows[m][1][chosen])

    def value(self, w, b):
        total = 0.0
        for m, (x, y) in enumerate(self.rows):
            self.tally["forward"] += len(y)
            self.tally["samples"] += len(y)
            logits = x @ b[m, self.lab.classes :].reshape(-1, x.shape[1]).T + b[m, : self.lab.classes]
            losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
            total += losses.mean() + self.lab.l2 / 2 * b[m] @ b[m]
            total += PENALTY / 2 * np.sum((w / np.sqrt(CLIENTS) - b[m]) ** 2)
        return total / CLIENTS

    def full(self, m):
        return np.arange(len(self.rows[m][1]))

    def gradients(self, w, b):
        """grad_w F and (1/M) grad_beta f_m on every row, from one pass each."""
        for m in range(CLIENTS):
            self.charge("both", self.full(m), m)
        shared = np.mean([self.shared(w, b[m]) for m in range(CLIENTS)], axis=0)
        return shared, np.array([self.personal(w, b[m], m, self.full(m)) for m in range(CLIENTS)]) / CLIENTS

    def shared(self, w, b):
        return CLIENTS**-0.5 * PENALTY * (CLIENTS**-0.5 * w - b)

    def personal(self, w, b, m, chosen):
        return self.plain(b, m, chosen) + PENALTY * (b - CLIENTS**-0.5 * w)

    def drawn(self, purpose, r, m, t=None):
        """Rows of a local iteration (purpose STEP) or of the one that ends the round (SEND)."""
        if self.size == 0:
            return self.full(m)
        key = keys.client_key(self.root, purpose, r, m)
        own = take(self.data, m)
        if t is None:
            return np.asarray(batches.draw_with_replacement(key, 1, self.size, own)[0])
        start = t - t % AHEAD
        return np.asarray(
            batches.draw_with_replacement(jax.random.fold_in(key, start), AHEAD, self.size, own)[t % AHEAD]
        )


def acd(ref, plan, w, b, s):
    """ACD-PFL: S, nu, theta and eta from the constants; nothing is shared with the package's coefficients."""
    total = np.sqrt(SHARED) + np.sqrt(PERSONAL)
    nu = MU / total**2
    theta = (np.sqrt(nu**2 + 4 * nu) - nu) / 2
    eta = 1 / theta
    (wy, wz), (by, bz) = (w.copy(), w.copy()), (b.copy(), b.copy())
    for iterations, _ in plan:
        for t in range(iterations + 1):
            wx, bx = (1 - theta) * wy + theta * wz, (1 - theta) * by + theta * bz
            gw, gb = 0.0, np.zeros_like(bx)
            if t == iterations:
                gw = np.mean([ref.shared(wx, bx[m]) for m in range(CLIENTS)], axis=0)
                [ref.charge("shared", ref.full(m), m, reads=0) for m in range(CLIENTS)]
            else:
                gb = np.array([ref.personal(wx, bx[m], m, ref.full(m)) for m in range(CLIENTS)]) / CLIENTS
                [ref.charge("personal", ref.full(m), m) for m in range(CLIENTS)]
            wy, by = wx - gw / SHARED, bx - gb / PERSONAL
            wz = (wz + eta * nu * wx - eta * gw / (np.sqrt(SHARED) * total)) / (1 + eta * nu)
            bz = (bz + eta * nu * bx - eta * gb / (np.sqrt(PERSONAL) * total)) / (1 + eta * nu)
    return wy, by


def variance_reduced(ref, plan, w, b, s):
    """ASVRCD and SVRCD (x = y, no z). The printed algorithms 3 and 7 differ (E002-4, E002-5)."""
    p, eta = s["shared_probability"], s["step_size"]
    theta1, theta2, gamma = s.get("momentum", 0.0), s.get("anchor", 0.0), s.get("mirror_step", 0.0)
    nu = 1 - gamma * s.get("strong_convexity", 0.0)
    (wy, wz, wv), (by, bz, bv) = (w, w, w), (b, b, b)
    gradient = None
    for r, (iterations, ending) in enumerate(plan):
        last = iterations + (ending != REFRESH)
        for t in range(last):
            old = wy, by
            wx, bx = (theta1 * z + theta2 * v + (1 - theta1 - theta2) * y for y, z, v in ((wy, wz, wv), (by, bz, bv)))
            gw, gb = gradient[0], gradient[1].copy()
            if t == iterations and ending in (SAMPLE, SAMPLE_BEFORE_REFRESH):
                chosen = [ref.drawn(Purpose.SEND, r, m) for m in range(CLIENTS)]
                [ref.charge("shared", chosen[m], m, times=2, reads=0) for m in range(CLIENTS)]
                gw = gw + np.mean([ref.shared(wx, bx[m]) - ref.shared(wv, bv[m]) for m in range(CLIENTS)], axis=0) / p
            else:
                for m in range(CLIENTS):
                    ended = t == iterations
                    chosen = ref.drawn(Purpose.SEND if ended else Purpose.STEP, r, m, None if ended else t)
                    ref.charge("personal", chosen, m, times=2)
                    gb[m] += (ref.personal(wx, bx[m], m, chosen) - ref.personal(wv, bv[m], m, chosen)) / (
                        (1 - p) * CLIENTS
                    )
            wy, by = wx - eta * gw, bx - eta * gb
            wz, bz = (nu * z + (1 - nu) * x + gamma / eta * (y - x) for z, x, y in ((wz, wx, wy), (bz, bx, by)))
        if ending != SAMPLE and ending != REFRESH:
            wv, bv = old  # v takes the OLD y
        if ending in (STEP_AND_REFRESH, REFRESH):
            gradient = ref.gradients(wv, bv)
    return wy, by


def stochastic(ref, plan, w, b, s):
    """ASCD with either rule for the block that is not sampled, and SCD (theta = 0: x = y)."""
    p, eta, theta, gamma = s["shared_probability"], s["step_size"], s.get("momentum", 0.0), s.get("mirror_step", 0.0)
    nu = 1 - gamma * s.get("strong_convexity", 0.0)
    (wy, wz), (by, bz) = (w, w), (b, b)
    for r, (iterations, _) in enumerate(plan):
        for t in range(iterations + 1):
            wx, bx = theta * wz + (1 - theta) * wy, theta * bz + (1 - theta) * by
            old, gw, gb = (wy, wz, by, bz), 0.0, np.zeros_like(bx)
            if t == iterations:
                chosen = [ref.drawn(Purpose.SEND, r, m) for m in range(CLIENTS)]
                [ref.charge("shared", chosen[m], m, reads=0) for m in range(CLIENTS)]
                gw = np.mean([ref.shared(wx, bx[m]) for m in range(CLIENTS)], axis=0) / p
            else:
                for m in range(CLIENTS):
                    chosen = ref.drawn(Purpose.STEP, r, m, t)
                    ref.charge("personal", chosen, m)
                    gb[m] = ref.personal(wx, bx[m], m, chosen) / ((1 - p) * CLIENTS)
            wy, by = wx - eta * gw, bx - eta * gb
            wz, bz = nu * wz + (1 - nu) * wx - gamma * gw, nu * bz + (1 - nu) * bx - gamma * gb
            if s.get("unsampled") == "stale":
                by, bz = (old[2], old[3]) if t == iterations else (by, bz)
                wy, wz = (wy, wz) if t == iterations else (old[0], old[1])
    return wy, by


CASES = [
    ("acd_pfl", {}, acd, 12),
    ("asvrcd_pfl", {}, variance_reduced, 25),
    ("asvrcd_pfl", {"batch_size": 0}, variance_reduced, 12),
    ("svrcd_pfl", {"batch_size": 2}, variance_reduced, 25),
    ("ascd_pfl", {}, stochastic, 12),
    ("ascd_pfl", {"unsampled": "stale"}, stochastic, 12),
    ("scd_pfl", {}, stochastic, 12),
]


def build(lab, name, more, objective=None):
    client_loss, data, rows = lab.softmax_problem()
    settings = DECIDED[name] | more
    algorithm = find(name).algorithm(objective or MX2(client_loss, penalty=PENALTY), **settings)
    return door.admit(algorithm, CLIENTS, "float64"), settings, data, rows


def schedule(algorithm, rounds):
    """[(iterations, ending)] as the server draws it; what is due follows from the endings."""
    root, plan, server = keys.root_key(SEED), [], None
    server = algorithm.init_server(root)
    for r in range(rounds):
        sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, r), server)
        ending = int(getattr(sent, "ending", SAMPLE))
        plan.append((int(sent.iterations), ending))
        if hasattr(server, "refresh_due"):
            server = server._replace(refresh_due=jnp.asarray(ending == SAMPLE_BEFORE_REFRESH))
    return plan


@pytest.mark.parametrize(
    ("name", "more", "reference", "rounds"), CASES, ids=[f"{c[0]}-{'-'.join(map(str, c[1].values()))}" for c in CASES]
)
def test_rounds_equal_the_reference(lab, name, more, reference, rounds):
    algorithm, settings, data, rows = build(lab, name, more)
    plan = schedule(algorithm, rounds)
    run = lab.simulate(algorithm, data, rounds, seed=SEED)
    ref = Reference(lab, algorithm, data, rows)
    size = lab.flat(algorithm.objective.init_shared(None)).size
    w, b = reference(ref, plan, np.zeros(size), np.zeros((CLIENTS, size)), settings)
    shared = run.server.shared.y if hasattr(run.server.shared, "y") else run.server.shared
    personal = run.states.personal.y if hasattr(run.states.personal, "y") else run.states.personal
    np.testing.assert_allclose(lab.flat(shared), w, atol=1e-12)
    np.testing.assert_allclose(lab.flat_rows(personal), b, atol=1e-12)
    assert run.tally() == ref.tally
    if reference is variance_reduced:  # every kind of round came up
        assert {ending for _, ending in plan} == {SAMPLE, SAMPLE_BEFORE_REFRESH, STEP_AND_REFRESH, REFRESH}
    if hasattr(run.states, "shared"):  # and every client's copy of w is the server's
        copies = lab.flat_rows(run.states.shared)
        np.testing.assert_allclose(copies, np.tile(lab.flat(run.server.shared), (CLIENTS, 1)), atol=1e-13)


def test_the_switching_solver_is_ascd_then_asvrcd_and_bills_what_it_measures(lab):
    algorithm, settings, data, rows = build(lab, "ascd_then_asvrcd", {})
    ref = Reference(lab, algorithm, data, rows)
    root, server = keys.root_key(SEED), None
    size = lab.flat(algorithm.objective.init_shared(None)).size
    w, b = np.zeros(size), np.zeros((CLIENTS, size))
    plan, values, states = [], [], None
    for rounds in range(1, 15):
        run = lab.simulate(algorithm, data, rounds, seed=SEED)
        before = server if server is not None else algorithm.init_server(root)
        sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, rounds - 1), before)
        plan.append((int(sent.iterations), int(sent.ending)))
        server, states = run.server, run.states
        if plan[-1][1] == EVALUATE:
            values.append(float(server.last_value))
            point = lab.flat(server.shared.y), lab.flat_rows(states.personal.y)
            assert values[-1] == pytest.approx(ref.value(*point), abs=1e-12)
        if plan[-1][1] == SWITCH:
            break
    endings = [ending for _, ending in plan]
    checks = endings.count(EVALUATE)
    # an evaluation first, then one after every two rounds; the last stretch gained less than 1.5 of the mean one
    assert endings == [EVALUATE] + ([PLAIN, PLAIN, EVALUATE] * checks)[: len(endings) - 2] + [SWITCH]
    gains = -np.diff(values)
    slow = gains < 1.5 * np.cumsum(gains) / np.arange(1, checks)
    assert slow.tolist() == [False] * (checks - 2) + [True]
    early = [entry for entry in plan if entry[1] == PLAIN]
    # the rounds of an evaluation draw nothing, so that the reference must number ASCD's as the package did
    numbers = [r for r, entry in enumerate(plan) if entry[1] == PLAIN]
    ref.drawn = lambda purpose, r, m, t=None, drawn=ref.drawn: drawn(purpose, numbers[r], m, t)
    w, b = stochastic(ref, early, w, b, settings | {"momentum": settings["early_momentum"]})
    np.testing.assert_allclose(lab.flat(server.shared.y), w, atol=1e-12)
    np.testing.assert_allclose(lab.flat_rows(states.personal.y), b, atol=1e-12)
    # ASVRCD starts afresh at that point, with its full gradient at hand
    np.testing.assert_allclose(lab.flat(server.shared.z), w, atol=1e-12)
    np.testing.assert_allclose(lab.flat(server.shared.gradient), ref.gradients(w, b)[0], atol=1e-12)
    np.testing.assert_allclose(lab.flat_rows(states.personal.gradient), ref.gradients(w, b)[1], atol=1e-12)


@pytest.mark.parametrize("name", [name for name in DECIDED if name not in ("ascd_then_asvrcd", "scd_pfl")])
def test_with_one_block_that_block_is_always_sampled(lab, name):
    client_loss, *_ = lab.softmax_problem()
    exact = {"shared_smoothness": 2.0, "personal_smoothness": 0.0} if name == "acd_pfl" else {"batch_size": 0}
    algorithm, _, data, _ = build(lab, name, exact, GlobalModel(client_loss))
    run = lab.simulate(algorithm, data, 8, seed=SEED)
    tally = run.tally()
    assert tally["personal"] == tally["both"] == 0
    assert tally["full_shared"] >= 8 * CLIENTS  # every round samples w (or refreshes it)
    assert algorithm.shared_model(run.server) is run.server.shared.y
    alone = {"shared_smoothness": 0.0} if name == "acd_pfl" else {"batch_size": 0}
    algorithm, _, data, _ = build(lab, name, alone, LocalOnly(client_loss))
    run = lab.simulate(algorithm, data, 8, seed=SEED)
    assert run.tally()["shared"] == run.tally()["both"] == 0
    assert run.tally()["full_personal"] > 0
    assert not sends(algorithm)


def test_a_schedule_of_chances_is_drawn_as_said():
    """Iterations before an exchange are geometric, and kinds of exchange come in their proportions."""
    objective = SimpleNamespace(has_shared=True, has_personal=True)
    method = find("asvrcd_pfl").algorithm
    algorithm = method(objective, shared_probability=0.2, refresh_probability=0.1, step_size=1.0, momentum=0.1,
                       mirror_step=0.1, strong_convexity=0.1)  # fmt: skip
    draw = jax.vmap(lambda key: algorithm._schedule(key, False))
    iterations, endings = map(np.asarray, draw(jax.random.split(jax.random.key(1), 40_000)))
    chance = 1 - 0.8 * 0.9
    # binomial standard deviations are below 0.0025
    assert np.mean(iterations == 0) == pytest.approx(chance, abs=0.012)
    assert np.mean(iterations >= 3) == pytest.approx((1 - chance) ** 3, abs=0.012)
    assert iterations.mean() == pytest.approx((1 - chance) / chance, rel=0.03)
    expected = {SAMPLE: 0.2 * 0.9, SAMPLE_BEFORE_REFRESH: 0.2 * 0.1, STEP_AND_REFRESH: 0.8 * 0.1}
    for kind, share in expected.items():
        assert np.mean(endings == kind) == pytest.approx(share / chance, abs=0.012)
