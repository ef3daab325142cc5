# SPDX-License-Identifier: Apache-2.0
"""What can be chosen: privacy of clients, compression, robust means, simulated attackers, secure aggregation."""

from __future__ import annotations

import dataclasses

import jax

from idiolect.core import Settings, setting, settings
from idiolect.core.types import PerClient

CODECS = ("quantise", "top_k", "random_k", "low_rank", "whole")
REMEMBERING = ("top_k", "random_k", "low_rank")  # those that can send next time what they did not
RULES = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_bound")
OWN_ATTACKS = ("sign_flip", "noise", "label_flip")  # each attacker alone
JOINT_ATTACKS = ("little_is_enough", "inner_product")  # attackers that know what the others send
ATTACKS = OWN_ATTACKS + JOINT_ATTACKS


@settings
class ClientPrivacy(Settings):
    """Differential privacy of clients: each one's change is clipped, and noise hides any one of them in the mean."""

    clip: float = setting(default=1.0, above=0, doc="largest norm of a client's change; where adaptive, the first")
    noise_multiplier: float = setting(default=1.0, at_least=0, doc="standard deviation of the noise, in clips")
    noise: str = setting(default="server", choices=("server", "clients"), doc="where the noise is added")
    adaptive: bool = setting(default=False, doc="whether the clip follows a quantile of the norms")
    quantile: float = setting(default=0.5, above=0, below=1, doc="fraction of clients whose change is not clipped")
    clip_rate: float = setting(default=0.2, above=0, doc="how fast the clip follows")
    count_noise: float = setting(default=1.0, above=0, doc="noise on the number of clients below the clip")
    clients: int = setting(default=0, at_least=0, doc="number of clients M; filled in by the engine")
    participation: float = setting(default=1.0, above=0, at_most=1, doc="chance to be in a round; filled in")

    @property
    def expected(self) -> jax.Array | float:
        """Clients in a round: a number that no row decides, unlike the number that came."""
        return self.clients * self.participation


@settings
class RowPrivacy(Settings):
    """Differential privacy of rows: each row's gradient is clipped, and noise hides any one of them in the sum."""

    clip: float = setting(default=1.0, above=0, doc="largest norm of a row's gradient")
    noise_multiplier: float = setting(default=1.0, at_least=0, doc="standard deviation of the noise, in clips")


@settings
class Compression(Settings):
    """Fewer bytes: arrays of a change are quantised, or sent in part or by thin factors, or some are not sent."""

    kind: str = setting(default="quantise", choices=CODECS, doc="how")
    bits: int = setting(default=8, at_least=1, at_most=16, doc="bits per number, for quantise")
    one_in: int = setting(default=10, at_least=2, doc="one entry in so many is sent, for top_k and random_k")
    rank: int = setting(default=2, at_least=1, doc="of what is sent of a matrix, for low_rank")
    error_feedback: bool = setting(
        default=True, doc="whether clients add next time what was not sent; for *_k and low_rank"
    )
    only: tuple[str, ...] = setting(default=(), doc="layers that are sent at all, by name or pattern; none: all")


@settings
class Robustness(Settings):
    """A mean that some wrong uploads cannot move far; every client counts the same."""

    rule: str = setting(default="median", choices=RULES, doc="in place of the mean")
    attackers: int = setting(default=1, at_least=0, doc="wrong uploads to withstand, for trimmed_mean and krum")
    bound: float | None = setting(default=None, above=0, doc="norm_bound: largest norm; unset: the median of the norms")


@settings
class Attack(Settings):
    """Simulated attackers: what they upload, or learn from, is wrong."""

    kind: str = setting(default="sign_flip", choices=ATTACKS, doc="what they do")
    attackers: PerClient | None = None  # 1 for an attacker, 0 for the others
    strength: float = setting(default=1.0, above=0, doc="factor of what they do")
    classes: int = setting(default=0, at_least=0, doc="label_flip: of the target; 0: a number, whose sign is changed")


@settings
class SecureAggregation(Settings):
    """The server learns sums of uploads and no upload: they go up as fixed-point numbers under masks."""

    threshold: int = setting(default=2, at_least=2, doc="clients of a round that must stay to its end")
    cohort: int = setting(default=2, at_least=2, at_most=2**16 - 1, doc="clients that a round asks")
    fraction_bits: int = setting(default=32, at_least=8, at_most=48, doc="bits of a number after the point, of 64")


@settings
class Protection(Settings):
    """What is put around an algorithm; None: not that."""

    privacy: ClientPrivacy | None = None
    rows: RowPrivacy | None = None
    compression: Compression | None = None
    robustness: Robustness | None = None
    attack: Attack | None = None
    secure_aggregation: SecureAggregation | None = None

    @property
    def gathers(self) -> bool:
        """Whether the server needs every upload apart."""
        return self.robustness is not None or (self.attack is not None and self.attack.kind in JOINT_ATTACKS)

    @property
    def remembers(self) -> bool:
        """Whether clients keep what was not sent."""
        codec = self.compression
        return codec is not None and codec.kind in REMEMBERING and codec.error_feedback

    @property
    def adapts(self) -> bool:
        """Whether the server keeps a clip that it sends along."""
        return self.privacy is not None and self.privacy.adaptive

    @property
    def is_empty(self) -> bool:
        """Whether nothing is protected, or attacked."""
        return all(getattr(self, field.name) is None for field in dataclasses.fields(self))
