# SPDX-License-Identifier: Apache-2.0
"""Clients of a single row, which have none where it is held out."""

from __future__ import annotations

import numpy as np

from idiolect.collaborate.batched import Groups
from idiolect.collaborate.blocks import split_into_blocks


def _one_row_each(bench, agents):
    return bench.line_sample(bench.lines(np.tile([[1.0, -0.5]], (agents, 1)), [1] * agents))


def test_groups_without_a_row_have_no_gradient_and_no_curvature(bench):
    sample = _one_row_each(bench, 8)
    nothing = np.zeros((0, 1))
    groups = Groups(sample.loss, sample.design[:0], nothing, np.zeros(3, int))
    gradients, hessians = groups.derivatives_at(nothing)
    assert (gradients.shape, hessians.shape) == ((2, 3), (2, 3, 3))
    assert not gradients.any()
    assert not hessians.any()


def test_no_block_is_made_of_agents_without_a_row_alone(bench):
    training = _one_row_each(bench, 240).without(0)
    assert 0 < (training.counts == 0).sum() < 240
    blocks, _ = split_into_blocks(training, 0.1, 20)
    assert sorted(np.concatenate(blocks)) == list(range(240))
    assert all(len(members) <= 20 and training.counts[members].any() for members in blocks)
