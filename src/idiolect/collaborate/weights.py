# SPDX-License-Identifier: Apache-2.0
"""Whose rows count how much for whom: row-stochastic Lambda from estimated discrepancies.

Noisy estimates must not be trusted one by one. A family of candidate matrices goes from every client alone over
neighbourhoods of growing width and groups of growing size to all together. What they are worth is measured on
rows that neither the discrepancies nor the models have seen, over all clients at once; the answer is the convex
mixture of candidates with the least held-out loss (stacking). Alone and all together are candidates, so that where the
others tell nothing it costs next to nothing to have asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import nnls
from scipy.spatial.distance import squareform

from idiolect.collaborate.batched import own_answers
from idiolect.collaborate.excess import Excess, judging, pairwise_excess
from idiolect.collaborate.exchange import Exchange, Parcel
from idiolect.collaborate.quadratic import (
    Expansion,
    Sample,
    common_model,
    expand,
    quick_models,
    row_weights,
    score,
    score_own,
)

_EXPANSIONS = 4  # of log losses while stacking


class Effort(NamedTuple):
    """Which candidates are tried."""

    widths: tuple[float, ...] = (0.5, 2.0, 8.0, 32.0)  # of a neighbourhood, in nats of evidence against a pair
    groups: tuple[int, ...] = (2, 3, 5, 8, 13, 21)
    sortings: int = 4  # rounds of fitting the groups' models and sorting clients anew


THOROUGH = Effort()
QUICK = Effort(groups=(2, 5), sortings=2)  # inside blocks of many clients that are alike already


Family = dict[str, np.ndarray]  # ways to share by name: row-stochastic matrices lambda_ij, (clients, clients)


class Learned(NamedTuple):
    """The mixture and how it came about."""

    shares: np.ndarray  # (clients, clients) Lambda
    mixture: dict[str, float]  # what each candidate contributes
    held_out: dict[str, float]  # mean held-out loss of each candidate, over clients
    fold_shares: np.ndarray  # (folds, clients, clients): Lambda found without the rows of a fold, honest about them


def alone(agents: int) -> np.ndarray:
    """Lambda = identity."""
    return np.eye(agents)


def together(counts: np.ndarray) -> np.ndarray:
    """Every row of every client counts the same."""
    return np.tile(counts / counts.sum(), (len(counts), 1))


def neighbourhood(excess: Excess, counts: np.ndarray, width: float) -> np.ndarray:
    """lambda_ij ~ n_j exp(-max(0, evidence)/width), evidence = excess / (noise_i/n_i + noise_j/n_j) in nats.

    The excess is held out, hence already cleared of noise on average.
    """
    kernel = np.exp(-np.maximum(evidence_in_nats(excess, counts), 0.0) / width)
    np.fill_diagonal(kernel, 1.0)
    shares = kernel * np.maximum(counts, 1)
    return shares / shares.sum(axis=1, keepdims=True)


def evidence_in_nats(excess: Excess, counts: np.ndarray) -> np.ndarray:
    """(clients, clients): how strongly i's rows speak against j's model, allowing for the noise of both."""
    noise = excess.noise / np.maximum(counts, 1)
    return excess.value / (noise[:, None] + noise)


def grouped(sample: Sample, expansion: Expansion, penalty: float, excess: Excess, effort: Effort) -> Family:
    """Mixtures of K tasks: clients sorted into K groups by a tree over the pairs, then by what serves them best.

    r_ik ~ share_k exp(-n_i (excess of group k's model on i's rows) / noise_k) noise_k^(-d/2), d coefficients: the
    normal likelihood of i's own optimum under group k. Group models never saw the rows they are judged on;
    lambda_ij = sum_k r_ik r_jk n_j / (rows of group k).
    """
    counts = sample.counts
    known = sorted({amount for amount in effort.groups if amount < sample.agents})
    if not known:
        return {}
    evidence = np.maximum(evidence_in_nats(excess, counts), 0.0)
    # a tree needs one distance per pair; evidence differs by who judges whom
    distance = (evidence + evidence.T) / 2
    tree = linkage(squareform(distance, checks=False), "complete")
    own = quick_models(sample, expansion, np.eye(sample.agents), penalty)
    least = sample.sums(score_own(sample, own))
    parts = [sample.only(fold) for fold in range(sample.folds)]
    found = {}
    for amount in known:
        # the tree only starts the sorting, which ends at a local optimum: groups that begin apart stay apart
        label = fcluster(tree, amount, "maxclust") - 1
        belonging = np.eye(label.max() + 1)[label]
        for _ in range(effort.sortings):
            losses = _group_losses(sample, parts, expansion, penalty, belonging)
            size = np.maximum(belonging.sum(axis=0), 1e-9)
            noise = (belonging.T @ excess.noise + 1e-9 * excess.noise.mean()) / size
            nats = np.maximum(losses - least[:, None], 0) / noise + 0.5 * sample.size * np.log(noise)
            # less the largest before the exponential: hundreds of nats would all underflow to 0
            odds = np.log(size / size.sum()) - nats
            belonging = np.exp(odds - odds.max(axis=1, keepdims=True))
            belonging /= belonging.sum(axis=1, keepdims=True)
        held = np.maximum(belonging.T @ counts, 1e-300)
        shares = (belonging / held) @ (belonging.T * counts)
        found[f"{amount} groups"] = shares / shares.sum(axis=1, keepdims=True)
    return found


def _group_losses(
    sample: Sample, parts: list[Sample], expansion: Expansion, penalty: float, belonging: np.ndarray
) -> np.ndarray:
    """(clients, groups): total loss of a client's rows under every group's model that has not seen them."""
    total = np.zeros((sample.agents, belonging.shape[1]))
    for fold, judged in enumerate(parts):
        if len(judged.owner):
            models = quick_models(sample, expansion, belonging.T, penalty, without=fold)
            total += judged.sums(score(judged, models))
    return total


def candidates(sample: Sample, expansion: Expansion, penalty: float, effort: Effort = THOROUGH) -> Family:
    """The family, from alone to all together, found on these rows."""
    excess, counts = pairwise_excess(sample, expansion, penalty), sample.counts
    widths = {f"width {width:g}": neighbourhood(excess, counts, width) for width in effort.widths}
    groups = grouped(sample, expansion, penalty, excess, effort)
    return {"alone": alone(sample.agents), **widths, **groups, "everybody": together(counts)}


def learn_weights(sample: Sample, penalty: float = 0.0) -> Learned:
    """Lambda for these clients: candidates on all rows, mixed as their held-out losses say.

    Sums are taken once, at one point: log losses taken at a point per fold would tell a client's rows.
    """
    answers, rows = [], []
    whole = expand(sample, common_model(sample, penalty))
    fold_families: list[Family] = []
    for fold in range(sample.folds):
        training, judged = sample.without(fold), sample.only(fold)
        expansion = whole.leaving(fold)
        family = candidates(training, expansion, penalty)
        fold_families.append(family)
        if len(judged.owner):
            answers.append(held_out_answers(training, judged, expansion, family, penalty))
            rows.append(np.flatnonzero(sample.fold == fold))
    order = np.argsort(np.concatenate(rows))
    outputs = np.concatenate(answers)[order]
    family = candidates(sample, whole, penalty)
    mixture = stack(sample, outputs)
    fold_shares = np.stack(
        [
            mixed(stack(sample.without(fold), outputs[sample.fold != fold]), fold_families[fold])
            for fold in range(sample.folds)
        ]
    )
    losses = held_out_losses(sample, family, outputs)
    return Learned(mixed(mixture, family), dict(zip(family, mixture.tolist())), losses, fold_shares)


def exchange_of(sample: Sample, effort: Effort = THOROUGH) -> Exchange:
    """What `learn_weights` sends: sums over folds up, one model down, once; in a pass pairs and groups judged.

    For squared losses a Hessian is the matrix of second moments.
    """
    size, passes = sample.size, sample.folds + 1
    judged = judging(sample, sample.agents, sample.agents * (sample.agents - 1))
    groups = sum(amount for amount in effort.groups if amount < sample.agents) * effort.sortings * sample.agents
    rows = np.unique(sample.owner * sample.folds + sample.fold, return_counts=True)[1]
    least = int(rows.min(initial=len(sample.owner)))
    reveals = f"The server sees every client's summed gradients and Hessians per fold, of at least {least} rows."
    once = (
        Parcel("sum of gradients over the rows of a fold", (size,), len(rows)),
        Parcel("sum of Hessians over the rows of a fold", (size * (size + 1) // 2,), len(rows)),
        Parcel("model of all rows", (size,), 0, sample.agents),
    )
    each = (
        Parcel("a group's model", (size,), 0, groups * sample.folds),
        Parcel("mean loss of a group's model", (), groups * sample.folds),
        Parcel("mean loss of a neighbourhood's model", (), sample.agents * len(effort.widths)),
    )
    return Exchange(once, 0, least, reveals) + (Exchange(each, 0, least, reveals) + judged).times(passes)


def mixed(mixture: np.ndarray, family: Family) -> np.ndarray:
    """(clients, clients) shares of a mixture of candidates."""
    return np.einsum("c,cij->ij", mixture, np.stack(list(family.values())))


def held_out_answers(
    training: Sample, judged: Sample, expansion: Expansion, family: Family, penalty: float
) -> np.ndarray:
    """(rows, candidates, outputs): what every candidate's models answer on rows that they have not seen."""
    found = []
    for shares in family.values():
        models = quick_models(training, expansion, row_weights(shares, training.counts), penalty)
        found.append(own_answers(judged.loss, judged.design, models[judged.owner]))
    return np.stack(found, axis=1)


def held_out_losses(sample: Sample, names: Iterable[str], outputs: np.ndarray) -> dict[str, float]:
    """Mean loss of each candidate's answers, (rows, candidates, outputs), over clients."""
    answers = dict(zip(names, np.moveaxis(outputs, 1, 0)))
    return {
        name: float(sample.means(sample.loss.row_losses(own, sample.goals)).mean()) for name, own in answers.items()
    }


def stack(sample: Sample, outputs: np.ndarray) -> np.ndarray:
    """The convex mixture of answers, (rows, candidates, outputs), with the least mean loss over clients.

    A quadratic programme for squared losses; for log losses a few of them, each expanded where the last one ended.
    """
    per_row = 1 / np.maximum(sample.counts, 1)[sample.owner] / max(int((sample.counts > 0).sum()), 1)
    values = [per_row @ sample.loss.row_losses(outputs[:, place], sample.goals) for place in range(outputs.shape[1])]
    # from the best single candidate, so that a mixture is never worse on the rows that chose it
    mixture = np.eye(outputs.shape[1])[int(np.argmin(values))]
    value = min(values)
    for _ in range(1 if sample.loss.criterion == "squared" else _EXPANSIONS):
        answer = np.einsum("rco,c->ro", outputs, mixture)
        moves = outputs - answer[:, None]
        gradient = np.einsum("rco,ro,r->c", moves, sample.loss.row_gradients(answer, sample.goals), per_row)
        curvature = np.einsum("rco,rdo,r->cd", moves, sample.loss.curved(answer, sample.goals, moves), per_row)
        step = _on_simplex(gradient, curvature) - mixture
        length = 1.0
        while length > 1e-3:  # an expansion may promise too much
            tried = mixture + length * step
            now = float(per_row @ sample.loss.row_losses(np.einsum("rco,c->ro", outputs, tried), sample.goals))
            if now < value:
                mixture, value = tried, now
                break
            length /= 2
        else:
            break
    return mixture


def _on_simplex(gradient: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """argmin g a + a C a / 2 over a >= 0, sum a = 1, by non-negative least squares with a heavy row of ones."""
    values, vectors = np.linalg.eigh(curvature)
    # candidates that answer alike make the curvature singular
    values = np.maximum(values, 1e-12 * max(float(values.max(initial=0.0)), 1e-300))
    root = vectors * np.sqrt(values)  # C = root root'
    wanted = -(vectors / np.sqrt(values)).T @ gradient
    # heavy enough to hold the sum at 1 to four digits, light enough for the other rows to count; the rest is divided
    # out
    heavy = 1e4 * max(float(np.sqrt(values.max(initial=0.0))), 1e-150)
    matrix = np.vstack([root.T, np.full(len(gradient), heavy)])
    mixture, _ = nnls(matrix, np.append(wanted, heavy))
    return mixture / max(mixture.sum(), 1e-300)
