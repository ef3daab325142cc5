# SPDX-License-Identifier: Apache-2.0
"""What Flower runs at a site, a process for each message: it passes the block to the site's own process.

That process holds rows, states and compiled programs (`idiolect deploy join`), so that none of them is made anew.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from idiolect.experiments.flower.blocks import block_of, content_of
from idiolect.experiments.flower.local import ask

HANDLER = "handler"  # the node's setting that says where the site's process listens

client_app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Bytes in, bytes out; an error ends this process, and the coordinator sees a site that did not answer."""
    block = block_of(message)
    if block is None:
        raise ValueError("a message of another kind than idiolect's")
    return Message(content_of(ask(Path(str(context.node_config[HANDLER])), block)), reply_to=message)


client_app.query()(answer)
