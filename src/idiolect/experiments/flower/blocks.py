# SPDX-License-Identifier: Apache-2.0
"""One block of bytes as Flower's content of a message: one record, since Flower fetches each by its own request."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

RECORD, FIELD = "idiolect", "block"


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
