# SPDX-License-Identifier: Apache-2.0
"""What the tables of Flow 2023 share: columns (data and a network), methods at one budget, and cells of one run each.

Two protocols. Equal epochs (the paper's; `epochs`): in a round every method passes so often over a client's rows, with
each of its parts, and as often before it predicts where it adapts. Equal gradients (`gradients`): in a round every
method computes the gradient of so many batches on each client. FedAvg makes as many steps; APFL two gradients a step;
Ditto and FedRep one half for each of their parts; Flow a third each for w_l, psi and w_g. Methods that adapt before
they predict may use as many as Flow does.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect import Algorithm, ClientLoss, Federation, RequestError, Run, Training
from idiolect.algorithms import Flow
from idiolect.core.checks import nearest
from idiolect.engines.cohorts import Participation
from idiolect.experiments.build import assemble
from idiolect.experiments.spec import MethodSpec, check_seeds
from idiolect.experiments.strict import coerce
from idiolect.metrics import breakdown
from papers import lanes
from papers.cells import Cell, Cells
from papers.flow_data import find_data, make_federation
from papers.flow_sizes import check_column
from papers.problems import network_loss
from papers.reproduction import Spec, chosen_size
from papers.tuning import search, try_steps

SCORES = ("accuracy",)
FINE_TUNING = "fedavg_fine_tuning"
ROUTING = ("flow", "flow_printed", "pi_flow")
KIND = 2  # of a cell; a change of what cells hold is another kind
ROUTING_KIND = 4  # before, `flow` was what `flow_printed` is now, with w_g held before predicting


class Variant(NamedTuple):
    """A method with some of its settings changed, under a name of its own."""

    label: str
    method: str
    changes: Mapping[str, Any]


def plain(method: str) -> Variant:
    """A method as it is."""
    return Variant(method, method, {})


class Column(NamedTuple):
    """One data set with its network."""

    name: str
    size: Mapping[str, Any]
    federation: Federation
    loss: ClientLoss


def processes(spec: Spec) -> dict[str, Any]:
    """How many processes compute the cells of the size, and what their compiler is told."""
    size = chosen_size(spec, spec["name"])
    return {"workers": size["workers"], "xla_flags": size["xla_flags"]}


def columns(spec: Spec, use: str = "tables") -> dict[str, Mapping[str, Any]]:
    """The data sets that the size has for the tables or for the ablations, by name."""
    size = chosen_size(spec, spec["name"])
    known = [name for name, part in size.items() if isinstance(part, Mapping)]
    for asked, among in ((size[use], known), (spec["data"], size[use])):
        for name in asked:
            if name not in among:
                close = nearest(str(name), map(str, among))
                raise RequestError(f"[{spec['name']}] {use} of this size have no {name!r}.{close}")
    return {name: _settings(size, name) for name in size[use] if not spec["data"] or name in spec["data"]}


def has_row(size: Mapping[str, Any], label: str) -> bool:
    """Whether a column has the named row."""
    return not size.get("only") or label in size["only"]


def _settings(size: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A column of a size; one that is `like` another has that one's settings where it has none."""
    own = dict(size[name])
    return _settings(size, own.pop("like")) | own if "like" in own else own


def check(spec: Spec, use: str, methods: Collection[str]) -> None:
    """RequestError for settings that no run could be made with; `methods` may have steps of their own."""
    where = f"[{spec['name']}]"
    check_seeds(coerce(list[int], spec["seeds"], "seeds"))
    tuning = check_seeds(
        coerce(list[int], chosen_size(spec, spec["name"])["tuning_seeds"], "tuning_seeds"), "tuning_seeds"
    )
    coerce(list[str], spec["methods"], "methods")
    if spec["data_seed"] < 0:
        raise RequestError(f"{where} data_seed must be at least 0, got {spec['data_seed']}.")
    if both := sorted(set(tuning) & set(spec["seeds"])):
        raise RequestError(f"{where} tuning_seeds must have none of seeds, got {both[0]} in both; use others.")
    for name in spec["methods"]:
        if name not in methods and use == "tables":
            raise RequestError(
                f"{where} methods has {name!r}, which is none of the table's.{nearest(str(name), methods)}"
            )
    workers = chosen_size(spec, spec["name"])["workers"]
    if workers < 1:
        raise RequestError(f"{where} workers must be at least 1, got {workers}.")
    asked = columns(spec, use)
    if not asked:
        raise RequestError(f"{where} {use} of size {spec['size']!r} must name at least one column, got none.")
    for name, size in asked.items():
        check_column(size, f"{spec['size']}.{name}")
        for method in size["steps"]:
            if method not in methods and use == "tables":
                raise RequestError(f"{where} {name}: steps has no method {method!r}.{nearest(method, methods)}")


def check_data(spec: Spec, use: str) -> None:
    """RequestError unless the data of all columns are here: columns are read one after another, between trainings."""
    for size in columns(spec, use).values():
        find_data(size["source"])


@functools.lru_cache(maxsize=4)
def _column(name: str, size: str, data_seed: int) -> Column:
    settings = json.loads(size)
    federation = make_federation(settings, data_seed)
    loss = network_loss(settings["model"], settings["model_settings"], federation)
    return Column(name, settings, federation, loss)


def column(name: str, spec: Spec) -> Column:
    """Data and network of one column; read once per process."""
    settings = _settings(chosen_size(spec, spec["name"]), name)
    return _column(name, json.dumps(settings, sort_keys=True), spec["data_seed"])


def settings_of(method: str, size: Mapping[str, Any]) -> dict[str, Any]:
    """A method's settings but its step: equal budgets, and the paper's own constants."""
    own = {"batch_size": size["batch_size"]} | _constants(method, size)
    own |= _epochs(method, size) if size.get("epochs") else _gradients(method, size["gradients"])
    if method in ROUTING and size["source"] == "shakespeare":
        own["token_routing"] = size.get("token_routing", "states")
    return own


def _constants(method: str, size: Mapping[str, Any]) -> dict[str, Any]:
    routing = {"routing_penalty": size["routing_penalty"], "routing_widths": list(size["routing_widths"])}
    known: dict[str, dict[str, Any]] = {
        "knn_per": {"neighbours": size["neighbours"], "own_share": size["vote_share"]},
        "apfl": {"own_share": size["apfl_share"], "weighting": "samples"},
        "ditto": {"penalty": size["penalty"], "weighting": "samples"},
        "fedrep": {"weighting": "samples"},
        "hypcluster": {"clusters": 2},
    }
    known |= {name: routing | {"routed": size["routed"]} for name in ROUTING}
    return known.get(method, {})


def _gradients(method: str, whole: int) -> dict[str, Any]:
    """Equal gradients: `whole` batches in a round."""
    half, third = whole // 2, whole // 3
    budgets: dict[str, dict[str, Any]] = {
        # what Flow computes before it predicts: a third each for w_l, psi and w_g
        FINE_TUNING: {"fine_tuning_steps": whole},
        "partialfed": {"local_steps": half, "strategy_steps": half},
        "apfl": {"local_steps": half},
        "ditto": {"local_steps": half, "personal_steps": half},
        "fedrep": {"local_steps": half},
    }
    budgets |= {name: {"local_steps": third} for name in ROUTING}
    return {"local_steps": whole} | budgets.get(method, {})


def _epochs(method: str, size: Mapping[str, Any]) -> dict[str, Any]:
    """Equal epochs: as many passes over the rows with every part."""
    epochs = size["epochs"]
    own: dict[str, dict[str, Any]] = {
        FINE_TUNING: {"fine_tuning_epochs": epochs},
        # preferences take steps, not epochs: as many as the passes have on a client of middle size
        "partialfed": {"strategy_steps": size.get("strategy_steps", 1)},
    }
    return {"epochs": epochs} | own.get(method, {})


def algorithm(subject: Column, variant: Variant, step: float) -> Algorithm:
    """A method on a column."""
    method = variant.method
    settings = settings_of(method, subject.size) | dict(variant.changes) | {"step_size": step}
    entry = MethodSpec(label=method, algorithm=method, settings=settings)
    return assemble(entry, subject.loss, subject.federation.train.clients, method).algorithm


def train(subject: Column, algorithms: Sequence[Algorithm], seeds: Sequence[int], how: Callable[..., Any]) -> Any:
    """`how` (`lanes.simulate_many` or `lanes.train`) of runs side by side; one that diverges is marked."""
    if len(seeds) == 1:  # a run by itself would end with an error
        algorithms, seeds = [*algorithms, *algorithms], [*seeds, *seeds]
    keys = ("rounds", "cohort", "record_every", "executor", "chunk")
    training = Training(**{key: subject.size[key] for key in keys})
    return how(algorithms, subject.federation, training, seeds=seeds, scores=SCORES)


def useful_steps(subject: Column, seed: int) -> float:
    """Useful / executed steps, if a round were an epoch: a cohort goes on until its largest client is through."""
    counts, size = subject.federation.train.counts, subject.size
    members, _ = Participation(len(counts), size["cohort"], 0.0).draw(seed, range(size["rounds"]), size["cohort"])
    steps = -(-counts // size["batch_size"])[members]
    return float(steps.sum() / (steps.max(axis=1).sum() * steps.shape[1]))


def best_step(subject: Column, variant: Variant, spec: Spec, cells: Cells) -> tuple[float, str]:
    """The step with the best validation accuracy of personal models, and how it was found.

    Where the best stands at an edge, as many steps again are tried beyond it. A step that diverges with any tuning seed
    is the worst.
    """
    given = None if spec["tune"] else subject.size["steps"].get(variant.label)
    if given is not None:
        return float(given), "given"
    return search(subject.size["grid"], lambda steps: _tried(subject, variant, steps, spec, cells))


def _tried(subject: Column, variant: Variant, steps: Sequence[float], spec: Spec, cells: Cells) -> dict[float, float]:
    """Validation accuracy after the last round with each step, mean over the tuning seeds."""
    more: Cell = {"for": "tuning"} | ({"changes": dict(variant.changes)} if variant.changes else {})

    def named(step: float, seed: int) -> tuple[str, Cell]:
        made_of = _made_of(subject, variant.method, step, seed, spec) | more
        return f"{subject.name}/{variant.label}/tuning-{step:g}-seed-{seed}", made_of

    def run(steps: Sequence[float], seed: int) -> lanes.Curves:
        tried = [algorithm(subject, variant, step) for step in steps]
        own: lanes.Curves = train(subject, tried, [seed] * len(steps), lanes.train)
        return own

    return try_steps(steps, chosen_size(spec, spec["name"])["tuning_seeds"], cells, named, run)


def cells_of(
    subject: Column,
    variant: Variant,
    spec: Spec,
    cells: Cells,
    *,
    step: tuple[float, str] | None = None,
    soft: bool = True,
) -> list[Cell]:
    """A cell per seed: accuracies per client, who is right on which rows, what it cost.

    Without `soft`, Flow's models are not asked for soft answers too.
    """
    chosen, how = step or best_step(subject, variant, spec, cells)
    seeds = spec["seeds"][: subject.size.get("first_seeds", {}).get(variant.label)]
    names = {seed: f"{subject.name}/{variant.label}/seed-{seed}" for seed in seeds}
    more = {"changes": dict(variant.changes)} | ({"soft": soft} if variant.method in ROUTING else {})
    known = {seed: _made_of(subject, variant.method, chosen, seed, spec) | more for seed in seeds}
    found = {seed: cells.find(names[seed], known[seed]) for seed in seeds}
    missing = [seed for seed, one in found.items() if one is None]
    if missing:
        same = [algorithm(subject, variant, chosen)] * len(missing)
        for trained in train(subject, same, missing, lanes.simulate_many)[: len(missing)]:
            own = {"step": chosen, "tuned": how} | measured(trained, subject, soft)
            found[trained.seed] = cells.keep(names[trained.seed], known[trained.seed], own)
    return [one for one in found.values() if one is not None]


def _made_of(subject: Column, method: str, step: float, seed: int, spec: Spec) -> dict[str, Any]:
    # by which way a result is found, not what it is; and what is among the settings of those whom it concerns
    how = ("steps", "grid", "executor", "chunk", "token_routing", "only", "first_seeds")
    size = {key: value for key, value in subject.size.items() if key not in how}
    kind = ROUTING_KIND if method in ROUTING else KIND
    made_of = {"kind": kind, "size": size, "method": method, "settings": settings_of(method, subject.size)}
    return made_of | {"step": step, "seed": seed, "data_seed": spec["data_seed"]}


def measured(trained: Run, subject: Column, soft: bool = True) -> Cell:
    """What one run brought, as plain values."""
    last = trained.recorder.last["test"]
    ledger = trained.ledger
    new = trained.new_clients().get("test", {})
    facts: Cell = {
        "personal": last["personal"]["accuracy"],
        "shared": last["shared"]["accuracy"] if "shared" in last else None,
        "new_personal": new["personal"]["accuracy"] if new else None,
        "new_shared": new["shared"]["accuracy"] if "shared" in new else None,
        "download_bytes": ledger.download_bytes,
        "upload_bytes": ledger.upload_bytes,
        "diverged": trained.recorder.diverged and str(trained.recorder.diverged),
        "history": [
            [row["round"], row["validation_personal_accuracy_mean"], row.get("validation_shared_accuracy_mean")]
            for row in trained.history
        ],
    }
    outputs, test = trained.outputs(), subject.federation.test
    if "shared" in outputs:
        right, mask = _right(outputs, test)
        counts = breakdown(right["shared"], right["personal"], mask)
        facts["rows"] = {name: np.asarray(count).tolist() for name, count in counts._asdict().items()}
    if isinstance(trained.algorithm, Flow):
        facts |= _flow_facts(trained)
        facts |= _soft_facts(trained, outputs, test) if soft else {}
    return facts


def _right(outputs: Mapping[str, np.ndarray], test: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Which rows (of sequences: which positions) each model gets right, and which are real; (clients, answers)."""
    clients, capacity = outputs["personal"].shape[:2]
    padded = test.pad(np.arange(clients), capacity)
    targets = np.asarray(padded.targets)
    real = np.arange(capacity) < np.asarray(padded.count)[:, None]
    real = real.reshape(*real.shape, *(1,) * (targets.ndim - 2)) & (targets >= 0)
    right = {name: (answer.argmax(-1) == targets).reshape(clients, -1) for name, answer in outputs.items()}
    return right, real.reshape(clients, -1)


def _flow_facts(trained: Run) -> Cell:
    """Where rows are routed, by who gets them right."""
    report = trained.routing(trained.last)
    assert report is not None
    return {
        "routes": list(report.names),
        "shares": report.shared_share.tolist(),
        "taken": report.taken.tolist(),
        "shares_by_category": {name: part.tolist() for name, part in report.by_category.items()},
    }


def _soft_facts(trained: Run, outputs: Mapping[str, np.ndarray], test: Any) -> Cell:
    """Accuracy per client of the same models with soft and with hard routing."""
    flow = trained.algorithm
    assert isinstance(flow, Flow)
    soft = dataclasses.replace(trained, algorithm=dataclasses.replace(flow, soft_inference=True)).outputs()
    hard, mask = _right(outputs, test)
    answers = np.where(mask.any(1), mask.sum(1), np.nan)  # a client without test rows has no accuracy
    right = {"soft": _right(soft, test)[0]["personal"], "hard": hard["personal"]}
    return {name: ((own & mask).sum(1) / answers).tolist() for name, own in right.items()}
