# SPDX-License-Identifier: Apache-2.0
"""One number per client, then summaries, intervals, verdicts and breakdowns."""

from idiolect.metrics.instances import Breakdown, breakdown
from idiolect.metrics.jackknife import pseudo_values
from idiolect.metrics.optimum import consensus_error, distance_to_optimum, suboptimality
from idiolect.metrics.paired import Estimates, paired_estimates, student_intervals
from idiolect.metrics.personalization import personalization_metrics
from idiolect.metrics.resampled import gain_estimates, score_estimates
from idiolect.metrics.routing import routing_report
from idiolect.metrics.scores import SCORES, default_score, find_score, proper_score
from idiolect.metrics.shrinkage import expected_gains
from idiolect.metrics.summary import gains, paired_difference, paired_gain, summarise
from idiolect.metrics.verdicts import false_discovery, judge

__all__ = [
    "SCORES",
    "Breakdown",
    "Estimates",
    "breakdown",
    "consensus_error",
    "default_score",
    "distance_to_optimum",
    "expected_gains",
    "false_discovery",
    "find_score",
    "gain_estimates",
    "gains",
    "judge",
    "paired_difference",
    "paired_estimates",
    "paired_gain",
    "personalization_metrics",
    "proper_score",
    "pseudo_values",
    "routing_report",
    "score_estimates",
    "student_intervals",
    "suboptimality",
    "summarise",
]
