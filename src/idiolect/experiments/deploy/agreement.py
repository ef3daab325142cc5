# SPDX-License-Identifier: Apache-2.0
"""What both sides of a deployed run must agree on, and what of a spec cannot be deployed, each with a sentence."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from idiolect import __version__
from idiolect.core.addressing import is_per_client
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import RequestError
from idiolect.data.preparation import Preparation
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.site_sums import SiteSums
from idiolect.engines.billing import sends
from idiolect.engines.deploy.wire import Facts, digest
from idiolect.engines.door import check_training, participation_of
from idiolect.experiments.build import configure
from idiolect.experiments.protection import check_protections
from idiolect.experiments.spec import Spec, to_table
from idiolect.models import Linear
from idiolect.objectives import ClientLoss
from idiolect.protection.wrapper import NOISE_SECRET
from idiolect.theory.constants import Constants

OF_ROWS = ("models", "data")  # ways to find out who is alike that read all clients' rows
CONSTANTS = ("client_smoothness", "client_strong_convexity", "client_component_smoothness")  # one number per client


class Agreed(NamedTuple):
    """What is fixed before the first round, and kept: a restarted coordinator does not ask again."""

    name: str  # that cannot be guessed: two runs of one spec are two
    recipe: Preprocessing
    preparation: Preparation
    sums: dict[str, SiteSums]
    constants: Constants | None


def versions() -> dict[str, str]:
    """What computes: other versions may round otherwise."""
    return {
        "idiolect": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def run_digest(spec: Spec) -> str:
    """Equal where versions and all of a spec are that decides numbers; not where its files are."""
    # resolved settings follow from the rest, and a spec that goes on has them where the first one had not
    table = {key: value for key, value in to_table(spec).items() if key not in ("name", "output", "resolved")}
    table["data"] = {key: value for key, value in table["data"].items() if key not in ("path", "recipe")}
    return digest(versions(), table)


def constants_to_facts(found: Constants, place: int) -> Facts:
    """One client's constants as plain values."""
    numbers = {name: float(getattr(found, name)[place]) for name in CONSTANTS}
    return {**numbers, "exact": found.exact, "source": found.source}


def constants_from_facts(each: Sequence[Any]) -> Constants | None:
    """The constants of all clients, in the order of their numbers; None where their model has none."""
    if any(one is None for one in each):
        return None
    arrays = [np.array([float(one[name]) for one in each]) for name in CONSTANTS]
    if not all(np.isfinite(values).all() and (values >= 0).all() for values in arrays):
        raise RequestError("A site sent a constant that is not a finite number of at least 0.")
    smoothness, convexity, of_rows = arrays
    return Constants(smoothness, convexity, of_rows, bool(each[0]["exact"]), str(each[0]["source"]))


def check_deployable(spec: Spec) -> None:
    """RequestError for what needs the rows, or the states, of all clients in one place."""
    swept = next((method.label for method in spec.methods if method.swept is not None), None)
    if swept is not None:
        raise RequestError(
            f"Settings are not swept over sites, got the combination {swept!r}; choose one in a simulation and deploy "
            "the spec that was swept, with that value."
        )
    reason = next((text for text, holds in _refused(spec).items() if holds), None)
    if reason is not None:
        raise RequestError(f"{reason}.")


def _refused(spec: Spec) -> dict[str, bool]:
    data, tuning = spec.data, spec.tuning
    return {
        f"[data] source must be 'table' in a deployment, got {data.source!r}: each site brings its own table": (
            data.source != "table"
        ),
        "[data] held_out is for simulations: a site that does not train is not started": bool(data.held_out),
        "[data] needs client and target: names of the columns that a pooled table would have": (
            data.client is None or data.target is None
        ),
        "[tuning] auto, refit, minutes and until = 'converged' need folds of all clients' rows; give the steps to try "
        "as step_size, or choose in a simulation": bool(
            tuning.auto or tuning.refit or tuning.minutes or tuning.until != "rounds"
        ),
        "[attack] is for simulations; leave it out": spec.attack.kind is not None,
        "[privacy] noise = 'clients' hides a site from the server only under [secure_aggregation]; give its threshold, "
        "or use noise = 'server'": (
            spec.privacy.is_on and spec.privacy.noise == "clients" and spec.secure_aggregation.threshold is None
        ),
        "[privacy] needs all sites in every round, with training.cohort = 0 and training.dropout = 0: who is drawn "
        "follows from the seed, which all sites know": (
            spec.privacy.is_on
            and spec.privacy.level == "clients"
            and bool(spec.training.cohort or spec.training.dropout)
        ),
        "[evaluation] optimum = 'always' needs the rows of all clients; leave it out": (
            spec.evaluation.optimum == "always"
        ),
        f"[collaboration] source = {spec.collaboration.source!r} reads the rows of all clients; give the weights with "
        "source = 'file', or use 'mixture'": spec.collaboration.source in OF_ROWS,
    }


def check_runnable(spec: Spec, clients: int) -> None:
    """RequestError for settings of methods and of training that no rows could make right, of so many sites."""
    check_training(spec.training, clients)
    check_protections(spec)
    # what a model and its loss decide is checked where both are known: at the server, when the sites are there
    any_loss = ClientLoss(model=Linear(1, 0), l2=spec.model.l2)
    for method in spec.methods:
        configure(method, any_loss, clients, f"methods.{method.label}")


def rounds_to_answer(spec: Spec, algorithm: Algorithm, number: int, clients: int, seed: int) -> frozenset[int] | None:
    """The rounds that epsilon counts of a site that adds noise itself; None where it adds none."""
    privacy, training = spec.privacy, spec.training
    at_site = privacy.level == "rows" or privacy.noise == "clients"
    if not (privacy.is_on and at_site and sends(algorithm)):
        return None
    if seed not in spec.seeds:
        raise RequestError(f"The coordinator trains with the seed {seed}, which this site's spec does not name.")
    who = participation_of(algorithm, training, clients)
    rounds = range(training.rounds)
    if who.cohort == who.candidates:
        return frozenset(rounds)
    # who is asked follows from the seed: the site draws as the coordinator does
    asked, _ = who.draw(seed, rounds)
    return frozenset(np.flatnonzero((asked == number).any(axis=1)).tolist())


def check_joinable(label: str, algorithm: Algorithm, later: Sequence[str]) -> None:
    """RequestError for a method that cannot do without a site, or must know it beforehand."""
    if not later:
        return
    own = any(map(is_per_client, jax.tree.leaves(algorithm, is_leaf=is_per_client)))
    reasons = {
        "it needs every client in every round": fit_of(algorithm, 0.5).refused is not None,
        "it has settings of its own for each client": own,
        "its server must know beforehand who listens to whom": bool(set(algorithm.server_only) - {NOISE_SECRET}),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    if reason is not None:
        raise RequestError(
            f"{label} cannot be joined in the middle: {reason}. Leave the method out, or let {', '.join(later)} be "
            "there at the beginning."
        )


def check_names(sites: Sequence[str], later: Sequence[str] = ()) -> None:
    """RequestError for names that cannot be sites'."""
    every = [*sites, *later]
    if len(sites) < 2 or len(set(every)) < len(every):
        raise RequestError(f"A deployment needs at least 2 sites of different names, got {', '.join(every) or 'none'}.")
    odd = next((name for name in every if not re.fullmatch(r"[\w][\w .-]{0,63}", name) or name == "server"), None)
    if odd is not None:
        raise RequestError(
            f"A site's name must be of letters, digits, blanks and - _ . and not be 'server', got {odd!r}; use another."
        )
