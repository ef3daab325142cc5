# SPDX-License-Identifier: Apache-2.0
"""Neighbours of many clients: pairs are judged inside blocks of like clients, and every number comes from rows unseen.

Blocks are found anew without each fold: sorted by the very rows that judge them, clients would find others with the
same noise, and call it likeness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from idiolect.collaborate.blocks import LEAST_SHARE, Neighbourhoods, listed, split_into_blocks
from idiolect.collaborate.exchange import Exchange
from idiolect.collaborate.quadratic import Sample, common_model, expand, quick_models, row_weights
from idiolect.collaborate.weights import (
    Effort,
    candidates,
    exchange_of,
    held_out_answers,
    held_out_losses,
    mixed,
    stack,
)

BLOCK = 100  # clients of a block

Report = Callable[[str, int, int], None]


class Found(NamedTuple):
    """What blocks say of every client's neighbours."""

    losses: np.ndarray  # (rows,) held-out loss of every row
    neighbours: Neighbourhoods
    models: np.ndarray  # (clients, size) on all rows: the mixture of the candidates' models
    mixture: dict[str, float]  # what each candidate contributes, mean over clients
    held_out: dict[str, float]  # mean held-out loss of each candidate, over clients


def learn_many(sample: Sample, penalty: float, effort: Effort, report: Report) -> Found:
    """Blocks, candidates inside them, and per block their best mixture on held-out rows."""
    point = common_model(sample, penalty)  # one for all: sums at several points would tell a client's rows
    names, outputs, fold_blocks, judging = _judge_candidates(sample, point, penalty, effort, report)
    losses = np.empty(len(sample.owner))
    for fold, blocks in enumerate(fold_blocks):
        inside = sample.fold == fold
        for members in blocks:  # the mixture has not seen the fold either
            rows = sample.rows_of(members)
            apart, here = rows[~inside[rows]], rows[inside[rows]]
            mixture = stack(sample.some_agents(members).take(~inside[rows]), outputs[apart])
            answers = np.einsum("rco,c->ro", outputs[here], mixture)
            losses[here] = sample.loss.row_losses(answers, sample.goals[here])
    blocks, exchange = split_into_blocks(sample, penalty, BLOCK)
    exchange = exchange + judging
    models, found = np.empty((sample.agents, sample.size)), []
    totals = np.zeros(len(names))
    for number, members in enumerate(blocks):
        part = sample.some_agents(members)
        mixture = stack(part, outputs[sample.rows_of(members)])
        expansion = expand(part, point)
        family = candidates(part, expansion, penalty, effort)
        weights = [row_weights(shares, part.counts) for shares in family.values()]
        every = np.stack([quick_models(part, expansion, own, penalty) for own in weights])
        models[members] = np.einsum("c,cap->ap", mixture, every)
        # in single precision: many matrices wait for the end
        found.append((members, mixed(mixture, family).astype(np.float32)))
        totals += mixture * len(members)
        exchange = exchange + exchange_of(part, effort)
        report("blocks", sample.folds * len(blocks) + number + 1, (sample.folds + 1) * len(blocks))
    lists = listed(found, sample.agents, exchange, LEAST_SHARE)
    mixtures = dict(zip(names, (totals / sample.agents).tolist()))
    return Found(losses, lists, models, mixtures, held_out_losses(sample, names, outputs))


def _judge_candidates(
    sample: Sample, point: np.ndarray, penalty: float, effort: Effort, report: Report
) -> tuple[list[str], np.ndarray, list[list[np.ndarray]], Exchange]:
    """Names of the candidates, (rows, candidates, outputs) what their models answer without a row's fold, blocks of
    each fold, and what it has cost."""
    outputs, names, all_blocks, exchange = np.zeros(0), list[str](), [], Exchange()
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        there = np.flatnonzero(sample.fold == fold)
        blocks, cost = split_into_blocks(training, penalty, BLOCK)
        exchange = exchange + cost
        for number, members in enumerate(blocks):
            part, asked = training.some_agents(members), judged.some_agents(members)
            expansion = expand(part, point)
            family = candidates(part, expansion, penalty, effort)
            answers = held_out_answers(part, asked, expansion, family, penalty)
            if not names:
                names = list(family)
                # in single precision: rows x candidates x outputs is the largest array of all
                outputs = np.zeros((len(sample.owner), *answers.shape[1:]), np.float32)
            outputs[there[judged.rows_of(members)]] = answers
            report("blocks", fold * len(blocks) + number + 1, (sample.folds + 1) * len(blocks))
        all_blocks.append(blocks)
    return names, outputs, all_blocks, exchange
