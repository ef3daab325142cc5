# SPDX-License-Identifier: Apache-2.0
"""Real data: the bundled digits, the data folder where it is there, and that importing stays light."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

import idiolect.data
from idiolect.core.checks import RequestError
from idiolect.data import shared_files, speeches
from idiolect.data.bundled import digits
from idiolect.data.catalogue import DATASETS
from idiolect.data.dataset_files import VARIABLE, dataset_file, whereabouts
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import DataSpec
from papers.images import image_arrays

with_data = pytest.mark.skipif(
    "not here" in map(whereabouts, DATASETS.values()), reason="not all sets are here; see `idiolect datasets list`"
)


def rows_per_client(federation):
    return federation.train.counts + federation.validation.counts + federation.test.counts


def test_digits_are_dealt_by_label():
    federation = digits()
    assert federation.clients == 20
    assert federation.input_shape == (64,)
    assert rows_per_client(federation).sum() == 1797
    assert federation.train.inputs.min() == 0
    assert federation.train.inputs.max() == 1
    assert federation.task.outputs == 10
    for client in range(20):
        parts = (federation.train, federation.validation, federation.test)
        labels = np.concatenate([rows.of(client)[1] for rows in parts])
        assert len(np.unique(labels)) in (2, 3)
    assert digits(seed=1).train.counts.tolist() != federation.train.counts.tolist()
    assert digits(clients=10, labels_per_client=4, held_out=2).held_out.clients == 2


def test_an_absent_file_names_the_set_and_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match=f"data set school .* {tmp_path}; .*`idiolect datasets fetch school`"):
        shared_files.school()
    with pytest.raises(RequestError, match="no-such-file is not in the folder"):
        dataset_file("no-such-file")
    with pytest.raises(RequestError, match="Did you mean 'mushrooms'"):
        shared_files.libsvm("mushroom")
    with pytest.raises(RequestError, match="Did you mean 'cifar10'"):
        image_arrays("cifar")


def test_heart_disease_has_four_hospitals():
    federation = shared_files.heart_disease()
    assert dict(zip(federation.names, rows_per_client(federation))) == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    assert "ca is missing" in federation.preprocessing.feature_names
    assert "thal = 7" in federation.preprocessing.feature_names
    assert np.isfinite(federation.train.inputs).all()


@with_data
@pytest.mark.parametrize(
    ("load", "clients", "rows", "shape", "kind"),
    [
        (shared_files.school, 139, 15362, (27,), "regression"),
        (shared_files.landmine, 29, 14820, (9,), "classification"),
        (shared_files.vehicle, 23, 1860, (100,), "classification"),
    ],
)
def test_tables_have_the_documented_size(load, clients, rows, shape, kind):
    federation = load()
    assert federation.clients == clients
    assert rows_per_client(federation).sum() == rows
    assert federation.input_shape == shape
    assert federation.task.kind == kind


@with_data
def test_activity_windows_that_overlap_stay_together():
    federation = shared_files.uci_har()
    assert federation.clients == 30
    assert federation.input_shape == (128, 9)
    assert federation.task.classes[0] == "walking"
    # windows one step apart share 64 samples: no training window's second half may open a test window
    train, test = federation.train.of(0)[0], federation.test.of(0)[0]
    tails = {window[64:].tobytes() for window in train}
    heads = {window[:64].tobytes() for window in test}
    assert tails.isdisjoint(heads)
    assert {window[64:].tobytes() for window in train} & {window[:64].tobytes() for window in train}


@with_data
def test_writers_of_the_test_images_can_be_held_out(monkeypatch):
    monkeypatch.setattr(shared_files, "read_npz", functools.cache(shared_files.read_npz))  # it takes seconds
    federation = shared_files.mnist_writers(5, held_out=2)
    assert federation.clients == 5
    assert federation.held_out.clients == 2
    assert not set(federation.names) & set(federation.held_out.names)
    assert federation.input_shape == (28, 28, 1)
    assert federation.train.inputs.max() == 1
    spec = DataSpec(source="mnist_writers", settings={"writers": 2}, held_out=297)
    everybody = build_data(spec)[0]
    assert everybody.held_out.clients == 297
    assert everybody.clients == 2
    name = federation.held_out.names[0]
    named = shared_files.mnist_writers(2, held_out=[name])
    assert named.held_out.names == (name,)
    assert len(named.held_out.train.targets) == len(
        everybody.held_out.train.of(everybody.held_out.names.index(name))[1]
    )
    for wrong, sentence in (
        ({"held_out": 298}, "held_out must be at most 297, the writers of the test images, got 298; hold out fewer."),
        ({"held_out": ["1"]}, "held_out names the client '1', which is not in the data."),
        ({"writers": 1}, "writers must be at least 2 and at most 539, got 1; leave it out for all of them."),
    ):
        with pytest.raises(RequestError) as refused:
            shared_files.mnist_writers(**wrong)
        assert sentence in str(refused.value)


def test_roles_guess_every_next_character_in_the_order_of_the_play():
    federation = speeches.shakespeare(4, length=20)
    assert federation.clients == 4
    assert federation.input_shape == (20,)
    assert federation.train.inputs.dtype == np.int32
    assert federation.task.outputs == 72  # distinct characters of all plays
    for client in range(4):
        parts = [rows.of(client) for rows in (federation.train, federation.validation, federation.test)]
        inputs, targets = (np.concatenate([part[side] for part in parts]).reshape(-1) for side in (0, 1))
        amount = int((targets >= 0).sum())
        assert len(targets) - amount < 20
        np.testing.assert_array_equal(inputs[1:amount], targets[: amount - 1])
    text = "".join(federation.task.classes[code] for code in federation.train.inputs[:200].reshape(-1))
    assert " the " in text


def test_every_role_with_two_speeches_is_a_client():
    federation = speeches.shakespeare()
    assert federation.clients == 1138  # as the data's own page counts them
    assert federation.train.counts.min() >= 1


@pytest.mark.parametrize(("name", "rows", "positives"), [("mushrooms", 8124, 4208), ("a6a", 11220, 2692)])
def test_libsvm_sets_have_the_documented_labels(name, rows, positives):
    federation = shared_files.libsvm(name)
    assert federation.clients == 8
    assert len(federation.train.targets) == rows
    assert federation.train.targets.sum() == positives


def test_libsvm_sets_can_be_dealt_out_in_every_way():
    for partition, options in (
        ("label_ratio", {}),
        ("dirichlet_quantity", {"concentration": 0.5}),
        ("dirichlet_labels", {"concentration": 0.5}),
    ):
        federation = shared_files.libsvm("mushrooms", partition=partition, **options)
        assert federation.train.counts.sum() == 8124
    with pytest.raises(RequestError, match="Did you mean 'label_ratio'"):
        shared_files.libsvm("mushrooms", partition="label_ratios")


def test_importing_the_package_is_light():
    code = (
        "import sys, idiolect.data; from idiolect.data import Federation, PARTITIONERS, Split; "
        "import idiolect.data.synthetic; "
        "print(sorted({'pyarrow', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in idiolect.data.__all__:
        assert getattr(idiolect.data, name) is not None
    assert set(idiolect.data.__all__) <= set(dir(idiolect.data))
    with pytest.raises(AttributeError, match="Federatoin"):
        _ = idiolect.data.Federatoin
