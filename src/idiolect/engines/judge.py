# SPDX-License-Identifier: Apache-2.0
"""What a plan's clients make of a state: scores on validation and test rows, models, answers, where a run stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from idiolect.core import tree
from idiolect.core.addressing import is_per_client
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key
from idiolect.core.tally import Tally
from idiolect.core.tree import Tree
from idiolect.engines import door
from idiolect.engines.evaluate import (
    Judging,
    Moment,
    Scores,
    Standing,
    evaluate,
    evaluate_new_clients,
    lane_standing,
    standing,
)
from idiolect.engines.packed import Packed
from idiolect.engines.plan import Measure, Plan
from idiolect.engines.population import SPLITS, InMemory, held_capacity, load, load_held, to_device
from idiolect.engines.recording import ClientScores, Row, compare_record, history_row, to_lists
from idiolect.engines.shard import Shards, to_host
from idiolect.engines.state import Snapshot, State, choose_lanes

Who = tuple[Algorithm, Key]  # one lane's algorithm and the root of its draws


def record(
    plan: Plan, state: State, measure: Measure | None = None, scored: Packed | None = None
) -> tuple[State, list[Row], list[Scores]]:
    """Score every lane on validation rows; where that is its best so far, it is the selected one from now on.

    Returns the state with the newly selected rounds and, by lane, rows of the history and what was scored. The clients
    are those that the plan judges by; `scored` is what `launch_scores` returned of the same state.
    """
    scores = score(plan, state.now, "validation", plan.judged)[0] if scored is None else scored.open()
    own = [tree.take(scores, lane) for lane in range(len(plan.seeds))]
    measured: list[dict[str, float]] = [{}] * len(own)
    if measure is not None:
        where = find_standing(plan, state)
        measured = [measure(lane, tree.take(where, lane)) for lane in range(len(own))]
    lanes = zip(state.accounts, own, measured, strict=True)
    rows = [history_row(state.round, state.seconds, *lane) for lane in lanes]
    found = [compare_record(row, best, plan.scores, plan.choose_by) for row, best in zip(rows, state.best)]
    selected = choose_lanes(plan, [plan.select_last or better for better, _ in found], state.now, state.selected)
    return state._replace(selected=selected, best=tuple(best for _, best in found)), rows, own


def launch_scores(plan: Plan, at: Snapshot) -> Packed:
    """Have one device score clients, which are in memory, on validation rows; the host does not wait."""
    with door.run_precision(plan.training.precision):
        (moment,) = _moments(plan, at, plan.judged)
        scored, _ = _evaluate(plan, moment, "validation", plan.judged)
    scored.begin_transfer()
    return scored


def lower_scores(plan: Plan, state: State) -> Any:
    """The program of a record as the compiler gets it; clients must be in memory."""
    (moment,) = _moments(plan, state.now, plan.judged)
    return _evaluate(plan, moment, "validation", plan.judged, program=evaluate.lower)


def score(plan: Plan, at: Snapshot, split: str, only: np.ndarray | None = None) -> tuple[Scores, Tally]:
    """Scores of every lane and client, or of some, on a split, and what each client's model cost, on the host."""

    def of_part(moment: Moment) -> tuple[Scores, Tally]:
        scored, cost = _evaluate(plan, moment, split, only)
        return scored.open(), cost  # wait: the rows of one part at a time are on the device

    with door.run_precision(plan.training.precision):
        return _join(plan, map(of_part, _moments(plan, at, only)), axis=1, only=only)


def _evaluate(
    plan: Plan, moment: Moment, split: str, only: np.ndarray | None, program: Callable[..., Any] = evaluate
) -> Any:
    training, shards = plan.training, _shards(plan, only)
    chunk = training.chunk if training.executor == "chunked" else 0
    how = Judging(plan.scores, training.executor.startswith("looped"), chunk, shards)
    return program(moment, rows_of(plan, split, moment.clients, only), how=how, lanes=plan.lanes)


def _shards(plan: Plan, only: np.ndarray | None) -> Shards | None:
    return plan.shards if plan.shards is None or only is None else plan.shards._replace(clients=len(only))


def _join(plan: Plan, parts: Iterable[Tree], axis: int, only: np.ndarray | None = None) -> Tree:
    """What was found of some clients after others, a row each along `axis`, as arrays of all of them on the host."""
    shards, total = _shards(plan, only), plan.federation.train.clients if only is None else len(only)
    whole, begin = None, 0
    for part in parts:
        found = jax.tree.map(np.asarray, part) if shards is None else shards.cut(part, axis)
        end = begin + jax.tree.leaves(found)[0].shape[axis]
        if end - begin >= total:
            return found
        if whole is None:
            whole = jax.tree.map(
                lambda leaf: np.empty((*leaf.shape[:axis], total, *leaf.shape[axis + 1 :]), leaf.dtype), found
            )
        # not kept until the end: thousands of small arrays leave the memory in pieces that are hard to use again
        for everyone, some in zip(jax.tree.leaves(whole), jax.tree.leaves(found)):
            everyone[(slice(None),) * axis + (slice(begin, end),)] = some
        begin = end
    return whole


def score_ends(plan: Plan, at: Snapshot) -> tuple[list[ClientScores], Tally]:
    """Scores on both splits, one entry per lane, and what the models cost, by lane and client."""
    both = {split: score(plan, at, split) for split in SPLITS}
    lanes = range(len(plan.seeds))
    scores = [{split: to_lists(tree.take(found, lane)) for split, (found, _) in both.items()} for lane in lanes]
    return scores, both["test"][1]


def find_standing(plan: Plan, state: State) -> Standing:
    """Where every lane stands, on the host."""
    with door.run_precision(plan.training.precision):
        parts = [standing(moment, lanes=plan.lanes) for moment in _moments(plan, state.now)]
        return _join_standing(plan, parts, axis=1)


def find_lane_standing(plan: Plan, who: Who, at: Snapshot) -> Standing:
    """Where one lane stands, of which `at` is, on the host."""
    with door.run_precision(plan.training.precision):
        return _join_standing(plan, list(map(lane_standing, _lane_moments(plan, who, at))), axis=0)


def _join_standing(plan: Plan, parts: list[Standing], axis: int) -> Standing:
    """Of all clients; w has no axis of clients, and a scalar in it none to join along."""
    joined = _join(plan, (part._replace(shared=()) for part in parts), axis)
    # every part of the population saw the same w
    return joined._replace(shared=jax.tree.map(to_host, parts[0].shared))


def look(plan: Plan, who: Who, at: Snapshot, split: str, program: Callable[[Moment, ClientData], Tree]) -> Tree:
    """What a compiled program finds on a split of every client of one lane, of which `at` is; stacked, on the host."""
    with door.run_precision(plan.training.precision):
        moments = _lane_moments(plan, who, at)
        return _join(plan, (program(moment, rows_of(plan, split, moment.clients)) for moment in moments), axis=0)


def _lane_moments(plan: Plan, who: Who, at: Snapshot) -> Iterator[Moment]:
    """`_moments` of one lane, without a lane axis."""
    # states on disk have no copy here: `parts` reads them. Those in memory get the lane axis that `parts` hands on
    stacked = None if at.states is None else jax.tree.map(lambda leaf: leaf[None], at.states)
    for moment in _moments(plan, at._replace(round=np.int32(at.round), states=stacked)):
        yield moment._replace(algorithm=who[0], root=who[1], states=tree.take(moment.states, 0))


def _moments(plan: Plan, at: Snapshot, only: np.ndarray | None = None) -> Iterator[Moment]:
    """All lanes at a snapshot, as each part of the population sees them."""
    for clients, states, data in plan.population.parts(at.states, only):
        numbers = clients.astype(np.int32)  # on the host: a conversion on the device would take longer than a record
        yield Moment(plan.algorithm, plan.roots, at.round, at.server, numbers, states, data)


def rows_of(plan: Plan, split: str, clients: np.ndarray, only: np.ndarray | None = None) -> ClientData:
    """Some clients' rows of a split on the device; those of all, or of all that are in `only`, stay there."""
    name, shards = split if only is None else f"{split} of some", _shards(plan, only)
    if name in plan.held:
        return plan.held[name]
    federation, dtype = plan.federation, door.PRECISIONS[plan.training.precision]
    capacity = held_capacity(federation)

    def read(some: np.ndarray) -> ClientData:
        return load(getattr(federation, split), some, capacity, dtype)

    everyone = np.arange(federation.train.clients) if only is None else only
    rows = read(clients) if shards is None else shards.load(lambda places: read(everyone[places]))
    if isinstance(plan.population, InMemory):
        plan.held[name] = rows
    return rows


def score_new_clients(plan: Plan, who: Who, at: Snapshot) -> ClientScores:
    """Scores of held-out clients with one lane's state; none where they lack what the others keep."""
    held_out = getattr(plan.federation, "held_out", None)
    addressed = jax.tree.leaves((who, plan.wire), is_leaf=is_per_client)
    no_row = any(is_per_client(node) for node in addressed)  # a value is addressed client by client
    # a method that refuses absence needs every client in every round, which a new client was in none of
    if held_out is None or no_row or who[0].fit(chance=0.5).refused:
        return {}
    dtype, clients = door.PRECISIONS[plan.training.precision], np.arange(held_out.train.clients, dtype=np.int32)
    with door.run_precision(plan.training.precision):
        train = to_device(held_out.train.pad(clients), dtype)
        now = Moment(*who, np.int32(at.round), at.server, clients, (), train)
        both = load_held(held_out, clients, dtype)
        return {split: to_lists(evaluate_new_clients(now, rows, names=plan.scores)) for split, rows in both.items()}
