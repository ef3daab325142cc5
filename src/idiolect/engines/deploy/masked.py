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
from idiolect.engines.deploy.link import Check, Found, Link, Question, Questions
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
    """The coordinator's side: the sum of the uploads, and no upload. See `uploads.OpenUploads`.

    A round takes four turns, one method each; what they gather is of one attempt, with keys of its own.
    """

    def __init__(self, reduction: Masks, link: Link, upload: Tree):
        self.reduction, self.link, self.clients, self.upload = reduction, link, link.numbers, upload
        self.unsound: set[str] = set()

    def ask(self, number: int, asked: list[str], sent: Tree, least: int) -> Arrived:
        """Ask once; too few uploads are noticed on the way."""
        self.number, self.session = number, digest(self.link.run, self.link.method, number, self.link.sequence)
        self.server = self.reduction.masking_server(self.upload, self.session.encode())
        self.keys: Blocks = {}
        self.routed: dict[int, Blocks] = {}  # receiver -> sender -> sealed shares
        self.works: dict[str, Work] = {}  # of the sites whose numbers came
        try:
            self.exchange_keys(asked)
            self.exchange_shares()
            self.add_uploads(sent)
            return self.unmask()
        except RequestError as error:  # too few are left, or a share was changed: with other keys it may go well
            return Arrived(self.works, None, f"{error} ")

    def exchange_keys(self, asked: list[str]) -> None:
        """Public keys of all that are there."""
        size = self.reduction.sizes.advert
        questions = {site: Question({"session": self.session}) for site in asked}
        found = self._ask(
            "keys", questions, lambda site, message: one_array(message, "advert", (size,), f"Site {site!r}")
        )
        self.keys = {own: advert.tobytes() for own, advert in found.items()}
        self.server.collect_keys(self.keys)

    def exchange_shares(self) -> None:
        """To each the keys of the others, from each its sealed shares for them."""
        size = self.reduction.sizes.sealed
        others = {site: sorted(self.keys.keys() - {own}) for site, own in self.clients.items() if own in self.keys}
        adverts = {site: to_rows({number: self.keys[number] for number in those}) for site, those in others.items()}
        questions = {site: Question({"numbers": those}, {"adverts": adverts[site]}) for site, those in others.items()}
        sealed = self._ask(
            "shares", questions, lambda site, message: _rows_of(message, "sealed", others[site], size, site)
        )
        self.routed = self.server.route_shares(sealed)

    def add_uploads(self, sent: Tree) -> None:
        """To each the broadcast and the shares for it, from each its upload under masks."""
        questions = {}
        for site, own in self.clients.items():
            if own in self.routed:
                boxes = self.routed[own]
                arrays = pack("sent", address(sent, own)) | {"sealed": to_rows(boxes)}
                questions[site] = Question({"sealed_by": sorted(boxes)}, arrays)
        for own, numbers in self._ask("round", questions, self._masked).items():
            self.server.add(own, numbers)

    def _masked(self, site: str, message: Message) -> np.ndarray:
        work = sound_work(site, message, self.unsound)
        numbers = one_array(message, "masked", (self.server.length,), f"Site {site!r}", "uint64")
        self.works[site] = work
        return numbers

    def unmask(self) -> Arrived:
        """To each whose numbers came who those are, from each its shares; the sum without masks."""
        size, sharers = self.reduction.sizes.share, sorted(self.routed)
        came = self.server.survivors()
        bits = np.packbits([party in came for party in sorted(self.keys)])
        questions = {site: Question({}, {"came": bits}) for site in self.works}
        shares = self._ask("unmask", questions, lambda site, message: _rows_of(message, "shares", sharers, size, site))
        total = self.server.unmask(shares)
        return Arrived(self.works, self.reduction.partial_of(total, len(came)))

    def _ask(self, kind: str, questions: Questions, check: Check[Found]) -> dict[int, Found]:
        """The valid answers, by client."""
        return {self.clients[site]: one for site, one in self.link.ask(kind, self.number, questions, check).items()}


def _rows_of(message: Message, name: str, numbers: list[int], size: int, site: str) -> Blocks:
    return of_rows(numbers, one_array(message, name, (len(numbers), size), f"Site {site!r}"))


class SiteMasks:
    """A site's side, for one method; `folder` keeps what it must not forget when it starts anew."""

    def __init__(self, reduction: Masks, number: int, folder: Path, run: str):
        self.reduction, self.number, self.folder, self.run = reduction, number, folder, run
        self.client: MaskingClient | None = None
        self.round, self.parties = -1, [number]  # of the round that is asked

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
