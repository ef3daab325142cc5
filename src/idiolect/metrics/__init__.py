# SPDX-License-Identifier: Apache-2.0
"""One number per client, then summaries, intervals, verdicts and breakdowns."""

from idiolect.metrics.instances import Breakdown as Breakdown
from idiolect.metrics.instances import breakdown as breakdown
from idiolect.metrics.jackknife import pseudo_values as pseudo_values
from idiolect.metrics.optimum import consensus_error as consensus_error
from idiolect.metrics.optimum import distance_to_optimum as distance_to_optimum
from idiolect.metrics.optimum import suboptimality as suboptimality
from idiolect.metrics.paired import Estimates as Estimates
from idiolect.metrics.paired import paired_estimates as paired_estimates
from idiolect.metrics.paired import student_intervals as student_intervals
from idiolect.metrics.personalization import personalization_metrics as personalization_metrics
from idiolect.metrics.resampled import gain_estimates as gain_estimates
from idiolect.metrics.resampled import score_estimates as score_estimates
from idiolect.metrics.routing import routing_report as routing_report
from idiolect.metrics.scores import SCORES as SCORES
from idiolect.metrics.scores import default_score as default_score
from idiolect.metrics.scores import find_score as find_score
from idiolect.metrics.scores import proper_score as proper_score
from idiolect.metrics.shrinkage import expected_gains as expected_gains
from idiolect.metrics.summary import gains as gains
from idiolect.metrics.summary import paired_difference as paired_difference
from idiolect.metrics.summary import paired_gain as paired_gain
from idiolect.metrics.summary import summarise as summarise
from idiolect.metrics.verdicts import false_discovery as false_discovery
from idiolect.metrics.verdicts import judge as judge
