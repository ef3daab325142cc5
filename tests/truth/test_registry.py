# SPDX-License-Identifier: Apache-2.0
"""The registry of algorithms: names, presets, refusals, and a user's own by path."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from idiolect.algorithms import ALGORITHMS, LocalSGD, PersonalizedLocalSGD, find
from idiolect.algorithms.optimizers import OPTIMIZERS
from idiolect.core import Algorithm, RequestError, own_code
from idiolect.core.algorithm import fit_of
from idiolect.core.settings import check_settings
from idiolect.objectives import OBJECTIVES


@pytest.mark.parametrize("name", ALGORITHMS)
def test_presets_are_settings_within_their_ranges(lab, name):
    method = find(name)
    client_loss, _, _ = lab.softmax_problem()
    fields = {field.name: field for field in dataclasses.fields(method.algorithm)}
    assert set(method.preset) <= set(fields)
    assert all(field.metadata.get("doc") for key, field in fields.items() if key != "objective")
    objective = OBJECTIVES[method.objective](client_loss, **method.objective_preset)
    check_settings(objective)
    algorithm = method.algorithm(objective, **method.preset)
    check_settings(algorithm)
    assert fit_of(algorithm).refused is None
    assert method.summary
    assert method.reference


# name -> the objectives it refuses
REFUSED = {
    "local_sgd": {"local_only", "additive"},
    "minibatch_sgd": {"local_only", "additive"},
    "scaffold": {"local_only", "additive"},
    "local": {"global_model", "additive"},
    "personalized_local_sgd": {"global_model", "local_only"},
    "lsgd_pfl": set(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_objectives_that_do_not_fit_are_refused(lab, name):
    client_loss, _, _ = lab.softmax_problem()
    algorithm = find(name).algorithm
    reasons = {
        key: fit_of(algorithm(OBJECTIVES[key](client_loss))).refused
        for key in ("global_model", "local_only", "additive")
    }
    assert {key for key, reason in reasons.items() if reason} == REFUSED[name]
    assert all("; use the " in reason for reason in reasons.values() if reason)  # every refusal names a way out


@pytest.mark.parametrize(
    ("owner", "wrong", "message"),
    [
        (LocalSGD, {"step_size": 0.0}, "LocalSGD.step_size must be above 0, got 0. Try 0.1"),
        (PersonalizedLocalSGD, {"personal_step_scale": -1.0}, "must be at least 0, got -1. 0 is local SGD"),
        (PersonalizedLocalSGD, {"output": "mean"}, "must be one of 'last', 'mean_of_means', 'own_mean', got 'mean'"),
    ],
)
def test_values_out_of_range_are_refused(lab, owner, wrong, message):
    client_loss, _, _ = lab.softmax_problem()
    with pytest.raises(RequestError) as caught:
        check_settings(owner(OBJECTIVES["global_model"](client_loss), **wrong))
    assert message in str(caught.value)


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(RequestError, match=r"no algorithm 'fedavgg'\. Did you mean 'fedavg'"):
        find("fedavgg")


def test_a_misspelt_server_optimizer_gets_the_nearest(lab):
    client_loss, _, _ = lab.softmax_problem()
    algorithm = LocalSGD(OBJECTIVES["global_model"](client_loss), server_optimizer="fedadan")
    with pytest.raises(RequestError, match="Did you mean 'fedadam'"):
        check_settings(algorithm)


def test_what_is_no_optimizer_is_refused():
    # optax.scale and optax.clip are callables of optax too, and would walk up the drift
    assert not {"scale", "clip", "chain"} & set(OPTIMIZERS)
    assert {"sgd", "adam", "fedadam"} <= set(OPTIMIZERS)


def test_a_stranger_is_loaded_by_path():
    path = "idiolect.algorithms.local_sgd:LocalSGD"
    with pytest.raises(RequestError, match="not imported here"):
        find(path)
    with own_code(only=[path]):
        method = find(path)
        with pytest.raises(RequestError, match="not imported here"):
            find("idiolect.algorithms.scaffold:Scaffold")
    assert method.algorithm is LocalSGD
    assert method.objective is None
    assert method.summary == "Local SGD with inner and outer steps."


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package.module:Class", "importable, got 'no_such_package.module:Class'"),
        ("idiolect.algorithms.local_sgd:Missing", "idiolect.algorithms.local_sgd has no 'Missing'."),
        ("idiolect.algorithms.tuples:Working", "must name a subclass of idiolect.core.Algorithm"),
        (":LocalSGD", "must be 'package.module:Class'"),
        ("subprocess:Popen", "which is in Python's own library"),
    ],
)
def test_a_bad_path_is_refused(path, message):
    with own_code(), pytest.raises(RequestError) as caught:
        find(path)
    assert message in str(caught.value)


def test_no_concrete_class_is_the_base_of_another():
    """Families share abstract bases, or parts: what one algorithm changes, no other one inherits."""
    for method in ALGORITHMS.values():
        above = [base for base in method.algorithm.__mro__[1:] if issubclass(base, Algorithm)]
        assert [base.__name__ for base in above if not inspect.isabstract(base)] == [], method.algorithm
