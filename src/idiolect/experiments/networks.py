# SPDX-License-Identifier: Apache-2.0
"""Networks from a spec: their own settings from the table, their shapes from the data."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.checks import RequestError, check
from idiolect.core.importing import imported
from idiolect.data.federation import Federation
from idiolect.experiments.strict import coerce, refuse_unknown
from idiolect.models import MODELS, Model

IMAGE_MODELS = ("cnn", "resnet18")
LANGUAGE_MODELS = ("character_lstm", "word_lstm")
NETWORKS = (*IMAGE_MODELS, *LANGUAGE_MODELS)
BESIDE_NAME = {"linear": "bias", "mlp": "hidden"}  # settings that stand in [model] itself
SMALLEST_IMAGE = 6  # pixels: two 3 x 3 convolutions leave two, which are pooled


def network(name: str, settings: Mapping[str, Any], input_shape: tuple[int, ...], outputs: int, tokens: bool) -> Model:
    """The named network for inputs of this shape; `outputs` is the number of classes, or of tokens to guess from."""
    cls: Any = MODELS[name]
    chosen = chosen_settings(name, settings)
    if name in LANGUAGE_MODELS:
        if not tokens or len(input_shape) != 1:
            raise RequestError(
                f"{name} needs sequences of tokens, got inputs of shape {input_shape}"
                f"{'' if tokens else ' that were not read as tokens'}; use cnn, mlp or linear, or for an npz file of "
                "tokens set data.settings.vocabulary."
            )
        return cls(outputs, outputs, **chosen)
    if tokens or len(input_shape) not in (2, 3) or min(input_shape[:2]) < SMALLEST_IMAGE:
        given, other = ("tokens", LANGUAGE_MODELS[0]) if tokens else ("inputs", "mlp")
        raise RequestError(
            f"{name} needs images of at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE} pixels (height, width, channels), "
            f"got {given} of shape {input_shape}; use {other}."
        )
    height, width, channels = (*input_shape, 1)[:3]
    if name == "resnet18" and chosen.get("filters", 64) % chosen.get("groups", 2):
        raise RequestError(
            f"[model.settings] resnet18 needs groups that divide filters, got {chosen.get('groups', 2)} and "
            f"{chosen.get('filters', 64)}; set groups = 1."
        )
    return cls(height, width, channels, outputs, **chosen)


def network_settings(name: str) -> dict[str, dataclasses.Field[Any]]:
    """What can be set on a network; the rest follows the data."""
    fields = dataclasses.fields(MODELS[name])  # type: ignore[arg-type]
    return {field.name: field for field in fields if "range" in field.metadata}


def own_model(
    path: str, settings: Mapping[str, Any], input_shape: tuple[int, ...], outputs: int, tokens: bool = False
) -> Model:
    """A model of your own: what the function at "package.module:function" makes for these inputs and outputs."""
    make = imported(path, "A model's path must be 'package.module:function'")
    try:
        model = make(input_shape, outputs, **settings)
    except RequestError:
        raise
    except TypeError as error:
        raise RequestError(
            f"{path!r} must take an input shape, a number of outputs and [model.settings] by name ({error})."
        ) from error
    except (Exception, SystemExit) as error:  # a function of others may raise anything
        raise RequestError(f"{path!r} made no model ({type(error).__name__}: {error}); fix that function.") from error
    if not isinstance(model, Model):
        raise RequestError(
            f"{path!r} must give an idiolect.models.Model, got {type(model).__name__}; "
            "wrap a module with idiolect.models.from_flax or from_equinox."
        )
    _check_answer(path, model, input_shape, outputs, tokens)
    return model


def _check_answer(path: str, model: Model, input_shape: tuple[int, ...], outputs: int, tokens: bool) -> None:
    """RequestError where it answers with more or fewer numbers than asked for; what it cannot take is said later."""
    kind = jnp.int32 if tokens else jnp.result_type(float)
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        answer = jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((1, *input_shape), kind)).shape
    except Exception:
        return
    if answer[-1:] != (outputs,) if outputs else answer != (1,):
        wanted = f"{outputs} outputs for each" if outputs else "one plain number for each row"
        raise RequestError(f"{path!r} must give {wanted}, got an answer of shape {answer} to one row.")


def chosen_settings(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of a network in their types and ranges, or RequestError."""
    known, hints = network_settings(name), typing.get_type_hints(MODELS[name])
    refuse_other_settings(name, settings)
    chosen = {}
    for key, value in settings.items():
        chosen[key] = coerce(hints[key], value, f"model.settings.{key}")
        several = typing.get_args(hints[key])
        if several and len(chosen[key]) != len(several):
            raise RequestError(f"model.settings.{key} must be {len(several)} numbers, got {value!r}.")
        check("model.settings", key, chosen[key], known[key].metadata["range"])
    return chosen


def refuse_other_settings(name: str, settings: Mapping[str, Any]) -> None:
    """RequestError for a setting that the named model does not have; those of other models say how it came there."""
    known = network_settings(name)
    for key in settings:
        if BESIDE_NAME.get(name) == key:
            raise RequestError(f"[model.settings] {name} has no setting {key!r}; write model.{key}, beside model.name.")
        owners = [other for other in ("mlp", *NETWORKS) if key in network_settings(other)]
        if key not in known and owners:
            raise RequestError(
                f"[model.settings] {name} has no setting {key!r}, which is one of {', '.join(owners)}; leave it out, "
                "in the spec file if it stands there: --set adds to the file's tables and takes nothing out of them."
            )
    refuse_unknown(settings, known, f"[model.settings] {name}")


def check_vocabulary(federation: Federation) -> None:
    """RequestError where a token of the inputs is none of those that are to be guessed."""
    vocabulary = federation.task.outputs
    for part in (federation, *([federation.held_out] if federation.held_out else ())):
        for rows in (part.train, part.validation, part.test):
            outside = (rows.inputs < 0) | (rows.inputs >= vocabulary)
            if outside.any():
                place = tuple(np.argwhere(outside)[0])
                owner = part.names[int(np.searchsorted(rows.offsets, place[0], side="right")) - 1]
                raise RequestError(
                    f"The inputs of client {owner!r} hold the token {int(rows.inputs[place])}, and the vocabulary is 0 "
                    f"to {vocabulary - 1}: inputs and targets must number the same tokens; give Federation.from_arrays "
                    "`classes` with a name for every token."
                )


def holds_tokens(federation: Federation) -> bool:
    """Whether inputs are tokens: whole numbers that name something and are never scaled."""
    return bool(np.issubdtype(federation.train.inputs.dtype, np.integer))
