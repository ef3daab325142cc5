# SPDX-License-Identifier: Apache-2.0
"""Conversions on small originals made here, and on originals made from the real arrays where those are."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from idiolect.core.checks import RequestError
from idiolect.data import conversions
from idiolect.data.catalogue import DATASETS
from idiolect.data.dataset_files import find_file
from idiolect.data.packing import digest, pack, unpack

DRAW = np.random.default_rng(3)


def real(name):
    """What the files of a set hold; skipped where they are not here."""
    files = {relative: find_file(relative) for relative in DATASETS[name].files}
    if None in files.values():
        pytest.skip(f"{name} is not here; get it with `idiolect datasets fetch {name}`")
    return {relative: unpack(path) for relative, path in files.items()}


def write_idx(path, values):
    kinds = {"uint8": 8, "int32": 12}
    head = bytes([0, 0, kinds[values.dtype.name], values.ndim]) + np.array(values.shape, ">u4").tobytes()
    content = head + values.astype(values.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def same(built, wanted):
    """Equal names, types, shapes and values."""
    assert {name: digest(content) for name, content in built.items()} == {
        name: digest(content) for name, content in wanted.items()
    }


def test_text_stays_text(tmp_path):
    (tmp_path / "a6a.t").write_bytes(b"-1 3:1 \n+1 \n")
    assert conversions.libsvm({"a6a.t": tmp_path / "a6a.t"}) == {"libsvm/a6a.t.bz2": b"-1 3:1 \n+1 \n"}


@pytest.mark.parametrize("name", ["mushrooms", "a6a"])
def test_bundled_libsvm_files_are_rebuilt(tmp_path, name):
    wanted = real(name)
    originals = {}
    for relative, text in wanted.items():
        short = relative.removeprefix("libsvm/").removesuffix(".bz2")
        originals[short] = tmp_path / short
        originals[short].write_bytes(text)
    same(conversions.libsvm(originals), wanted)


def test_heart_tables_come_out_of_the_archive(tmp_path):
    wanted = real("heart_disease")
    members = {relative.rpartition("/")[2]: content for relative, content in wanted.items()}
    path = write_zip(tmp_path / "heart.zip", members | {"processed.hungarian.data.old": b"", "heart.names": b""})
    same(conversions.heart_disease({"heart+disease.zip": path}), wanted)
    members.pop("processed.va.data")
    with pytest.raises(RequestError, match=r"holds 0 files processed\.va\.data"):
        conversions.heart_disease({"heart+disease.zip": write_zip(tmp_path / "cut.zip", members)})


def cells(parts):
    found = np.empty((1, len(parts)), object)
    for place, part in enumerate(parts):
        found[0, place] = part
    return found


CELLS = [("school", "X", "Y", "school"), ("landmine", "feature", "label", "task")]


@pytest.mark.parametrize(("name", "inputs", "targets", "owner"), CELLS)
def test_cells_of_tasks_become_rows(tmp_path, name, inputs, targets, owner):
    x, y = [np.arange(6).reshape(3, 2), np.arange(2).reshape(1, 2)], [np.array([[1], [0], [1]]), np.array([[1]])]
    savemat(tmp_path / "small.mat", {inputs: cells(x), targets: cells(y)})
    (content,) = getattr(conversions, name)({"a": tmp_path / "small.mat"}).values()
    assert content["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert content["y"].tolist() == [1, 0, 1, 1]
    assert content[owner].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(("name", "inputs", "targets", "owner"), CELLS)
def test_real_cells_are_rebuilt(tmp_path, name, inputs, targets, owner):
    wanted = real(name)
    (content,) = wanted.values()
    borders = np.flatnonzero(np.diff(content[owner])) + 1
    x, y = (np.split(content[key], borders) for key in "xy")
    savemat(tmp_path / "whole.mat", {inputs: cells(x), targets: cells([part[:, None] for part in y])})
    same(getattr(conversions, name)({"a": tmp_path / "whole.mat"}), wanted)


def test_real_sensors_are_rebuilt(tmp_path):
    wanted = real("vehicle")
    (content,) = wanted.values()
    users = {
        f"f_{sensor:05d}": {key: content[key][content["sensor"] == sensor].astype(float).tolist() for key in "xy"}
        for sensor in range(23)
    }
    path = tmp_path / "mytrain.json"
    path.write_text(json.dumps({"users": list(users), "user_data": users}))
    same(conversions.vehicle({"mytrain.json": path}), wanted)


def har_archive(content, rows=slice(None)):
    """UCI's archive in an archive, with the first half of the rows as its training part."""
    windows = content["x"][rows] * content["step"][:, None].astype(float)
    subject, label = content["subject"][rows], content["y"][rows] + 1
    middle = len(label) // 2
    members = {
        "UCI HAR Dataset/activity_labels.txt": _lines(f"{n} {a}" for n, a in enumerate(content["activities"], 1))
    }
    for part, chosen in (("train", slice(None, middle)), ("test", slice(middle, None))):
        folder = f"UCI HAR Dataset/{part}"
        members[f"{folder}/subject_{part}.txt"] = _lines(map(str, subject[chosen]))
        members[f"{folder}/y_{part}.txt"] = _lines(map(str, label[chosen]))
        for place, channel in enumerate(content["channels"]):
            text = io.StringIO()
            np.savetxt(text, windows[chosen, place], "%.9e")
            members[f"{folder}/Inertial Signals/{channel}_{part}.txt"] = text.getvalue()
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return inner.getvalue()


def _lines(lines):
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("wrapped", [True, False])
def test_windows_that_share_half_their_samples_are_chained(tmp_path, wrapped):
    stream = DRAW.integers(-2000, 2000, size=(9, 8 * 5)).astype(np.int16)
    windows = np.stack([stream[:, start : start + 8] for start in (0, 4, 8, 20, 24, 28)])
    content = {
        "x": windows,
        "step": conversions.HAR_STEPS,
        "y": np.array([0, 0, 0, 0, 1, 1], np.uint8),  # the last two go on, in another activity and another person
        "subject": np.array([1, 1, 1, 1, 1, 2], np.uint8),
        "segment": np.array([0, 0, 0, 1, 2, 3], np.int16),
        "channels": np.array(conversions.HAR_CHANNELS),
        "activities": np.array(["WALKING", "SITTING"]),
    }
    archive = har_archive(content)
    path = tmp_path / "har.zip"
    path.write_bytes(archive)
    if wrapped:
        write_zip(path, {"UCI HAR Dataset.zip": archive, "UCI HAR Dataset.names": b""})
    same(conversions.uci_har({"har.zip": path}), {"tabular/uci_har_windows.npz.xz": content})


def test_real_windows_are_rebuilt(tmp_path):
    (content,) = real("uci_har").values()
    rows = content["subject"] <= 2  # all thirty take a minute
    path = write_zip(tmp_path / "har.zip", {"UCI HAR Dataset.zip": har_archive(content, rows)})
    (built,) = conversions.uci_har({"har.zip": path}).values()
    whole = ("step", "channels", "activities")
    wanted = {name: values if name in whole else values[rows] for name, values in content.items()}
    same({"windows": built}, {"windows": wanted})


def idx_files(folder, parts):
    return {name: write_idx(folder / name, values) for name, values in parts.items()}


def qmnist(labels, series, writers, more=0):
    columns = np.zeros((len(labels) + more, 8), np.int32)
    columns[: len(labels), :3] = np.stack([labels, series, writers], axis=1)
    return columns


def mnist_originals(content):
    found = {}
    for part, prefix, more in (("train", "train", 0), ("test", "t10k", 3)):
        found[f"{prefix}-images-idx3-ubyte.gz"] = content[f"x_{part}"]
        found[f"{prefix}-labels-idx1-ubyte.gz"] = content[f"y_{part}"]
        columns = (content[f"{key}_{part}"] for key in ("y", "hsf", "writer"))
        found[f"qmnist-{part}-labels-idx2-int.gz"] = qmnist(*columns, more)
    return found


def test_real_writers_are_rebuilt(tmp_path):
    (whole,) = real("mnist_writers").values()
    content = {name: values[:500] for name, values in whole.items()}
    originals = idx_files(tmp_path, mnist_originals(content))
    same(conversions.mnist_writers(originals), {"images/mnist_writers.npz.xz": content})
    write_idx(originals["t10k-labels-idx1-ubyte.gz"], content["y_test"][::-1].copy())
    with pytest.raises(RequestError, match="labels of QMNIST and MNIST differ in the test part"):
        conversions.mnist_writers(originals)


def scattered(content):
    """Full sets that hold the rows of a subset at their places, and noise elsewhere."""
    sizes = {"train": int(content["idx_train"].max()) + 1, "test": 10000}
    for part, rows in sizes.items():
        images = np.zeros((rows, *content[f"x_{part}"].shape[1:]), np.uint8)
        labels = np.zeros(rows, np.uint8)
        images[content[f"idx_{part}"]], labels[content[f"idx_{part}"]] = content[f"x_{part}"], content[f"y_{part}"]
        yield part, images, labels


def test_the_real_subset_of_fashion_mnist_is_rebuilt(tmp_path):
    wanted = real("fashion_mnist")
    (content,) = wanted.values()
    parts = {}
    for part, images, labels in scattered(content):
        prefix = {"train": "train", "test": "t10k"}[part]
        parts |= {f"{prefix}-images-idx3-ubyte.gz": images, f"{prefix}-labels-idx1-ubyte.gz": labels}
    same(conversions.fashion_mnist(idx_files(tmp_path, parts)), wanted)


def test_a_subset_of_too_few_images_is_refused(tmp_path):
    few = {"images-idx3": np.ones((5, 2, 2), np.uint8), "labels-idx1": np.ones(5, np.uint8)}
    parts = {f"{prefix}-{kind}-ubyte.gz": few[kind] for prefix in ("train", "t10k") for kind in few}
    with pytest.raises(RequestError, match="The train part has 5 images"):
        conversions.fashion_mnist(idx_files(tmp_path, parts))


def test_the_real_half_of_kmnist_is_rebuilt(tmp_path):
    wanted = real("kmnist")
    (content,) = wanted.values()
    parts = {"t10k-images-idx3-ubyte.gz": content["x"], "t10k-labels-idx1-ubyte.gz": content["y"]}
    same(conversions.kmnist(idx_files(tmp_path, parts)), wanted)


def test_the_real_subset_of_cifar_is_rebuilt(tmp_path):
    wanted = real("cifar10")
    (content,) = wanted.values()
    records = {part: np.c_[labels, images.reshape(len(images), -1)] for part, images, labels in scattered(content)}
    batches = {f"data_batch_{place + 1}": records["train"][10000 * place : 10000 * (place + 1)] for place in range(5)}
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w") as archive:
        for name, rows in (batches | {"test_batch": records["test"]}).items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = rows.size
            archive.addfile(member, io.BytesIO(rows.astype(np.uint8).tobytes()))
    same(conversions.cifar10({path.name: path}), wanted)


def test_the_real_emnist_images_are_rebuilt(tmp_path):
    (content,) = real("emnist").values()
    content = content | {name: content[name][:200] for name in "xy"}
    stored = {"images-idx3": content["x"].transpose(0, 2, 1), "labels-idx1": content["y"]}
    members = {
        f"gzip/emnist-byclass-test-{kind}-ubyte.gz": write_idx(tmp_path / f"{kind}.gz", values).read_bytes()
        for kind, values in stored.items()
    }
    mapping = _lines(f"{place} {ord(letter)}" for place, letter in enumerate(content["classes"]))
    path = write_zip(tmp_path / "gzip.zip", members | {"gzip/emnist-byclass-mapping.txt": mapping})
    same(conversions.emnist({"gzip.zip": path}), {"images/emnist_byclass_32k.npz.xz": content})


PLAY = """<?xml version="1.0"?><!DOCTYPE PLAY SYSTEM "play.dtd">
<PLAY><TITLE>T</TITLE><PROLOGUE><SPEECH><SPEAKER>Chorus</SPEAKER><LINE>Hear.</LINE></SPEECH></PROLOGUE>
<ACT><TITLE>ACT I</TITLE><SCENE><TITLE>S</TITLE><STAGEDIR>Enter</STAGEDIR>
<SPEECH><SPEAKER>A</SPEAKER><SPEAKER>B</SPEAKER>
<LINE><STAGEDIR>Aside</STAGEDIR> One,</LINE><LINE>two.</LINE></SPEECH></SCENE>
<EPILOGUE><SPEECH><SPEAKER/><LINE>Go.</LINE></SPEECH></EPILOGUE></ACT></PLAY>"""


def test_plays_become_speeches(tmp_path):
    (tmp_path / "play.xml").write_text(PLAY)
    (text,) = conversions.shakespeare({"play.xml": tmp_path / "play.xml"}).values()
    speeches = [json.loads(line) for line in text.decode().splitlines()]
    assert speeches == [
        {"play": "play", "act": 0, "scene": 0, "role": "Chorus", "text": "Hear."},
        {"play": "play", "act": 1, "scene": 1, "role": "A and B", "text": "One,\ntwo."},
        {"play": "play", "act": 1, "scene": 1, "role": "UNKNOWN", "text": "Go."},
    ]


def test_packed_content_comes_out_again(tmp_path):
    arrays = {"x": np.arange(6).reshape(2, 3), "names": np.array(["a", "b"])}
    for name, content in (("a.npz.xz", arrays), ("b.bz2", b"text"), ("c.data", b"text"), ("d.jsonl.xz", b"{}")):
        (tmp_path / name).write_bytes(pack(name, content))
        assert digest(unpack(tmp_path / name)) == digest(content)
    assert digest(arrays) != digest(arrays | {"x": np.arange(6).reshape(3, 2)})
