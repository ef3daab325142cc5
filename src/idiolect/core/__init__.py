# SPDX-License-Identifier: Apache-2.0
"""The vocabulary everything else is written in."""

from idiolect.core.addressing import PerClient as PerClient
from idiolect.core.algorithm import Algorithm as Algorithm
from idiolect.core.algorithm import Fit as Fit
from idiolect.core.algorithm import Models as Models
from idiolect.core.algorithm import beyond_theory as beyond_theory
from idiolect.core.algorithm import population as population
from idiolect.core.batches import Batched as Batched
from idiolect.core.checks import DivergedError as DivergedError
from idiolect.core.checks import RequestError as RequestError
from idiolect.core.checks import nearest as nearest
from idiolect.core.checks import setting as setting
from idiolect.core.data import WEIGHTING as WEIGHTING
from idiolect.core.data import Batch as Batch
from idiolect.core.data import ClientData as ClientData
from idiolect.core.data import Rows as Rows
from idiolect.core.data import client_weight as client_weight
from idiolect.core.importing import own_code as own_code
from idiolect.core.keys import step_key as step_key
from idiolect.core.kinds import Changes as Changes
from idiolect.core.kinds import KeepsPrepared as KeepsPrepared
from idiolect.core.kinds import RowReads as RowReads
from idiolect.core.method import BY_ROWS as BY_ROWS
from idiolect.core.method import Method as Method
from idiolect.core.objective import Objective as Objective
from idiolect.core.objective import Prepares as Prepares
from idiolect.core.objective import unprotected as unprotected
from idiolect.core.settings import Settings as Settings
from idiolect.core.settings import settings as settings
from idiolect.core.tally import NOTHING as NOTHING
from idiolect.core.tally import Tally as Tally
from idiolect.core.tally import gradient_tally as gradient_tally
