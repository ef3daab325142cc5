# SPDX-License-Identifier: Apache-2.0
"""The child's side: a library that does so many rounds when it is told to. Standard library alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol


class Contestant(Protocol):
    """One library with one problem, between rounds."""

    def advance(self, rounds: int) -> None:
        """Train so many rounds further, to the end of their work."""

    def loss(self) -> float:
        """Of the shared model: mean cross entropy over all rows of all clients."""


def orders() -> Iterator[Any]:
    """What the parent asks for, line by line."""
    for line in sys.stdin:
        yield json.loads(line)


def serve(contestant: Contestant, facts: dict[str, Any]) -> None:
    """Answer until there is nothing more to do. What libraries print goes to the error stream."""
    with open_channel() as channel:
        _say(channel, {"facts": facts})
        for order in orders():
            began = time.perf_counter()
            if order["do"] == "advance":
                contestant.advance(order["rounds"])
                _say(channel, {"seconds": time.perf_counter() - began})
            elif order["do"] == "loss":
                _say(channel, {"loss": contestant.loss()})
            else:
                return


def open_channel() -> Any:
    """The standard output for answers alone; whatever else is printed goes to the error stream from here on."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def _say(channel: Any, answer: dict[str, Any]) -> None:
    channel.write(json.dumps(answer) + "\n")
    channel.flush()
