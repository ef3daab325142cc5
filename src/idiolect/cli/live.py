# SPDX-License-Identifier: Apache-2.0
"""`--live`: the page of a run, served while it trains."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from idiolect.cli import output
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec
    from idiolect.report.live_server import LivePage

EVERY = 5  # rounds between checkpoints while a page follows them


@contextlib.contextmanager
def watched(folder: Path, live: bool) -> Iterator[LivePage | None]:
    """Inside, the page of the run is served where it is asked for."""
    if not live:
        yield None
        return
    from idiolect.report.live_server import served

    with served(folder, output.remark) as page:
        yield page


def refuse_live(live: bool) -> None:
    """RequestError where a page is asked for that would follow several runs, or one of several hosts."""
    if live:
        raise RequestError("--live follows one run on one host, not --splits and not --hosts; leave one of them out.")


def often_kept(spec: Spec) -> Spec:
    """The spec with checkpoints every few rounds: the live page reads the histories beside them."""
    # what decides the numbers is the same: a run with and one without a page can resume one another
    every = min(spec.output.checkpoint_every, EVERY)
    return dataclasses.replace(spec, output=dataclasses.replace(spec.output, checkpoint_every=every))
