# SPDX-License-Identifier: Apache-2.0
"""The runs of scafflix-networks: cells of one method with one seed each, found again or trained as lanes.

x*_m depend on a seed alone: they are solved once per seed and process, and handed to all runs that mix them in.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect import Algorithm, ClientLoss, Federation, PerClient, Training
from idiolect.algorithms import LocalSGD, Scafflix
from idiolect.core import Objective
from idiolect.objectives import GlobalModel
from papers import lanes
from papers.cells import Cell, Cells
from papers.problems import natural_federation, network_loss
from papers.reproduction import Spec, chosen_size
from papers.scafflix import Known
from papers.tuning import search, try_steps

METHODS = ("fedavg", "flix", "scaffnew", "scafflix")
MIXING = ("flix", "scafflix")
ALONE = "alone"  # x*_m itself
DATA_SETS = {"writers": ("mnist_writers", "cnn"), "shakespeare": ("shakespeare", "character_lstm")}
SCORES = ("accuracy",)
KIND = 1  # of a cell; a change of what cells hold is another kind


@dataclasses.dataclass(frozen=True)
class Problem:
    """One data set, its network's loss, the size of the runs on it, and the x*_m that were solved, by seed."""

    name: str
    federation: Federation
    loss: ClientLoss
    size: Mapping[str, Any]
    probability: float  # p
    data_seed: int = 0
    solved: dict[int, tuple[PerClient, list[float]]] = dataclasses.field(default_factory=dict, repr=False)


class Setting(NamedTuple):
    """What a lane does, but for its seed."""

    method: str
    step: float
    alpha: float  # 1 where nothing is mixed in
    p: float
    cohort: int
    rounds: int

    @property
    def name(self) -> str:
        """Of its cells."""
        return f"{self.method}/alpha-{self.alpha:g}-p-{self.p:g}-cohort-{self.cohort}-rounds-{self.rounds}"

    @property
    def program(self) -> tuple[Any, ...]:
        """What lanes of one program have in common: they differ in floats only."""
        sgd = self.method in ("fedavg", "flix")
        return (sgd, self.alpha < 1, round(1 / self.p) if sgd else 0, self.cohort, self.rounds)


class Trained(NamedTuple):
    """What several seeds of one method brought: scores of the personal models."""

    rounds: np.ndarray  # (records,)
    validation: np.ndarray  # (seeds, records): mean over clients
    test: np.ndarray  # (seeds, clients): after the last round
    step: float
    tuned: str

    @property
    def accuracy(self) -> float:
        """Mean over clients, then over seeds."""
        return float(np.nanmean(self.test))


def problem(name: str, spec: Spec) -> Problem:
    """Data and network of one half of table 1; read once per process."""
    size = chosen_size(spec, "scafflix-networks")[name]
    return _problem(name, json.dumps(size, sort_keys=True), spec["p"], spec["data_seed"])


@functools.lru_cache(maxsize=2)
def _problem(name: str, size: str, p: float, data_seed: int) -> Problem:
    settings = json.loads(size)
    source, model = DATA_SETS[name]
    federation = natural_federation(source, settings, data_seed)
    loss = network_loss(model, {"settings": settings["model"]}, federation)
    return Problem(name, federation, loss, settings, p, data_seed)


def setting(subject: Problem, method: str, step: float, **changes: Any) -> Setting:
    """A method as table 1 has it, with changes; cohorts are at most all clients."""
    size = subject.size
    alpha = size["alpha"] if method in MIXING else 1.0
    plain = Setting(method, step, alpha, subject.probability, size["cohort"], size["rounds"])._replace(**changes)
    return plain._replace(cohort=min(int(plain.cohort), subject.federation.clients))


def algorithm(subject: Problem, one: Setting, seed: int | None) -> Algorithm:
    """A method; x*_m are those of the seed, or are left to be solved where it is None."""
    objective: Objective = GlobalModel(subject.loss)
    if one.alpha < 1:
        solver = {key: subject.size[key] for key in ("solver_epochs", "solver_batch_size", "solver_step_size")}
        known = None if seed is None else optima(subject, seed)[0]
        objective = Known(subject.loss, personalization=one.alpha, known=known, solver="epochs", **solver)
    batch = subject.size["batch_size"]
    if one.method in ("fedavg", "flix"):
        return LocalSGD(objective, local_steps=round(1 / one.p), batch_size=batch, step_size=one.step)
    return Scafflix(objective, batch_size=batch, local_step=one.step, communication_probability=one.p)


def optima(subject: Problem, seed: int) -> tuple[PerClient, list[float]]:
    """x*_m of all clients, and the test accuracy of each."""
    if seed not in subject.solved:
        alone = setting(subject, "flix", 1.0, alpha=0.0, rounds=0)
        run = _how(lanes.simulate_many, subject, alone, [algorithm(subject, alone, None)], [seed])[0]
        accuracy = [float(one) for one in run.recorder.last["test"]["personal"]["accuracy"]]
        subject.solved[seed] = PerClient(jax.tree.map(np.asarray, run.states.prepared.optimum)), accuracy
    return subject.solved[seed]


def _how(
    how: Callable[..., Any], subject: Problem, one: Setting, own: Sequence[Algorithm], seeds: Sequence[int]
) -> Any:
    size = subject.size
    shape = {"executor": size["executor"], "chunk": size["chunk"], "record_every": size["record_every"]}
    training = Training(rounds=one.rounds, cohort=one.cohort, **shape)
    return how(own, subject.federation, training, seeds=seeds, scores=SCORES)


def train(subject: Problem, pairs: Sequence[tuple[Setting, int]], how: Callable[..., Any]) -> Any:
    """`how` (`lanes.simulate_many` or `lanes.train`) of settings with seeds, as lanes of one program."""
    # a run by itself would end with an error where it diverges
    both = [*pairs, *pairs] if len(pairs) == 1 else pairs
    own = [algorithm(subject, one, seed) for one, seed in both]
    return _how(how, subject, both[0][0], own, [seed for _, seed in both])


def find_or_train(
    subject: Problem, asked: Mapping[str, tuple[Setting, str]], seeds: Sequence[int], cells: Cells
) -> dict[str, Trained]:
    """Every label's setting with every seed; what is missing is trained, as lanes where one program can."""
    # named by what it does: table 1's run of a method is the ablations' too
    names = {(label, seed): f"{subject.name}/{asked[label][0].name}-seed-{seed}" for label in asked for seed in seeds}
    known = {(label, seed): _made_of(subject, asked[label][0], seed) for label, seed in names}
    found = {pair: cells.find(names[pair], known[pair]) for pair in names}
    programs: dict[tuple[Any, ...], list[tuple[str, int]]] = {}
    for label, seed in [pair for pair, cell in found.items() if cell is None]:
        programs.setdefault(asked[label][0].program, []).append((label, seed))
    most = subject.size["lanes"]
    for missing in [own[at : at + most] for own in programs.values() for at in range(0, len(own), most)]:
        runs = train(subject, [(asked[label][0], seed) for label, seed in missing], lanes.simulate_many)
        for pair, run in zip(missing, runs):
            facts = {"tuned": asked[pair[0]][1], "diverged": run.recorder.diverged and str(run.recorder.diverged)}
            found[pair] = cells.keep(names[pair], known[pair], facts | _measured(run))
    own = {label: [found[label, seed] for seed in seeds] for label in asked}
    return {label: _trained(asked[label][0].step, [cell for cell in row if cell]) for label, row in own.items()}


def _measured(run: Any) -> Cell:
    history = run.recorder.history
    return {
        "rounds": [row["round"] for row in history],
        "validation": [row["validation_personal_accuracy_mean"] for row in history],
        "test": [float(one) for one in run.recorder.last["test"]["personal"]["accuracy"]],
    }


def _trained(step: float, found: Sequence[Cell]) -> Trained:
    tuned = found[0]["tuned"] + "".join(", diverged" for one in found if one["diverged"])
    validation, test = (np.array([one[key] for one in found], np.float64) for key in ("validation", "test"))
    return Trained(np.array(found[0]["rounds"]), validation, test, step, tuned)


def find_alone(subject: Problem, seeds: Sequence[int], cells: Cells) -> float:
    """Test accuracy of x*_m themselves, mean over clients and seeds."""
    found = []
    for seed in seeds:
        made_of = _made_of(subject, None, seed)
        name = f"{subject.name}/{ALONE}/seed-{seed}"
        found.append(cells.find(name, made_of) or cells.keep(name, made_of, {"test": optima(subject, seed)[1]}))
    return float(np.nanmean(np.array([one["test"] for one in found], np.float64)))


def best_step(subject: Problem, method: str, spec: Spec, cells: Cells) -> tuple[float, str]:
    """The step that the size gives, or the best on validation rows over `tuning_rounds`, by seeds of their own."""
    size = subject.size
    given = None if spec["tune"] else size["steps"].get(method)
    if given is not None:
        return float(given), "given"

    def lane(step: float) -> Setting:
        return setting(subject, method, step, rounds=size["tuning_rounds"])

    def named(step: float, seed: int) -> tuple[str, Cell]:
        return f"{subject.name}/{method}/tuning-{step:g}-seed-{seed}", _made_of(subject, lane(step), seed) | {
            "for": "tuning"
        }

    def run(steps: Sequence[float], seed: int) -> lanes.Curves:
        curves: lanes.Curves = train(subject, [(lane(step), seed) for step in steps], lanes.train)
        return curves

    return search(size["grid"][method], lambda steps: try_steps(steps, size["tuning_seeds"], cells, named, run))


def _made_of(subject: Problem, one: Setting | None, seed: int) -> dict[str, Any]:
    # which settings a run has says `one`; by which way a result is found, not what it is
    how = {"steps", "grid", "tuning_rounds", "tuning_seeds", "executor", "chunk", "lanes"}
    apart = how | {"alpha", "rounds", "cohort"}
    size = {key: value for key, value in subject.size.items() if key not in apart}
    setting = ALONE if one is None else one._asdict()
    return {"kind": KIND, "size": size, "setting": setting, "seed": seed, "data_seed": subject.data_seed}
