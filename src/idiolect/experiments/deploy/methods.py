# SPDX-License-Identifier: Apache-2.0
"""Every method of a spec over the sites, with every seed: what a coordinator trains, and where that is kept."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from idiolect.engines.deploy.coordinator import Coordinator, Job, Standing
from idiolect.engines.deploy.link import Link
from idiolect.engines.deploy.saved import Saved, train_on, train_saved
from idiolect.engines.deploy.wire import Facts
from idiolect.engines.door import admit, own_settings, participation_of, run_precision
from idiolect.experiments.build import Built
from idiolect.experiments.deploy.agreement import Agreed
from idiolect.experiments.deploy.hollow import padded
from idiolect.experiments.deploy.result import Trial
from idiolect.experiments.deploy.tuned import choose_step
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.run_folder import RunFolder, safe_name
from idiolect.experiments.spec import MethodSpec
from idiolect.protection import with_private_noise


class MethodRuns(NamedTuple):
    """What all methods of a run over sites have in common."""

    link: Link
    kept: RunFolder
    prepared: Prepared
    agreed: Agreed

    def coordinator(self, method: MethodSpec, built: Built, seed: int, suffix: str) -> tuple[Coordinator, Saved]:
        """The coordinator of one method with one seed, and where it is saved."""
        name = f"{safe_name(method.label)}-seed{seed}{suffix}"
        # a link of its own: where sites stand, and what they must still be told, is of one method
        fresh = Link(self.link.transport, self.link.run, self.link.numbers, self.link.rules, self.link.say)
        # messages are numbered over all methods: a late answer to an earlier one is never taken for this one's
        fresh.sequence, fresh.method = self.link.sequence, f"{self.agreed.name}/{name}"
        return Coordinator(self.job(method, built, seed), fresh), Saved(
            self.kept.path / "checkpoint" / name, self.link.say
        )

    def candidate(self, method: MethodSpec, suffix: str) -> Standing:
        """One that is trained to be compared."""
        coordinator, saved = self.coordinator(method, self.build(method), self.prepared.spec.seeds[0], suffix)
        try:
            return train_on(coordinator, saved)[0]
        finally:
            # also where the candidate diverged: its messages have taken these numbers
            self.link.sequence = coordinator.link.sequence

    def build(self, method: MethodSpec) -> Built:
        """The method as it will run. A step that was chosen goes to the sites, whose spec does not have it."""
        built = self.prepared.build(method)
        own = next(one for one in self.prepared.spec.methods if one.label == method.label)
        more = {key: value for key, value in method.settings.items() if key not in own.settings}
        return built._replace(chosen={**built.chosen, **more})

    def trials(self, method: MethodSpec) -> list[Trial]:
        """A method with every seed; a step that is to be chosen is chosen with the first."""
        # other seeds take the step that was chosen with the first: a search for each would cost as much again
        chosen = choose_step(self.prepared, method, self.candidate)
        built, found = self.build(chosen.method), []
        if chosen.sentence is not None:
            self.link.say(chosen.sentence)
        for place, seed in enumerate(self.prepared.spec.seeds):
            # the candidate that was chosen goes on from its own checkpoint; other seeds begin anew
            coordinator, saved = self.coordinator(chosen.method, built, seed, "" if place else chosen.suffix)
            standing, ends = train_saved(coordinator, saved)
            self.link.sequence = coordinator.link.sequence
            found.append(Trial(built, coordinator, standing, ends, chosen.sentence))
        return found

    def job(self, method: MethodSpec, built: Built, seed: int) -> Job:
        """A method with one seed; admitted as in a simulation, so that one that does not fit is refused early."""
        prepared, numbers, training = self.prepared, self.link.numbers, self.prepared.spec.training
        federation, clients, precision = prepared.federation, len(numbers), training.precision
        participation = participation_of(built.algorithm, training, clients)
        with run_precision(precision):
            admitted = admit(built.algorithm, clients, precision, participation.chance)
        common = {
            "label": method.label,
            "seed": seed,
            "clients": clients,
            "chance": participation.chance,
            "scores": list(prepared.scores),
            "recipe": self.agreed.recipe.to_json(),
        }

        def begin(site: str) -> Facts:
            """What the site needs besides: its number, and its own settings."""
            number = numbers[site]
            with run_precision(precision):
                leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(own_settings(admitted, number))]
            chosen = {key: value[number] if isinstance(value, list) else value for key, value in built.chosen.items()}
            return common | {"number": number, "chosen": chosen, "leaves": leaves}

        return Job(
            method.label,
            with_private_noise(admitted),
            seed,
            training,
            participation,
            prepared.scores,
            prepared.choose_by,
            federation.train,
            begin,
            None if federation.preparation is None else padded(federation.preparation, clients),
            prepared.spec.privacy.is_on,
        )
