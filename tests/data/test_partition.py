# SPDX-License-Identifier: Apache-2.0
"""Every partitioner gives each row to exactly one client and leaves no client empty, for any skew and seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.core.checks import RequestError
from idiolect.data.partition import (
    PARTITIONERS,
    Partition,
    by_column,
    dirichlet_labels,
    dirichlet_mixtures,
    dirichlet_quantity,
    feature_clusters,
    iid,
    label_ratio,
    labels_per_client,
)

few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 2**40)
concentrations = st.one_of(st.floats(1e-12, 1e-2), st.floats(1e-2, 1e6))


@st.composite
def skewed_labels(draw, most=6):
    """A label column with at least two labels whose frequencies differ widely."""
    counts = draw(st.lists(st.integers(1, 40), min_size=2, max_size=most))
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(draw(seeds)).permutation(labels)


def check(partition: Partition, rows: int, clients: int, at_least: int = 1) -> None:
    assert partition.assignment.shape == (rows,)  # one owner per row, so each row lands exactly once
    assert partition.assignment.dtype.kind == "i"
    counts = np.bincount(partition.assignment, minlength=clients)
    assert len(counts) == clients
    assert counts.sum() == rows
    assert counts.min() >= at_least
    assert partition.notes


@few
@given(rows=st.integers(1, 200), share=st.floats(0, 1), seed=seeds)
def test_iid_deals_equal_shares(rows, share, seed):
    clients = max(1, int(share * rows))
    partition = iid(rows, clients, seed)
    check(partition, rows, clients)
    assert np.ptp(partition.counts) <= 1


@few
@given(values=st.lists(st.sampled_from(["north", "south", "east"]), min_size=1, max_size=50))
def test_by_column_keeps_each_value_on_one_client(values):
    partition = by_column(values)
    check(partition, len(values), len(set(values)))
    assert [partition.names[owner] for owner in partition.assignment] == values


@few
@given(labels=skewed_labels(), low=st.integers(1, 6), spread=st.integers(0, 3), seed=seeds, share=st.floats(0, 1))
def test_labels_per_client_holds_every_label(labels, low, spread, seed, share):
    present = len(np.unique(labels))
    low = min(low, present)
    high = min(low + spread, present)
    fewest = -(-present // high)
    clients = min(len(labels), fewest + int(share * 30))  # often more clients than labels
    partition = labels_per_client(labels, clients, (low, high), seed)
    check(partition, len(labels), clients)
    if not any("moved" in note for note in partition.notes):
        for client in range(clients):
            assert len(np.unique(labels[partition.assignment == client])) <= high


def test_labels_per_client_is_exact_where_rows_are_plenty():
    labels = np.repeat(np.arange(10), 200)
    partition = labels_per_client(labels, 20, 4, seed=3)
    for client in range(20):
        assert len(np.unique(labels[partition.assignment == client])) == 4


def test_labels_nobody_drew_are_given_to_somebody():
    # Two clients with five of ten labels each: unless the draws are disjoint, labels must be swapped in.
    labels = np.repeat(np.arange(10), 5)
    for seed in range(20):
        partition = labels_per_client(labels, 2, 5, seed)
        held = [set(labels[partition.assignment == client]) for client in range(2)]
        assert held[0] | held[1] == set(range(10))
        assert len(held[0]) == len(held[1]) == 5


def test_an_empty_client_is_filled_with_a_label_it_holds_first():
    # Label 1 has two rows and more holders; with this seed the holder of label 1 alone got none of them.
    labels = np.array([0] * 50 + [1] * 2)
    partition = labels_per_client(labels, 6, (1, 2), seed=2)
    check(partition, 52, 6)
    assert "1 client without rows got one of a label they hold from a larger client." in partition.notes
    assert not any("moved" in note for note in partition.notes)


@few
@given(positives=st.integers(1, 300), negatives=st.integers(1, 300), clients=st.integers(1, 12), seed=seeds)
def test_label_ratio_lands_every_row(positives, negatives, clients, seed):
    labels = np.array([1] * positives + [0] * negatives)
    clients = min(clients, len(labels))
    check(label_ratio(labels, clients, seed), len(labels), clients)


def test_label_ratio_meets_the_ratios_of_paper_001():
    labels = np.array([1] * 4000 + [-1] * 5000)
    partition = label_ratio(labels, 8, seed=0)
    for client in range(8):
        own = labels[partition.assignment == client]
        # r_pos = (i + 1) / n; rounding moves at most one positive and one negative row
        assert abs((own == 1).mean() - (client + 1) / 8) <= 1 / len(own)


def test_label_ratio_says_when_the_ratios_cannot_be_met():
    labels = np.array([1] * 30 + [0] * 970)  # 3 % positive, but client 0 of 8 should already have 12.5 %
    partition = label_ratio(labels, 8, seed=0)
    shares = [labels[partition.assignment == client].mean() for client in range(8)]
    assert np.all(np.diff(shares) >= 0)
    assert shares[-1] > shares[0]
    assert "cannot be met" in partition.notes[0]


@settings(max_examples=10, deadline=None)
@given(rows=st.integers(2, 40), clients=st.integers(1, 8), copies=st.booleans(), seed=seeds)
def test_feature_clusters_fills_every_client(rows, clients, copies, seed):
    inputs = np.random.default_rng(seed).normal(size=(rows, 3)) * (not copies)  # all rows alike: one cluster only
    clients = min(clients, rows)
    check(feature_clusters(inputs, clients, seed), rows, clients)


def test_feature_clusters_finds_separate_clouds():
    clouds = np.repeat(np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]), 20, axis=0)
    inputs = clouds + 0.1 * np.random.default_rng(0).normal(size=clouds.shape)
    assignment = feature_clusters(inputs, 3, seed=1).assignment.reshape(3, 20)
    assert (assignment == assignment[:, :1]).all()
    assert len(set(assignment[:, 0])) == 3


@few
@given(labels=skewed_labels(), concentration=concentrations, seed=seeds, clients=st.integers(1, 30))
def test_dirichlet_labels_always_ends(labels, concentration, seed, clients):
    clients = min(clients, len(labels))
    at_least = len(labels) // clients
    check(dirichlet_labels(labels, clients, concentration, seed), len(labels), clients)
    check(dirichlet_labels(labels, clients, concentration, seed, at_least), len(labels), clients, at_least)


@few
@given(labels=skewed_labels(), concentration=concentrations, seed=seeds, clients=st.integers(1, 30))
def test_dirichlet_mixtures_are_of_equal_size(labels, concentration, seed, clients):
    clients = min(clients, len(labels))
    partition = dirichlet_mixtures(labels, clients, concentration, seed)
    check(partition, len(labels), clients)
    assert partition.counts.max() - partition.counts.min() <= 1


@few
@given(rows=st.integers(1, 300), clients=st.integers(1, 40), concentration=concentrations, seed=seeds)
def test_dirichlet_quantity_always_ends(rows, clients, concentration, seed):
    clients = min(clients, rows)
    check(dirichlet_quantity(rows, clients, concentration, seed), rows, clients)


@pytest.mark.parametrize("deal", [dirichlet_labels, dirichlet_mixtures])
def test_dirichlet_concentration_sets_the_skew(deal):
    labels = np.tile(np.arange(10), 200)

    def most_common(concentration):
        partition = deal(labels, 10, concentration, seed=0)
        own = [np.bincount(labels[partition.assignment == client]) for client in range(10)]
        return np.mean([counts.max() / counts.sum() for counts in own])

    assert most_common(1e4) < 0.15  # nearly uniform: a tenth each
    assert most_common(0.05) > 0.5


CALLS = {
    "iid": lambda labels, seed: iid(len(labels), 5, seed),
    "labels_per_client": lambda labels, seed: labels_per_client(labels, 5, 2, seed),
    "label_ratio": lambda labels, seed: label_ratio(labels % 2, 5, seed),
    "feature_clusters": lambda labels, seed: feature_clusters(
        np.random.default_rng(0).normal(size=(len(labels), 2)), 5, seed
    ),
    "dirichlet_labels": lambda labels, seed: dirichlet_labels(labels, 5, 0.5, seed),
    "dirichlet_mixtures": lambda labels, seed: dirichlet_mixtures(labels, 5, 0.5, seed),
    "dirichlet_quantity": lambda labels, seed: dirichlet_quantity(len(labels), 5, 0.5, seed),
}


@pytest.mark.parametrize("name", CALLS)
def test_seed_decides(name):
    labels = np.tile(np.arange(4), 25)
    first, again, other = (CALLS[name](labels, seed).assignment for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_registry_lists_all_seven():
    assert set(PARTITIONERS) == {*CALLS, "by_column"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iid(3, 4, 0), "3 rows cannot give 4 clients"),
        (lambda: iid(3, 0, 0), "at least 1, got 0"),
        (lambda: label_ratio([0, 1, 2], 2, 0), "exactly 2 labels, got 3"),
        (lambda: labels_per_client([0, 1, 2], 2, 4, 0), "between 1 and the 3 labels"),
        (lambda: labels_per_client([0, 1, 2], 2, 1, 0), "cannot hold 3 labels"),
        (lambda: dirichlet_labels([0, 1], 1, 0.0, 0), "above 0"),
        (lambda: dirichlet_quantity(10, 2, float("nan"), 0), "above 0"),
        (lambda: dirichlet_quantity(10, 2, 1.0, 0, at_least=6), "at least 6 each"),
        (lambda: by_column([]), "one value per row"),
    ],
)
def test_wrong_requests_say_the_rule(call, words):
    with pytest.raises(RequestError, match=words):
        call()
