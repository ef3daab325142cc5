# SPDX-License-Identifier: Apache-2.0
"""What the coordinator leaves: a run folder as a simulation's, without what would need a row."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.order import natural_key
from idiolect.engines.deploy.coordinator import Coordinator, Ends, Standing
from idiolect.engines.deploy.link import Link
from idiolect.engines.plan import Options, make_plan
from idiolect.engines.recording import ClientScores, open_recorder
from idiolect.engines.run import Run
from idiolect.engines.state import Snapshot
from idiolect.experiments.build import Built
from idiolect.experiments.gains import Against, Judged, find_references
from idiolect.experiments.outcome import write_tables
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.privacy import privacy_statement
from idiolect.experiments.protection import write_epsilon
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.trained import Trained
from idiolect.experiments.units import restore_units
from idiolect.metrics.paired import Intervals
from idiolect.metrics.routing import Routing
from idiolect.record.privacy import Aside
from idiolect.record.schema import RunSummary

TRAFFIC = "traffic.json"  # messages and bytes as they were sent, and who was absent or refused


class Trial(NamedTuple):
    """A method with one seed that was trained over the sites."""

    built: Built
    coordinator: Coordinator
    standing: Standing
    ends: Ends
    tuned: str | None = None  # what was chosen on validation rows, in words


class DeployedRun(Run):
    """A run whose models and rows are at the sites: what would read them is not known here."""

    def routing(self, snapshot: Snapshot | None = None, split: str = "test") -> Routing | None:
        """Rows are routed at the sites."""
        return None

    def new_clients(self) -> ClientScores:
        """There are none."""
        return {}


def _run_of(trial: Trial, prepared: Prepared) -> Run:
    job, standing = trial.coordinator.job, trial.standing
    # a plan says what was trained, for tables and summary; nothing runs, so the cheapest executor will do
    training = dataclasses.replace(job.training, executor="looped", chunk=0, block=1)
    options, algorithms = Options(choose_by=job.choose_by), [trial.built.algorithm]
    plan = make_plan(algorithms, prepared.federation, training, [job.seed], job.scores, options)
    recorder = open_recorder(plan, standing.account, standing.history, standing.selected_round)
    recorder.last, recorder.selected = trial.ends.scores["last"], trial.ends.scores["selected"]
    restore_units(recorder, prepared.federation)
    last = Snapshot(standing.round, standing.server, ())
    selected = Snapshot(standing.selected_round, standing.selected, ())
    return DeployedRun(plan, 0, job.algorithm, recorder, last, selected)


def write_result(folder: RunFolder, prepared: Prepared, trials: list[Trial]) -> RunSummary:
    """summary.json, clients.parquet, history.parquet, privacy.json, the shared models, and the traffic as it was."""
    spec, federation = prepared.spec, prepared.federation
    trained = _trained(folder, prepared, trials)
    if spec.output.models != "none":
        folder.write_names(federation)
    coordinators, tuned = [one.coordinator for one in trials], {one.built.method.label: one.tuned for one in trials}
    # settings are not swept over sites, so that none was chosen among several
    chosen: dict[str, bool | None] = {entry.method.label: None for entry in trained}
    judged = {entry.method.label: _judged(entry, trained, chosen, federation.clients) for entry in trained}
    summary = write_tables(folder, prepared, trained, chosen, judged, flops=False)
    methods = tuple(dataclasses.replace(line, tuned=tuned[line.method]) for line in summary.methods)
    summary = dataclasses.replace(summary, notes=(*summary.notes, *_remarks(coordinators)), methods=methods)
    folder.write_json(TRAFFIC, {f"{one.job.label}-seed{one.job.seed}": _traffic(one.link) for one in coordinators})
    folder.complete("summary.json", summary, _statement(prepared, trained), spec.evaluation.time_model)
    return summary


def _trained(folder: RunFolder, prepared: Prepared, trials: list[Trial]) -> list[Trained]:
    """Methods, each with a run for each seed. Models of all sites are written here, personal ones there."""
    trained = []
    for label, group in itertools.groupby(trials, key=lambda trial: trial.built.method.label):
        same = list(group)
        runs, built = [_run_of(trial, prepared) for trial in same], same[0].built
        for run in runs:
            shared = None if prepared.spec.output.models == "none" else run.shared_model(run.selected)
            if shared is not None:
                folder.write_model(f"{safe_name(label)}-seed{run.seed}/shared", shared)
        if prepared.spec.privacy.is_on:
            write_epsilon(built.spending, runs)
        trained.append(Trained(built, runs))
    return trained


def _judged(entry: Trained, trained: list[Trained], chosen: dict[str, bool | None], clients: int) -> Judged:
    """Gains by the scores alone: intervals and verdicts need a site's rows."""
    # a bootstrap over test rows would need them
    unknown = Intervals(*(np.full(clients, np.nan) for _ in Intervals._fields))
    references = find_references(entry, trained, chosen)
    alone, one = (None if found is None else Against(found, unknown) for found in references)
    return Judged(alone=alone, one=one)


def _traffic(link: Link) -> dict[str, Any]:
    return {
        "kinds": {kind: dataclasses.asdict(count) for kind, count in link.traffic.items()},
        "absent": dict(link.absent),
        "refused": dict(link.refused),
    }


def _remarks(coordinators: list[Coordinator]) -> list[str]:
    remarks = ["Trained over real sites: models and rows stay with them, and verdicts, which need rows, are not known."]
    for job, link in ((one.job, one.link) for one in coordinators):
        for word, count in (("did not answer", link.absent), ("sent something that was refused", link.refused)):
            remarks += [
                f"{job.label}, seed {job.seed}: site {site!r} {word} {times} times."
                for site, times in sorted(count.items(), key=lambda one: natural_key(one[0]))
            ]
    return remarks


def _statement(prepared: Prepared, trained: list[Trained]) -> Any:
    """privacy.json, with the reports that a deployment sends beside what a simulation counts."""
    made = privacy_statement(prepared, trained)
    # each record asked every site for a report
    records = max(len(run.history) for entry in trained for run in entry.runs)
    reports: tuple[Aside, ...] = (
        Aside("what each round cost it: counts of gradients, rows, steps, and whether its numbers are finite", 10),
        Aside("scores of its models on its validation rows, at each record", 2 * len(prepared.scores), records),
        Aside("scores of its models on its validation and test rows, at the end", 8 * len(prepared.scores)),
        Aside("how many training, validation and test rows it has", 3),
    )
    if not prepared.spec.evaluation.scores and prepared.federation.task.kind == "classification":
        reports += (Aside("how many of its training rows are of each class, to choose a score"),)
    return dataclasses.replace(made, also=(*made.also, *reports))
