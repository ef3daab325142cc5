# SPDX-License-Identifier: Apache-2.0
"""A session: one training run, or many lanes of it, between compiled blocks."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core import keys, tree
from idiolect.core.addressing import is_per_client
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError, RequestError
from idiolect.core.data import ClientData
from idiolect.core.objective import Prepares
from idiolect.core.tally import Tally
from idiolect.core.tree import Params
from idiolect.engines import auto, demand, door, resuming, start
from idiolect.engines.billing import bill_block, bill_delivery, bill_preparation
from idiolect.engines.block import Lane, Rounds, run_block
from idiolect.engines.checkpoint import Checkpoint
from idiolect.engines.cohorts import NOBODY
from idiolect.engines.door import Training
from idiolect.engines.evaluate import Moment, Scores, Standing, evaluate, models_and_outputs, standing
from idiolect.engines.held_out import evaluate_new_clients
from idiolect.engines.history_file import Mark
from idiolect.engines.looped import run_looped
from idiolect.engines.population import InMemory, OnDisk, load, to_device
from idiolect.engines.recording import ClientScores, Recorder, to_lists
from idiolect.engines.round import Cohort, How, RoundCost, finite_rows
from idiolect.engines.run import Run, Snapshot, Splits
from idiolect.record.divergence import Divergence

Progress = Callable[[int, int], None]  # rounds done, rounds in all


Measure = Callable[[int, Standing], dict[str, float]]  # (lane, where it stands) -> numbers for the history
Watch = Callable[[int, Recorder, Scores], None]  # (lane, its record, its scores on validation rows) after each record


class Session:
    """The state of a training run between compiled blocks.

    With `after`, it goes on where that session stands, with other settings of the same algorithm: rounds count on, up
    to `training.rounds` in all, while records and ledger are its own.
    """

    def __init__(
        self,
        algorithms: Sequence[Algorithm],
        federation: Splits,
        training: Training,
        seeds: Sequence[int],
        scores: tuple[str, ...],
        state_folder: Path | None,
        measure: Measure | None = None,
        after: Session | None = None,
        choose_by: str = "",
    ):
        clients = federation.train.clients
        door.check_training(training, clients)
        door.check_federation(federation)
        door.check_seeds(seeds)
        if not scores:
            raise RequestError('A session needs at least one score to record, got none; use ("log_loss",), say.')
        self.federation, self.scores, self.seeds, self._choose_by = federation, scores, list(seeds), choose_by
        self._watch: Watch | None = None
        self.round: int = 0 if after is None else after.round
        self.seconds, self._measure, self.requested = 0.0, measure, training
        self._first_round = self.round
        self.kept_history: tuple[Path | None, Mark] = (None, Mark())  # of the checkpoints, and how far it is written
        self._settled = False  # whether state and record are those after one and the same round
        self._splits: dict[str, ClientData] = {}
        self.participations = [door.participation_of(algorithm, training, clients) for algorithm in algorithms]
        counts = federation.train.counts
        self.uniform = bool((counts == counts[0]).all())
        with door.run_precision(training.precision):
            self._dtype = door.PRECISIONS[training.precision]
            self.algorithms = [
                door.admit(algorithm, clients, training.precision, who.chance)
                for algorithm, who in zip(algorithms, self.participations)
            ]
            door.check_fit(self.algorithms[0], federation)
            demand.check_block(training, self.widest, len(self.seeds))
            self._start(state_folder, after)
            self.training = auto.resolve(self, training)
            self.selected = [self._snapshot(lane) for lane in range(len(self.seeds))]

    def _start(self, state_folder: Path | None, after: Session | None) -> None:
        rows = self.federation.train
        single = len(self.seeds) == 1
        if single:
            self.lanes, self.algorithm = "one", self.algorithms[0]
            self.roots = keys.root_key(self.seeds[0])
        else:
            capacity = max(int(rows.counts.max()), 1)
            self.lanes = "in_turn" if start.draws_steps(self.algorithms[0], capacity) else "together"
            self.algorithm = door.admit_lanes(self.algorithms)
            self.roots = jax.vmap(keys.root_key)(jnp.asarray(self.seeds))
        self.server: Any
        self.population: InMemory | OnDisk
        if after is not None:
            states = self._states_of(after, state_folder)
            self.population = InMemory(rows, self._dtype)
            changed = (self.algorithm, after.algorithm, self.roots)
            self.server, tally = self.population.go_on(*changed, after.server, states, lanes=not single)
        else:
            init = start.init_server if single else jax.vmap(start.init_server)
            self.server = init(self.algorithm, self.roots)
            if state_folder is None:
                self.population = InMemory(rows, self._dtype)
                tally = self.population.start(self.algorithm, self.roots, lanes=not single)
            else:
                self.population = OnDisk(rows, self._dtype, state_folder)
                tally = self.population.start(self.algorithm, self.roots)
        if self.population.unprepared is not None:
            name, objective = self.federation.names[self.population.unprepared], self.algorithms[0].objective
            assert isinstance(objective, Prepares)
            raise RequestError(f"Client {name!r} {objective.why_unprepared()}.")
        self._turns = None
        if self.lanes == "in_turn":
            self._turns = start.turns(self.algorithm, self.roots, self.server, self.population.capacity)
        self.recorders = [Recorder(self.scores, self._choose_by, client_bytes=[0] * rows.clients) for _ in self.seeds]
        for lane, recorder in enumerate(self.recorders):
            own = tally if single else tree.take(tally, lane)
            recorder.ledger = recorder.ledger.charge_work(Tally(*(int(count) for count in own)))
            if after is None:
                bill_preparation(recorder, getattr(self.federation, "preparation", None))
        shape = rows.pad(np.arange(1), self.population.capacity)
        example = jax.tree.map(lambda leaf: jnp.asarray(leaf[:1]), to_device(shape, self._dtype))
        self.wire = start.wire_types(self.algorithms[0], example)

    def _states_of(self, after: Session, state_folder: Path | None) -> Any:
        """The clients' states of the session to go on after; refuses one that this one cannot follow."""

        def kinds(session: Session) -> list[Any]:
            return [(type(one), type(one.objective)) for one in session.algorithms]

        if state_folder is not None or not isinstance(after.population, InMemory):
            raise RequestError(
                "A session can go on after another only with client states in memory; use no state_folder."
            )
        same = kinds(self) == kinds(after) and self.seeds == after.seeds and self._dtype == after._dtype
        if not same or self.federation.names != after.federation.names:
            raise RequestError(
                "A session can go on after another only with its algorithm, objective, seeds, precision and clients; "
                "change settings alone, or start a new one."
            )
        return after.population.states

    def run(
        self, checkpoint: Checkpoint | None = None, resume: bool = False, progress: Progress | None = None
    ) -> list[Run]:
        """Train to the last round and read the test rows."""
        self.train(checkpoint, resume, progress)
        return self.finish()

    def finish(self) -> list[Run]:
        """Read the test rows with the state as it stands: after the last round, or the last sound one."""
        with door.run_precision(self.training.precision):
            return [self._finish(lane) for lane in range(len(self.seeds))]

    def train(
        self,
        checkpoint: Checkpoint | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        watch: Watch | None = None,
        upto: int | None = None,
    ) -> None:
        """Train to the last round, or to `upto` and record there too; `watch` sees every record."""
        self._watch = watch
        with door.run_precision(self.training.precision):
            if resume and checkpoint is not None and checkpoint.exists():
                resuming.load(self, checkpoint)
            elif not self.recorders[0].history:
                self._record()
            self._settled = True
            try:
                self._train(checkpoint, progress, upto)
            except KeyboardInterrupt:
                # while a block is computed the state before it is untouched: what is done since the last save is kept
                if checkpoint is not None and self._settled:
                    resuming.save(self, checkpoint)
                raise

    def _train(self, checkpoint: Checkpoint | None, progress: Progress | None, upto: int | None) -> None:
        rounds, every = self.training.rounds, self.training.record_every
        saved = self.round
        goal = rounds if upto is None else min(upto, rounds)
        while self.round < goal:
            length = min(self.training.block, goal - self.round, every - self.round % every)
            self._advance(length, checkpoint)
            if self.round % every == 0 or self.round in (rounds, upto):
                self._record()
            self._settled = True
            if checkpoint is not None and (self.round - saved >= checkpoint.every or self.round == rounds):
                resuming.save(self, checkpoint)
                saved = self.round
            if progress is not None:
                progress(self.round, rounds)

    @property
    def widest(self) -> int:
        """Clients in a round of the lane that has most."""
        return max(who.cohort for who in self.participations)

    def block(self, first: int, count: int, training: Training) -> tuple[Any, Any, RoundCost]:
        """Compute rounds first .. first + count - 1; nothing is kept. Costs, on the host, have a row per round."""
        looped = training.executor.startswith("looped")
        # a compiled block always has its full length, of which `count` rounds are run: one program for all
        length = training.block or demand.block_length(training, self.widest, len(self.seeds))
        rounds = range(first, first + (count if looped else max(length, count)))
        cohorts, members = None, None
        if not all(who.everybody for who in self.participations):
            drawn = [who.draw(seed, rounds, max(self.widest, 1)) for who, seed in zip(self.participations, self.seeds)]
            members = np.stack([lane[0] for lane in drawn])
            present = np.stack([lane[1] for lane in drawn])
        somebody = None if members is None else np.where(members == NOBODY, 0, members)
        states, data, places = self.population.gather(somebody)
        if members is not None and places is not None:
            parts = (members, places, present)
            cohorts = Cohort(*(jnp.asarray(part[0] if self.lanes == "one" else part) for part in parts))
        numbers = jnp.asarray(np.asarray(rounds, np.int32))
        if looped:
            return self._block_by_lanes(states, data, numbers, cohorts, training.executor == "looped_steps")
        chunk = training.chunk if training.executor == "chunked" else 0
        lane = Lane(self.algorithm, self.roots, self.server, states, cohorts)
        how = How(self.uniform, chunk)
        server, states, costs = run_block(
            lane, data, Rounds(numbers, np.int32(count)), self._turns, how=how, lanes=self.lanes
        )
        ran = slice(count) if self.lanes == "one" else (slice(None), slice(count))
        # cut on the host: slices of device arrays would take longer than a small round
        return server, states, tree.take(jax.tree.map(np.asarray, costs), ran)

    def _block_by_lanes(
        self, states: Any, data: ClientData, rounds: Any, cohorts: Cohort | None, per_step: bool
    ) -> tuple[Any, Any, RoundCost]:
        """A block of the looped executor, which knows one lane: one after another where there are several."""
        if self.lanes == "one":
            only = Lane(self.algorithm, self.roots, self.server, states, cohorts)
            return run_looped(only, data, rounds, per_step=per_step)
        done = []
        for lane in range(len(self.seeds)):
            own = Lane(self.algorithms[lane], self.roots[lane], *tree.take((self.server, states, cohorts), lane))
            done.append(run_looped(own, data, rounds, per_step=per_step))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *done)

    def _advance(self, length: int, checkpoint: Checkpoint | None) -> None:
        if self.widest == 0:  # nobody takes part in any lane: nothing moves, nothing is sent
            self._settled = False
            self.round += length
            return
        began = time.perf_counter()
        server, states, costs = self.block(self.round, length, self.training)
        costs = jax.tree.map(np.asarray, costs)  # waits for the device
        lanes, rounds = len(self.seeds), range(self.round, self.round + length)
        sound = np.asarray(_finite_servers(server, lanes))
        self._settled = False
        for lane, recorder in enumerate(self.recorders):
            own = costs if self.lanes == "one" else tree.take(costs, lane)
            self._check_finite(recorder, own, bool(sound[lane]), length, checkpoint)
            bill_block(recorder, own, rounds, self.algorithms[lane], self.participations[lane], self.wire)
        self.server = server
        self.population.scatter(states)
        self.round += length
        self.seconds += time.perf_counter() - began

    def _check_finite(
        self, recorder: Recorder, costs: RoundCost, sound: bool, length: int, checkpoint: Checkpoint | None
    ) -> None:
        lost = costs.present & ~costs.finite
        if recorder.diverged is not None or (sound and not lost.any()):
            return
        if lost.any():
            first, place = np.argwhere(lost)[0]
            recorder.diverged_client = int(costs.clients[first, place])
            client = self.federation.names[recorder.diverged_client]
            found = Divergence(self.round + int(first) + 1, client)
        else:
            found = Divergence(self.round + length)
        if self.lanes == "one":  # nothing of this block is in the record or the state that are kept
            kept = ""
            if checkpoint is not None:
                resuming.save(self, checkpoint)
                kept = f" The state after round {self.round} is kept in {checkpoint.folder}."
            recorder.diverged = found  # after saving: what was saved is sound
            raise DivergedError(f"{found}: its parameters are no longer finite. Use a smaller step size.{kept}")
        recorder.diverged = found

    def _record(self) -> None:
        scores, _ = self._evaluate(self.algorithm, self.roots, self._now, "validation", self.lanes)
        measured = self._measured()
        for lane, recorder in enumerate(self.recorders):
            own = scores if self.lanes == "one" else tree.take(scores, lane)
            if recorder.record(self.round, self.seconds, own, measured[lane]):
                self.selected[lane] = self._snapshot(lane)
            if self._watch is not None:
                self._watch(lane, recorder, own)

    def _measured(self) -> list[dict[str, float]]:
        """What the caller's measure makes of where each lane stands, for the history."""
        if self._measure is None:
            return [{} for _ in self.seeds]
        where = self.standing()
        if self.lanes == "one":
            return [self._measure(0, where)]
        return [self._measure(lane, tree.take(where, lane)) for lane in range(len(self.seeds))]

    def standing(self) -> Standing:
        """Where the run stands now, on the host; several lanes have an axis in front."""
        parts = []
        with door.run_precision(self.training.precision):
            for _, moment in self._moments(self.algorithm, self.roots, self._now):
                parts.append(jax.tree.map(np.asarray, standing(moment, lanes=self.lanes)))
        axis = 0 if self.lanes == "one" else 1
        # w has no axis of clients, and a scalar in it none to join along
        of_clients = [part._replace(shared=()) for part in parts]
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=axis), *of_clients)
        return joined._replace(shared=parts[0].shared)

    def _snapshot(self, lane: int) -> Snapshot:
        states = self.population.states if isinstance(self.population, InMemory) else None
        if self.lanes == "one":
            return Snapshot(self.round, self.server, states)
        return Snapshot(self.round, *_lane_of((self.server, states), np.int32(lane)))

    @property
    def _now(self) -> Snapshot:
        """The present state of all lanes; None: the states are the population's."""
        return Snapshot(self.round, self.server, None)

    def _moments(self, algorithm: Algorithm, root: Any, at: Snapshot) -> Iterator[tuple[np.ndarray, Moment]]:
        """The run at a snapshot, as each part of the population sees it, and which clients are in the part."""
        for clients, present, data in self.population.parts():
            states = present if at.states is None else at.states
            numbers = jnp.asarray(clients, jnp.int32)
            yield clients, Moment(algorithm, root, np.int32(at.round), at.server, numbers, states, data)

    def _evaluate(self, algorithm: Any, root: Any, at: Snapshot, split: str, lanes: str) -> tuple[Scores, Tally]:
        """Scores on one split, and what each client's model cost."""
        parts, one_by_one = [], self.training.executor.startswith("looped")
        chunk = self.training.chunk if self.training.executor == "chunked" else 0
        for clients, moment in self._moments(algorithm, root, at):
            rows = self._split(split, clients)
            scored = evaluate(moment, rows, names=self.scores, lanes=lanes, one_by_one=one_by_one, chunk=chunk)
            parts.append(jax.tree.map(np.asarray, scored))  # wait: the rows of one part at a time are on the device
        client_axis = 0 if lanes == "one" else 1

        def join(*leaves: Any) -> np.ndarray:
            return np.concatenate(leaves, axis=client_axis)

        return jax.tree.map(join, *parts)

    def _split(self, name: str, clients: np.ndarray) -> ClientData:
        if name not in self._splits or isinstance(self.population, OnDisk):
            # one capacity for both splits, so that one compiled program evaluates both
            both = (self.federation.validation, self.federation.test)
            capacity = max(1, *(int(rows.counts.max(initial=0)) for rows in both))
            self._splits[name] = load(getattr(self.federation, name), clients, capacity, self._dtype)
        return self._splits[name]

    def _finish(self, lane: int) -> Run:
        """Read the test rows, for the last and the selected round; bill what the personal models cost, once."""
        recorder, algorithm, root = self.recorders[lane], self.algorithms[lane], self._root(lane)
        last = self._snapshot(lane)
        selected = self.selected[lane] if last.states is not None else last
        recorder.selected_round = selected.round
        recorder.last, cost = self._scores_after(last, algorithm, root)
        recorder.selected = recorder.last
        if selected.round != last.round:
            recorder.selected, cost = self._scores_after(selected, algorithm, root)
        bill_delivery(recorder, cost, algorithm, self.participations[lane], self.wire)
        return Run(algorithm, self.seeds[lane], self.training, recorder, last, selected, self, lane)

    def _scores_after(self, snapshot: Snapshot, algorithm: Algorithm, root: Any) -> tuple[ClientScores, Tally]:
        evaluated = {split: self._evaluate(algorithm, root, snapshot, split, "one") for split in ("validation", "test")}
        return {split: to_lists(scores) for split, (scores, _) in evaluated.items()}, evaluated["test"][1]

    def _root(self, lane: int) -> Any:
        return self.roots if self.lanes == "one" else self.roots[lane]

    def models_and_outputs(self, run: Run, snapshot: Snapshot, split: str) -> tuple[Params, dict[str, np.ndarray]]:
        """Every client's model after `snapshot`, and both models' answers on a split; stacked, on the host."""
        return self.look(run, snapshot, split, models_and_outputs)

    def look(self, run: Run, snapshot: Snapshot, split: str, program: Callable[[Moment, ClientData], Any]) -> Any:
        """What a compiled program finds on a split of every client after `snapshot`; stacked, on the host."""
        parts = []
        with door.run_precision(self.training.precision):
            for clients, moment in self._moments(run.algorithm, self._root(run.lane), snapshot):
                found = program(moment, self._split(split, clients))
                parts.append(jax.tree.map(np.asarray, found))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def new_clients(self, run: Run) -> ClientScores:
        """Scores of held-out clients with one lane's final state; none where they lack what the others keep."""
        held_out = getattr(self.federation, "held_out", None)
        addressed = jax.tree.leaves((run.algorithm, self.wire), is_leaf=is_per_client)
        no_row = any(is_per_client(node) for node in addressed)  # a value is addressed client by client
        if held_out is None or no_row or run.algorithm.fit(chance=0.5).refused:
            return {}
        with door.run_precision(self.training.precision):
            clients = np.arange(held_out.train.clients)
            both = {"validation": held_out.validation, "test": held_out.test}
            capacity = max(1, *(int(rows.counts.max(initial=0)) for rows in both.values()))  # one program for both
            splits = {name: to_device(rows.pad(clients, capacity), self._dtype) for name, rows in both.items()}
            data = to_device(held_out.train.pad(clients), self._dtype)
            chosen = run.selected  # the round that every other answer is about
            at = Lane(run.algorithm, self._root(run.lane), chosen.server, (), None)
            return {
                name: to_lists(evaluate_new_clients(at, np.int32(chosen.round), data, rows, names=self.scores))
                for name, rows in splits.items()
            }

    @functools.cached_property
    def row_digests(self) -> list[tuple[tuple[int, ...], int]]:
        """What the rows are that it trains, chooses and judges by; read through once."""
        return resuming.digests((self.federation.train, self.federation.validation, self.federation.test))


@jax.jit
def _lane_of(stacked: Any, lane: Any) -> Any:
    """One lane of all, by one program: leaf by leaf it would take longer than a small round."""
    return tree.take(stacked, lane)


@functools.partial(jax.jit, static_argnums=1)
def _finite_servers(servers: Any, lanes: int) -> Any:
    """Whether each lane's server is finite; a server that holds nothing is."""
    stacked = servers if lanes > 1 else jax.tree.map(lambda leaf: leaf[None], servers)
    return finite_rows(stacked, lanes)
