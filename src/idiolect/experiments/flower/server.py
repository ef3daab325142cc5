# SPDX-License-Identifier: Apache-2.0
"""What Flower runs at the server: the coordinator, over Flower's grid of nodes.

A site is the node whose key its kit holds: Flower lets a registered node in by a signature with it. A node with another
key, or with none, is no site of a run here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from idiolect.core.checks import RequestError
from idiolect.experiments.compilation import enable_cache
from idiolect.experiments.deploy.kits import coordinate_kit
from idiolect.experiments.flower.relay import block_of, content_of
from idiolect.record.files import write_whole

LOOK_EVERY = 0.1  # seconds between looks for answers; Flower's own wait is 3
FOLDER, NODES, OUTCOME = "flower", "nodes", "outcome.json"
SECONDS_TO_PART = 30.0  # that sites have to hear that the run is over

server_app = ServerApp()


class FlowerTransport:
    """The coordinator's side: `keys` are the public keys of the sites, by name."""

    def __init__(self, grid: Grid, keys: Mapping[str, bytes]):
        self.grid = grid
        self.names = {key: name for name, key in keys.items()}
        if len(self.names) < len(keys):
            raise RequestError("Two sites have the same key; make kits anew, each site needs a key of its own.")

    def nodes(self) -> dict[str, int]:
        """Flower's numbers of the sites that are connected."""
        online = [node for node in self.grid.get_nodes() if node.status == "online"]
        return {self.names[node.public_key]: node.node_id for node in online if node.public_key in self.names}

    @property
    def sites(self) -> Sequence[str]:
        """Who is connected now."""
        return sorted(self.nodes())

    def exchange(self, round: int, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, bytes]:
        """One message per site. An answer names the message that it answers: a late one is never asked for."""
        until, answers = time.monotonic() + deadline, dict[str, bytes]()
        waiting = self._push(round, messages, deadline)
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(waiting)):
                site = waiting.pop(reply.metadata.reply_to_message_id, None)
                block = block_of(reply)
                if site is not None and block is not None:
                    answers[site] = block
            if waiting:
                time.sleep(LOOK_EVERY)
        return answers

    def _push(self, round: int, messages: Mapping[str, bytes], deadline: float) -> dict[str, str]:
        """Send what connected sites are asked: Flower's number of each message -> its site."""
        nodes = self.nodes()
        asked = [site for site in messages if site in nodes]
        if not asked:
            return {}
        sent = [
            Message(content_of(messages[site]), nodes[site], "query", ttl=deadline, group_id=str(round))
            for site in asked
        ]
        # a message that Flower did not take has no number: its site is absent from this round
        return {number: site for number, site in zip(self.grid.push_messages(sent), asked) if number}

    def part(self) -> None:
        """Let the sites know that the run is over."""
        self.exchange(0, dict.fromkeys(self.sites, b""), SECONDS_TO_PART)


def site_keys(kit: Path) -> dict[str, bytes]:
    """The public keys in a server's kit, as Flower gives them: one file for each site."""
    found = {}
    for path in sorted((kit / FOLDER / NODES).glob("*.pub")):
        key = serialization.load_ssh_public_key(path.read_bytes())
        found[path.stem] = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return found


def main(grid: Grid, context: Context) -> None:
    """Train every method of the kit's spec, or go on with it; how it ended is in the kit."""
    kit, out = Path(str(context.run_config["kit"])), str(context.run_config["out"])
    note(kit, {"process": os.getpid()})
    enable_cache(print)
    transport = FlowerTransport(grid, site_keys(kit))
    try:
        coordinate_kit(transport, kit, print, Path(out) if out else None)
    except RequestError as error:
        note(kit, {"error": str(error)})
        raise
    except Exception as error:  # `deploy serve` waits in another process, and must hear of every end
        note(kit, {"error": f"It failed ({type(error).__name__}); superlink.log says more."})
        raise
    transport.part()
    note(kit, {"done": True})


def note(kit: Path, outcome: Mapping[str, object]) -> None:
    """How far the run of a kit is, for the process that waits for it."""
    write_whole(kit / FOLDER / OUTCOME, json.dumps(outcome).encode())


server_app.main()(main)
