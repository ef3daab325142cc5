# SPDX-License-Identifier: Apache-2.0
"""Who should learn with whom."""

from idiolect.collaborate.neighbourhoods import neighbourhood_weights as neighbourhood_weights
from idiolect.collaborate.neighbourhoods import neighbourhoods_from_pairs as neighbourhoods_from_pairs
