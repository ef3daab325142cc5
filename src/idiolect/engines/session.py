# SPDX-License-Identifier: Apache-2.0
"""A session: holds a plan and the state it has reached, and trains: records, checkpoints, progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from idiolect.core import tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import DivergedError
from idiolect.engines import auto, programs, resuming
from idiolect.engines.advance import Launched, advance, can_run_ahead, launch, settle
from idiolect.engines.billing import bill_delivery
from idiolect.engines.checkpoint import Mark
from idiolect.engines.door import Splits, Training
from idiolect.engines.evaluate import Scores, Standing
from idiolect.engines.judge import find_standing, launch_scores, record, score_ends
from idiolect.engines.packed import Packed
from idiolect.engines.plan import Options, Plan, make_plan
from idiolect.engines.recording import Recorder, Row, open_recorder
from idiolect.engines.run import Run
from idiolect.engines.state import Snapshot, State, begin, follow, lane_of, lay_out

AHEAD = 2  # blocks that the device has to do at once: it never waits for the host, and holds one state more
Watch = Callable[[int, Recorder, Scores], None]  # (lane, its record, its scores on validation rows) after each record


class Session:
    """One training run, or many lanes of it, between compiled blocks."""

    def __init__(self, plan: Plan, state: State, options: Options):
        self.plan, self.state, self.options = plan, state, options
        self.histories: list[list[Row]] = [[] for _ in plan.seeds]
        self.saved = state.round  # the round of the newest checkpoint
        self.kept_history: tuple[Path | None, Mark] = (None, Mark())  # of the checkpoints, and how far it is written

    @property
    def training(self) -> Training:
        """With what was chosen."""
        return self.plan.training

    @property
    def recorders(self) -> list[Recorder]:
        """The record of every lane so far."""
        return [self._recorder(lane, self.state) for lane in range(len(self.histories))]

    def snapshot(self, lane: int = 0) -> Snapshot:
        """Where a lane stands."""
        return lane_of(self.plan, self.state.now, lane)

    def standing(self) -> Standing:
        """Where every lane stands in its objective, on the host; with a lane axis in front."""
        return find_standing(self.plan, self.state)

    def go_on(self, algorithms: Sequence[Algorithm], training: Training, options: Options) -> Session:
        """A session that goes on from here with other settings of the same algorithms, up to `training.rounds`.

        Rounds count on, while records and ledger are its own.
        """
        plan = make_plan(algorithms, self.plan.federation, training, self.plan.seeds, self.plan.scores, options)
        return _open(plan, follow(plan, self.plan, self.state), options)

    def run(self) -> list[Run]:
        """Train to the last round and read the test rows."""
        self.train()
        return self.finish()

    def train(self, watch: Watch | None = None, upto: int | None = None) -> None:
        """Train to the last round, or to `upto` and record there too; `watch` sees every record."""
        if not self.histories[0]:
            self._begin(watch)
        checkpoint, rounds = self.options.checkpoint, self.training.rounds
        goal = rounds if upto is None else min(upto, rounds)
        try:
            if watch is None and can_run_ahead(self.plan, self.state):
                self._run_ahead(goal)
            while self.state.round < goal:
                self._keep(advance(self.plan, self.state, self._block(self.state.round, goal)), goal, watch)
        except KeyboardInterrupt:
            # `state` is replaced when its record is made, so it stands before the block that was interrupted
            # several hosts are interrupted at different places, and could not collect their state
            alone = jax.process_count() == 1
            if checkpoint is not None and alone and self.plan.population.stands_at(self.state.round):
                for history in self.histories:
                    history[:] = [row for row in history if row["round"] <= self.state.round]
                resuming.save(self, checkpoint)
            raise

    def _begin(self, watch: Watch | None) -> None:
        checkpoint = self.options.checkpoint
        if self.options.resume and checkpoint is not None and checkpoint.exists():
            resuming.load(self, checkpoint)
        else:
            # on an accelerator compiling takes longest of all: at the same time what would come one after the other
            if jax.default_backend() != "cpu" and can_run_ahead(self.plan, self.state):
                programs.compile_all(self.plan, self.state)
            self.state = self._record(self.state, watch)

    def _run_ahead(self, goal: int) -> None:
        """Train to `goal`, each block and record launched before the host reads what the last ones found."""
        front, read, flying = self.state, 0.0, deque[tuple[Launched, Packed | None]]()
        while self.state.round < goal:
            while front.round < goal and len(flying) < AHEAD:
                launched = launch(self.plan, front, self._block(front.round, goal))
                front = launched.after(front)
                scored = launch_scores(self.plan, front.now) if self._is_recorded(front.round, goal) else None
                flying.append((launched, scored))
            launched, scored = flying.popleft()
            self._keep(settle(self.plan, self.state, launched, since=read), goal, scored=scored)
            # while the host read the record, the next block was under way: its clock runs from here
            read = time.perf_counter()

    def _block(self, here: int, goal: int) -> int:
        """Rounds of the block that begins here."""
        # a block never passes a record: scores are of the state between two rounds, which a block does not keep
        until_record = self.training.record_every - here % self.training.record_every
        return min(self.training.block, goal - here, until_record)

    def _is_recorded(self, number: int, goal: int) -> bool:
        return number % self.training.record_every == 0 or number == goal

    def _keep(self, state: State, goal: int, watch: Watch | None = None, scored: Packed | None = None) -> None:
        """Make this the session's state, once it is recorded; `scored`: what was launched for that."""
        training, checkpoint = self.training, self.options.checkpoint
        if len(state.accounts) == 1 and not state.accounts[0].sound:
            self._diverge(state)
        if self._is_recorded(state.round, goal):
            state = self._record(state, watch, scored)
        self.state = state
        if checkpoint is not None and (state.round - self.saved >= checkpoint.every or state.round == training.rounds):
            resuming.save(self, checkpoint)
        if self.options.progress is not None:
            self.options.progress(state.round, training.rounds)

    def _record(self, state: State, watch: Watch | None, scored: Packed | None = None) -> State:
        state, rows, scores = record(self.plan, state, self.options.measure, scored)
        for history, row in zip(self.histories, rows):
            history.append(row)
        if watch is not None:
            for lane, own in enumerate(scores):
                watch(lane, self._recorder(lane, state), own)
        return state

    def _diverge(self, state: State) -> None:
        """Keep the last sound state, then say what happened."""
        checkpoint, kept = self.options.checkpoint, ""
        if checkpoint is not None:
            resuming.save(self, checkpoint)
            kept = f" The state after round {self.state.round} is kept in {checkpoint.folder}."
        self.state = state  # after saving: what was saved is sound
        found = self.recorders[0].diverged
        raise DivergedError(f"{found}: its parameters are no longer finite. Use a smaller step size.{kept}")

    def finish(self) -> list[Run]:
        """Read the test rows for the last and the selected round; bill what the personal models cost, once."""
        plan, last = self.plan, self.state.now
        # states on disk are those of the last round alone: no copy was kept of a better one
        selected = last if last.states is None else self.state.selected
        last_scores, costs = score_ends(plan, last)
        chosen_scores = last_scores
        if (selected.round != last.round).any():
            chosen_scores, costs = score_ends(plan, selected)
        runs = []
        for lane, account in enumerate(self.state.accounts):
            account = bill_delivery(account, tree.take(costs, lane), plan.terms(lane))
            recorder = open_recorder(plan, account, self.histories[lane], selected.round[lane])
            recorder.last, recorder.selected = last_scores[lane], chosen_scores[lane]
            ends = lane_of(plan, last, lane), lane_of(plan, selected, lane)
            runs.append(Run(plan, lane, plan.algorithms[lane], recorder, *ends))
        return runs

    def _recorder(self, lane: int, state: State) -> Recorder:
        return open_recorder(self.plan, state.accounts[lane], self.histories[lane], state.selected.round[lane])


def open_session(
    algorithms: Sequence[Algorithm],
    federation: Splits,
    training: Training,
    seeds: Sequence[int],
    scores: tuple[str, ...] = ("log_loss",),
    options: Options | None = None,
) -> Session:
    """A session before its first round: lane i trains `algorithms[i]` with `seeds[i]`, all in one program."""
    options = options or Options()
    plan = make_plan(algorithms, federation, training, seeds, scores, options)
    return _open(plan, begin(plan, options), options)


def _open(plan: Plan, state: State, options: Options) -> Session:
    chosen = auto.resolve(plan, state, options.memory)
    return Session(chosen, lay_out(chosen, state), options)
