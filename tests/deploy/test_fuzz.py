# SPDX-License-Identifier: Apache-2.0
"""Spoilt messages: refused with a sentence, or valid; `python -m benchmarks deploy-fuzz` sends ten thousand."""

from __future__ import annotations

import pytest
from benchmarks.deploy_fuzz import fuzz


@pytest.mark.parametrize("seed", [1])
def test_spoilt_messages_are_refused_and_break_nothing(tmp_path, seed):
    ended, longest = fuzz(300, tmp_path, seed)
    assert set(ended) <= {"refused", "accepted"}, ended
    assert ended["refused"] > 200
    assert longest < 60
