# SPDX-License-Identifier: Apache-2.0
"""The methods of tables 4 and 5 of Unified 2023 as one would write them in NumPy: plain loops, vectorised over clients.

Each takes the rounds' numbers of local iterations from outside, so that both sides of a comparison do the same work;
which rows is its own draw, a round at a time. f'_m(v) = log(1 + exp(-s x . v)), s = 2 y - 1, has the gradient
-s sigmoid(-s x . v) x. Everything is float64 and starts at zero.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from idiolect.algorithms.block_descent import REFRESH, SAMPLE, STEP_AND_REFRESH

Point = tuple[np.ndarray, np.ndarray]  # w, and beta with one row per client
Batch = tuple[np.ndarray, np.ndarray]  # inputs and signs, client by client
Settings = Mapping[str, float]


class Plan(NamedTuple):
    """What a round does: local iterations, and for ASVRCD what it ends in."""

    iterations: int
    ending: int = SAMPLE


class Problem(abc.ABC):
    """Logistic rows (M, n, d) with signs (M, n), and the gradients of f_m on given rows."""

    def __init__(self, inputs: np.ndarray, signs: np.ndarray) -> None:
        self.inputs, self.signs = inputs, signs
        self.clients, self.rows, self.features = inputs.shape
        self.members = np.arange(self.clients)
        self.shrink = self.clients**-0.5  # u = M^{-1/2} w

    def take(self, draw: np.random.Generator, amount: int, size: tuple[int, ...] = ()) -> Iterator[Batch]:
        """The rows of `amount` iterations, one per client or `size` of them."""
        members = self.members.reshape(-1, *(1 for _ in size))
        for rows in draw.integers(self.rows, size=(amount, self.clients, *size)):
            yield self.inputs[members, rows], self.signs[members, rows]

    @abc.abstractmethod
    def start(self) -> Point:
        """Zeros."""

    @abc.abstractmethod
    def shared(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """grad_w f_m of every client, on one row each."""

    @abc.abstractmethod
    def personal(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        """grad_beta f_m of every client, on one row each."""

    @abc.abstractmethod
    def both(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> Point:
        """Both, on one row each; w has one row per client."""

    @abc.abstractmethod
    def full(self, w: np.ndarray, beta: np.ndarray) -> Point:
        """grad_w F and (1/M) grad_beta f_m, on all rows."""


class Mixture(Problem):
    """MX2: f'_m(beta) + (lam/2) |u - beta|^2."""

    def __init__(self, inputs: np.ndarray, signs: np.ndarray, penalty: float) -> None:
        super().__init__(inputs, signs)
        self.penalty = penalty

    def start(self) -> Point:
        return np.zeros(self.features), np.zeros((self.clients, self.features))

    def shared(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        return self.shrink * self.penalty * (self.shrink * w - beta)

    def personal(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        return row_gradients(beta, x, s) + self.penalty * (beta - self.shrink * w)

    def both(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> Point:
        away = self.penalty * (beta - self.shrink * w)
        return -self.shrink * away, row_gradients(beta, x, s) + away

    def full(self, w: np.ndarray, beta: np.ndarray) -> Point:
        away = self.penalty * (beta - self.shrink * w)
        own = batch_gradients(beta, self.inputs, self.signs) + away
        return -self.shrink * away.mean(axis=0), own / self.clients


class WeightSharing(Problem):
    """WS2: f'_m([u, beta]), the first `split` weights shared."""

    def __init__(self, inputs: np.ndarray, signs: np.ndarray, split: int) -> None:
        super().__init__(inputs, signs)
        self.split = split

    def start(self) -> Point:
        return np.zeros(self.split), np.zeros((self.clients, self.features - self.split))

    def joined(self, w: np.ndarray, beta: np.ndarray) -> np.ndarray:
        models = np.empty((self.clients, self.features))
        models[:, : self.split], models[:, self.split :] = self.shrink * w, beta
        return models

    def shared(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        return self.shrink * row_factors(self.joined(w, beta), x, s)[:, None] * x[:, : self.split]

    def personal(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
        return row_factors(self.joined(w, beta), x, s)[:, None] * x[:, self.split :]

    def both(self, w: np.ndarray, beta: np.ndarray, x: np.ndarray, s: np.ndarray) -> Point:
        gradients = row_gradients(self.joined(w, beta), x, s)
        return self.shrink * gradients[:, : self.split], gradients[:, self.split :]

    def full(self, w: np.ndarray, beta: np.ndarray) -> Point:
        gradients = batch_gradients(self.joined(w, beta), self.inputs, self.signs)
        return self.shrink * gradients[:, : self.split].mean(axis=0), gradients[:, self.split :] / self.clients


def row_factors(models: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """-s sigmoid(-s x . v), one row per client."""
    return -s / (1 + np.exp(s * np.einsum("md,md->m", x, models)))


def row_gradients(models: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """grad f'_m on one row per client."""
    return row_factors(models, x, s)[:, None] * x


def batch_gradients(models: np.ndarray, x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """grad f'_m on several rows per client."""
    factors = -s / (1 + np.exp(s * (x @ models[:, :, None])[..., 0]))
    return (factors[:, None] @ x)[:, 0] / x.shape[1]


def lsgd_pfl(problem: Problem, plan: Sequence[Plan], draw: np.random.Generator, of: Settings) -> Point:
    """Local SGD on both blocks, w averaged every round."""
    w, beta = problem.start()
    for iterations, _ in plan:
        local = np.tile(w, (problem.clients, 1))
        for x, s in problem.take(draw, iterations):
            shared, personal = problem.both(local, beta, x, s)
            local -= of["step_size"] * shared
            beta -= of["step_size"] / problem.clients * personal
        w = local.mean(axis=0)
    return w, beta


def ascd_pfl(problem: Problem, plan: Sequence[Plan], draw: np.random.Generator, of: Settings) -> Point:
    """Accelerated block-coordinate descent on components; every round ends in the iteration that samples w."""
    eta, theta, gamma, p = (of[name] for name in ("step_size", "momentum", "mirror_step", "shared_probability"))
    nu, scale = 1 - gamma * of["strong_convexity"], 1 / ((1 - p) * problem.clients)
    w, beta = problem.start()
    w_z, beta_z = w, beta
    for iterations, _ in plan:
        for place, (x, s) in enumerate(problem.take(draw, iterations + 1)):
            w, beta = w + theta * (w_z - w), beta + theta * (beta_z - beta)
            w_z, beta_z = w + nu * (w_z - w), beta + nu * (beta_z - beta)
            if place < iterations:
                g = scale * problem.personal(w, beta, x, s)
                beta, beta_z = beta - eta * g, beta_z - gamma * g
            else:
                g = problem.shared(w, beta, x, s).mean(axis=0) / p
                w, w_z = w - eta * g, w_z - gamma * g
    return w, beta


def asvrcd_pfl(problem: Problem, plan: Sequence[Plan], draw: np.random.Generator, of: Settings) -> Point:
    """Accelerated, variance-reduced block-coordinate descent; a round ends in an exchange or a refresh."""
    eta, theta, gamma, p = (of[name] for name in ("step_size", "momentum", "mirror_step", "shared_probability"))
    anchor, nu = of["anchor"], 1 - gamma * of["strong_convexity"]
    scale = 1 / ((1 - p) * problem.clients)
    w, beta = problem.start()
    w_z, beta_z, w_v, beta_v = w, beta, w, beta
    w_s, beta_s = w, beta  # unknown until the first round, which is a refresh
    for iterations, ending in plan:
        if ending == REFRESH:  # v has moved in the round before
            w_s, beta_s = problem.full(w_v, beta_v)
            continue
        samples_beta = iterations + (ending == STEP_AND_REFRESH)
        for place, (x, s) in enumerate(problem.take(draw, iterations + 1)):
            w_x = w + theta * (w_z - w) + anchor * (w_v - w)
            beta_x = beta + theta * (beta_z - beta) + anchor * (beta_v - beta)
            last_w, last_beta, g_w, g_beta = w, beta, w_s, beta_s
            if place < samples_beta:
                g_beta = g_beta + scale * (problem.personal(w_x, beta_x, x, s) - problem.personal(w_v, beta_v, x, s))
            else:
                apart = problem.shared(w_x, beta_x, x, s) - problem.shared(w_v, beta_v, x, s)
                g_w = g_w + apart.mean(axis=0) / p
            w, beta = w_x - eta * g_w, beta_x - eta * g_beta
            w_z, beta_z = w_x + nu * (w_z - w_x) - gamma * g_w, beta_x + nu * (beta_z - beta_x) - gamma * g_beta
        if ending != SAMPLE:
            w_v, beta_v = last_w, last_beta
        if ending == STEP_AND_REFRESH:
            w_s, beta_s = problem.full(w_v, beta_v)
    return w, beta


def pfedme(problem: Mixture, plan: Sequence[Plan], draw: np.random.Generator, of: Settings) -> Point:
    """Local SGD on Moreau envelopes; its w is the model u, here returned as sqrt(M) u."""
    inner, outer = of["inner_step"], of["step_size"] * problem.penalty
    clients, size = problem.clients, int(of["batch_size"])
    u, theta = problem.start()
    for iterations, _ in plan:
        local = np.tile(u, (clients, 1))
        for x, s in problem.take(draw, iterations, (size,)):
            for _ in range(int(of["inner_steps"])):
                theta = theta - inner * (batch_gradients(theta, x, s) + problem.penalty * (theta - local))
            local -= outer * (local - theta)
        u = local.mean(axis=0)
    return u / problem.shrink, theta


def l2sgd_plus(problem: Mixture, plan: Sequence[Plan], draw: np.random.Generator, of: Settings) -> Point:
    """L2SGD+ with its table of component gradients; w is the best one, the mean of the personal models."""
    p, scale = of["averaging_probability"], of["step_size"] / problem.clients
    _, beta = problem.start()
    table = np.zeros_like(problem.inputs)
    mean, pull = np.zeros_like(beta), np.zeros_like(beta)
    members = problem.members
    for iterations, _ in plan:
        for rows in draw.integers(problem.rows, size=(iterations, problem.clients)):
            gradient = row_gradients(beta, problem.inputs[members, rows], problem.signs[members, rows])
            news = gradient - table[members, rows]
            beta = beta - scale * (news / (1 - p) + mean + pull)
            table[members, rows] = gradient
            mean = mean + news / problem.rows
        away = problem.penalty * (beta - beta.mean(axis=0))
        beta, pull = beta - scale * (away / p - (1 / p - 1) * pull + mean), away
    return beta.mean(axis=0) / problem.shrink, beta
