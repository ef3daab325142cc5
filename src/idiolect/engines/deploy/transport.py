# SPDX-License-Identifier: Apache-2.0
"""What carries messages between the coordinator and the sites: one protocol, and an in-process reference of it.

A transport knows the sites by certified names, moves bytes, and keeps deadlines. It does not look into a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


class Transport(Protocol):
    """The coordinator's side. One `exchange` is a message to some sites and their answers."""

    @property
    def sites(self) -> Sequence[str]:
        """Certified names, in any order; more may come while a run goes on."""

    def exchange(self, round: int, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, bytes]:
        """Answers by site, within `deadline` seconds; a site that did not answer in time is absent.

        An answer that comes later is thrown away: it must never be returned for another message.
        """


class Handler(Protocol):
    """A site's side: `Site` of `engines.deploy.site` is one. Pure of any network; it answers every message."""

    def handle(self, message: bytes) -> bytes:
        """The answer to one message."""


Fault = Callable[[str, int, bytes, Handler], bytes | None]  # (site, round, message, its handler) -> answer, or silence


def no_fault(site: str, round: int, message: bytes, handler: Handler) -> bytes | None:
    """The site works."""
    return handler.handle(message)


class Loopback:
    """Sites in the same process, one after another. `fault` stands between and may lose or spoil what passes."""

    def __init__(self, handlers: Mapping[str, Handler], fault: Fault = no_fault) -> None:
        self.handlers, self.fault = dict(handlers), fault

    @property
    def sites(self) -> Sequence[str]:
        """All of them."""
        return tuple(self.handlers)

    def exchange(self, round: int, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, bytes]:
        """Deadlines are not measured here: a fault that answers None is a site that was too late."""
        found = {site: self.fault(site, round, message, self.handlers[site]) for site, message in messages.items()}
        return {site: answer for site, answer in found.items() if answer is not None}
