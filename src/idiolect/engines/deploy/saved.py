# SPDX-License-Identifier: Apache-2.0
"""The coordinator's checkpoint: server state, round, where each site stands, which number each name has."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from idiolect.accounting.ledger import Ledger
from idiolect.core.checks import RequestError
from idiolect.engines import door
from idiolect.engines.billing import Account
from idiolect.engines.checkpoint import Checkpoint, Mark
from idiolect.engines.deploy.coordinator import Coordinator, Ends, Standing
from idiolect.engines.deploy.link import Link, Traffic
from idiolect.engines.server import server_init

# plain values that a checkpoint holds as they are
OF_STANDING = ("round", "seconds", "selected_round")
OF_LINK = ("numbers", "run", "sequence", "counted", "keep", "refused", "absent")


class Saved:
    """Where one job's standing is kept; two checkpoints, of which a damaged one costs a round."""

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None):
        self.checkpoint = Checkpoint(folder, 1, say)
        self._mark: Mark | None = None

    def save(self, standing: Standing, link: Link, ends: Ends | None = None) -> None:
        """Returns when it is on disk."""
        account, rounds = standing.account, sorted(link.endings)
        leaves = jax.tree.leaves((standing.server, standing.selected, [link.endings[number] for number in rounds]))
        facts = {name: getattr(standing, name) for name in OF_STANDING} | {
            name: getattr(link, name) for name in OF_LINK
        }
        facts |= {
            "best": list(standing.best),
            "ledger": account.ledger.to_dict(),
            "client_bytes": account.client_bytes.tolist(),
            "slowest_gradients": account.slowest_gradients,
            "unsettled": sorted(link.unsettled),
            "traffic": {kind: dataclasses.asdict(counts) for kind, counts in link.traffic.items()},
            "endings": rounds,
            "ends": None if ends is None else ends._asdict(),
        }
        self._mark = self.checkpoint.save(leaves, facts, history=standing.history, mark=self._mark)

    def load(self, coordinator: Coordinator) -> tuple[Standing, Ends | None]:
        """The newest standing, with the link as it was; its messages go on with numbers that no site has seen."""
        stored = self.checkpoint.load()
        facts, link = stored.facts, coordinator.link
        if facts["numbers"] != link.numbers or facts["run"] != link.run:
            raise RequestError(
                f"The checkpoint in {self.checkpoint.folder} is of another run: its sites, spec or versions differ; "
                "start with the same, or in a new folder."
            )
        with door.run_precision(coordinator.job.training.precision):
            form = jax.eval_shape(server_init, coordinator.job.algorithm, coordinator.root)
        forms, structure = jax.tree.flatten((form, form, [coordinator.wire.sent] * len(facts["endings"])))
        if len(forms) != len(stored.leaves):
            raise RequestError("The checkpoint holds another server state than this method has; start in a new folder.")
        server, selected, endings = jax.tree.unflatten(structure, stored.leaves)
        link.endings = dict(zip(facts["endings"], endings))
        link.counted, link.unsettled, link.keep = facts["counted"], set(facts["unsettled"]), facts["keep"]
        # above what was saved and above the clock: sites may have seen later messages than the checkpoint knows of
        link.sequence = max(link.sequence, facts["sequence"]) + 1
        link.refused, link.absent = Counter(facts["refused"]), Counter(facts["absent"])
        link.traffic = {kind: Traffic(**counts) for kind, counts in facts["traffic"].items()}
        self._mark = stored.mark
        ledger, client_bytes = Ledger.from_dict(facts["ledger"]), np.array(facts["client_bytes"], np.int64)
        standing = Standing(
            **{name: facts[name] for name in OF_STANDING},
            server=server,
            account=Account(ledger, client_bytes, facts["slowest_gradients"]),
            selected=selected,
            best=tuple(facts["best"]),
            history=tuple(stored.history),
        )
        ends = facts["ends"]
        return standing, None if ends is None else Ends(ends["scores"], tuple(ends["answered"]))


def train_on(coordinator: Coordinator, saved: Saved) -> tuple[Standing, Ends | None]:
    """Train a job to its last round, from its checkpoint where there is one; every round that counts is saved."""
    coordinator.save = lambda standing: saved.save(standing, coordinator.link)
    if saved.checkpoint.exists():
        standing, ends = saved.load(coordinator)
        if ends is not None:
            return standing, ends
    else:
        standing = coordinator.start()
        coordinator.save(standing)
    return coordinator.train(standing), None


def train_saved(coordinator: Coordinator, saved: Saved) -> tuple[Standing, Ends]:
    """Train a job to its end, which its sites then report."""
    standing, ends = train_on(coordinator, saved)
    if ends is None:
        standing, ends = coordinator.finish(standing)
        saved.save(standing, coordinator.link, ends)
    return standing, ends
