# SPDX-License-Identifier: Apache-2.0
"""Where a protection makes no sense, with the reason and the way out."""

from __future__ import annotations

import numpy as np

from idiolect.core import Algorithm, Batched, Prepares, RequestError
from idiolect.core.kinds import Bills, ReadsRows, SendsChanges
from idiolect.core.objective import Adapting
from idiolect.core.reduction import Sum, WeightedMean, WeightedMeanByGroup
from idiolect.core.settings import check_settings
from idiolect.protection.changes import changes_of
from idiolect.protection.choices import REMEMBERING, Compression, Protection
from idiolect.protection.masking import check_threshold

ALONE = "nothing leaves its clients in training, so that there is nothing to protect or to attack; leave it out"
RIGHT = (
    "use all layers with kind = 'quantise', or with random_k or low_rank and error_feedback = false, which are right "
    "in the mean"
)


def refuse_protection(algorithm: Algorithm, protection: Protection) -> None:
    """RequestError unless every protection makes sense around the algorithm, and beside the others."""
    check_settings(protection, "protection")
    why = (
        _unknown_uploads(algorithm)
        or (None if protection.privacy is None else _not_private(algorithm))
        or (None if protection.compression is None else _not_compressed(algorithm, protection.compression))
        or _of_one_another(protection)
    )
    if why is not None:
        raise RequestError(f"{type(algorithm).__name__} cannot be protected so: {why}.")


def refuse_masks(algorithm: Algorithm, protection: Protection) -> None:
    """RequestError unless what the server needs of the uploads is their sum."""
    masks = protection.secure_aggregation
    assert masks is not None
    check_settings(masks, "secure_aggregation")
    why = _without_sum(algorithm)
    if protection.gathers:
        why = "[robustness], and attackers that know all uploads, need every upload apart; leave them out"
    elif protection.compression is not None:
        why = "under masks every number takes its 64 bits, and [compression] would save nothing; leave it out"
    if why is not None:
        raise RequestError(f"{type(algorithm).__name__} cannot run under secure aggregation: {why}.")
    check_threshold(masks.threshold, masks.cohort)


def refuse_rows(algorithm: Algorithm, protection: Protection) -> None:
    """RequestError unless rows reach what is sent through gradients alone, so that noise on these hides them."""
    check_settings(protection, "protection")
    why = _shown_rows(algorithm)
    if protection.privacy is not None:
        why = "one level of [privacy] is put around an algorithm, got both; leave one out"
    if why is not None:
        raise RequestError(f"{type(algorithm).__name__} cannot hide its clients' rows: {why}.")


def _shown_rows(algorithm: Algorithm) -> str | None:
    """Why an upload would depend on rows past their clipped gradients."""
    if not getattr(algorithm.reduction, "sends", True):
        return ALONE
    if isinstance(algorithm.objective, Prepares):
        return "its clients prepare something from their rows before training, without noise; use another objective"
    if isinstance(algorithm.objective, Adapting):
        return "its gradient is taken after a step on the same rows, and is no sum over rows; use another objective"
    if algorithm.objective.statistics is not None:
        return "running statistics of a batch (batch normalisation) are sent, which no clip bounds; use layer or group"
    if not isinstance(algorithm, ReadsRows):
        return "it does not state how it reads rows; give its class an attribute `row_reads`"
    if algorithm.row_reads.exact is not None:
        return algorithm.row_reads.exact
    return None if isinstance(algorithm, Batched) else "it draws batches in a way of its own; use a method with batches"


def _without_sum(algorithm: Algorithm) -> str | None:
    """Why there is no mean, and no sum, of uploads."""
    if not getattr(algorithm.reduction, "sends", True):
        return ALONE
    if algorithm.reduction.stacks or isinstance(algorithm, Bills):
        return (
            "its server hears every client apart (gather), and no mean is taken that could be protected; "
            "use a method whose uploads are averaged, ditto or apfl say"
        )
    return None


def _unknown_uploads(algorithm: Algorithm) -> str | None:
    """Why no change of an upload can be put around the algorithm."""
    why = _without_sum(algorithm)
    if why is not None:
        return why
    if isinstance(algorithm.reduction, Sum):
        return "its uploads are summed, and protections are made for means; use the reduction weighted_mean"
    if not isinstance(algorithm, SendsChanges):
        return "it does not state which fields of its Upload are changes; give its class an attribute `changes`"
    return algorithm.changes.exact


def _not_private(algorithm: Algorithm) -> str | None:
    """Why noise cannot hide a client of the algorithm."""
    if not isinstance(algorithm.reduction, WeightedMean):
        return (
            "which cluster a client belongs to goes up as it is, and no noise hides it; use a method with one mean"
            if isinstance(algorithm.reduction, WeightedMeanByGroup)
            else "differential privacy needs one mean of all uploads; use a method that has one"
        )
    if isinstance(algorithm.objective, Prepares) and not np.all(algorithm.objective.takes_part()):
        return "which clients stay out of all rounds depends on their own settings; let all of them take part"
    return None


def _not_compressed(algorithm: Algorithm, codec: Compression) -> str | None:
    """Why the algorithm does not bear what the codec leaves out."""
    if codec.kind == "whole" and not codec.only:
        return "kind = 'whole' sends all numbers as they are; name the layers to send in `only`, or use another kind"
    if not is_biased(codec):
        return None
    changes = changes_of(algorithm)
    if changes.unbiased is not None:
        return f"{changes.unbiased}; {RIGHT}"
    if any(start is not None for start in changes.fields.values()):
        return f"it sends whole parameters, and what is not sent in one round is never made up for; {RIGHT}"
    return None


def is_biased(codec: Compression) -> bool:
    """Whether what arrives is wrong in the mean."""
    return codec.kind == "top_k" or (codec.kind in REMEMBERING and codec.error_feedback) or bool(codec.only)


def _of_one_another(protection: Protection) -> str | None:
    """Why two protections cannot stand together."""
    privacy, codec = protection.privacy, protection.compression
    if privacy is None:
        return None
    if protection.robustness is not None:
        return "the noise of [privacy] hides one client in a mean, which [robustness] replaces; leave one of them out"
    if codec is not None and (privacy.adaptive or protection.remembers):
        return (
            "what arrives after [compression] is clipped again, to a clip that is fixed, and what was not sent would "
            "be counted twice; give [privacy] a fixed clip, and [compression] error_feedback = false or quantise"
        )
    if privacy.noise == "clients" and codec is not None:
        return "noise that clients add would be clipped after [compression]; use noise = 'server'"
    if privacy.adaptive and privacy.noise_multiplier >= 2 * privacy.count_noise:
        return (
            f"a clip that adapts needs noise_multiplier below twice count_noise, got {privacy.noise_multiplier:g} and "
            f"{privacy.count_noise:g}; raise count_noise"
        )
    return None
