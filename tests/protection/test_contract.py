# SPDX-License-Identifier: Apache-2.0
"""Every registered algorithm under every protection equals plain NumPy around the unprotected one, or is refused."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core import keys
from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose
from idiolect.core.kinds import Bills
from idiolect.core.reduction import Gather, GroupedMean
from idiolect.engines import door
from idiolect.engines.client import Task, client_init, client_settle, receive, send, step, steps_of
from idiolect.engines.debug import watched_round
from idiolect.engines.door import Training
from idiolect.engines.server import open_round, server_init, server_step
from idiolect.engines.simulate import open_session
from idiolect.protection import Attack, ClientPrivacy, Compression, Protection, Robustness, protect
from idiolect.protection.clipping import COUNT_NOISE, NOISE
from idiolect.protection.packing import drawn_places, pack
from idiolect.protection.wrapper import PACKING

CLIENTS, SEED = 6, 5
TWO_ROUNDS = ("fedavg", "ditto")  # what is kept between rounds is kept alike for all
WRONG = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
PROTECTIONS = {
    "privacy": Protection(privacy=ClientPrivacy(clip=0.05, noise_multiplier=0.8)),
    "shared_noise": Protection(privacy=ClientPrivacy(clip=0.05, noise="clients")),
    "adaptive": Protection(privacy=ClientPrivacy(clip=0.2, adaptive=True, clip_rate=0.5)),
    "quantise": Protection(compression=Compression(kind="quantise", bits=3)),
    "top_k": Protection(compression=Compression(kind="top_k", one_in=3)),
    "random_k": Protection(compression=Compression(kind="random_k", one_in=3, error_feedback=False)),
    "low_rank": Protection(compression=Compression(kind="low_rank", rank=1)),
    "sketch": Protection(compression=Compression(kind="low_rank", rank=1, error_feedback=False)),
    "layers": Protection(compression=Compression(kind="whole", only=("*weights",))),
    "median": Protection(robustness=Robustness(rule="median")),
    "krum": Protection(robustness=Robustness(rule="krum"), attack=Attack(kind="sign_flip", attackers=PerClient(WRONG))),
    "little": Protection(attack=Attack(kind="little_is_enough", attackers=PerClient(WRONG), strength=1.5)),
}
# sentences of the algorithms that refuse a protection: what each must say
REFUSED = {
    "privacy": {"ifca": "cluster"},
    "shared_noise": {"ifca": "cluster"},
    "adaptive": {"ifca": "cluster"},
    **{
        wrapper: {
            name: text
            for names, text in (
                (("scaffold", "acd_pfl", "asvrcd_pfl", "svrcd_pfl", "ascd_pfl", "scd_pfl"), "right in the mean"),
                (("l2gd", "l2sgd_plus", "lsgd_pfl", "personalized_local_sgd"), "whole parameters"),
            )
            for name in names
        }
        for wrapper in ("top_k", "low_rank", "layers")
    },
}
ALWAYS = {"local": "nothing leaves", "scafflix": "control variates", "ascd_then_asvrcd": "a loss that goes up"}


class Worked:
    """The local work of the first round, in plain Python: the same under every protection but for what is sent."""

    made: ClassVar = {}

    def __init__(self, algorithm, data):
        self.data, self.root = data, keys.root_key(SEED)
        self.plain = door.admit(algorithm, CLIENTS, "float64")
        self.tasks, self.workings, self.done = [], [], []
        now = open_round(self.plain, self.root, 0, server_init(self.plain, self.root))
        for client, rows in enumerate(data):
            task = Task(now, client, client_init(self.plain, self.root, client, rows)[0], rows)
            working, _ = receive(task)
            for t in range(int(steps_of(task))):
                working, _ = step(task, t, working)
            self.workings.append(working)
            self.done.append(send(task, working)[:2])

    @classmethod
    def of(cls, name, algorithm, data):
        if name not in cls.made:
            cls.made[name] = cls(algorithm, data)
        return cls.made[name]


def client_round(task, worked):
    """(upload, state) of a protected client; the first round's local work is done."""
    if task.round.number == 0:
        return send(task, worked.workings[task.client])[:2]
    return watched_round(task)[:2]


def flat(moves):
    """All numbers of some changes, as one vector."""
    return np.concatenate([np.asarray(leaf, float).reshape(-1) for leaf in jax.tree.leaves(moves)])


def unflat(vector, like):
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    return jax.tree.unflatten(
        structure, [jnp.asarray(p.reshape(x.shape)) for p, x in zip(np.split(vector, ends), leaves)]
    )


def normal(key, like):
    """The noise of one draw, leaf by leaf, as one vector."""
    leaves = jax.tree.leaves(like)
    return flat(
        [jax.random.normal(jax.random.fold_in(key, n), leaf.shape, leaf.dtype) for n, leaf in enumerate(leaves)]
    )


def lossy(codec, key, like, vector):
    """What arrives of a change, leaf by leaf, in NumPy."""
    leaves, arrived = jax.tree.leaves(like), []
    for place, (leaf, part) in enumerate(zip(leaves, np.split(vector, np.cumsum([x.size for x in leaves])[:-1]))):
        own, count = jax.random.fold_in(key, place), -(-part.size // codec.one_in)
        if codec.kind in ("low_rank", "whole"):
            arrived.append(low_rank(codec, own, part.reshape(leaf.shape)).reshape(-1) if codec.only == () else part)
            continue
        if codec.kind == "quantise":
            least, width, steps = part.min(), np.ptp(part) or 1.0, 2**codec.bits - 1
            coins = np.asarray(jax.random.uniform(own, leaf.shape, leaf.dtype)).reshape(-1)
            arrived.append(least + np.floor((part - least) / width * steps + coins) * np.ptp(part) / steps)
            continue
        kept = np.zeros_like(part)
        if codec.kind == "top_k":
            places, factor = np.argsort(-np.abs(part), kind="stable")[:count], 1.0
        else:
            places, factor = (
                np.asarray(drawn_places(jax.random.bits(own, (), jnp.uint32), part.size, count)),
                part.size / count,
            )
        kept[places] = part[places] * factor
        arrived.append(kept)
    return np.concatenate(arrived)


def low_rank(codec, key, matrix):
    """What arrives of a matrix by factors of rank 1, or by one column of random signs."""
    if matrix.ndim < 2:
        return matrix
    rows, columns = matrix.shape
    if codec.error_feedback:
        right = np.asarray(jax.random.normal(key, (columns, 1), matrix.dtype))
        for _ in range(2):
            left = matrix @ right / max(np.linalg.norm(matrix @ right), 1e-300)
            right = matrix.T @ left
        return left @ right.T
    along = matrix if rows <= columns else matrix.T
    draw = jax.random.key(jax.random.bits(key, (), jnp.uint32), impl="threefry2x32")
    signs = np.asarray(jax.random.rademacher(draw, (along.shape[1], 1), matrix.dtype))
    spread = along @ signs @ signs.T
    return spread if rows <= columns else spread.T


def combine(protection, table):
    """The rows of all clients as one vector: the rule, in NumPy."""
    rule = protection.robustness
    if rule is None:
        return table.mean(axis=0)
    if rule.rule == "median":
        return np.median(table, axis=0)
    apart = np.square(table[:, None] - table[None]).sum(axis=2)
    nearest = max(len(table) - rule.attackers - 2, 1)
    scores = np.sort(apart, axis=1)[:, 1 : 1 + nearest].sum(axis=1)
    return table[np.argmin(scores)]


class Reference:
    """The unprotected algorithm, whose uploads and means are changed in NumPy."""

    def __init__(self, worked, protection):
        self.protection, self.worked, self.data = protection, worked, worked.data
        self.algorithm, self.root = worked.plain, worked.root
        self.clip = None if protection.privacy is None else protection.privacy.clip
        self.residual = {}

    def upload(self, now, client, upload, sent):
        """(the vector that arrives, whether it was below the clip)."""
        key, p = keys.client_key(self.root, Purpose.SEND, now.number, client), self.protection
        vector, like = self.vector(upload, sent), self.moves(upload)
        if p.compression is not None and p.compression.only:
            layers = [str(path[-1]) for path, _ in jax.tree_util.tree_leaves_with_path(like)]
            sizes = [leaf.size for leaf in jax.tree.leaves(like)]
            vector = vector * np.repeat(["weights" in name for name in layers], sizes)
        below = True
        if p.privacy is not None:
            norm = np.linalg.norm(vector)
            vector, below = vector * min(1.0, self.clip / norm) if norm else vector, norm <= self.clip
            if p.privacy.noise == "clients":
                noise = normal(jax.random.fold_in(key, NOISE), like)
                vector = vector + p.privacy.noise_multiplier * self.clip / np.sqrt(CLIENTS) * noise
        if p.attack is not None and p.attack.kind == "sign_flip" and WRONG[client]:
            vector = -vector
        if p.compression is not None:
            held = vector + (self.residual.get(client, 0) if p.remembers else 0)
            vector = lossy(p.compression, jax.random.fold_in(key, PACKING), like, held)
            self.residual[client] = held - vector
        return vector, below

    def moves(self, upload):
        return {name: getattr(upload, name) for name in self.algorithm.changes.fields}

    def vector(self, upload, sent):
        starts = self.algorithm.changes.fields
        whole = [name for name, move in self.moves(upload).items() if starts[name] and jax.tree.leaves(move)]
        less = {name: jax.tree.map(np.subtract, getattr(upload, name), getattr(sent, starts[name])) for name in whole}
        return flat(self.moves(upload) | less)

    def mean(self, now, table, below, weights):
        """What stands in place of the mean of the changes."""
        p, key = self.protection, keys.round_key(self.root, Purpose.SERVER_STEP, now.number)
        if p.attack is not None and p.attack.kind == "little_is_enough":
            honest = table[WRONG == 0]
            table = np.where(WRONG[:, None] > 0, honest.mean(axis=0) - p.attack.strength * honest.std(axis=0), table)
        if p.privacy is None:
            return combine(p, table) if p.robustness else (weights[:, None] * table).sum(axis=0) / weights.sum()
        mean, noise = table.mean(axis=0), jax.random.fold_in(key, NOISE)
        z, clip = p.privacy.noise_multiplier, self.clip
        if p.privacy.adaptive:
            z = (z**-2 - (2 * p.privacy.count_noise) ** -2) ** -0.5
            drawn = float(jax.random.normal(jax.random.fold_in(noise, COUNT_NOISE), (), jnp.float64))
            fraction = np.mean(below) + p.privacy.count_noise / CLIENTS * drawn
            self.clip = self.clip * np.exp(-p.privacy.clip_rate * (fraction - p.privacy.quantile))
        return mean + z * clip / CLIENTS * normal(noise, self.like) if p.privacy.noise == "server" else mean

    def run(self, rounds):
        server = server_init(self.algorithm, self.root)
        states = [client_init(self.algorithm, self.root, m, data)[0] for m, data in enumerate(self.data)]
        for number in range(rounds):
            now = open_round(self.algorithm, self.root, number, server)
            done = self.worked.done
            if number:
                done = [watched_round(Task(now, m, states[m], data))[:2] for m, data in enumerate(self.data)]
            states = [state for _, state in done]
            self.like = self.moves(done[0][0])
            sent = [self.upload(now, m, upload, now.sent) for m, (upload, _) in enumerate(done)]
            server = server_step_with(now, server, [upload for upload, _ in done], self, *map(np.array, zip(*sent)))
            if self.algorithm.settle is not None:
                after = open_round(self.algorithm, self.root, number + 1, server)
                states = [client_settle(Task(after, m, states[m], data)) for m, data in enumerate(self.data)]
        return server, states


def server_step_with(now, server, uploads, reference, table, below):
    """The algorithm's own server step, on a received tuple that is filled with the reference's numbers."""
    algorithm = now.algorithm
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *uploads)
    equal = reference.protection.privacy is not None or reference.protection.robustness is not None
    weights = np.ones(CLIENTS) if equal else np.asarray(stacked.weight)
    stacked = stacked._replace(weight=jnp.asarray(weights))
    received = algorithm.reduction.lower(
        algorithm.reduction.collect(stacked, jnp.arange(CLIENTS), jnp.ones(CLIENTS, bool))
    )

    def filled(mean, vector):
        moves = unflat(vector, reference.like)
        starts = algorithm.changes.fields
        whole = [name for name, move in moves.items() if starts[name] and jax.tree.leaves(move)]
        more = {name: jax.tree.map(np.add, moves[name], getattr(now.sent, starts[name])) for name in whole}
        return mean._replace(**jax.tree.map(jnp.asarray, moves | more))

    if isinstance(received, GroupedMean):
        groups, means = np.asarray(stacked.group), []
        if reference.protection.attack is not None and reference.protection.attack.kind == "little_is_enough":
            honest = table[WRONG == 0]
            table = np.where(WRONG[:, None] > 0, honest.mean(axis=0) - 1.5 * honest.std(axis=0), table)
        for group in range(received.weights.shape[0]):
            own = table[groups == group]
            if reference.protection.robustness is not None and len(own):
                means.append(combine(reference.protection, own))
            else:
                share = weights[groups == group]
                means.append(
                    (share[:, None] * own).sum(axis=0) / max(share.sum(), 1e-300) if len(own) else 0 * table[0]
                )
        parts = [filled(jax.tree.map(lambda leaf, g=g: leaf[g], received.means), v) for g, v in enumerate(means)]
        received = received._replace(means=jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts))
    else:
        received = received._replace(mean=filled(received.mean, reference.mean(now, table, below, weights)))
    return algorithm.server_step(keys.round_key(now.root, Purpose.SERVER_STEP, now.number), server, now.sent, received)


def run_protected(algorithm, worked, rounds):
    """The two halves of each round as a deployment calls them."""
    admitted, root = door.admit(algorithm, CLIENTS, "float64"), keys.root_key(SEED)
    server, data = server_init(admitted, root), worked.data
    states = [client_init(admitted, root, m, rows)[0] for m, rows in enumerate(data)]
    for number in range(rounds):
        now = open_round(admitted, root, number, server)
        done = [client_round(Task(now, m, states[m], rows), worked) for m, rows in enumerate(data)]
        states = [state for _, state in done]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[upload for upload, _ in done])
        partial = admitted.reduction.collect(stacked, jnp.arange(CLIENTS), jnp.ones(CLIENTS, bool))
        server = server_step(now, server, partial)
        if admitted.settle is not None:
            after = open_round(admitted, root, number + 1, server)
            states = [client_settle(Task(after, m, states[m], rows)) for m, rows in enumerate(data)]
    return server, states


FIRST = {method.algorithm: name for name, method in reversed(ALGORITHMS.items())}


@pytest.mark.parametrize("wrapper", PROTECTIONS)
@pytest.mark.parametrize("name", FIRST.values())
def test_equals_numpy_or_is_refused(name, wrapper, workbench, uniform):
    protection = PROTECTIONS[wrapper]
    wished = [workbench.build(name, **b) for b in ({"local_steps": 1, "batch_size": 2}, {})]
    algorithm = next(one for one in wished if fit_of(one).refused is None)
    refusal = ALWAYS.get(name) or REFUSED.get(wrapper, {}).get(name)
    if isinstance(algorithm.reduction, Gather) or isinstance(algorithm, Bills):
        refusal = "hears every client apart"
    if refusal is not None:
        with pytest.raises(RequestError, match=refusal):
            protect(algorithm, protection)
        return
    with door.run_precision("float64"):
        data = [
            ClientData(*(jnp.asarray(leaf[0]) for leaf in uniform.train.pad(np.array([m]))[:3])) for m in range(CLIENTS)
        ]
        worked, rounds = Worked.of(name, algorithm, data), 2 if name in TWO_ROUNDS else 1
        server, states = run_protected(protect(algorithm, protection), worked, rounds)
        reference = Reference(worked, protection)
        wanted_server, wanted_states = reference.run(rounds)
    own = server.own if protection.adapts else server
    assert workbench.distance(own, wanted_server) < 1e-9
    if protection.adapts:
        assert float(server.more) == pytest.approx(reference.clip, rel=1e-9)
    for client, (state, wanted) in enumerate(zip(states, wanted_states)):
        assert workbench.distance(state.own if protection.remembers else state, wanted) < 1e-9
        if protection.remembers:
            assert np.allclose(flat(state.more), reference.residual[client], atol=1e-12)


def test_no_protection_is_the_algorithm_itself(workbench):
    algorithm = workbench.build("fedavg")
    assert protect(algorithm, Protection()) is algorithm


def test_codecs_have_the_bytes_that_their_types_say():
    key = keys.root_key(0)
    sizes = {
        "quantise": (Compression(kind="quantise", bits=3), 4 + 8 + 8),  # 30 bits, two float64 ends
        "top_k": (Compression(kind="top_k", one_in=4), 3 * 8 + 3 * 2),
        "random_k": (Compression(kind="random_k", one_in=4), 3 * 8 + 4),
        "low_rank": (Compression(kind="low_rank", rank=2), (12 + 10) * 2 * 8),
        "sketch": (Compression(kind="low_rank", rank=2, error_feedback=False), 2 * 10 * 8 + 4),
    }
    with door.run_precision("float64"):
        for codec, size in sizes.values():
            shape = (3, 4, 10) if codec.kind == "low_rank" else (10,)
            packed = jax.tree.leaves(pack(codec, key, jnp.ones(shape)))
            assert sum(part.size * part.dtype.itemsize for part in packed) == size


def test_protections_that_cannot_stand_together_are_refused(workbench):
    private = ClientPrivacy()
    pairs = [
        (Protection(privacy=private, robustness=Robustness()), "leave one of them out"),
        (Protection(privacy=private, compression=Compression(kind="top_k")), "error_feedback = false"),
        (Protection(privacy=dataclasses.replace(private, adaptive=True, noise_multiplier=3.0)), "raise count_noise"),
        (
            Protection(privacy=dataclasses.replace(private, noise="clients"), compression=Compression()),
            "noise = 'server'",
        ),
        (Protection(compression=Compression(kind="whole")), "name the layers to send in `only`"),
        (Protection(compression=Compression(bits=0)), "protection.bits must be at least 1"),
    ]
    for protection, sentence in pairs:
        with pytest.raises(RequestError, match=sentence):
            protect(workbench.build("fedavg"), protection)


def test_a_layer_that_is_not_sent_stays_where_the_server_has_it(workbench, uniform):
    """Also under noise, which would carry it away; and a name that means no layer is refused with those that there are.

    Its number of bytes is 0, and what clients make of it in a round is lost with the round.
    """
    training = Training(rounds=2, precision="float64", executor="batched")
    plain = workbench.build("fedavg", local_steps=2, batch_size=0)
    codec = Compression(kind="whole", only=("bias",))
    sent = protect(plain, Protection(compression=codec, privacy=ClientPrivacy(clip=0.1)))
    run = open_session([sent], uniform, training, [0], ("log_loss",)).run()[0]
    assert not np.any(run.server.shared["weights"])  # a linear model starts at zero
    assert np.all(run.server.shared["bias"])
    assert run.ledger.upload_bytes == 2 * CLIENTS * 8 * (3 + 1)
    codec = dataclasses.replace(codec, only=("bais",))
    with pytest.raises(RequestError, match="Did you mean 'bias'"):
        open_session([protect(plain, Protection(compression=codec))], uniform, training, [0], ("log_loss",))
