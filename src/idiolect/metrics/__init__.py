# SPDX-License-Identifier: Apache-2.0
"""One number per client, then summaries, intervals and breakdowns."""

from idiolect.metrics.instances import Breakdown, breakdown
from idiolect.metrics.intervals import Intervals, client_gains, client_intervals, gains_from_scores, verdicts
from idiolect.metrics.optimum import consensus_error, distance_to_optimum, suboptimality
from idiolect.metrics.personalization import Personalization, personalization_metrics, personalization_of
from idiolect.metrics.resampling import GainInterval, gain_interval
from idiolect.metrics.routing import Routing, routing_report
from idiolect.metrics.scores import SCORES, Score, default_score, find_score
from idiolect.metrics.summary import Gain, Summary, gains, paired_gain, summarise

__all__ = [
    "SCORES",
    "Breakdown",
    "Gain",
    "GainInterval",
    "Intervals",
    "Personalization",
    "Routing",
    "Score",
    "Summary",
    "breakdown",
    "client_gains",
    "client_intervals",
    "consensus_error",
    "default_score",
    "distance_to_optimum",
    "find_score",
    "gain_interval",
    "gains",
    "gains_from_scores",
    "paired_gain",
    "personalization_metrics",
    "personalization_of",
    "routing_report",
    "suboptimality",
    "summarise",
    "verdicts",
]
