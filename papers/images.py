# SPDX-License-Identifier: Apache-2.0
"""Image sets without clients of their own, as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect import RequestError
from idiolect.core.checks import nearest
from idiolect.data import read_npz
from idiolect.data.dataset_files import dataset_file
from idiolect.data.shared_files import scale_pixels

IMAGE_FILES = {
    "mnist": "mnist_writers",
    "fashion_mnist": "fashion_mnist_sub",
    "kmnist": "kmnist_t10k",
    "cifar10": "cifar10_sub",
    "emnist": "emnist_byclass_32k",
}


def image_file(name: str) -> Path:
    """Where the named set is; RequestError with the command that gets it where it is not here."""
    if name not in IMAGE_FILES:
        raise RequestError(f"There is no image set {name!r}.{nearest(name, IMAGE_FILES)}")
    return dataset_file(f"images/{IMAGE_FILES[name]}.npz.xz")


def image_arrays(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train images, train labels, test images, test labels; images (rows, height, width, channels) in [0, 1].

    Names: mnist, fashion_mnist, kmnist, cifar10, emnist. Sets with one part only give no test rows.
    """
    content = read_npz(image_file(name))
    if "x" in content:
        return (
            scale_pixels(content["x"]),
            content["y"].astype(np.int32),
            scale_pixels(content["x"][:0]),
            np.zeros(0, np.int32),
        )
    train, test = (
        (scale_pixels(content[f"x_{part}"]), content[f"y_{part}"].astype(np.int32)) for part in ("train", "test")
    )
    return *train, *test
