# SPDX-License-Identifier: Apache-2.0
"""Engines run algorithms. A round's two halves are here, for whoever runs one of them apart, as a deployment does."""

from idiolect.engines.client import Done as Done
from idiolect.engines.client import Round as Round
from idiolect.engines.client import Task as Task
from idiolect.engines.client import client_init as client_init
from idiolect.engines.client import client_model as client_model
from idiolect.engines.client import client_round as client_round
from idiolect.engines.client import client_settle as client_settle
from idiolect.engines.server import deliver as deliver
from idiolect.engines.server import open_round as open_round
from idiolect.engines.server import server_init as server_init
from idiolect.engines.server import server_step as server_step
