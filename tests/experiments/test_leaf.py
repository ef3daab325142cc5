# SPDX-License-Identifier: Apache-2.0
"""LEAF files in a spec: texts and token numbers are never magnitudes, texts beside numbers are classes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import DataSpec


def read(folder, x, y, **settings):
    data = {user: {"x": [x] * 6, "y": [y[row % len(y)] for row in range(6)]} for user in ("u", "v")}
    content = {"users": ["u", "v"], "num_samples": [6, 6], "user_data": data}
    (folder / "leaf.json").write_text(json.dumps(content))
    return build_data(DataSpec("leaf", str(folder / "leaf.json"), settings=settings))[0]


def test_texts_are_tokens_and_only_the_last_one_has_a_target(tmp_path):
    federation = read(tmp_path, "to b", ["e", "o"])
    assert federation.task.classes == tuple(" beot")
    assert federation.train.inputs.dtype == np.int32
    assert federation.train.targets.shape[1] == 4
    assert (federation.train.targets[:, :-1] == -1).all()
    assert set(federation.train.targets[:, -1]) <= {2, 3}
    assert any("tokens" in note for note in federation.notes)


def test_numbers_of_tokens_are_refused_or_read_as_tokens(tmp_path):
    with pytest.raises(RequestError, match=r"up to 300, as tokens are; set data\.settings\.vocabulary"):
        read(tmp_path, [300, 4], [0, 1])
    federation = read(tmp_path, [300, 4], [0, 1], vocabulary=301)
    assert federation.train.inputs.dtype == np.int32
    assert federation.task.outputs == 301
    with pytest.raises(RequestError, match="must hold tokens 0 to 8"):
        read(tmp_path, [300, 4], [0, 1], vocabulary=9)


def test_bytes_are_magnitudes_with_a_warning_and_decimals_without(tmp_path):
    assert any("magnitudes" in text for text in read(tmp_path, [255, 4], [0, 1]).warnings)
    assert read(tmp_path, [255.0, 4.5], [0, 1]).warnings == ()


def test_texts_beside_numbers_are_classes(tmp_path):
    federation = read(tmp_path, [0.5, 1.5], ["cat", "horse"])
    assert federation.task.classes == ("cat", "horse")


def test_texts_with_labels_are_refused(tmp_path):
    with pytest.raises(RequestError, match="y must hold the next character"):
        read(tmp_path, "good film", [0.5, 1.5])
