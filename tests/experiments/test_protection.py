# SPDX-License-Identifier: Apache-2.0
"""Protections of a spec: what is refused, what a run folder says of them, and nothing where none is asked for."""

from __future__ import annotations

import json

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from idiolect.accounting.client_privacy import Rounds, spent_epsilon
from idiolect.cli import app
from idiolect.core.addressing import address
from idiolect.core.checks import RequestError
from idiolect.experiments.candidates import comparison
from idiolect.experiments.contest import Contest
from idiolect.experiments.execute import execute
from idiolect.experiments.prepare import prepare
from idiolect.experiments.protection import attackers_of, most_exposed, out_of_reach
from idiolect.experiments.spec import from_table, override, to_table
from idiolect.protection.attacks import flip_labels

SPEC = {
    "name": "p",
    "data": {"source": "heart_disease", "preparation": "local"},
    "training": {"rounds": 3, "record_every": 1, "executor": "batched"},
    "methods": {"local": {}, "fedavg": {"step_size": 0.1, "local_steps": 1, "batch_size": 0}},
}


def spec_with(*lines):
    return from_table(override(SPEC, lines))


def test_a_spec_without_protections_says_nothing_of_them():
    table = to_table(spec_with())
    assert not {"privacy", "compression", "robustness", "attack", "secure_aggregation"} & set(table)
    on = to_table(spec_with("compression.kind = 'top_k'"))
    assert on["compression"]["kind"] == "top_k"
    assert from_table(on) == spec_with("compression.kind = 'top_k'")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["privacy = {epsilon = 3.0, noise_multiplier = 1.0}"], "got both"),
        (["privacy.clip = 2.0"], r"\[privacy\] is on"),
        (["robustness.attackers = 2"], r"\[robustness\] is on"),
        (["privacy.epsilon = 3.0", "tuning.auto = true"], "no noise hides"),
        (["privacy.epsilon = 3.0", "data.preparation = 'federated'"], "use 'local' or 'given'"),
        (["privacy = {epsilon = 3.0, sampling = 'poisson'}"], "by coins"),
        (["privacy = {epsilon = 3.0, accountant = 'pld'}", "training.cohort = 2"], "use 'rdp'"),
        (["privacy = {epsilon = 3.0, noise = 'clients'}", "training.dropout = 0.5"], "training.dropout = 0"),
        (["attack = {kind = 'noise', clients = 4}"], "fewer than the 4 clients"),
        (["robustness = {rule = 'krum', attackers = 2}"], "fewer than half"),
        (["privacy.epsilon = 3.0", "methods.ditto.local_steps = 1"], "ditto.step_size must be given"),
        (["compression.kind = 'quantise'", "model.l2 = 0.1", "methods.scafflix = {}"], "control variates"),
        (["secure_aggregation.fraction_bits = 16"], r"\[secure_aggregation\] is on"),
        (["secure_aggregation.threshold = 2"], "fedavg: The threshold of .* more than half of the 4"),
        (["secure_aggregation.threshold = 3", "robustness.rule = 'median'"], "need every upload apart"),
        (["secure_aggregation.threshold = 4", "training.dropout = 0.5"], "nothing could be unmasked; lower it"),
        (["secure_aggregation.threshold = 3", "methods.all_for_all = {}"], "hears every client apart"),
        (["compression.kind = 'zip'"], "compression.kind must be one of"),
        (["privacy = {epsilon = 3.0, level = 'rows'}"], "one row changes all others; .* use 'given'"),
        (["privacy = {epsilon = 3.0, level = 'rows', noise = 'clients'}"], "leave clipping, quantile, noise"),
    ],
)
def test_what_makes_no_sense_is_refused(lines, sentence):
    with pytest.raises(RequestError, match=sentence):
        prepare(spec_with(*lines))


def test_the_number_of_attackers_does_not_change_who_is_first():
    few, many = (attackers_of(spec_with(f"attack = {{kind = 'noise', clients = {n}}}"), 20) for n in (3, 8))
    assert set(few) < set(many)
    assert len(many) == 8


def test_a_private_run_states_epsilon_and_delivers_the_last_round(tmp_path):
    pytest.importorskip("dp_accounting")
    done = execute(spec_with("privacy = {epsilon = 2.0, clipping = 'adaptive'}"), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "history.parquet").to_pylist()
    spent = [row["epsilon"] for row in rows if row["method"] == "fedavg"]
    assert spent == sorted(spent)
    assert spent[0] == 0.0
    assert 1.98 < spent[-1] <= 2.0
    assert {row["epsilon"] for row in rows if row["method"] == "local"} == {0.0}  # what stays costs nothing
    assert {row["delta"] for row in rows if row["method"] == "fedavg"} == {0.1 / 4}
    assert [run.recorder.selected_round for entry in done.trained for run in entry.runs] == [3, 3]
    methods = json.loads((tmp_path / "run" / "privacy.json").read_text())["methods"]
    protection = {one["method"]: one["protection"] for one in methods}
    assert "epsilon 2 at delta 0.025" in protection["fedavg"]
    assert "not private: simulated noise" in protection["fedavg"]
    assert protection["local"] == "nothing is sent"
    assert any("several of them together spend the sum" in note for note in done.summary.notes)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A spec of rows that are prepared by a recipe, under privacy of rows."""
    folder, draw = tmp_path_factory.mktemp("given"), np.random.default_rng(2)
    lines = [
        f"{x:.3f},{x + 0.1 * y:.3f},s{site}" for site in range(3) for x, y in draw.normal(size=(20 + 20 * site, 2))
    ]
    (folder / "rows.csv").write_text("\n".join(["x,y,site", *lines]) + "\n")
    data = {"source": "table", "path": str(folder / "rows.csv"), "client": "site", "target": "y"}
    table = SPEC | {"data": data, "methods": {"local": {"step_size": 0.1}, "fedavg": {"step_size": 0.1}}}
    execute(from_table(override(table, ["training.rounds = 1"])), folder / "first")
    recipe = folder / "first" / "models" / "preprocessing.json"
    rows = "privacy = {epsilon = 4.0, level = 'rows', clip = 0.5}"
    return override(table, [f"data.recipe = '{recipe}'", "data.preparation = 'given'", rows])


def test_privacy_of_rows_states_epsilon_of_every_client(given, tmp_path):
    pytest.importorskip("dp_accounting")
    lines = ["training.cohort = 2", "methods.fedavg.batch_size = 8", "methods.fedavg.local_steps = 2"]
    done = execute(from_table(override(given, lines)), tmp_path / "run")
    spending = done.trained[1].built.spending
    counts, rounds = done.federation.train.counts, spending.rounds_of(3)
    assert rounds.sum() == 3 * 2
    by_hand = [
        spent_epsilon(Rounds(9, 9, 8 / rows, True, "rdp"), int(times) * 2, spending.noise_multiplier, 1e-5)
        for rows, times in zip(counts, rounds)
    ]
    local, method = json.loads((tmp_path / "run" / "privacy.json").read_text())["methods"]
    assert [one["epsilon"] for one in method["epsilons"]] == pytest.approx(by_hand)
    assert 3.9 < max(by_hand) <= 4.0
    rows = pq.read_table(tmp_path / "run" / "history.parquet").to_pylist()
    assert [row["epsilon"] for row in rows if row["method"] == "fedavg"][-1] == pytest.approx(max(by_hand))
    assert "row-level differential privacy" in method["protection"]
    assert "not private: simulated noise" in method["protection"]
    assert (local["epsilons"], local["protection"]) == ([], "nothing is sent")
    said = CliRunner().invoke(app, ["explain", str(tmp_path / "run")]).stdout
    assert f"to {max(by_hand):.3g} (client" in said


def test_most_exposed_clients_decide():
    rows, rounds = np.array([30, 10, 20, 10, 5]), np.array([9, 4, 9, 6, 0])
    assert most_exposed(rows, rounds) == [(10, 6), (20, 9)]


def test_label_flips_change_the_targets_of_attackers_alone():
    prepared = prepare(spec_with("attack = {kind = 'label_flip', clients = 1}"))
    attack = prepared.built[1].algorithm.protection.attack
    (attacker,) = attackers_of(prepared.spec, 4)
    for client in range(4):
        rows = prepared.federation.train.pad(np.array([client]))
        found = np.asarray(flip_labels(address(attack, client), rows).targets)
        assert np.array_equal(found, 1 - rows.targets if client == attacker else rows.targets)


@pytest.mark.parametrize(("clip", "warned"), [("1.0", True), ("500.0", False)])
def test_targets_that_no_clipped_change_reaches_are_warned_of(clip, warned):
    rows = {"site": ["a", "b"] * 20, "age": list(range(40)), "cost": [1000.0 + place for place in range(40)]}
    data = {"source": "table", "path": None, "client": "site", "target": "cost", "preparation": "local"}
    spec = from_table(override(SPEC | {"data": data}, [f"privacy = {{epsilon = 3.0, clip = {clip}}}"]))
    found = out_of_reach(spec, prepare(spec, rows=pa.table(rows)).federation)
    assert bool(found) is warned
    assert not warned or "clipped to 1 in each of 3 rounds" in found[0]


def test_a_comparison_with_a_budget_chooses_nothing_on_rows():
    table = comparison({"source": "table", "path": "x.csv"}, Contest(epsilon=3.0, step_sizes="0.3"))
    assert "tuning" not in table
    assert table["privacy"] == {"epsilon": 3.0}
    assert table["data"]["preparation"] == "local"
    assert table["defaults"]["step_size"] == 0.3
    with pytest.raises(RequestError, match="several --step-sizes"):
        comparison({"source": "table"}, Contest(epsilon=3.0, step_sizes="0.3,0.1"))


def test_under_secure_aggregation_a_run_states_what_went_up(tmp_path):
    plain = execute(spec_with("training.precision = 'float64'"), tmp_path / "plain")
    lines = ("training.precision = 'float64'", "secure_aggregation.threshold = 3")
    masked = execute(spec_with(*lines), tmp_path / "masked")
    first, second = (jax.tree.leaves(done.trained[1].runs[0].server) for done in (plain, masked))
    assert all(np.allclose(*pair, atol=1e-7) for pair in zip(first, second))
    assert not all(np.array_equal(*pair) for pair in zip(first, second))
    local, method = json.loads((tmp_path / "masked" / "privacy.json").read_text())["methods"]
    assert local["protection"] == "nothing is sent"
    assert "at least 3 clients of a round stay; a weighted number of 5.36871e+08 or more" in method["protection"]
    assert [one["array"] for one in method["uploads"]][2] == "masked numbers"
    ledger = masked.trained[1].runs[0].ledger
    assert ledger.upload_bytes == 3 * 4 * sum(one["bytes"] for one in method["uploads"])
    assert ledger.download_bytes == 3 * 4 * sum(one["bytes"] for one in method["downloads"])
