# SPDX-License-Identifier: Apache-2.0
"""The announced method: best on validation rows, ties within noise, test rows unread."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from idiolect.experiments.announce import announce
from idiolect.experiments.trained import Trained
from idiolect.metrics.client_weights import client_weights
from idiolect.record.divergence import Divergence
from idiolect.record.schema import Announced

CLIENTS = 12
NOISE = 0.1 * np.random.default_rng(3).normal(size=CLIENTS)


def trained(label, validation, test=0.0, diverged=None):
    """A method whose clients have these scores; `test` is there to be left alone."""
    selected = {"personal": {"log_loss": np.full(CLIENTS, validation, float).tolist()}}
    judged = {"personal": {"log_loss": np.full(CLIENTS, test, float).tolist()}}
    recorder = SimpleNamespace(selected={"validation": selected, "test": judged}, diverged=diverged)
    runs = [SimpleNamespace(recorder=recorder)]
    return Trained(SimpleNamespace(method=SimpleNamespace(label=label)), runs)


def found(*entries, score="log_loss", **chosen):
    standing = {entry.method.label: chosen.get(entry.method.label) for entry in entries}
    return announce(list(entries), score, standing, np.full(CLIENTS, 5))


def test_validation_rows_choose_whatever_test_rows_say():
    best = found(trained("a", 0.5 + NOISE, test=0.1), trained("b", 0.3 + NOISE, test=0.9))
    assert best == Announced("b", "log_loss", pytest.approx(0.3 + NOISE.mean()))


def test_a_difference_within_noise_is_a_tie_and_one_beyond_it_is_not():
    best = found(trained("a", 0.5), trained("noisy", 0.5 + 0.02 + NOISE), trained("worse", 0.8 + NOISE))
    assert (best.method, best.tied) == ("a", ("noisy",))


def test_equal_scores_are_a_tie():
    assert found(trained("a", 0.5 + NOISE), trained("b", 0.5 + NOISE)).tied == ("b",)


def test_where_higher_is_better_the_highest_is_announced():
    entries = [trained("a", 0.5), trained("b", 0.9)]
    for entry in entries:
        scores = entry.runs[0].recorder.selected["validation"]["personal"]
        scores["accuracy"] = scores["log_loss"]
    assert found(*entries, score="accuracy").method == "b"


def test_clients_without_a_validation_row_are_in_no_mean():
    holes = np.where(np.arange(CLIENTS) < 3, np.nan, 0.4)
    best = found(trained("a", 0.5), trained("b", holes))
    assert (best.method, best.choosing_mean) == ("b", pytest.approx(0.4))


def test_neither_what_diverged_nor_other_settings_of_a_sweep_can_win():
    entries = (trained("lost", 0.1, diverged=Divergence(3)), trained("b[x=1]", 0.2), trained("b[x=2]", 0.3))
    assert found(*entries, **{"b[x=1]": False, "b[x=2]": True}) == Announced("b[x=2]", "log_loss", pytest.approx(0.3))


def test_without_validation_rows_nothing_is_announced():
    assert found(trained("a", np.nan), trained("b", np.nan)) is None


def folded(label, cells):
    """A method with (folds, clients) scores of the folds that chose it."""
    entry = trained(label, np.asarray(cells).mean(axis=0))
    entry.choice = SimpleNamespace(folds=np.asarray(cells).tolist())
    return entry


def test_lucky_rows_of_tiny_clients_do_not_decide():
    rows = np.array([1, 1, 2, 2, *[100] * 8])
    plain = np.full((4, CLIENTS), 0.5)
    luck = np.where(rows < 10, np.array([[-3.0], [0.5], [0.0], [0.5]]), 0.0)  # one fold, and not the others
    lucky = plain + 0.02 + luck + 0.1 * NOISE
    assert lucky.mean() < plain.mean()
    best = announce([folded("lucky", lucky), folded("plain", plain)], "log_loss", {"lucky": None, "plain": None}, rows)
    assert best.method == "plain"


def test_where_methods_suit_clients_differently_every_client_counts_alike():
    draw, rows = np.random.default_rng(6), np.array([*[5] * 6, *[500] * 6])
    suits = np.where(np.arange(CLIENTS) % 2, 1.0, -1.0) + np.where(rows < 10, -0.2, 0.1)
    cells = np.stack([np.zeros((4, CLIENTS)), np.broadcast_to(suits, (4, CLIENTS))])
    weights = client_weights(cells + 0.01 * draw.normal(size=cells.shape), rows)
    assert weights.max() / weights.min() < 1.01


def test_one_fold_weighs_clients_alike():
    assert client_weights(np.zeros((3, 1, CLIENTS)), np.arange(CLIENTS)).tolist() == [1.0] * CLIENTS
