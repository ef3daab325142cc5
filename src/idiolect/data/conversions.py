# SPDX-License-Identifier: Apache-2.0
"""Data sets as their homes publish them, converted to the files that we read: one pure function per set."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.compressed import read_bytes
from idiolect.data.packing import Content
from idiolect.data.sources import parse_idx, read_idx, read_libsvm, read_npz

# originals by the name of their file -> what our files hold, by their path in the folder of data sets
Convert = Callable[[Mapping[str, Path]], dict[str, Content]]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
POSITIONS = Path(__file__).parent / "bundled_files" / "positions"
MNIST_PARTS = {"train": "train", "test": "t10k"}  # ours -> how its files begin
IDX_KINDS = ("images-idx3", "labels-idx1")
EMNIST_ROWS = 32258  # of the by-class test images; the first ones
HAR_PARTS = ("train", "test")
HAR_CHANNELS = tuple(f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
HAR_STEPS = np.repeat(np.array([2**-12, 2**-11, 2**-12], np.float32), 3)  # in g, rad/s and g


def _only(originals: Mapping[str, Path]) -> Path:
    (path,) = originals.values()
    return path


def _member(archive: zipfile.ZipFile, ending: str) -> bytes:
    """The content of the one member whose path ends so; archives differ in the folders around it."""
    names = [name for name in archive.namelist() if f"/{name}".endswith(f"/{ending}")]
    if len(names) != 1:
        raise RequestError(f"{archive.filename} holds {len(names)} files {ending}, but one is needed.")
    return archive.read(names[0])


def libsvm(originals: Mapping[str, Path]) -> dict[str, Content]:
    """LIBSVM text stays text, packed; a page of another kind is refused."""
    found: dict[str, Content] = {}
    for name, path in originals.items():
        read_libsvm(path)
        found[f"libsvm/{name}.bz2"] = read_bytes(path)
    return found


def heart_disease(originals: Mapping[str, Path]) -> dict[str, Content]:
    """The processed tables of the four hospitals, as they stand in UCI's archive."""
    with zipfile.ZipFile(_only(originals)) as archive:
        tables = {hospital: _member(archive, f"processed.{hospital}.data") for hospital in HOSPITALS}
    return {f"tabular/heart_disease/processed.{hospital}.data": table for hospital, table in tables.items()}


def _cells(path: Path, inputs: str, targets: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and the task's number of every row, from a MATLAB file with one cell per task."""
    from scipy.io import loadmat

    content = loadmat(path)
    tasks = content[inputs].ravel()
    # MATLAB keeps one cell per task: row by row it is the number of the cell
    numbers = np.repeat(np.arange(len(tasks), dtype=np.uint8), [len(task) for task in tasks])
    return np.concatenate(list(tasks)), np.concatenate(list(content[targets].ravel())).ravel(), numbers


def school(originals: Mapping[str, Path]) -> dict[str, Content]:
    """School.mat of MALSAR: cells X and Y, one per school."""
    x, y, schools = _cells(_only(originals), "X", "Y")
    return {"tabular/school139.npz.xz": {"x": x.astype(np.uint8), "y": y.astype(np.uint8), "school": schools}}


def landmine(originals: Mapping[str, Path]) -> dict[str, Content]:
    """LandmineData.mat: cells feature and label, one per minefield."""
    x, y, fields = _cells(_only(originals), "feature", "label")
    return {"tabular/landmine29.npz.xz": {"x": x.astype(np.float64), "y": y.astype(np.uint8), "task": fields}}


def vehicle(originals: Mapping[str, Path]) -> dict[str, Content]:
    """The training part of Ditto's split: JSON with the rows of every sensor."""
    content = json.loads(read_bytes(_only(originals)))
    users = [content["user_data"][name] for name in content["users"]]
    x = np.concatenate([np.array(user["x"], np.float32) for user in users])
    y = np.concatenate([np.array(user["y"]).ravel() for user in users]).astype(np.int8)
    sensors = np.repeat(np.arange(len(users), dtype=np.uint8), [len(user["y"]) for user in users])
    return {"tabular/vehicle23.npz.xz": {"x": x, "y": y, "sensor": sensors}}


def _numbers(archive: zipfile.ZipFile, ending: str) -> np.ndarray:
    text = _member(archive, ending).decode("ascii")
    rows = text.count("\n") + (not text.endswith("\n"))
    return np.array(text.split(), np.float64).reshape(rows, -1)


def _inner(path: Path) -> BinaryIO:
    """The archive with the windows; UCI wraps it in a second one."""
    with zipfile.ZipFile(path) as outer:
        wrapped = [name for name in outer.namelist() if name.endswith("UCI HAR Dataset.zip")]
        return io.BytesIO(outer.read(wrapped[0])) if wrapped else open(path, "rb")


def uci_har(originals: Mapping[str, Path]) -> dict[str, Content]:
    """Inertial windows by person and activity, in whole steps; neighbours that share half their samples are chained."""
    with _inner(_only(originals)) as file, zipfile.ZipFile(file) as archive:
        names = _member(archive, "activity_labels.txt").decode("ascii").split()[1::2]
        signals = [
            np.concatenate([_numbers(archive, f"Inertial Signals/{channel}_{part}.txt") for part in HAR_PARTS])
            for channel in HAR_CHANNELS
        ]
        subject, label = (
            np.concatenate([_numbers(archive, f"{part}/{word}_{part}.txt") for part in HAR_PARTS]).ravel().astype(int)
            for word in ("subject", "y")
        )
    # by person, then activity, then as they came: windows of one recording stay neighbours
    order = np.lexsort((np.arange(len(label)), label, subject))
    windows = np.stack(signals, axis=1)[order]
    subject, label = subject[order], label[order]
    # a window that does not begin with the second half of the one before it begins a new recording
    half = windows.shape[2] // 2
    chained = (windows[1:, :, :half] == windows[:-1, :, half:]).all(axis=(1, 2))
    chained &= (subject[1:] == subject[:-1]) & (label[1:] == label[:-1])
    content: dict[str, np.ndarray] = {
        "x": np.rint(windows / HAR_STEPS[:, None]).astype(np.int16),
        "step": HAR_STEPS,
        "y": (label - 1).astype(np.uint8),
        "subject": subject.astype(np.uint8),
        "segment": np.concatenate([[0], np.cumsum(~chained)]).astype(np.int16),
        "channels": np.array(HAR_CHANNELS),
        "activities": np.array(names),
    }
    return {"tabular/uci_har_windows.npz.xz": content}


def _images_and_labels(originals: Mapping[str, Path], prefix: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (read_idx(originals[f"{prefix}-{kind}-ubyte.gz"]) for kind in IDX_KINDS)
    return images, labels


def mnist_writers(originals: Mapping[str, Path]) -> dict[str, Content]:
    """MNIST's images with the writers that QMNIST found: columns label, series, writer of its extended labels."""
    content: dict[str, np.ndarray] = {}
    for part, prefix in MNIST_PARTS.items():
        images, labels = _images_and_labels(originals, prefix)
        # QMNIST's test part is longer: it begins with MNIST's
        known = read_idx(originals[f"qmnist-{part}-labels-idx2-int.gz"])[: len(images)]
        if not np.array_equal(known[:, 0], labels):
            raise RequestError(f"The labels of QMNIST and MNIST differ in the {part} part; fetch the files again.")
        content |= {f"x_{part}": images, f"y_{part}": labels}
        content |= {f"writer_{part}": known[:, 2].astype(np.int16), f"hsf_{part}": known[:, 1].astype(np.uint8)}
    return {"images/mnist_writers.npz.xz": content}


def _chosen(name: str, rows: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Content]:
    """The balanced subset whose positions come with the package, as gaps from one row to the next."""
    gaps = read_npz(POSITIONS / f"{name}.npz.xz")
    content: dict[str, np.ndarray] = {}
    for part, (images, labels) in rows.items():
        places = np.cumsum(gaps[f"gaps_{part}"], dtype=np.int64)
        if places[-1] >= len(images):
            raise RequestError(f"The {part} part has {len(images)} images, but row {places[-1]} is needed.")
        content |= {f"x_{part}": images[places], f"y_{part}": labels[places], f"idx_{part}": places.astype(np.uint16)}
    return {f"images/{name}.npz.xz": content}


def fashion_mnist(originals: Mapping[str, Path]) -> dict[str, Content]:
    """10000 training and 2000 test images of the four IDX files."""
    rows = {part: _images_and_labels(originals, prefix) for part, prefix in MNIST_PARTS.items()}
    return _chosen("fashion_mnist_sub", rows)


def kmnist(originals: Mapping[str, Path]) -> dict[str, Content]:
    """The test half of KMNIST, whole."""
    images, labels = _images_and_labels(originals, "t10k")
    return {"images/kmnist_t10k.npz.xz": {"x": images, "y": labels}}


def _records(archive: tarfile.TarFile, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images (rows, 3, 32, 32) and labels of CIFAR-10's binary records: one byte of label, 3072 of pixels."""
    parts = []
    for name in names:
        file = archive.extractfile(f"cifar-10-batches-bin/{name}.bin")
        assert file is not None  # a missing member is a KeyError
        parts.append(np.frombuffer(file.read(), np.uint8).reshape(-1, 1 + 3072))
    # five files of training images are one set
    records = np.concatenate(parts)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def cifar10(originals: Mapping[str, Path]) -> dict[str, Content]:
    """10000 training and 2000 test images of the binary version."""
    batches = tuple(f"data_batch_{number}" for number in range(1, 6))
    with tarfile.open(_only(originals)) as archive:
        return _chosen("cifar10_sub", {"train": _records(archive, batches), "test": _records(archive, ("test_batch",))})


def emnist(originals: Mapping[str, Path]) -> dict[str, Content]:
    """The first by-class test images; the archive stores them mirrored along the diagonal."""
    with zipfile.ZipFile(_only(originals)) as archive:
        packed = [_member(archive, f"emnist-byclass-test-{kind}-ubyte.gz") for kind in IDX_KINDS]
        mapping = _member(archive, "emnist-byclass-mapping.txt").decode("ascii").split()
    images, labels = (parse_idx(gzip.decompress(part), _only(originals))[:EMNIST_ROWS] for part in packed)
    classes = np.array([chr(int(code)) for code in mapping[1::2]])
    upright = np.ascontiguousarray(images.transpose(0, 2, 1))
    return {"images/emnist_byclass_32k.npz.xz": {"x": upright, "y": labels, "classes": classes}}


def shakespeare(originals: Mapping[str, Path]) -> dict[str, Content]:
    """Jon Bosak's XML of the plays: one JSON object per speech, plays by name, stage directions left out."""
    lines = [
        json.dumps({"play": Path(name).stem, **speech}, ensure_ascii=False)
        for name, path in sorted(originals.items())
        for speech in _speeches(ElementTree.parse(path).getroot())
    ]
    return {"text/shakespeare_speeches.jsonl.xz": "".join(f"{line}\n" for line in lines).encode("utf-8")}


def _speeches(play: ElementTree.Element) -> Iterator[dict[str, str | int]]:
    """Act 0 is a prologue or induction, act 99 an epilogue; scene 0 is before an act's first scene."""
    number = 0
    for part in play:
        number += part.tag == "ACT"
        act = {"ACT": number, "PROLOGUE": 0, "INDUCT": 0, "EPILOGUE": 99}.get(part.tag)
        if act is None:
            continue
        scene = 0
        for inner in [part] if part.tag != "ACT" and part.find("SCENE") is None else part:
            scene += inner.tag == "SCENE"
            for speech in inner.iter("SPEECH"):
                roles = [" ".join("".join(one.itertext()).split()) for one in speech.findall("SPEAKER")]
                text = "\n".join(filter(None, map(_line, speech.iter("LINE"))))
                role = " and ".join(filter(None, roles)) or "UNKNOWN"
                if text:
                    yield {"act": act, "scene": scene, "role": role, "text": text}


def _line(line: ElementTree.Element) -> str:
    """The spoken words of a line."""
    spoken = [line.text or "", *(child.tail or "" for child in line if child.tag == "STAGEDIR")]
    return " ".join("".join(spoken).split())
