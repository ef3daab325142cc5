# SPDX-License-Identifier: Apache-2.0
"""Estimators for scikit-learn: one model per client behind `fit(X, y, clients=...)` and `predict(X, clients=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from idiolect.api.running import train
from idiolect.api.sentences import warn_caller
from idiolect.api.tables import Setting, read_table
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    Matrix: TypeAlias = np.ndarray | pd.DataFrame | Sequence[Sequence[float]]
    Vector: TypeAlias = np.ndarray | pd.Series | Sequence[object]

PARTS = 2  # stand in for the one client of a fit without `clients`: the least that can learn together; see _fit
VALIDATION = 0.2  # of each client's rows, where something is chosen on them


class _Personalized(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A method of the registry as an estimator; abstract.

    `method` is a registered name, `settings` are further settings of it, by name. What they do not say is chosen on
    validation rows, and the models are then fitted on all rows; with `tune=False` all rows train at once.
    """

    _task: str

    def __init__(
        self,
        method: str = "ditto",
        *,
        settings: Mapping[str, Setting] | None = None,
        model: str = "linear",
        rounds: int | None = None,
        tune: bool = True,
        random_state: int | None = None,
    ):
        self.method = method
        self.settings = settings
        self.model = model
        self.rounds = rounds
        self.tune = tune
        self.random_state = random_state

    def _fit(self, inputs: np.ndarray, targets: np.ndarray, clients: Vector | None) -> Self:
        if clients is None:
            warn_caller(
                "fit was given no clients: all rows are one client; give clients=, one per row, to personalize."
            )
        owner = np.arange(len(inputs)) % PARTS if clients is None else _owners(inputs, clients)
        names = [f"x{place + 1}" for place in range(inputs.shape[1])]
        held = VALIDATION if self.tune else 0.0
        table = read_table(
            inputs, owner, targets, features=names, task=self._task, train=1 - held, validation=held, test=0.0
        )
        options: dict[str, Setting] = {"model": self.model, "seed": self.random_state or 0}
        if self.rounds is not None:
            options["rounds"] = self.rounds
        spec = {"evaluation.untested": "allow", "training.precision": "float64"}
        self.run_ = train(self.method, table, tune=self.tune, spec=spec, **options, **(self.settings or {}))
        self.clients_ = np.unique(owner)
        return self

    def _answers(self, X: Matrix, clients: Vector | None) -> pa.Table:
        """The rows with their answers; without `clients` by the shared model."""
        check_is_fitted(self, "run_")
        inputs = validate_data(self, X, reset=False, dtype=np.float64)
        owner = None if clients is None else _owners(inputs, clients)
        try:
            return self.run_._answers(inputs, owner, model="shared" if owner is None else "auto")
        except RequestError as error:  # this predict takes no model=: whose rows they are decides
            error.args = (str(error).replace("use model='personal'", "give clients=, one per row"),)
            raise


class PersonalizedClassifier(ClassifierMixin, _Personalized):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier with a model per client; `clients` has the client of every row."""

    _task = "classification"

    def fit(self, X: Matrix, y: Vector, clients: Vector | None = None) -> Self:
        """Train on the rows of all clients; without `clients` for the shared model alone."""
        inputs, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=PARTS)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class, {self.classes_[0]!r}.")
        return self._fit(inputs, codes.astype(str), clients)

    def predict(self, X: Matrix, clients: Vector | None = None) -> np.ndarray:
        """The class of every row, by its client's model; by the shared one for a client that did not train."""
        codes = self.predict_proba(X, clients).argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Matrix, clients: Vector | None = None) -> np.ndarray:
        """The probability of every class of `classes_`, per row."""
        answers = self._answers(X, clients)
        return np.stack([answers[f"probability of {code}"].to_numpy() for code in range(len(self.classes_))], axis=1)

    def score(self, X: Matrix, y: Vector, clients: Vector | None = None, sample_weight: Vector | None = None) -> float:
        """The accuracy over all rows."""
        return float(accuracy_score(y, self.predict(X, clients), sample_weight=sample_weight))


class PersonalizedRegressor(RegressorMixin, _Personalized):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor with a model per client; `clients` has the client of every row."""

    _task = "regression"

    def fit(self, X: Matrix, y: Vector, clients: Vector | None = None) -> Self:
        """Train on the rows of all clients; without `clients` for the shared model alone."""
        inputs, numbers = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=PARTS)
        return self._fit(inputs, np.asarray(numbers, np.float64), clients)

    def predict(self, X: Matrix, clients: Vector | None = None) -> np.ndarray:
        """The number of every row, by its client's model; by the shared one for a client that did not train."""
        return np.asarray(self._answers(X, clients)["prediction"].to_numpy())

    def score(self, X: Matrix, y: Vector, clients: Vector | None = None, sample_weight: Vector | None = None) -> float:
        """R squared over all rows."""
        return float(r2_score(y, self.predict(X, clients), sample_weight=sample_weight))


def _owners(inputs: np.ndarray, clients: Vector) -> np.ndarray:
    """The name of every row's client."""
    owners = column_or_1d(np.asarray(clients))
    check_consistent_length(inputs, owners)
    return owners.astype(str)
