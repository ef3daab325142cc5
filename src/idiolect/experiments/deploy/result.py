# SPDX-License-Identifier: Apache-2.0
"""What the coordinator leaves: a run folder as a simulation's, without what would need a row."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np

from idiolect.core.order import natural_key
from idiolect.core.tree import Params
from idiolect.engines.deploy.coordinator import Ends, Job, Standing
from idiolect.engines.deploy.link import Link
from idiolect.engines.door import run_precision
from idiolect.engines.plan import Options, make_plan
from idiolect.engines.recording import ClientScores, Recorder
from idiolect.engines.run import Run
from idiolect.engines.state import Snapshot
from idiolect.experiments.build import Built
from idiolect.experiments.gains import Against, Judged, find_references
from idiolect.experiments.outcome import write_tables
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.privacy import privacy_statement
from idiolect.experiments.protection import write_epsilon
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import MethodSpec
from idiolect.experiments.trained import Trained, restore_units
from idiolect.metrics.paired import Intervals
from idiolect.metrics.routing import Routing
from idiolect.record.privacy import Aside
from idiolect.record.schema import RunSummary

TRAFFIC = "traffic.json"  # messages and bytes as they were sent, and who was absent or refused


class Trial(NamedTuple):
    """A method with one seed that was trained over the sites."""

    method: MethodSpec
    built: Built
    seed: int
    job: Job
    standing: Standing
    ends: Ends
    link: Link
    tuned: str | None = None  # what was chosen on validation rows, in words


class DeployedRun(Run):
    """A run whose models and rows are at the sites: what would read them is not known here."""

    def shared_model(self, snapshot: Snapshot | None = None) -> Params | None:
        """The server's."""
        with run_precision(self.training.precision):
            return self.algorithm.shared_model((snapshot or self.last).server)

    def routing(self, snapshot: Snapshot | None = None, split: str = "test") -> Routing | None:
        """Rows are routed at the sites."""
        return None

    def new_clients(self) -> ClientScores:
        """There are none."""
        return {}


def _run_of(trial: Trial, prepared: Prepared) -> DeployedRun:
    job, standing = trial.job, trial.standing
    # a plan says what was trained, for tables and summary; nothing runs, so the cheapest executor will do
    training = dataclasses.replace(job.training, executor="looped", chunk=0, block=1)
    plan = make_plan([trial.built.algorithm], prepared.federation, training, [trial.seed], job.scores, Options())
    recorder = Recorder(
        scores=job.scores,
        choose_by=job.choose_by,
        ledger=standing.account.ledger,
        history=list(standing.history),
        client_bytes=standing.account.client_bytes.tolist(),
        selected_round=standing.selected_round,
        last_round=standing.round,
        diverged=None,
        diverged_client=-1,
        last=trial.ends.scores["last"],
        selected=trial.ends.scores["selected"],
    )
    restore_units(recorder, prepared.federation)
    last = Snapshot(standing.round, standing.server, ())
    selected = Snapshot(standing.selected_round, standing.selected, ())
    return DeployedRun(plan, 0, job.algorithm, recorder, last, selected)


def write_result(folder: RunFolder, prepared: Prepared, trials: list[Trial]) -> RunSummary:
    """summary.json, clients.parquet, history.parquet, privacy.json, the shared models, and the traffic as it was."""
    spec, federation = prepared.spec, prepared.federation
    trained = _trained(trials, prepared)
    if spec.output.models != "none":
        _write_shared(folder, trained)
        folder.write_names(federation)
    tuned = {trial.method.label: trial.tuned for trial in trials}
    # settings are not swept over sites, so that none was chosen among several
    chosen: dict[str, bool | None] = {entry.method.label: None for entry in trained}
    judged = {entry.method.label: _judged(entry, trained, chosen, federation.clients) for entry in trained}
    summary = write_tables(folder, prepared, trained, chosen, judged, flops=False)
    methods = tuple(dataclasses.replace(line, tuned=tuned[line.method]) for line in summary.methods)
    summary = dataclasses.replace(summary, notes=(*summary.notes, *_remarks(trials)), methods=methods)
    folder.write_json(TRAFFIC, {f"{trial.method.label}-seed{trial.seed}": _traffic(trial.link) for trial in trials})
    folder.complete("summary.json", summary, _statement(prepared, trained), spec.evaluation.time_model)
    return summary


def _trained(trials: list[Trial], prepared: Prepared) -> list[Trained]:
    """Methods, each with a run for each seed."""
    trained = []
    for _, group in itertools.groupby(trials, key=lambda trial: trial.method.label):
        same = list(group)
        runs, built = [_run_of(trial, prepared) for trial in same], same[0].built
        if prepared.spec.privacy.is_on:
            write_epsilon(built.spending, runs)
        trained.append(Trained(built, list(runs)))
    return trained


def _write_shared(folder: RunFolder, trained: list[Trained]) -> None:
    """The selected round's models that are one for all sites; personal ones are at the sites."""
    for entry in trained:
        for run in entry.runs:
            shared = run.shared_model(run.selected)
            if shared is not None:
                folder.write_model(f"{safe_name(entry.method.label)}-seed{run.seed}/shared", shared)


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


def _remarks(trials: list[Trial]) -> list[str]:
    remarks = ["Trained over real sites: models and rows stay with them, and verdicts, which need rows, are not known."]
    for trial in trials:
        for word, count in (
            ("did not answer", trial.link.absent),
            ("sent something that was refused", trial.link.refused),
        ):
            remarks += [
                f"{trial.method.label}, seed {trial.seed}: site {site!r} {word} {times} times."
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
