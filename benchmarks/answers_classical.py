# SPDX-License-Identifier: Apache-2.0
"""What scikit-learn and statsmodels reach on the same rows: fitted on train and validation, scored on test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.answers_mixed import bayes_intercepts, mixed_intercepts, mixed_slopes
from benchmarks.answers_rows import Side, Sides
from benchmarks.answers_tables import CLIENT, GROUP, PART, REGRESSION, TARGET, Frame, Table, feature_names

ALPHAS = np.logspace(-3, 5, 25)
STRENGTHS = np.logspace(-4, 3, 15)  # scikit-learn's C
FOLDS = 5
SLOPE_SCALES = ((1.0, 0.0), (1.0, 0.1), (1.0, 0.3), (1.0, 1.0))  # of client dummies, of their products with features
SMALLEST = 1e-12  # the least probability that the log loss sees
Cell = dict[str, Any]
Fit = Callable[[Sides], np.ndarray]


def run_classical(table: Table, seed: int) -> Cell:
    """Errors and accuracies per client of every classical fit; a fit that fails is left out, with its reason."""
    sides = read_sides(table.rows(seed), table.kind)
    fits = REGRESSIONS if table.kind == REGRESSION else CLASSIFIERS
    cell: Cell = {"clients": sides.names, "fits": {}, "failed": {}, "seconds": {}}
    for name, fit in fits.items():
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = fit(sides)
        except (ValueError, np.linalg.LinAlgError, ArithmeticError) as error:
            cell["failed"][name] = f"{type(error).__name__}: {error}"[:200]
            continue
        cell["fits"][name] = score(predicted, sides)
        cell["seconds"][name] = time.perf_counter() - began
    return cell


def read_sides(rows: Frame, kind: str) -> Sides:
    """Train and validation rows, and test rows, as numbers: missing values filled and marked, texts one-hot."""
    names, owner = np.unique(rows[CLIENT].to_numpy(str), return_inverse=True)
    learns = (rows[PART] != "test").to_numpy()
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        StandardScaler(),
    )
    encoder = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")), (texts, make_column_selector(dtype_exclude="number"))
    )
    features = rows[feature_names(rows)]
    encoder.fit(features[learns])
    inputs = encoder.transform(features)
    classes, targets = np.unique(rows[TARGET], return_inverse=True) if kind != REGRESSION else ((), rows[TARGET])
    groups = np.unique(rows[GROUP], return_inverse=True)[1] if GROUP in rows else None
    learn, test = (
        Side(inputs[chosen], np.asarray(targets)[chosen], owner[chosen], None if groups is None else groups[chosen])
        for chosen in (learns, ~learns)
    )
    return Sides(learn, test, [str(name) for name in names], len(classes))


def score(predicted: np.ndarray, sides: Sides) -> Cell:
    """Per client, over its test rows: squared error, or log loss and accuracy; None without test rows."""
    test = sides.test
    if not sides.classes:
        return {"errors": sides.per_client((predicted - test.targets) ** 2)}
    chances = np.clip(predicted[np.arange(len(test.targets)), test.targets], SMALLEST, 1)
    right = (predicted.argmax(axis=1) == test.targets).astype(float)
    return {"errors": sides.per_client(-np.log(chances)), "accuracy": sides.per_client(right)}


def ridge(learn: Side, inputs: np.ndarray) -> np.ndarray:
    """Ridge, its strength by leave-one-out; the mean of the targets where there are fewer than three rows."""
    if len(learn.targets) < 3:
        return np.full(len(inputs), learn.targets.mean())
    fitted = make_pipeline(StandardScaler(), RidgeCV(ALPHAS)).fit(learn.inputs, learn.targets)
    return fitted.predict(inputs)


def logistic(learn: Side, inputs: Any, classes: int) -> np.ndarray:
    """Logistic regression, its strength by cross-validated log loss; a constant where one class is all there is."""
    return best_logistic(learn, [(learn.inputs, inputs)], classes)


def best_logistic(learn: Side, designs: list[tuple[Any, Any]], classes: int) -> np.ndarray:
    """The design (matrix of the learning rows, of the test rows) and the strength of the least log loss over folds."""
    counts = np.bincount(learn.targets, minlength=classes)
    rarest = counts[counts > 0].min()
    if (counts > 0).sum() < 2 or rarest < 2:
        constant = (counts + 1) / (counts + 1).sum()
        return np.tile(constant, (designs[0][1].shape[0], 1))
    places = list(folds(learn, min(FOLDS, int(rarest))))
    losses = np.array([_path_losses(matrix, learn.targets, places, classes) for matrix, _ in designs])
    design, strength = np.unravel_index(losses.argmin(), losses.shape)
    matrix, asked = designs[design]
    fitted = _logistic(STRENGTHS[strength]).fit(matrix, learn.targets)
    return _chances(fitted, asked, counts)


def _path_losses(matrix: Any, targets: np.ndarray, places: list[Any], classes: int) -> np.ndarray:
    """Mean log loss over folds for each strength, each started from the one before; the path ends where it rises."""
    losses = np.full((len(places), len(STRENGTHS)), np.nan)
    for fold, (kept, left) in enumerate(places):
        counts = np.bincount(targets[kept], minlength=classes)
        model = _logistic(1.0, warm=True)
        for place, strength in enumerate(STRENGTHS):
            chances = _chances(model.set_params(C=strength).fit(matrix[kept], targets[kept]), matrix[left], counts)
            losses[fold, place] = -np.log(np.clip(chances[np.arange(len(left)), targets[left]], SMALLEST, 1)).mean()
            if place > 1 and losses[fold, place] > 1.1 * np.nanmin(losses[fold]):
                break
    return np.where(np.isnan(losses).any(axis=0), np.inf, np.nan_to_num(losses).mean(axis=0))


def _logistic(strength: float, warm: bool = False) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=300, tol=1e-4, warm_start=warm)


def _chances(model: LogisticRegression, inputs: Any, counts: np.ndarray) -> np.ndarray:
    """Probabilities of all classes; one never seen in n rows gets 1 / (n + classes)."""
    chances = np.full((inputs.shape[0], len(counts)), 1 / (counts.sum() + len(counts)))
    chances[:, model.classes_] = model.predict_proba(inputs)
    return chances / chances.sum(axis=1, keepdims=True)


def folds(learn: Side, number: int) -> Any:
    """Folds of the learning rows: groups stay together, classes stay balanced."""
    if learn.groups is not None:
        return GroupKFold(number).split(learn.inputs, learn.targets, learn.groups)
    if learn.targets.dtype.kind in "iu":
        return StratifiedKFold(number, shuffle=True, random_state=0).split(learn.inputs, learn.targets)
    return KFold(number, shuffle=True, random_state=0).split(learn.inputs)


def pooled(sides: Sides) -> np.ndarray:
    """One model for all rows."""
    return _fit(sides.learn, sides.test.inputs, sides.classes)


def per_client(sides: Sides) -> np.ndarray:
    """One model per client, on its rows only."""
    found = np.zeros((len(sides.test.targets), sides.classes) if sides.classes else len(sides.test.targets))
    for client in np.unique(sides.test.owner):
        asked = sides.test.owner == client
        found[asked] = _fit(sides.learn.of(client), sides.test.inputs[asked], sides.classes)
    return found


def dummies(sides: Sides) -> np.ndarray:
    """One model with an indicator of each client beside the features."""
    amount = len(sides.names)
    learn = sides.learn.with_inputs(np.hstack([sides.learn.inputs, np.eye(amount)[sides.learn.owner]]))
    return _fit(learn, np.hstack([sides.test.inputs, np.eye(amount)[sides.test.owner]]), sides.classes)


def _fit(learn: Side, inputs: np.ndarray, classes: int) -> np.ndarray:
    return logistic(learn, inputs, classes) if classes else ridge(learn, inputs)


def penalised_slopes(sides: Sides) -> np.ndarray:
    """Ridge on client dummies and on their products with features: the mode of a mixed model, variances by folds."""
    designs = []
    for intercepts, slopes in SLOPE_SCALES:
        first, second = (_products(side, len(sides.names), intercepts, slopes) for side in (sides.learn, sides.test))
        designs.append((first, second))
    return best_logistic(sides.learn, designs, sides.classes)


def _products(side: Side, clients: int, intercepts: float, slopes: float) -> sp.csr_matrix:
    own = sp.csr_matrix(
        (np.ones(len(side.owner)), (np.arange(len(side.owner)), side.owner)), (len(side.owner), clients)
    )
    parts = [sp.csr_matrix(side.inputs), intercepts * own]
    if slopes:
        parts += [slopes * own.multiply(side.inputs[:, [place]]) for place in range(side.inputs.shape[1])]
    return sp.hstack(parts, format="csr")


REGRESSIONS: dict[str, Fit] = {
    "pooled": pooled,
    "per client": per_client,
    "client dummies": dummies,
    "mixed, intercepts": mixed_intercepts,
    "mixed, slopes": mixed_slopes,
}
CLASSIFIERS: dict[str, Fit] = {
    "pooled": pooled,
    "per client": per_client,
    "client dummies": dummies,
    "mixed, intercepts": bayes_intercepts,
    "mixed, slopes": penalised_slopes,
}
