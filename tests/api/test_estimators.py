# SPDX-License-Identifier: Apache-2.0
"""The estimators keep scikit-learn's rules, and hand every client its own model."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from idiolect import PersonalizedClassifier, PersonalizedRegressor, RequestError

QUICK = {"tune": False, "rounds": 30}
EXPECTED_TO_FAIL: dict[str, str] = {}  # check -> reason: none does


def checks():
    """Every check of a classifier, and those of a regressor that it does not share: the rest is one base class."""
    both = [PersonalizedClassifier("fedavg", **QUICK), PersonalizedRegressor("fedavg", **QUICK)]
    seen = set()
    for estimator in both:
        found = list(estimator_checks_generator(estimator, expected_failed_checks=EXPECTED_TO_FAIL))
        names = [check.func.__name__ for _, check in found]
        kept = [(pair, name) for pair, name in zip(found, names) if name not in seen or name == "check_fit2d_1sample"]
        seen |= set(names)
        yield from (pytest.param(*pair, id=f"{type(estimator).__name__}-{name}") for pair, name in kept)


@pytest.mark.filterwarnings("ignore")  # rows that are made to be odd earn warnings
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_rules_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    """(X, y, clients): the second input works one way in one client and the other way in the other."""
    draw = np.random.default_rng(3)
    inputs = draw.normal(size=(80, 2))
    clients = np.repeat(["a", "b"], 40)
    return inputs, inputs[:, 0] + np.where(clients == "a", 2.0, -2.0) * inputs[:, 1], clients


@pytest.fixture(scope="module")
def classifier(rows):
    inputs, values, clients = rows
    settings = {"penalty": 0.001, "step_size": 1.0}
    return PersonalizedClassifier("ditto", settings=settings, **QUICK).fit(inputs, values > 0, clients=clients)


def test_every_client_is_answered_by_its_own_model(rows, classifier):
    inputs, values, clients = rows
    own = classifier.score(inputs, values > 0, clients=clients)
    assert own > 0.9 > classifier.score(inputs, values > 0)  # without clients: the shared model
    chances = classifier.predict_proba(inputs, clients=clients)
    assert chances.shape == (80, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert list(classifier.classes_) == [False, True]


def test_a_new_client_is_answered_by_the_shared_model(rows, classifier):
    with pytest.warns(UserWarning, match="new"):
        shared = classifier.predict_proba(rows[0][:3], clients=["new"] * 3)
    assert np.allclose(shared, classifier.predict_proba(rows[0][:3]))


def test_clients_are_one_per_row(rows, classifier):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.predict(rows[0], clients=["a"])


def test_without_clients_all_rows_are_one_client(rows):
    inputs, values, clients = rows
    with pytest.warns(UserWarning, match="no clients: all rows are one client") as caught:
        PersonalizedRegressor("fedavg", tune=False, rounds=1).fit(inputs, values)
    assert [one.filename for one in caught] == [__file__]
    alone = PersonalizedRegressor("local", tune=False, rounds=1).fit(inputs, values, clients=clients)
    with pytest.raises(RequestError, match=r"no shared model of 'local'; give clients="):
        alone.predict(inputs)


def test_wrong_settings_are_refused_when_fitting(rows):
    inputs, values, clients = rows
    with pytest.raises(RequestError, match="ditto has no setting 'penaltie'"):
        PersonalizedRegressor("ditto", settings={"penaltie": 1.0}).fit(inputs, values, clients=clients)


def test_clones_pipelines_and_searches_route_clients(rows):
    inputs, values, clients = rows
    mixed = np.random.default_rng(0).permutation(80)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = PersonalizedRegressor("ditto", rounds=10, tune=False)
        estimator.set_fit_request(clients=True).set_predict_request(clients=True).set_score_request(clients=True)
        assert clone(estimator).get_params() == estimator.get_params()
        grid = {"personalizedregressor__settings": [{"penalty": 0.001}, {"penalty": 30.0}]}
        search = GridSearchCV(make_pipeline(StandardScaler(), estimator), grid, cv=2)
        search.fit(inputs[mixed], values[mixed], clients=clients[mixed])
        assert search.best_params_ == {"personalizedregressor__settings": {"penalty": 0.001}}
        assert search.best_estimator_.predict(inputs[:2], clients=clients[:2]).shape == (2,)
