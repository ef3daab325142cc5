# SPDX-License-Identifier: Apache-2.0
"""Where training left the finite numbers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The round and the client whose parameters were no longer finite; without a client those of the server.

    The server is looked at after a block of rounds: its round is the last of them.
    """

    round: int
    client: str | None = None
    reason: str = ""  # what was tried, and what may be at fault

    def __str__(self) -> str:
        where = f"on the server by round {self.round}"
        if self.client is not None:
            where = f"in round {self.round} on client {self.client!r}"
        return f"Training diverged {where}{self.reason}"

    @property
    def short(self) -> str:
        """For a column of a table."""
        return f"diverged by round {self.round}" if self.client is None else f"diverged, round {self.round}"
