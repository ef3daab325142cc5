# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation as messages: the turns that a coordinator asks for in a round, and what a site answers to each.

keys -> shares -> round (the upload, masked) -> unmask. Keys are of one attempt at one round. A site takes part in one
sum of a round only: the difference of two sums over other clients would show an upload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from idiolect.core.addressing import address
from idiolect.core.checks import RequestError
from idiolect.core.kinds import MaskingClient, Masks
from idiolect.core.tree import Tree
from idiolect.engines.deploy.link import Link, Question
from idiolect.engines.deploy.reports import Work
from idiolect.engines.deploy.uploads import Arrived, sound_work
from idiolect.engines.deploy.wire import Message, WireError, check_array, check_names, digest, pack
from idiolect.record.files import write_whole

ANSWERED = "unmasked.json"  # at a site: the newest round whose sum it helped to unmask, and over whom
Blocks = dict[int, bytes]  # by client


def to_rows(blocks: Mapping[int, bytes]) -> np.ndarray:
    """Blocks of one size as an array, a row each, by ascending client."""
    return np.stack([np.frombuffer(blocks[number], np.uint8) for number in sorted(blocks)])


def of_rows(numbers: list[int], rows: np.ndarray) -> Blocks:
    """The blocks again; `numbers` ascend."""
    return {number: row.tobytes() for number, row in zip(numbers, rows, strict=True)}


def one_array(message: Message, name: str, shape: tuple[int, ...], sender: str, kind: str = "uint8") -> np.ndarray:
    """The only array of a message."""
    check_names(message.arrays, {name}, sender)
    check_array(message.arrays[name], shape, np.dtype(kind), name, sender)
    return message.arrays[name]


class MaskedUploads:
    """The coordinator's side: the sum of the uploads, and no upload. See `uploads.Uploads`."""

    def __init__(self, reduction: Masks, link: Link, upload: Tree):
        self.reduction, self.link, self.upload = reduction, link, upload
        self.unsound: set[str] = set()

    def ask(self, number: int, asked: list[str], sent: Tree, least: int) -> Arrived:
        """See `Uploads`; one attempt, with keys of its own."""
        session = digest(self.link.run, self.link.method, number, self.link.sequence)
        works: dict[str, Work] = {}
        try:
            return self._turns(number, asked, sent, session, works)
        except RequestError as error:  # too few are left, or a share was changed: with other keys it may go well
            return Arrived(works, None, f"{error} ")

    def _turns(self, number: int, asked: list[str], sent: Tree, session: str, works: dict[str, Work]) -> Arrived:
        link, sizes = self.link, self.reduction.sizes
        server = self.reduction.masking_server(self.upload, session.encode())
        clients = link.numbers

        def advert(site: str, message: Message) -> bytes:
            return one_array(message, "advert", (sizes.advert,), f"Site {site!r}").tobytes()

        opened = {site: Question({"session": session}) for site in asked}
        shown = {clients[site]: block for site, block in link.ask("keys", number, opened, advert).items()}
        server.collect_keys(shown)
        there = [site for site in asked if clients[site] in shown]

        def sealed(site: str, message: Message) -> Blocks:
            others = _others(shown, clients[site])
            return of_rows(others, one_array(message, "sealed", (len(others), sizes.sealed), f"Site {site!r}"))

        questions = {}
        for site in there:
            others = _others(shown, clients[site])
            keys = to_rows({other: shown[other] for other in others})
            questions[site] = Question({"numbers": others}, {"adverts": keys})
        boxes = link.ask("shares", number, questions, sealed)
        routed = server.route_shares({clients[site]: own for site, own in boxes.items()})

        def masked(site: str, message: Message) -> np.ndarray:
            work = sound_work(site, message, self.unsound)
            found = one_array(message, "masked", (server.length,), f"Site {site!r}", "uint64")
            works[site] = work
            return found

        questions = {}
        for site in boxes:
            own = routed[clients[site]]
            arrays = pack("sent", address(sent, clients[site])) | {"sealed": to_rows(own)}
            questions[site] = Question({"sealed_by": sorted(own)}, arrays)
        for site, vector in link.ask("round", number, questions, masked).items():
            server.add(clients[site], vector)
        came = server.survivors()

        def shares(site: str, message: Message) -> Blocks:
            return of_rows(sharers, one_array(message, "shares", (len(sharers), sizes.share), f"Site {site!r}"))

        sharers = sorted(routed)
        bits = np.packbits([party in came for party in sorted(shown)])
        questions = {site: Question({}, {"came": bits}) for site in works}
        answers = link.ask("unmask", number, questions, shares)
        total = server.unmask({clients[site]: own for site, own in answers.items()})
        return Arrived(works, self.reduction.partial_of(total, len(came)))


def _others(known: Mapping[int, bytes], own: int) -> list[int]:
    return sorted(number for number in known if number != own)


class SiteMasks:
    """A site's side, for one method; `folder` keeps what it must not forget when it starts anew."""

    def __init__(self, reduction: Masks, number: int, folder: Path, run: str):
        self.reduction, self.number, self.folder, self.run = reduction, number, folder, run
        self.client: MaskingClient | None = None
        self.round, self.parties, self.sharers = -1, [number], [number]  # of the round that is asked

    def keys(self, asked: Message, sender: str) -> dict[str, np.ndarray]:
        """Public keys for a new attempt."""
        session = asked.content.get("session")
        if not isinstance(session, str):
            raise WireError(f"{sender} did not name this round of secure aggregation.")
        self.client, self.round = self.reduction.masking_client(self.number, session.encode()), asked.round
        return {"advert": np.frombuffer(self.client.advertise(), np.uint8)}

    def shares(self, asked: Message, sender: str) -> dict[str, np.ndarray]:
        """Sealed shares for the others, whose keys came."""
        client, others = self._client(asked, sender), _numbers(asked, "numbers", sender)
        rows = one_array(asked, "adverts", (len(others), self.reduction.sizes.advert), sender)
        self.parties = sorted([*others, self.number])
        return {"sealed": to_rows(client.share(of_rows(others, rows)))}

    def mask(self, asked: Message, sealed: np.ndarray, lifted: Tree, sender: str) -> dict[str, np.ndarray]:
        """What this site adds to the sum, under masks."""
        client, senders = self._client(asked, sender), _numbers(asked, "sealed_by", sender)
        check_array(sealed, (len(senders), self.reduction.sizes.sealed), np.dtype(np.uint8), "sealed", sender)
        self.sharers = sorted([*senders, self.number])
        return {"masked": client.mask(lifted, of_rows(senders, sealed))}

    def unmask(self, asked: Message, sender: str) -> dict[str, np.ndarray]:
        """Shares that take the masks off the sum over those that came; of each round over one set alone."""
        client = self._client(asked, sender)
        bits = one_array(asked, "came", (-(-len(self.parties) // 8),), sender)
        came = [party for party, bit in zip(self.parties, np.unpackbits(bits)) if bit]
        self._remember(asked.round, came)
        return {"shares": to_rows(client.answer(came))}

    def _client(self, asked: Message, sender: str) -> MaskingClient:
        if self.client is None or self.round != asked.round:
            raise WireError(f"{sender} asks about round {asked.round}, for which this site has no keys: begin it anew.")
        return self.client

    def _remember(self, number: int, came: list[int]) -> None:
        """On disk before it is answered; RequestError for another set of the same round."""
        path = self.folder / ANSWERED
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or torn before the answer left
            known = {}
        if isinstance(known, dict) and known.get("run") == self.run:
            before = known.get("round", -1)
            if number < before or (number == before and came != known.get("came")):
                raise RequestError(
                    f"This site has helped to unmask a sum of round {before} over other clients; a second sum of round "
                    f"{number} could show one upload: refused. Wait until the same sites are there again, or start a "
                    "new run."
                )
        write_whole(path, json.dumps({"run": self.run, "round": number, "came": came}).encode())


def _numbers(asked: Message, name: str, sender: str) -> list[int]:
    """Ascending client numbers from a message's facts."""
    found = asked.content.get(name)
    whole = isinstance(found, list) and all(type(number) is int and number >= 0 for number in found)
    if not whole or not found or found != sorted(set(found)):
        raise WireError(f"{sender} did not say whose blocks it sent.")
    return found
