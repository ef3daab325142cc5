# SPDX-License-Identifier: Apache-2.0
"""A site's desk: it knows the spec and the site's table, answers what comes before training, and keeps the models."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from idiolect.algorithms import find
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.settings import check_settings, in_precision, know_population
from idiolect.data.federation import Federation
from idiolect.data.preparation import GIVEN, LOCAL, Texts
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.site_sums import SiteSums, scaled_by_own, site_sums, to_facts, without_columns, without_numbers
from idiolect.engines.deploy.site import Finished, Site
from idiolect.engines.deploy.wire import Facts
from idiolect.engines.deploy.worker import Post
from idiolect.engines.door import PRECISIONS, own_settings, run_precision
from idiolect.experiments.build import assemble, build_client_loss, problem_constants
from idiolect.experiments.deploy.agreement import (
    check_deployable,
    constants_to_facts,
    rounds_to_answer,
    run_digest,
    versions,
)
from idiolect.experiments.deploy.rows import federation_at_site, read_site_table, table_request
from idiolect.experiments.deploy.site_file import SiteFile
from idiolect.experiments.protection import check_row_spending, protect_at_site
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import MethodSpec, Resolved, Spec, load
from idiolect.objectives import ClientLoss
from idiolect.protection import with_private_noise, with_private_rows

RESULT = "run"  # the folder in the site's that `predict` reads


class SpecDesk:
    """See the module."""

    def __init__(self, own: SiteFile):
        self.own, self.spec = own, load(own.spec)
        check_deployable(self.spec)
        self.run = run_digest(self.spec)
        self._prepared: tuple[str, Federation] | None = None
        self._told: dict[str, Facts] = {}  # label -> what the coordinator said of the method

    @functools.cached_property
    def table(self) -> pa.Table:
        """The site's rows as they are on its disk."""
        return read_site_table(self.own.table, self.spec.data, self.own.name)

    @functools.cached_property
    def sums(self) -> SiteSums:
        """What the site says of its rows."""
        return site_sums(self.table, table_request(self.spec.data), count_classes=not self.spec.evaluation.scores)

    def answer(self, kind: str, content: Facts) -> Facts:
        """What comes before training."""
        if kind == "hello":
            return {"versions": versions(), "site": self.own.name}
        if kind == "sums":
            return self._answer_sums()
        if self.spec.privacy.is_on:  # they are computed from rows, and no noise would hide them
            return {"constants": None}
        federation = self._federation(content)
        found = problem_constants(self._loss(federation), federation)
        return {"constants": None if found is None else constants_to_facts(found, 0)}

    def _answer_sums(self) -> Facts:
        way, consent = self.spec.data.preparation, self.own.consent
        if way not in consent.preparation:
            raise RequestError(f'This site does not agree to preparation = "{way}"; it allows {consent.preparation}.')
        consent.check_rows(int(self.sums.rows["train"]))
        parts = (*self.sums.features.values(), *self.sums.targets.values())
        if not consent.texts and any(isinstance(one, Texts) for one in parts):
            raise RequestError("This site does not agree to send names of categories or classes (allows.texts).")
        if way == GIVEN:
            counted = self.spec.privacy.level == "clients"
            return to_facts(without_columns(self.sums, classes=counted))
        return to_facts(without_numbers(self.sums) if way == LOCAL else self.sums)

    def _federation(self, content: Facts) -> Federation:
        text = content.get("recipe")
        if not isinstance(text, str):
            raise RequestError("The coordinator sent no recipe for the rows.")
        # kept: every method of a run is trained on the same rows, and to prepare them takes longer than a message
        if self._prepared is None or self._prepared[0] != text:
            recipe = Preprocessing.from_json(text)
            if self.spec.data.preparation == LOCAL:
                scaling = table_request(self.spec.data).scaling
                recipe = scaled_by_own(recipe, self.sums, self.own.name, scaling)
            self._prepared = text, federation_at_site(self.table, self.spec.data, recipe)
        return self._prepared[1]

    def _loss(self, federation: Federation) -> ClientLoss:
        return build_client_loss(self.spec.model, federation, None)

    def begin(self, content: Facts) -> Post:
        """The site's part in a method: program from the spec, numbers from the coordinator, rows of its own."""
        federation = self._federation(content)
        method = next((one for one in self.spec.methods if one.label == content.get("label")), None)
        if method is None:
            raise RequestError("The coordinator asks for a method that this site's spec does not name.")
        loss = self._loss(federation)
        algorithm = _own_algorithm(self.spec, method, loss, content)
        number, seed, clients = (int(content[name]) for name in ("number", "seed", "clients"))
        rounds = rounds_to_answer(self.spec, algorithm, number, clients, seed)
        if rounds is not None and self.spec.privacy.level == "rows":
            agreed = assemble(method, loss, clients, f"methods.{method.label}").algorithm
            check_row_spending(self.spec, agreed, algorithm, int(federation.train.counts[0]), len(rounds))
        self._told[method.label] = content
        return Post(
            algorithm,
            number,
            seed,
            self.spec.training.precision,
            tuple(map(str, content["scores"])),
            federation.train,
            federation.validation,
            federation.test,
            method.label,
            lambda own: with_private_noise(with_private_rows(own)),
            rounds,
        )

    def finish(self, finished: Finished) -> None:
        """Add the models to the site's run folder, from which `predict` answers."""
        assert self._prepared is not None
        folder, name = RunFolder(self.own.folder / RESULT), f"{safe_name(finished.post.label)}-seed{finished.post.seed}"
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_model(f"{name}/personal", finished.personal)
        if finished.shared is not None:
            folder.write_model(f"{name}/shared", finished.shared)
        folder.write_names(self._prepared[1])
        folder.write_spec(self._own_spec())
        folder.write_json(f"scores/{name}.json", finished.scores)
        folder.finish()

    def _own_spec(self) -> Spec:
        """The spec with this site's own numbers: of lists with an entry per client, its own."""
        methods = tuple(_with_own(method, self._told.get(method.label)) for method in self.spec.methods)
        # `predict` builds the method anew: with the settings that were chosen, and without a search for them
        resolved = {
            label: Resolved("looped", 0, 0, chosen={key: float(value) for key, value in told["chosen"].items()} or None)
            for label, told in self._told.items()
        }
        return dataclasses.replace(self.spec, methods=methods, resolved=resolved)


def _with_own(method: MethodSpec, told: Facts | None) -> MethodSpec:
    if told is None:
        return method
    number, clients = int(told["number"]), int(told["clients"])
    settings = {
        key: value[number] if isinstance(value, list) and len(value) == clients else value
        for key, value in method.settings.items()
    }
    return dataclasses.replace(method, settings=settings)


def _own_algorithm(spec: Spec, method: MethodSpec, loss: ClientLoss, content: Facts) -> Algorithm:
    """The algorithm as this site knows it, with the coordinator's numbers; RequestError where one is odd."""
    precision = spec.training.precision
    where, number, clients = f"methods.{method.label}", int(content["number"]), int(content["clients"])
    if not 0 <= number < clients:
        raise RequestError(f"The coordinator numbers this site {number} of {clients}.")
    # the program is this site's own, from its own spec: what comes from the coordinator are numbers for its settings
    algorithm = assemble(method, loss, clients, where).algorithm
    known = {field.name for field in dataclasses.fields(find(method.algorithm).algorithm)}
    chosen: dict[str, Any] = content.get("chosen") or {}
    if set(chosen) - known:
        raise RequestError(f"The coordinator chose settings that {method.algorithm} does not have.")
    algorithm = protect_at_site(spec, clients, dataclasses.replace(algorithm, **chosen))
    algorithm = know_population(algorithm, clients, float(content["chance"]))
    check_settings(algorithm, where)
    with run_precision(precision):
        own = in_precision(own_settings(algorithm, number), PRECISIONS[precision])
        leaves, told = jax.tree.leaves(own), content.get("leaves")
        if not isinstance(told, list) or len(told) != len(leaves):
            raise RequestError("The coordinator's settings have another form than this site's; use the same spec.")
        # theory chose them from the constants of all sites, which this one does not know
        values = [_leaf(value, leaf) for value, leaf in zip(told, leaves)]
        made: Algorithm = jax.tree.unflatten(jax.tree.structure(own), values)
    return made


def _leaf(value: object, like: Any) -> Any:
    found = np.asarray(value)
    if found.shape != like.shape or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise RequestError("The coordinator sent a setting that is not a finite number of the awaited shape.")
    return jax.numpy.asarray(found, like.dtype)


def make_site(own: SiteFile) -> Site:
    """The site of a site.toml: what a transport hands messages to."""
    return Site(SpecDesk(own), own.folder, own.consent)
