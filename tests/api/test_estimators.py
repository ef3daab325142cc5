# SPDX-License-Identifier: Apache-2.0
"""The estimators keep scikit-learn's rules, and hand every client its own model."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from idiolect import PersonalizedClassifier, PersonalizedRegressor

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = {"method": "fedavg", "tune": False, "rounds": 30}


@parametrize_with_checks([PersonalizedClassifier(**QUICK), PersonalizedRegressor(**QUICK)])
def test_rules_of_scikit_learn(estimator, check):
    check(estimator)
