# SPDX-License-Identifier: Apache-2.0
"""What one would write without idiolect: LSGD-PFL on the additive logistic loss, and softmax regression in PyTorch.

f_m(w, beta_m) = log(1 + exp(-s x . (w + beta_m))), s = 2 y - 1: both blocks have the gradient -s sigmoid(-s x . v) x.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.keys import Purpose, client_key, round_key


@functools.partial(jax.jit, static_argnames=("rounds", "steps", "once"))
def compiled(root: Any, inputs: Any, signs: Any, step_size: float, *, rounds: int, steps: int, once: bool) -> Any:
    """(w, beta) after `rounds` rounds, as one `lax.scan`.

    `once` draws the rows of all clients with one key per round; else every client has its own key, as in the engine.
    """
    clients, rows, dimension = inputs.shape
    members = jnp.arange(clients)

    def draw(round_number: Any) -> Any:
        if once:
            bits = jax.random.bits(round_key(root, Purpose.RECEIVE, round_number), (clients, steps), jnp.uint32)
        else:
            own = jax.vmap(lambda client: client_key(root, Purpose.RECEIVE, round_number, client))(members)
            bits = jax.vmap(lambda key: jax.random.bits(key, (steps,), jnp.uint32))(own)
        return (bits % np.uint32(rows)).astype(jnp.int32)

    def one_round(carried: Any, round_number: Any) -> Any:
        shared, personal = carried
        drawn = draw(round_number)

        def step(t: Any, point: Any) -> Any:
            local, own = point
            x, sign = inputs[members, drawn[:, t]], signs[members, drawn[:, t]]
            gradient = -(sign * jax.nn.sigmoid(-sign * jnp.sum(x * (local + own), axis=1)))[:, None] * x
            return local - step_size * gradient, own - step_size / clients * gradient

        start = (jnp.broadcast_to(shared, personal.shape), personal)
        local, personal = jax.lax.fori_loop(0, steps, step, start)
        return (jnp.mean(local, axis=0), personal), None

    start = (jnp.zeros(dimension, inputs.dtype), jnp.zeros((clients, dimension), inputs.dtype))
    return jax.lax.scan(one_round, start, jnp.arange(rounds))[0]


def in_numpy(
    seed: int, inputs: np.ndarray, signs: np.ndarray, step_size: float, rounds: int, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same method, vectorised over clients, with NumPy's own draws."""
    clients, rows, dimension = inputs.shape
    draw, members = np.random.default_rng(seed), np.arange(clients)
    shared, personal = np.zeros(dimension), np.zeros((clients, dimension))
    for _ in range(rounds):
        drawn = draw.integers(rows, size=(steps, clients))
        local = np.tile(shared, (clients, 1))
        for chosen in drawn:
            x, sign = inputs[members, chosen], signs[members, chosen]
            margin = sign * np.einsum("md,md->m", x, local + personal)
            gradient = (-sign / (1 + np.exp(margin)))[:, None] * x
            local -= step_size * gradient
            personal -= step_size / clients * gradient
        shared = local.mean(axis=0)
    return shared, personal


def torch_rows(torch: Any, device: str, rows: Any) -> list[tuple[Any, Any]]:
    """Every client's rows as tensors: copied before the clock starts."""
    clients = (rows.of(client) for client in range(rows.clients))
    return [
        (torch.tensor(inputs, device=device), torch.tensor(targets, device=device).long())
        for inputs, targets in clients
    ]


def in_torch(torch: Any, data: list[tuple[Any, Any]], rounds: int, batch_size: int, step_size: float) -> Any:
    """Federated softmax regression as popular libraries run it: client by client, batch by batch, plain SGD."""
    draw, first = torch.Generator().manual_seed(0), data[0][0]
    model = torch.nn.Linear(first.shape[1], 10, device=first.device)
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=step_size)
    shared = [torch.zeros_like(leaf) for leaf in model.parameters()]
    for _ in range(rounds):
        total = [torch.zeros_like(leaf) for leaf in shared]
        for inputs, targets in data:
            with torch.no_grad():
                for leaf, start in zip(model.parameters(), shared):
                    leaf.copy_(start)
            for batch in torch.randperm(len(inputs), generator=draw).to(first.device).split(batch_size):
                optimizer.zero_grad()
                loss_of(model(inputs[batch]), targets[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                for sum_, leaf in zip(total, model.parameters()):
                    sum_ += leaf
        shared = [sum_ / len(data) for sum_ in total]
    return [leaf.cpu() for leaf in shared]  # waits for the device
