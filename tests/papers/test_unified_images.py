# SPDX-License-Identifier: Apache-2.0
"""The image reproductions of Unified 2023: dealing images out, the paper's parameters, every slug at a small size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.data.dataset_files import VARIABLE, find_file
from papers import (
    unified_image_data,
    unified_images,
    unified_relaxation,
    unified_reparametrisation,
    unified_sampling,
)
from papers.catalogue import find_entry, load_expected, load_spec, read_me
from papers.drawing import drawing, to_bytes
from papers.images import image_arrays
from papers.lanes import Curves, Standing
from papers.runner import reproduce
from papers.unified import solver
from papers.unified_image_data import (
    Images,
    deal_as_released,
    deal_images,
    image_objective,
    read_images,
    record_at,
    relative_loss,
    set_up,
    unit_rows,
)
from papers.verdicts import compare

SLUGS = ("unified-images", "unified-sampling", "unified-reparametrisation", "unified-relaxation")
with_data = pytest.mark.skipif(
    any(find_file(f"images/{name}.npz.xz") is None for name in ("mnist_writers", "fashion_mnist_sub", "kmnist_t10k")),
    reason="not all image sets are here; see `idiolect datasets list`",
)
SIZE = {"clients": 6, "train_rows": 20, "test_rows": 30}


def noise_images(name="noise", seed=0, features=6):
    """Ten classes whose rows lie around different points: learnable, and quick."""
    draw = np.random.default_rng(len(name) + seed)
    centers = draw.normal(size=(10, features))
    labels, test_labels = draw.integers(0, 10, 600).astype(np.int32), draw.integers(0, 10, 600).astype(np.int32)
    parts = [centers[y] + 0.3 * draw.normal(size=(600, features)) for y in (labels, test_labels)]
    inputs, test_inputs = (unit_rows(part.astype(np.float32), 0.0, 1.0) for part in parts)
    return Images(inputs, labels, test_inputs, test_labels)


@pytest.fixture
def small(monkeypatch):
    """Every slug's spec with random images of two sets, few clients, two seeds and ten rounds."""
    images = noise_images()
    monkeypatch.setattr(unified_image_data, "read_images", noise_images)
    monkeypatch.setattr(unified_image_data, "image_arrays", lambda name: (images.inputs, images.labels))

    def spec(slug, **changes):
        sizes = SIZE | {"seeds": 2, "rounds": 10, "record_every": 5}
        return load_spec(slug) | sizes | changes

    return spec


@pytest.mark.parametrize("labels", [2, 3, 8])
def test_every_client_holds_as_many_distinct_labels_as_asked(labels):
    images = noise_images()
    dealt = deal_images(images, labels=labels, seed=3, clients=12, train_rows=100, test_rows=40)
    held = set()
    for client in range(12):
        own = np.unique(dealt.federation.train.of(client)[1])
        held |= set(own.tolist())
        assert len(own) == labels  # a label is on an eighth of the rows or more: 100 draws miss it with chance 2e-6
        assert set(dealt.test.of(client)[1].tolist()) <= set(own.tolist())
    assert held == set(range(10))


def test_rows_are_drawn_once_per_client_and_from_their_own_part():
    images = noise_images()
    dealt = deal_images(images, labels=3, seed=0, **SIZE)
    for rows, part, count in ((dealt.federation.train, images.inputs, 20), (dealt.test, images.test_inputs, 30)):
        known = {row.tobytes() for row in part}
        for client in range(6):
            drawn = [row.tobytes() for row in rows.of(client)[0]]
            assert len(set(drawn)) == count
            assert set(drawn) <= known
    again = deal_images(images, labels=3, seed=0, **SIZE)
    other = deal_images(images, labels=3, seed=1, **SIZE)
    assert np.array_equal(again.federation.train.inputs, dealt.federation.train.inputs)
    assert not np.array_equal(other.federation.train.inputs, dealt.federation.train.inputs)
    assert len(dealt.federation.validation.targets) == 0


def test_the_released_draw_takes_first_rows_and_repeats_labels():
    # numpy's legacy generator from 111 draws 4 and 4 for the first client, 4 and 6 for the second
    labels = np.tile(np.arange(10), 20)
    inputs = np.arange(200.0, dtype=np.float32)[:, None] + np.ones((1, 3), np.float32)
    dealt = deal_as_released(inputs, labels, clients=2, labels=2, train_rows=4, test_rows=5, seed=111)
    assert dealt.federation.train.targets.tolist() == [4, 4, 4, 4, 4, 6, 4, 6]
    assert dealt.test.targets.tolist() == [4, 4, 4, 4, 4, 4, 6, 4, 6, 4]
    assert np.linalg.norm(dealt.test.inputs, axis=1) == pytest.approx(np.ones(10))


def test_too_few_rows_are_refused_with_a_way_out():
    with pytest.raises(RequestError, match=r"300 test rows per client were asked for, but only .* ask for fewer rows"):
        deal_images(noise_images(), labels=2, seed=0, clients=6, train_rows=20, test_rows=300)


def test_rows_get_unit_norm_after_one_mean_and_deviation():
    # (x - 1)/2 = (1.5, 2), of norm 2.5
    rows = unit_rows(np.array([[[4.0], [5.0]]], np.float32), 1.0, 2.0)
    assert rows.shape == (1, 2)
    assert rows[0].tolist() == pytest.approx([0.6, 0.8])


def test_the_papers_parameters():
    """K = 2: p_w = 0.5, 0.25, 0.55 as section 6.2 prints; eta = 1/(4 Lx) with Lx = 2 (L^w + L^beta) at that p_w."""
    spec = load_spec("unified-images")
    dealt = deal_images(noise_images(), labels=2, seed=0, clients=20, train_rows=10, test_rows=10)
    constants = {"mt2": (1.5 / 20, 1.5 / 20), "mx2": (0.5 / 20, 1.5 / 20), "apfl2": (1.01 / 20, 0.81 / 20)}
    for name, (shared, personal) in constants.items():
        setup = set_up(image_objective(name, 2, dealt, spec), dealt, spec)
        ascd, asvrcd = solver("ascd_pfl", setup), solver("asvrcd_pfl", setup)
        assert ascd.shared_probability == pytest.approx(shared / (shared + personal))
        assert ascd.step_size == asvrcd.step_size == pytest.approx(1 / (8 * (shared + personal)))
        assert asvrcd.refresh_probability == pytest.approx(ascd.shared_probability / 10)
        assert ascd.momentum == pytest.approx(min(0.8, 1 / ascd.step_size))
    mixed = set_up(image_objective("apfl2", 8, dealt, spec), dealt, spec)
    assert mixed.objective.mixing == pytest.approx(0.4)
    with pytest.raises(RequestError, match="no objective 'mt3'"):
        image_objective("mt3", 2, dealt, spec)


def curves_of(loss, shared, personal, rounds=(0, 5, 10)):
    columns = {"loss": loss, "gradients_shared": shared, "gradients_personal": personal}
    columns["gradients_both"] = np.zeros_like(shared)
    return Curves(np.array(rounds), {name: np.array([value], float) for name, value in columns.items()}, 1, ())


def test_curves_are_read_at_rounds_and_at_gradients():
    slow = curves_of([4.0, 2.0, 1.0], [0, 10, 20], [0, 30, 60])
    quick = curves_of([4.0, 3.0, 2.0], [0, 5, 10], [0, 5, 10])
    assert relative_loss(slow).tolist() == [[1.0, 0.5, 0.25]]
    assert [record_at(slow, rounds) for rounds in (0, 4, 5, 9, 10, 99)] == [0, 0, 1, 1, 2, 2]
    # `quick` took 20 gradients in all: half of the way from 0 to 40, where `slow` falls from 1 to 0.5
    assert unified_images._at_equal_gradients(slow, quick) == pytest.approx(0.75)


def test_images_at_a_small_size(small):
    spec = small("unified-images", objectives=["mx2"], labels=[2], data_sets=["mnist", "kmnist"])
    spec |= {"short_cell": "mx2_2_mnist", "short_rounds": 5}
    heard = []
    measured = unified_images.measure(spec, lambda *news: heard.append(news))
    assert heard[-1][1:] == (6, 6)
    assert len(heard) == 6
    numbers = measured.numbers
    assert numbers["mx2_start"] == pytest.approx(math.log(10), rel=1e-6)  # all models at zero
    cut = measured.curves[unified_images.Cell("mx2", 2, "mnist")]["ascd"]
    assert numbers["mx2_2_mnist_ascd_loss"] == pytest.approx(relative_loss(cut)[:, 1].mean())  # after 5 of 10 rounds
    assert numbers["mx2_2_mnist_ascd_accuracy"] == pytest.approx(cut.columns["accuracy"][:, 1].mean())
    assert {name for name in numbers if "_2_" in name} == {
        "mx2_2_mnist_lsgd_loss", "mx2_2_mnist_ascd_loss", "mx2_2_mnist_asvrcd_loss", "mx2_2_mnist_ascd_accuracy",
    }  # fmt: skip
    assert numbers["ascd_ahead_of_lsgd"] in (0, 0.5, 1)
    assert [line.split()[0] for line in measured.table.splitlines()] == ["cell", "mx2_2_mnist", "mx2_2_kmnist"]
    with drawing("unified-images"):
        assert len(to_bytes(unified_images.draw(spec, measured.curves), "svg")) > 1000


def test_the_published_loss_is_a_mean_of_batch_means():
    # all models at zero lose ln 10 on every row; with a bias for label 0, less on the rows that have it
    dealt = deal_images(noise_images(), labels=4, seed=0, clients=3, train_rows=70, test_rows=5)
    spec = load_spec("unified-images") | {"clients": 3}
    setup = set_up(image_objective("mx2", 2, dealt, spec), dealt, spec)
    bias = np.zeros((3, 10), np.float32)
    bias[:, 0] = 2.0
    personal = {"weights": np.zeros((3, 10, 6), np.float32), "bias": bias}
    shared = {"weights": np.zeros((10, 6), np.float32), "bias": 3**0.5 * bias[0]}  # u = beta_m: no penalty
    targets = dealt.federation.train.targets.reshape(3, 70)
    rows = np.log(np.exp(2.0) + 9) - 2.0 * (targets == 0)
    found = unified_image_data.published_loss(setup)(Standing(shared, personal, ()))
    expected = (rows[:, :64].mean() + rows[:, 64:].mean()) / 2
    assert found == {"published_loss": pytest.approx(expected, rel=1e-5)}


def test_the_score_is_that_of_beta_alone():
    dealt = deal_images(noise_images(), labels=3, seed=0, **SIZE)
    objective = image_objective("apfl2", 3, dealt, load_spec("unified-images"))
    score = unified_image_data.accuracy_of_personal(objective, dealt.test)
    # beta_m has no weights and a bias for one label: right exactly where that label is
    bias = np.zeros((6, 10), np.float32)
    bias[np.arange(6), dealt.test.targets.reshape(6, 30)[:, 0]] = 1
    where = type("Where", (), {"personal": {"weights": np.zeros((6, 10, 6), np.float32), "bias": bias}})
    targets = dealt.test.targets.reshape(6, 30)
    assert score(where)["accuracy"] == pytest.approx((targets == targets[:, :1]).mean())


def test_sampling_at_a_small_size(small):
    spec = small("unified-sampling", objectives=["mx2"], labels=2, shared_probabilities=[0.1, 0.25, 0.9])
    measured = unified_sampling.measure(spec, lambda *news: None)
    numbers = measured.numbers
    ends = {name: relative_loss(row)[:, -1].mean() for name, row in measured.curves["mx2", "mnist"].items()}
    assert list(ends) == ["theory", "0.1", "0.9"]  # 0.25 is theory's
    assert numbers["mx2_theory_p_w"] == pytest.approx(0.25)
    assert numbers["mx2_p_w_0.9_loss"] == pytest.approx(ends["0.9"])
    assert numbers["mx2_theory_over_best"] == pytest.approx(ends["theory"] / min(ends.values()))
    assert numbers["mx2_next_p_w_over_theory"] == pytest.approx(ends["0.9"] / ends["theory"])
    # ten rounds at p_w = 0.1 take about 9 beta-gradients each where p_w = 0.25 takes 3
    assert numbers["mx2_p_w_0.1_gradients_over_theory"] > 1.3
    with drawing("unified-sampling"):
        assert b"theory" in to_bytes(unified_sampling.draw(spec, measured.curves), "svg")


def test_reparametrisation_and_relaxation_at_a_small_size(small):
    spec = small("unified-reparametrisation", objectives=["mx2"], labels=2, data_sets=["mnist"])
    measured = unified_reparametrisation.measure(spec, lambda *news: None)
    rescaled, plain = measured.curves["mx2", "mnist"].values()
    assert rescaled.loss[0, 0] == pytest.approx(plain.loss[0, 0])
    ratio = rescaled.loss[:, -1].mean() / plain.loss[:, -1].mean()
    assert measured.numbers["mx2_mnist_loss_over_plain"] == pytest.approx(ratio)
    assert measured.numbers["mx2_mnist_plain_accuracy"] == pytest.approx(plain.last("accuracy").mean())
    spec = small("unified-relaxation", labels=2, data_sets=["mnist"], relaxations=[1.0, 10.0])
    measured = unified_relaxation.measure(spec, lambda *news: None)
    first, second = (curves.last("accuracy").mean() for curves in measured.curves["mnist"].values())
    assert measured.numbers == {"gain_1_to_10": pytest.approx(second - first)}
    starts = [curves.loss[0, 0] for curves in measured.curves["mnist"].values()]
    assert starts == pytest.approx([2 * math.log(10), 11 * math.log(10)], rel=1e-6)
    assert "MNIST" in measured.table
    with drawing("unified-relaxation"):
        assert to_bytes(unified_relaxation.draw(spec, measured.curves), "png").startswith(b"\x89PNG")


def test_the_figures_mu_of_apfl2_is_twice_the_right_one(small, monkeypatch):
    # lemma 3 against its own proof (E002-7): with K = 2, mu' (1 - 0.1)^2 / M
    spec = small("unified-images")
    dealt = deal_images(noise_images(), labels=2, seed=0, **SIZE)
    setup = set_up(image_objective("apfl2", 2, dealt, spec), dealt, spec)
    seen = {}
    monkeypatch.setattr(unified_image_data, "train", lambda *rest, **given: seen.update(given))
    unified_image_data.train_ascd(setup, dealt, spec)
    assert seen["strong_convexity"] == pytest.approx(0.01 * 0.81 / 6)
    assert seen["strong_convexity"] == pytest.approx(2 * setup.blocks.strong_convexity)


@pytest.mark.parametrize("slug", SLUGS)
def test_every_slug_is_registered_documented_and_can_fail(slug):
    assert find_entry(slug).shows.startswith("figure")
    text = read_me(slug)
    for part in ("Claim", "Data", "Hardware", "Hyperparameters", "Command", "Expected result", "Errata that apply"):
        assert f"**{part}" in text
    assert f"idiolect reproduce {slug}" in text
    expected = load_expected(slug)
    rows = compare(slug, expected, {one.name: math.nan for one in expected})
    assert all(row.verdict == "changed" and row.source for row in rows)


@pytest.mark.parametrize("slug", SLUGS)
def test_absent_data_are_one_clear_sentence_and_leave_no_folder(slug, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match="idiolect datasets fetch mnist_writers"):
        reproduce(slug, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@with_data
def test_the_released_draw_of_mnist():
    # at K = 8 its clients hold 5.5 labels on average and train on 275 different images, 100 each
    inputs, labels, _, _ = image_arrays("mnist")
    dealt = deal_as_released(inputs, labels, clients=20, labels=8, train_rows=100, test_rows=300, seed=111)
    train = dealt.federation.train
    assert np.mean([len(np.unique(train.of(client)[1])) for client in range(20)]) == 5.5
    assert len({row.tobytes() for row in train.inputs}) == 275


@with_data
@pytest.mark.parametrize("name", ["kmnist", "fashion_mnist"])
def test_real_images_have_unit_rows_in_two_parts(name):
    images = read_images(name, seed=0)
    assert np.linalg.norm(images.inputs, axis=1) == pytest.approx(np.ones(len(images.labels)), rel=1e-5)
    assert images.test_inputs.shape[1] == 784
    assert set(images.test_labels.tolist()) == set(range(10))
    spec = load_spec("unified-images")
    numbers = {key: spec[key] for key in ("clients", "train_rows", "test_rows")}
    for labels in spec["labels"]:
        dealt = deal_images(images, labels=labels, seed=spec["data_seed"], **numbers)
        assert (dealt.federation.train.counts == 100).all()
        assert (dealt.test.counts == 300).all()
    train, test = ({row.tobytes() for row in part} for part in (images.inputs, images.test_inputs))
    assert len(train & test) < 10  # the sets hold a few equal images
