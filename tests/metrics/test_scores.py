# SPDX-License-Identifier: Apache-2.0
"""Scores against scikit-learn, by hand, and with garbage in the padding."""

from __future__ import annotations

import functools
import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings

from idiolect.core.checks import RequestError
from idiolect.metrics import SCORES, default_score, find_score, proper_score
from idiolect.metrics.scores import accuracy, auc, balanced_accuracy, correct_rows, log_loss, squared_error

CLIENTS, CAPACITY = 12, 40


@functools.cache
def over_clients(name):
    return jax.jit(jax.vmap(SCORES[name].function))


@functools.cache
def of_one(name):
    return jax.jit(SCORES[name].function)


def padded_clients(seed, classes, ties=False):
    """Random ragged clients; a few classes per client; padding full of not-a-number and huge labels."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(CLIENTS, CAPACITY, classes)).astype(np.float32)
    if ties:
        logits = np.round(logits)
    targets = draw.integers(0, classes, (CLIENTS, CAPACITY)).astype(np.int32)
    counts = draw.integers(15, CAPACITY + 1, CLIENTS)
    mask = np.arange(CAPACITY) < counts[:, None]
    return np.where(mask[..., None], logits, np.nan), np.where(mask, targets, 10**6), mask


def softmax(logits):
    shifted = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def sklearn_accuracy(logits, targets):
    return sklearn.metrics.accuracy_score(targets, logits.argmax(1))


def sklearn_balanced_accuracy(logits, targets):
    # scikit-learn's own function warns when a class is predicted that never occurs; recall by class does not
    present = np.unique(targets)
    return sklearn.metrics.recall_score(targets, logits.argmax(1), labels=present, average="macro", zero_division=0)


def sklearn_log_loss(logits, targets):
    return sklearn.metrics.log_loss(targets, softmax(logits), labels=np.arange(logits.shape[1]))


def sklearn_auc(logits, targets):
    if logits.shape[1] == 2:
        return sklearn.metrics.roc_auc_score(targets, logits[:, 1] - logits[:, 0])
    share = softmax(logits)
    present = np.unique(targets)
    return np.mean([sklearn.metrics.roc_auc_score(targets == c, share[:, c]) for c in present])


def sklearn_brier(logits, targets):
    return np.mean(np.sum((softmax(logits) - np.eye(logits.shape[1])[targets]) ** 2, axis=1))


SKLEARN = {
    "accuracy": sklearn_accuracy,
    "balanced_accuracy": sklearn_balanced_accuracy,
    "log_loss": sklearn_log_loss,
    "auc": sklearn_auc,
    "brier": sklearn_brier,
}


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("name", SKLEARN)
def test_agrees_with_scikit_learn_on_every_client(name, classes):
    logits, targets, mask = padded_clients(classes, classes)
    measured = over_clients(name)(logits, targets, mask)
    expected = [SKLEARN[name](logits[m][mask[m]], targets[m][mask[m]]) for m in range(CLIENTS)]
    np.testing.assert_allclose(measured, expected, rtol=2e-6)


NUMBERS = {
    "squared_error": sklearn.metrics.mean_squared_error,
    "mae": sklearn.metrics.mean_absolute_error,
    "rmse": sklearn.metrics.root_mean_squared_error,
    "r2": sklearn.metrics.r2_score,
    "pinball_90": functools.partial(sklearn.metrics.mean_pinball_loss, alpha=0.9),
    "pinball_5": functools.partial(sklearn.metrics.mean_pinball_loss, alpha=0.05),
    "poisson_deviance": sklearn.metrics.mean_poisson_deviance,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_scores_of_numbers_agree_with_scikit_learn(name):
    draw = np.random.default_rng(3)
    rates = draw.exponential(2.0, (CLIENTS, CAPACITY)).astype(np.float32) + 0.05
    counts = draw.poisson(rates).astype(np.float32)
    mask = np.arange(CAPACITY) < draw.integers(2, CAPACITY + 1, CLIENTS)[:, None]
    measured = over_clients(name)(np.where(mask, rates, np.nan), np.where(mask, counts, np.inf), mask)
    expected = [NUMBERS[name](counts[m][mask[m]], rates[m][mask[m]]) for m in range(CLIENTS)]
    np.testing.assert_allclose(measured, expected, rtol=2e-5, atol=1e-6)


def test_scores_of_numbers_at_their_edges():
    real = jnp.ones(2, bool)
    assert math.isnan(of_one("r2")(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 3.0]), real))
    deviance = of_one("poisson_deviance")
    assert float(deviance(jnp.zeros(2), jnp.zeros(2), real)) == 0
    assert float(deviance(jnp.asarray([0.0, 1.0]), jnp.ones(2), real)) == math.inf
    assert float(deviance(jnp.asarray([-1.0, 1.0]), jnp.zeros(2), real)) == math.inf


def test_pinball_scores_are_found_by_name():
    assert find_score("pinball_7", "regression") is find_score("pinball_7")
    for name in ("pinball_0", "pinball_100", "pinball_07", "pinball"):
        with pytest.raises(RequestError, match=name):
            find_score(name)


def test_proper_scores():
    assert [proper_score(kind) for kind in ("classification", "regression", "counts")] == [
        "log_loss",
        "squared_error",
        "poisson_deviance",
    ]
    assert proper_score("regression", quantile=0.9) == "pinball_90"
    with pytest.raises(RequestError, match="task_kind"):
        proper_score("ranking")
    assert default_score("counts")[0] == "poisson_deviance"
    assert find_score("mae", "counts").higher_is_better is False  # errors of the predicted rate


def test_tied_scores_get_average_rank():
    logits, targets, mask = padded_clients(3, 2, ties=True)
    expected = [sklearn_auc(logits[m][mask[m]], targets[m][mask[m]]) for m in range(CLIENTS)]
    np.testing.assert_allclose(over_clients("auc")(logits, targets, mask), expected, rtol=2e-7)


def test_area_by_hand():
    # positives score 1, 3; negatives 1, 2. Pairs: (1,1) tie 1/2, (1,2) 0, (3,1) 1, (3,2) 1; 2.5 / 4
    logits = jnp.asarray([[0.0, 1.0], [0.0, 3.0], [0.0, 1.0], [0.0, 2.0]])
    assert float(auc(logits, jnp.asarray([1, 1, 0, 0]), jnp.ones(4, bool))) == 0.625
    # minus zero ties with zero
    zeros = jnp.asarray([[0.0, 0.0], [0.0, -0.0]])
    assert float(auc(zeros, jnp.asarray([1, 0]), jnp.ones(2, bool))) == 0.5
    # infinite scores keep their order: positives inf, -inf against negative 0 give 1 of 2 pairs
    infinite = jnp.asarray([[0.0, jnp.inf], [0.0, -jnp.inf], [0.0, 0.0], [0.0, jnp.nan]])
    assert float(auc(infinite, jnp.asarray([1, 1, 0, 0]), jnp.asarray([1, 1, 1, 0], bool))) == 0.5


def test_area_of_a_large_client_is_exact():
    # every positive outranks exactly the first half of the negatives and ties with none: area exactly 1/2
    rows = 40_000
    targets = jnp.arange(rows) % 2
    place = jnp.arange(rows) // 2
    negatives = jnp.where(place < rows // 4, -1.0, 1.0)
    logits = jnp.stack(
        [jnp.zeros(rows), jnp.where(targets == 1, 0.5 * place.astype(jnp.float32) / rows, negatives)], axis=1
    )
    assert float(of_one("auc")(logits, targets, jnp.ones(rows, bool))) == 0.5
    # one negative more below: 10001 / 20000 of the pairs
    logits = logits.at[rows - 2, 1].set(-2.0)
    assert float(of_one("auc")(logits, targets, jnp.ones(rows, bool))) == np.float32(10001 / 20000)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(SCORES)),
    count=st.integers(0, 8),
    garbage=st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -7.0, 0.0]),
    label=st.sampled_from([-5, 0, 2, 2**31 - 1]),
    seed=st.integers(0, 100),
)
def test_padding_never_matters(name, count, garbage, label, seed):
    capacity, draw = 8, np.random.default_rng(seed)
    mask = np.arange(capacity) < count
    outputs = draw.normal(size=(capacity, 3)).astype(np.float32)
    spoilt = np.where(mask[:, None], outputs, np.float32(garbage))
    if SCORES[name].task == "classification":
        targets = draw.integers(0, 3, capacity).astype(np.int32)
        spoilt_targets = np.where(mask, targets, label).astype(np.int32)
    else:
        targets = draw.normal(size=(capacity, 3)).astype(np.float32)
        spoilt_targets = np.where(mask[:, None], targets, np.float32(garbage))
    clean, other = (of_one(name)(o, t, mask) for o, t in ((outputs, targets), (spoilt, spoilt_targets)))
    np.testing.assert_array_equal(clean, other)
    undefined = {"auc": len(np.unique(targets[mask])) < 2, "r2": count == 1}
    assert bool(jnp.isnan(clean)) == (count == 0 or undefined.get(name, False))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(SKLEARN)))
def test_order_of_rows_never_matters(seed, name):
    logits, targets, mask = (values[0] for values in padded_clients(seed, 3))
    order = np.random.default_rng(seed).permutation(CAPACITY)
    scores = (of_one(name)(*rows) for rows in ((logits, targets, mask), (logits[order], targets[order], mask[order])))
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_one_class_has_no_area():
    logits = jnp.asarray([[0.0, 1.0], [1.0, 0.0]])
    assert math.isnan(auc(logits, jnp.asarray([1, 1]), jnp.ones(2, bool)))
    three = jnp.zeros((2, 3))
    assert math.isnan(auc(three, jnp.asarray([2, 2]), jnp.ones(2, bool)))


def test_balanced_accuracy_ignores_absent_classes():
    # class 0: 3 of 4 right, class 2: 0 of 1, class 1 absent: (3/4 + 0) / 2
    logits = jax.nn.one_hot(jnp.asarray([0, 0, 0, 1, 1]), 3)
    targets = jnp.asarray([0, 0, 0, 0, 2])
    assert float(balanced_accuracy(logits, targets, jnp.ones(5, bool))) == 0.375


def test_squared_error_is_summed_over_columns():
    # rows: 1^2 + 2^2 = 5 and 0 + 3^2 = 9; mean 7
    outputs, targets = jnp.asarray([[1.0, 2.0], [0.0, 3.0]]), jnp.zeros((2, 2))
    assert float(squared_error(outputs, targets, jnp.ones(2, bool))) == 7
    # one column may be written (rows,) or (rows, 1): 1 and 9, mean 5, never a rows x rows table
    assert float(squared_error(jnp.asarray([[1.0], [3.0]]), jnp.zeros(2), jnp.ones(2, bool))) == 5


def test_a_model_that_answers_nan_scores_worst_not_missing():
    broken = jnp.full((4, 2), jnp.nan)
    targets, mask = jnp.asarray([0, 1, 0, 1]), jnp.ones(4, bool)
    assert float(accuracy(broken, targets, mask)) == 0
    assert float(balanced_accuracy(broken, targets, mask)) == 0
    assert float(auc(broken, targets, mask)) == 0
    assert float(log_loss(broken, targets, mask)) == math.inf
    assert float(squared_error(jnp.asarray([jnp.nan]), jnp.zeros(1), jnp.ones(1, bool))) == math.inf


def test_a_label_outside_the_classes_is_never_right():
    logits, mask = jnp.asarray([[0.0, 9.0], [0.0, 9.0]]), jnp.ones(2, bool)
    targets = jnp.asarray([1, -1])  # -1 would index the last class
    assert float(accuracy(logits, targets, mask)) == 0.5
    assert float(log_loss(logits, targets, mask)) == math.inf
    assert math.isnan(auc(logits, targets, mask))


def test_half_precision_outputs_are_averaged_in_full():
    # 300 right of 301: bfloat16 has 8 bits and would round the count itself
    logits = jnp.zeros((301, 2), jnp.bfloat16).at[:, 0].set(1)
    targets = jnp.zeros(301, jnp.int32).at[0].set(1)
    measured = accuracy(logits, targets, jnp.ones(301, bool))
    assert measured.dtype == jnp.float32
    assert float(measured) == np.float32(300 / 301)


@pytest.mark.parametrize("name", ["accuracy", "log_loss", "brier", "squared_error", "mae", "pinball_90"])
def test_score_is_the_mean_of_its_rows(name):
    score, draw = SCORES[name], np.random.default_rng(0)
    outputs = draw.normal(size=(9, 3)).astype(np.float32)
    targets = outputs * 2 if score.task == "regression" else draw.integers(0, 3, 9)
    mask = np.arange(9) < 7
    rows = np.asarray(score.per_row(outputs, targets, mask), float)
    assert (rows[7:] == 0).all()
    assert float(score.function(outputs, targets, mask)) == pytest.approx(rows[:7].mean(), rel=1e-6)


def test_strict_promotion_and_double_precision():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        logits, targets, mask = padded_clients(1, 4)
        for name in SKLEARN:
            jax.jit(jax.vmap(SCORES[name].function))(logits, targets, mask)
            jax.jit(jax.vmap(SCORES[name].function))(logits.astype(jnp.bfloat16), targets, mask)
        jax.jit(jax.vmap(squared_error))(logits, logits, mask)
    with jax.enable_x64(True):
        logits, targets = jnp.asarray([[0.0, 1.0]]), jnp.asarray([1])
        measured = log_loss(logits, targets, jnp.ones(1, bool))
        assert measured.dtype == jnp.float64
        assert float(measured) == pytest.approx(math.log1p(math.exp(-1)), rel=1e-14)
    # host arrays in double precision are taken in single precision where double is off, without a warning
    assert float(accuracy(np.asarray([[0.0, 1.0]]), np.asarray([1]), np.ones(1, bool))) == 1


def test_wrong_shapes_are_refused_with_the_way_out():
    mask = jnp.ones(4, bool)
    with pytest.raises(RequestError, match=r"got \(4,\).*\[0, z\]"):
        accuracy(jnp.zeros(4), jnp.zeros(4, int), mask)
    with pytest.raises(RequestError, match="integer class indices"):
        log_loss(jnp.zeros((4, 2)), jnp.zeros(4), mask)
    with pytest.raises(RequestError, match=r"\(4, 2\) and targets \(4,\)"):
        squared_error(jnp.zeros((4, 2)), jnp.zeros(4), mask)


def test_correct_rows_are_false_on_padding():
    correct = correct_rows(jnp.asarray([[1.0, 0.0]] * 3), jnp.zeros(3, int), jnp.asarray([True, True, False]))
    assert correct.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("shares", "name"),
    [
        ([0.5, 0.5], "accuracy"),
        ([0.9, 0.1], "accuracy"),  # the rule is *under* 10 %
        ([0.97, 0.03], "auc"),
        ([0.97, 0.03, 0.0], "auc"),  # a class that never occurs is no class
        ([0.6, 0.35, 0.05], "balanced_accuracy"),
        ([0.11, 0.11, 0.11, 0.1, 0.1, 0.1, 0.1, 0.09, 0.09, 0.09], "accuracy"),  # digits: nearly even
        ([1.0], "accuracy"),
    ],
)
def test_default_score_watches_the_rarest_class(shares, name):
    chosen, sentence = default_score("classification", np.asarray(shares))
    assert chosen == name
    assert name in sentence
    if name != "accuracy":
        assert f"{min(s for s in shares if s):.1%}" in sentence
        assert f"{max(shares):.1%}" in sentence


def test_default_score_of_other_tasks():
    assert default_score("regression")[0] == "squared_error"
    with pytest.raises(RequestError, match="'ranking'"):
        default_score("ranking")
    with pytest.raises(RequestError, match="sum to 1"):
        default_score("classification", [30, 70])
    with pytest.raises(RequestError, match="sum to 1"):
        default_score("classification")


def test_find_score():
    assert find_score("auc", "classification").function is auc
    with pytest.raises(RequestError, match="Did you mean 'accuracy'"):
        find_score("acuracy")
    with pytest.raises(RequestError, match="squared_error"):
        find_score("auc", "regression")
    assert find_score("accuracy").show(0.873) == "87.3%"
    assert find_score("auc").show(math.nan) == "none"
