# SPDX-License-Identifier: Apache-2.0
"""Papers that several algorithm files implement."""

PLSGD = "Personalization mitigates the perils of local SGD for heterogeneous distributed learning (PLSGD, 2023)"
UNIFIED = "Personalized federated learning: a unified framework and universal optimization techniques (Unified, 2023)"
FLIX = "Explicit personalization and local training: double communication acceleration (Scafflix, 2023)"
FLOW = "Flow: per-instance personalized federated learning (Flow, 2023)"
EVEN = (
    "Sample optimality and all-for-all strategies in personalized federated and collaborative learning "
    "(All-for-all, 2022)"
)
MCMAHAN = "McMahan et al. 2017, Communication-efficient learning of deep networks from decentralized data"
HANZELY = "Hanzely and Richtarik 2020, Federated learning of a mixture of global and local models"
