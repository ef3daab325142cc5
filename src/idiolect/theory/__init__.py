# SPDX-License-Identifier: Apache-2.0
"""What theory knows before a run: constants, optima, heterogeneity, parameters, rates and costs. It never trains."""

from idiolect.theory.complexity import lower_bounds as lower_bounds
from idiolect.theory.complexity import predict as predict
from idiolect.theory.constants import BlockConstants as BlockConstants
from idiolect.theory.constants import Constants as Constants
from idiolect.theory.constants import block_constants as block_constants
from idiolect.theory.constants import client_constants as client_constants
from idiolect.theory.constants import condition as condition
from idiolect.theory.constants import table_constants as table_constants
from idiolect.theory.heterogeneity import client_heterogeneity as client_heterogeneity
from idiolect.theory.heterogeneity import gradient_noise as gradient_noise
from idiolect.theory.joint import JointOptimum as JointOptimum
from idiolect.theory.joint import joint_optimum as joint_optimum
from idiolect.theory.joint import joint_problem as joint_problem
from idiolect.theory.optimum import local_optima as local_optima
from idiolect.theory.optimum import optimal_value as optimal_value
from idiolect.theory.optimum import shared_optimum as shared_optimum
from idiolect.theory.parameters import from_theory as from_theory
from idiolect.theory.rule import Complexity as Complexity
from idiolect.theory.rule import Question as Question
from idiolect.theory.rule import Rule as Rule
from idiolect.theory.rule import StepAdvice as StepAdvice
from idiolect.theory.step_sizes import advise as advise
from idiolect.theory.step_sizes import step_warnings as step_warnings
