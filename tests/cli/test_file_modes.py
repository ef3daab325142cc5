# SPDX-License-Identifier: Apache-2.0
"""Who may read a run folder is the user's choice: every file in it follows the umask."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from idiolect.data.store import RecordFile


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_every_file_of_a_run_follows_the_umask(idiolect, here, umask):
    before = os.umask(umask)
    try:
        answer = idiolect("run", "spec.toml", "--out", "out")
        assert answer.code == 0, answer.err
        assert idiolect("predict", "out", "hospitals.csv", "--method", "fedavg", "--out", "answers.csv").code == 0
        states = RecordFile(here / "client_states.bin", [((2,), np.dtype("f4"))], 3)
    finally:
        os.umask(before)
    files = [here / "answers.csv", states.path, *(path for path in (here / "out").rglob("*") if path.is_file())]
    assert any(path.suffix == ".safetensors" for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (here / "out").rglob("*") if path.is_dir()}
    assert folders == {0o777 & ~umask}
