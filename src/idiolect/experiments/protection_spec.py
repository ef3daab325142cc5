# SPDX-License-Identifier: Apache-2.0
"""The sections of a spec about protections: what is chosen, and nothing unless it is."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from idiolect.accounting.client_privacy import ACCOUNTANTS
from idiolect.core.checks import setting
from idiolect.protection.choices import ATTACKS, CODECS, RULES


class Section:
    """A section of a spec that changes nothing unless one of its switches is given."""

    switches: ClassVar[tuple[str, ...]]

    @property
    def is_on(self) -> bool:
        """Whether it was asked for."""
        return any(getattr(self, name) is not None for name in self.switches)


@dataclasses.dataclass(frozen=True)
class PrivacySpec(Section):
    """Differential privacy of clients, or of rows; on where epsilon or noise_multiplier is given."""

    switches = ("epsilon", "noise_multiplier")
    level: str = setting(default="clients", choices=("clients", "rows"))  # what one neighbour has and the other has not
    epsilon: float | None = setting(default=None, above=0)  # to spend in all rounds; chooses the noise
    noise_multiplier: float | None = setting(default=None, at_least=0)  # or the noise itself, in clips
    delta: float | None = setting(default=None, above=0, below=1)  # unset: 0.1 / clients; of rows 1e-5
    clip: float = setting(default=1.0, above=0)  # largest norm of a client's change (first, if adaptive), or a gradient
    clipping: str = setting(default="fixed", choices=("fixed", "adaptive"))  # adaptive: follows a quantile of norms
    quantile: float = setting(default=0.5, above=0, below=1)
    noise: str = setting(default="server", choices=("server", "clients"))
    sampling: str = setting(default="fixed", choices=("fixed", "poisson"))  # poisson: by coins, 1 - training.dropout
    accountant: str = setting(default="rdp", choices=ACCOUNTANTS)


@dataclasses.dataclass(frozen=True)
class CompressionSpec(Section):
    """Fewer bytes per upload; on where a kind is given."""

    switches = ("kind",)
    kind: str | None = setting(default=None, choices=CODECS)
    bits: int = setting(default=8, at_least=1, at_most=16)  # quantise
    one_in: int = setting(default=10, at_least=2)  # top_k, random_k: entries per one that is sent
    rank: int = setting(default=2, at_least=1)  # low_rank: of what is sent of a matrix
    error_feedback: bool = True  # top_k, random_k, low_rank: what was not sent is added next time
    only: tuple[str, ...] = ()  # layers that are sent at all, by name or pattern; none: all


@dataclasses.dataclass(frozen=True)
class RobustnessSpec(Section):
    """A robust mean in place of the mean; on where a rule is given."""

    switches = ("rule",)
    rule: str | None = setting(default=None, choices=RULES)
    attackers: int = setting(default=1, at_least=0)  # trimmed_mean, krum, multi_krum: wrong uploads to withstand
    bound: float | None = setting(default=None, above=0)  # norm_bound; unset: the median of the norms


@dataclasses.dataclass(frozen=True)
class AttackSpec(Section):
    """Simulated attackers; on where a kind is given."""

    switches = ("kind",)
    kind: str | None = setting(default=None, choices=ATTACKS)
    clients: int = setting(default=1, at_least=1)  # attackers, drawn by the seed of [data]
    strength: float = setting(default=1.0, above=0)


@dataclasses.dataclass(frozen=True)
class SecureAggregationSpec(Section):
    """Sums of uploads that hide each of them from the server; on where a threshold is given."""

    switches = ("threshold",)
    threshold: int | None = setting(default=None, at_least=2)  # clients of a round that must stay to its end
    fraction_bits: int = setting(default=32, at_least=8, at_most=48)  # after the point, of 64
