# SPDX-License-Identifier: Apache-2.0
"""Spoilt messages in both directions: each is refused with a sentence, or is a valid one; nothing crashes or hangs.

A message that is accepted is looked at by itself: it must hold the facts that were asked, arrays of the awaited form,
and finite numbers. Bits that are flipped inside of an array give other numbers, which no receiver can tell.
"""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator

from benchmarks.deploy_problem import Problem
from benchmarks.measure import Result, Target
from idiolect.engines.deploy.coordinator import Coordinator
from idiolect.engines.deploy.transport import Handler, Loopback, no_fault
from idiolect.engines.deploy.wire import Message, WireError, decode, encode

MESSAGES = 10_000
LONGEST_SECONDS = 5.0  # that one of them may take


def flip_bits(block: bytes, draw: Generator) -> bytes:
    spoilt = bytearray(block)
    for place in draw.integers(0, len(block), int(draw.integers(1, 9))):
        spoilt[place] ^= 1 << int(draw.integers(0, 8))
    return bytes(spoilt)


def cut(block: bytes, draw: Generator) -> bytes:
    return block[: int(draw.integers(0, len(block)))]


def lengthen(block: bytes, draw: Generator) -> bytes:
    return block + draw.bytes(int(draw.integers(1, 64)))


def noise(block: bytes, draw: Generator) -> bytes:
    return draw.bytes(int(draw.integers(0, 200)))


def long_header(block: bytes, draw: Generator) -> bytes:
    return struct.pack("<Q", int(draw.integers(0, 2**62))) + block[8:]


def deep_facts(block: bytes, draw: Generator) -> bytes:
    header = json.dumps({"__metadata__": {"idiolect": "[" * 100_000}}).encode()
    return struct.pack("<Q", len(header)) + header


def other_fact(block: bytes, draw: Generator) -> bytes:
    message = decode(block, "fuzz")
    odd = [None, True, -1, 2**70, "x", [], {}, 0.5, "\x00"][int(draw.integers(0, 9))]
    name = ("kind", "run", "round", "number", "sequence", "content")[int(draw.integers(0, 6))]
    return encode(message._replace(**{name: odd}))  # type: ignore[arg-type]


def other_content(block: bytes, draw: Generator) -> bytes:
    message = decode(block, "fuzz")
    odd = [None, True, -1, 2**70, "x", [], {}, 0.5][int(draw.integers(0, 8))]
    names = sorted(message.content) or ["counted"]
    return encode(message._replace(content=message.content | {names[int(draw.integers(0, len(names)))]: odd}))


def other_array(block: bytes, draw: Generator) -> bytes:
    message = decode(block, "fuzz")
    arrays = dict(message.arrays)
    if not arrays:
        return encode(message._replace(arrays={"more": np.zeros(3)}))
    name = sorted(arrays)[int(draw.integers(0, len(arrays)))]
    array = arrays.pop(name)
    change: list[Callable[[], dict[str, np.ndarray]]] = [
        dict,
        lambda: {name: np.full_like(array, np.nan)} if array.dtype.kind == "f" else {},
        lambda: {name: np.full_like(array, np.inf)} if array.dtype.kind == "f" else {},
        lambda: {name: np.stack([array, array])},
        lambda: {name: array.astype(np.float64 if array.dtype != np.float64 else np.float16)},
        lambda: {name: array.reshape(-1)[:0]},
        lambda: {name: array, f"{name}.more": array},
        lambda: {f"{name} ": array},
    ]
    return encode(message._replace(arrays=arrays | change[int(draw.integers(0, len(change)))]()))


KINDS = (flip_bits, cut, lengthen, noise, long_header, deep_facts, other_fact, other_content, other_array)


def fuzz(messages: int, folder: Path, seed: int = 0) -> tuple[Counter[str], float]:
    """How each spoilt message ended, and the longest time that one took."""
    draw, ended, longest = np.random.default_rng(seed), Counter[str](), 0.0
    problem = Problem(rounds=2)
    site = problem.site("site-0", folder)
    kept: dict[str, tuple[bytes, bytes]] = {}

    def record(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
        answer = no_fault(name, now, message, handler)
        if name == "site-0" and answer is not None:
            kept[decode(message, "fuzz").kind] = (message, answer)
        return answer

    handlers = {name: site if name == "site-0" else problem.site(name, folder) for name in problem.numbers}
    coordinator = problem.coordinator(Loopback(handlers, record))
    coordinator.finish(coordinator.train(coordinator.start()))
    for number in range(messages):
        kind = list(kept)[number % len(kept)]
        spoil = KINDS[int(draw.integers(0, len(KINDS)))]
        question, answer = kept[kind]
        began = time.perf_counter()
        if number % 2:
            ended[_at_site(site, spoil, question, draw)] += 1
        else:
            ended[_at_coordinator(coordinator, spoil, question, answer, draw)] += 1
        longest = max(longest, time.perf_counter() - began)
    return ended, longest


def _at_site(site: Handler, spoil: Callable[[bytes, Generator], bytes], question: bytes, draw: Generator) -> str:
    site.sequence = decode(question, "fuzz").sequence - 1  # type: ignore[attr-defined]  # as if it were new
    spoilt = spoil(question, draw)
    try:
        answer = decode(site.handle(spoilt), "fuzz")
    except Exception as error:
        return f"crash at the site: {type(error).__name__}"
    if answer.kind == "refused":
        return "refused" if str(answer.content.get("reason", "")).endswith(".") else "refused without a sentence"
    return "accepted" if _is_valid(question, spoilt) else "accepted wrongly at the site"


def _at_coordinator(
    coordinator: Coordinator,
    spoil: Callable[[bytes, Generator], bytes],
    question: bytes,
    answer: bytes,
    draw: Generator,
) -> str:
    checks: dict[str, Callable[[str, Message], object]] = {
        "begin": coordinator._begun,
        "round": coordinator.uploads._upload,  # type: ignore[attr-defined]
        "record": coordinator._scored,
        "finish": coordinator._ended,
    }
    asked, spoilt = decode(question, "fuzz"), spoil(answer, draw)
    try:
        message = coordinator.link._read(asked.kind, asked.round, "site-0", asked.sequence, spoilt)
        if message.kind == "refused":
            return "refused"
        checks[asked.kind]("site-0", message)
    except WireError as error:
        return "refused" if "site-0" in str(error) else "refused without its name"
    except Exception as error:
        return f"crash at the coordinator: {type(error).__name__}"
    return "accepted" if _is_valid(answer, spoilt) else "accepted wrongly at the coordinator"


def _is_valid(question: bytes, spoilt: bytes) -> bool:
    """Whether a message that was accepted asks what was asked, with arrays of the same form."""
    one, other = decode(question, "fuzz"), decode(spoilt, "fuzz")
    finite = all(np.isfinite(array).all() for array in other.arrays.values() if array.dtype.kind == "f")
    forms = [{name: (a.shape, a.dtype) for name, a in message.arrays.items()} for message in (one, other)]
    # a site looks at what it needs: of facts that it has no use for, others may be there
    return finite and forms[0] == forms[1] and one.kind == other.kind and one.number == other.number


def run(quick: bool) -> Result:
    """Fuzz both sides."""
    messages = 200 if quick else MESSAGES
    with tempfile.TemporaryDirectory() as folder:
        ended, longest = fuzz(messages, Path(folder))
    wrong = {name: count for name, count in ended.items() if name not in ("refused", "accepted")}
    numbers = {"messages": messages, "ended": dict(sorted(ended.items())), "longest seconds": longest}
    return Result(
        numbers, (Target("wrong", sum(wrong.values()), 0), Target("longest seconds", longest, LONGEST_SECONDS))
    )
