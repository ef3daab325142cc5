# SPDX-License-Identifier: Apache-2.0
"""What Flower runs at a site, a process for each message: it passes the block to the site's own process.

That process holds rows, states and compiled programs (`idiolect deploy join`), so that none of them is made anew.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from idiolect.experiments.flower.local import ask

HANDLER = "handler"  # the node's setting that says where the site's process listens
RECORD, FIELD = "idiolect", "block"  # one record holds the block, since Flower fetches each by its own request

client_app = ClientApp()


def content_of(block: bytes) -> RecordDict:
    """What a message carries."""
    return RecordDict({RECORD: ConfigRecord({FIELD: block})})


def block_of(message: Message) -> bytes | None:
    """The block in a message; None where it is an error, or carries something else."""
    if message.has_error() or set(message.content) != {RECORD}:
        return None
    record = message.content[RECORD]
    block = record.get(FIELD) if isinstance(record, ConfigRecord) else None
    return block if isinstance(block, bytes) else None


def answer(message: Message, context: Context) -> Message:
    """Bytes in, bytes out; an error ends this process, and the coordinator sees a site that did not answer."""
    block = block_of(message)
    if block is None:
        raise ValueError("a message of another kind than idiolect's")
    return Message(content_of(ask(Path(str(context.node_config[HANDLER])), block)), reply_to=message)


client_app.query()(answer)
