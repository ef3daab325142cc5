# SPDX-License-Identifier: Apache-2.0
"""Reproductions of All-for-all 2022: the star at its real size, the others small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import all_for_all_numpy
from idiolect.core.mixing import Phases
from papers import afa, afa_means
from papers.afa_problems import bernoulli_means
from papers.catalogue import find_code, load_expected, load_spec, read_me
from papers.drawing import drawing, to_bytes
from papers.runner import reproduce

SLUGS = ("afa-bernoulli", "afa-noise", "afa-continuum", "afa-star")


def silent(label, done, total):
    assert 0 < done <= total


def test_the_star_reproduces(tmp_path):
    outcome = reproduce("afa-star", tmp_path / "run", silent)
    assert not outcome.changed, outcome.to_text()


SMALL = {
    "afa-bernoulli": ("agents = 12", "samples = 30", "draws = 2", "stops = 5"),
    "afa-noise": ("agents = 12", "samples = 30", "draws = 2", "stops = 5"),
    "afa-continuum": (
        "counted.agents = 2000",
        "promised.agents = 20",
        "promised.accuracy = [0.2]",
        "measured.agents = 40",
        "measured.draws = 1",
        "measured.stops = 20",
        "measured.cases = [{dimension = 1, accuracy = [0.03, 0.015]}]",
    ),
}


@pytest.mark.parametrize("slug", SMALL)
def test_the_others_run_small_and_are_drawn(slug):
    spec, entry = load_spec(slug, SMALL[slug]), find_code(slug)
    measured = entry.measure(spec, silent)
    assert all(np.isfinite(value) for value in measured.numbers.values())
    with drawing(slug):
        assert to_bytes(entry.draw(spec, measured.curves), "png")[:4] == b"\x89PNG"
    names = {expectation.name for expectation in load_expected(slug)}
    extra = {name for name in measured.numbers if name not in names}
    assert not extra


@pytest.mark.parametrize("slug", SLUGS)
def test_every_readme_says_how_and_which_errata(slug):
    text = read_me(slug)
    assert f"idiolect reproduce {slug}" in text
    assert "E004-" in text or slug == "afa-continuum"
    assert "**Expected result**" in text


def test_alone_and_single_are_running_means():
    """Lanes with steps 1/k: the mean of a client's own samples, and of all."""
    problem = bernoulli_means(5, 12, 3, dtype=np.float64)
    b = afa.squared_distances(problem.truth)
    lanes = [afa.streaming(problem, b, schedule(12)) for schedule in (afa_means.alone, afa_means.single)]
    alone, single = afa.walk(lanes, problem, [4, 12], start=0.5)[..., 0]
    tosses = problem.federation.train.targets.reshape(5, 12)
    np.testing.assert_allclose(alone, [tosses[:, :4].mean(axis=1), tosses.mean(axis=1)], atol=1e-14)
    np.testing.assert_allclose(single, [[tosses[:, :4].mean()] * 5, [tosses.mean()] * 5], atol=1e-14)


def test_phases_agree_with_plain_numpy():
    """On the same rows, with b told exactly and with noise: what expected.toml calls independent."""
    problem = bernoulli_means(20, 200, 1, dtype=np.float64)
    places, tosses = problem.truth[:, 0], problem.federation.train.targets.reshape(20, 200)
    noisy = places + np.random.default_rng(0).uniform(-0.2, 0.2, 20)
    told = [afa.squared_distances(p) for p in (places, noisy)]
    spec = load_spec("afa-noise") | {"samples": 200}
    lanes = [afa.streaming(problem, b, afa_means.doubling(spec, b)) for b in told]
    ours = afa.walk(lanes, problem, [1, 60, 200], start=0.5)[..., 0]
    plain = [all_for_all_numpy.phases(b, tosses)[[0, 59, 199]] for b in told]
    np.testing.assert_allclose(ours, plain, rtol=1e-10)


def test_a_schedule_by_round_is_the_same_schedule():
    phases = Phases(np.array([1.0, 0.5]), np.array([0.3, 0.2]), np.array([3, 10], np.int32))
    long = afa.by_round(phases, 5)
    assert long.accuracy.tolist() == [1.0, 1.0, 1.0, 0.5, 0.5]
    assert long.end.tolist() == [1, 2, 3, 4, 5]
