# SPDX-License-Identifier: Apache-2.0
"""What theory knows before a run: constants, optima, heterogeneity, step sizes and rates. It never trains."""

from idiolect.theory.constants import BlockConstants as BlockConstants
from idiolect.theory.constants import Constants as Constants
from idiolect.theory.constants import block_constants as block_constants
from idiolect.theory.constants import client_constants as client_constants
from idiolect.theory.heterogeneity import Heterogeneity as Heterogeneity
from idiolect.theory.heterogeneity import client_heterogeneity as client_heterogeneity
from idiolect.theory.heterogeneity import gradient_noise as gradient_noise
from idiolect.theory.optimum import local_optima as local_optima
from idiolect.theory.optimum import optimal_value as optimal_value
from idiolect.theory.optimum import shared_optimum as shared_optimum
from idiolect.theory.step_sizes import STEP_RULES as STEP_RULES
from idiolect.theory.step_sizes import StepAdvice as StepAdvice
from idiolect.theory.step_sizes import advise as advise
from idiolect.theory.step_sizes import step_warnings as step_warnings
