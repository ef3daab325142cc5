# SPDX-License-Identifier: Apache-2.0
"""From a method's table to objects: whose setting is whose, lists, theory, and repeats."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core.addressing import PerClient
from idiolect.core.checks import RequestError, unset
from idiolect.data.task import Task
from idiolect.experiments.build import build_method, client_loss_for
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.spec import ModelSpec, from_table, load, own_settings, setting_names, to_table
from idiolect.experiments.sweeping import expand
from idiolect.models import MLP
from idiolect.objectives import OBJECTIVES, ClientLoss
from idiolect.theory import client_constants


@pytest.fixture
def built(workbench, ragged):
    """`built(name='acd_pfl', penalty=0.3)` -> the method on six clients, with their constants."""
    loss = workbench.client_loss()
    with jax.enable_x64(True):
        constants = client_constants(loss, ragged.train)

    def build(resolved=None, **table):
        (method,) = from_table({"methods": {"it": table}}).methods
        return build_method(method, loss, constants, ragged.clients, float(np.mean(ragged.train.counts)), resolved)

    return build


def test_no_name_belongs_to_an_algorithm_and_to_its_objective():
    for name, method in ALGORITHMS.items():
        for objective in OBJECTIVES.values():
            # a pair that cannot be built has no settings; its classes alone tell
            both = set(own_settings(method.algorithm)) & set(own_settings(objective))
            if (name, objective.__name__) == ("pfedme", "MAML"):  # pFedMe takes MX2 alone
                continue
            assert both <= {"penalty"}, (name, objective, both)


def test_no_method_has_two_penalties(built):
    """One name for one idea; an algorithm that has a penalty cannot be built on an objective that has one too."""
    with_penalty = [name for name, method in ALGORITHMS.items() if "penalty" in own_settings(method.algorithm)]
    objectives = [name for name, objective in OBJECTIVES.items() if "penalty" in own_settings(objective)]
    assert {"fedprox", "ditto"} <= set(with_penalty)
    assert {"mx2", "mt2"} <= set(objectives)
    for name in with_penalty:
        for objective in objectives:
            with pytest.raises(RequestError, match="cannot minimise"):
                built(name=name, objective=objective)


def test_settings_find_their_owner(built):
    algorithm = built(name="acd_pfl", penalty=0.3, rescale=False, shared_probability=0.5).algorithm
    assert algorithm.objective.penalty == 0.3
    assert algorithm.objective.rescale is False
    assert algorithm.objective.clients == algorithm.clients == 6
    assert algorithm.shared_probability == 0.5
    mixed = built(name="ascd_pfl", objective="apfl2", mixing=[0.0, 0.1, 0.2, 0.3, 0.4, 0.5], relaxation=2).algorithm
    assert isinstance(mixed.objective.mixing, PerClient)
    assert mixed.objective.mixing.values.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert mixed.objective.relaxation == 2.0
    assert built(name="lsgd_pfl", objective="ws2", personal_part="bias").algorithm.objective.personal_part == "bias"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"name": "acd_pfl", "penality": 1.0}, "has no setting 'penality'. Did you mean 'penalty'?"),
        ({"name": "acd_pfl", "objective": "apfl2", "penalty": 1.0}, "[methods.it] acd_pfl has no setting 'penalty'."),
        ({"name": "acd_pfl", "client_loss": 1.0}, "has no setting 'client_loss'."),
        ({"name": "acd_pfl", "clients": 3}, "has no setting 'clients'."),
        ({"name": "acd_pfl", "penalty": "theory"}, "methods.it.penalty must be a number, got 'theory'."),
        ({"name": "acd_pfl", "penalty": [0.1, 0.2]}, "methods.it.penalty must be a number, got [0.1, 0.2]."),
        (
            {"name": "ascd_pfl", "objective": "apfl2", "mixing": [0.1]},
            "methods.it.mixing must be one number or have an entry for each of the 6 clients, got 1;",
        ),
        (
            {"name": "ascd_pfl", "objective": "apfl2", "mixing": [0.1, 0.1, 0.1, 0.1, 0.1, 1.5]},
            "methods.it.mixing must be at least 0 and at most 1, got 1.5 as entry 6 of 6.",
        ),
        ({"name": "ascd_pfl", "objective": "apfl2", "mixing": "x"}, "must be a number or a list of numbers, got 'x'."),
        ({"name": "acd_pfl", "step_size": 0.1}, "[methods.it] acd_pfl has no setting 'step_size'."),
        ({"name": "pfedme", "step_size": "theory"}, 'methods.it.step_size = "theory" needs a rule'),
    ],
)
def test_a_setting_that_fits_nobody_is_refused(built, table, sentence):
    with pytest.raises(RequestError) as refusal:
        built(**table)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("name", ["acd_pfl", "asvrcd_pfl", "ascd_pfl", "l2sgd_plus"])
def test_theory_fills_what_is_left_out_or_says_so(built, name):
    left, asked = built(name=name), built(name=name, step_size="theory")
    assert unset(left.algorithm) == []
    assert left.chosen == asked.chosen != {}
    assert left.notes[0].startswith("it: ")
    assert all(getattr(left.algorithm, field) == value for field, value in left.chosen.items())
    (field, *_) = left.chosen
    assert built(name=name, **{field: "theory"}).chosen == left.chosen


def test_lsgd_pfl_weighs_with_mu_unless_told(built):
    table = {"name": "lsgd_pfl", "objective": "mx2", "output": "weighted_average"}
    assert built(**table).chosen["strong_convexity"] > 0
    assert built(**table, strong_convexity=0.0).chosen == {}
    assert set(built(**table, step_size="theory").chosen) == {"step_size", "strong_convexity"}


def test_a_network_must_be_set_by_hand(workbench, ragged):
    loss = ClientLoss(model=MLP(workbench.features, workbench.classes))
    (method,) = from_table({"methods": {"it": {"name": "scd_pfl"}}}).methods
    with pytest.raises(RequestError, match=r"^methods\.it leaves step_size, shared_probability to theory"):
        build_method(method, loss, None, 6, 4.0)


def test_a_repeat_takes_the_numbers_that_were_chosen(built):
    first = built(name="asvrcd_pfl")
    nudged = {field: float(np.nextafter(value, 1.0)) for field, value in first.chosen.items()}
    again = built(nudged, name="asvrcd_pfl")
    assert again.chosen == nudged
    assert {field: getattr(again.algorithm, field) for field in nudged} == nudged
    assert again.notes == first.notes


def test_a_sweep_over_a_setting_of_the_objective():
    spec = from_table({"methods": {"acd_pfl": {}}})
    swept = expand(spec, {"penalty": [0.1, 1.0]})
    assert [method.label for method in swept.methods] == ["acd_pfl[penalty=0.1]", "acd_pfl[penalty=1.0]"]
    assert [method.settings for method in swept.methods] == [{"penalty": 0.1}, {"penalty": 1.0}]
    with pytest.raises(RequestError, match="--over: acd_pfl has no setting 'mixing'"):
        expand(spec, {"mixing": [0.1, 0.2]})


def test_defaults_may_name_a_setting_of_any_objective():
    table = {"defaults": {"penalty": 0.2}, "methods": {"acd_pfl": {}, "fedavg": {}}}
    with_penalty, without = from_table(table).methods
    assert with_penalty.settings == {"penalty": 0.2}
    assert without.settings == {}  # or it would be FedProx, and still be called FedAvg
    (prox,) = from_table({"defaults": {"penalty": 0.2}, "methods": {"fedprox": {}}}).methods
    (asked,) = from_table({"methods": {"local_sgd": {"penalty": 0.3}}}).methods
    assert (prox.settings, asked.settings) == ({"penalty": 0.2}, {"penalty": 0.3})
    with pytest.raises(RequestError, match="has no setting 'penaltie'"):
        from_table(table | {"defaults": {"penaltie": 0.2}})


def test_a_sweep_over_penalties_leaves_methods_without_one_as_they_are():
    spec = from_table({"methods": {"fedavg": {}, "ditto": {}}})
    labels = [method.label for method in expand(spec, {"penalty": [0.1, 1.0]}).methods]
    assert labels == ["fedavg", "ditto[penalty=0.1]", "ditto[penalty=1.0]"]
    aimed = expand(spec, {"methods.fedavg.penalty": [0.1, 1.0]})
    assert [method.settings for method in aimed.methods[:2]] == [{"penalty": 0.1}, {"penalty": 1.0}]
    with pytest.raises(RequestError, match=r"write methods\.fedavg\.penalty"):
        expand(from_table({"methods": {"fedavg": {}}}), {"penalty": [0.1, 1.0]})


def test_own_settings_leave_out_what_is_filled_in():
    assert {"objective", "clients", "participation"}.isdisjoint(setting_names("scd_pfl"))
    assert "penalty" in setting_names("scd_pfl")
    assert "penalty" not in setting_names("scd_pfl", "apfl2")


def test_a_resolved_spec_runs_bit_for_bit(tmp_path):
    table = {
        "data": {"source": "digits", "settings": {"clients": 4}},
        "model": {"l2": 0.1},
        "training": {"rounds": 2},
        "methods": {"asvrcd_pfl": {"penalty": 0.5}},
        "output": {"models": "all"},
    }
    first = execute(from_table(table), tmp_path / "first")
    stored = load(tmp_path / "first" / "spec.toml")
    chosen = stored.resolved["asvrcd_pfl"].chosen
    assert set(chosen) >= {"step_size", "momentum"}
    again = execute(stored, tmp_path / "again")
    runs = [done.trained[0].runs[0] for done in (first, again)]
    assert all(getattr(runs[1].algorithm, field) == np.float32(value) for field, value in chosen.items())
    states = [jax.tree.leaves(run.personal_models(run.selected)) for run in runs]
    for left, right in zip(*states, strict=True):
        assert np.array_equal(np.asarray(left), np.asarray(right))
    assert dataclasses.replace(stored, name="x") == dataclasses.replace(
        from_table(to_table(load(tmp_path / "again" / "spec.toml"))), name="x"
    )


def test_two_classes_may_share_one_weight_vector(small, tmp_path):
    """Theory, scores, verdicts and predictions of the logistic loss; half the bytes of two columns."""
    methods = {"local": {}, "fedavg": {}, "scafflix": {}}
    spec = small.spec(model={"l2": 0.1, "loss": "logistic"}, methods=methods, defaults={"step_size": 0.1})
    done = execute(spec, tmp_path / "run")
    (local, fedavg, scafflix), federation = (entry.runs[0] for entry in done.trained), done.federation
    for m, step in enumerate(np.asarray(scafflix.algorithm.local_step.values)):
        inputs, _ = federation.train.of(m)
        design = np.column_stack([np.ones(len(inputs)), inputs])  # the bias is a column, and carries l2 too
        smoothness = np.linalg.eigvalsh(design.T @ design).max() / (4 * len(inputs)) + 0.1
        assert step == pytest.approx(1 / smoothness, rel=1e-6)
    assert {name: leaf.shape for name, leaf in fedavg.shared_model().items()} == {"weights": (2,), "bias": ()}
    # 3 rounds, 4 clients: (2 + 1) float32 down; the same and a weight up
    assert (fedavg.ledger.download_bytes, fedavg.ledger.upload_bytes) == (12 * 12, 12 * 16)
    params = fedavg.shared_model(fedavg.selected)
    for m, accuracy in enumerate(fedavg.recorder.selected["test"]["shared"]["accuracy"]):
        inputs, targets = federation.test.of(m)
        right = (inputs @ np.asarray(params["weights"]) + np.asarray(params["bias"]) > 0) == (targets == 1)
        assert accuracy == pytest.approx(right.mean())
    assert {entry.helped is None for entry in done.summary.methods} == {True, False}
    answers = predict(tmp_path / "run", small.folder / "classification.csv", method="fedavg").to_pylist()
    inputs = np.concatenate([federation.train.of(0)[0][:1]])
    own = fedavg.personal_models(fedavg.selected)
    score = inputs[0] @ np.asarray(own["weights"])[0] + np.asarray(own["bias"])[0]
    assert answers[0]["probability of 1"] == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-5)
    assert answers[0]["probability of 0"] == pytest.approx(1 - answers[0]["probability of 1"])
    assert local.ledger.total_bytes == local.ledger.preparation_bytes


@pytest.mark.parametrize("task", [Task.classification(("a", "b", "c")), Task.regression(1)])
def test_the_logistic_loss_is_refused_without_two_classes(task):
    with pytest.raises(RequestError, match=r"model\.loss = 'logistic' needs a target of two classes, got (3|a)"):
        client_loss_for(ModelSpec(loss="logistic"), task, (3,), plain_number=False)
