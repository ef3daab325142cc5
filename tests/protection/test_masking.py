# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation: the sum is exact whoever drops out, one upload is noise, and what was changed is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from idiolect.core.checks import RequestError
from idiolect.protection.fixed_point import from_fixed, range_bits, to_fixed
from idiolect.protection.masking import Aggregator, Party, Terms
from idiolect.protection.shamir import PRIME, SECRET_BYTES, join_shares, split_secret, weights_at_zero

pytest.importorskip("cryptography")
N, LENGTH = 7, 50


class Round:
    """One round on one machine; `gone` names who leaves before each turn."""

    def __init__(self, threshold=4, gone=None, parties=N, length=LENGTH, seed=0):
        self.terms, self.gone = Terms(b"run 1, round 3", threshold), gone or {}
        self.parties = {number: Party(number, self.terms) for number in range(parties)}
        self.server = Aggregator(self.terms, length)
        draw = np.random.default_rng(seed)
        self.vectors = {n: draw.integers(0, 2**64, length, np.uint64) for n in range(parties)}
        self.there, self.sent = set(self.parties), {}
        self.change = lambda turn, messages: messages

    def turn(self, name, said):
        """What those that are still there say in a turn, perhaps changed on its way."""
        self.there -= set(self.gone.get(name, ()))
        messages = {n: said(self.parties[n]) for n in sorted(self.there)}
        self.sent[name] = messages = self.change(name, messages)
        return messages

    def run(self):
        adverts = self.server.collect_keys(self.turn("advertise", lambda party: party.advertise()))
        boxes = self.server.route_shares(self.turn("share", lambda party: party.share(adverts)))
        masked = self.turn("mask", lambda party: party.mask(self.vectors[party.number], boxes[party.number]))
        for number, vector in masked.items():
            self.server.add(number, vector)
        came = self.server.survivors()
        return self.server.unmask(self.turn("answer", lambda party: party.answer(came)))

    def wanted(self):
        return np.sum([self.vectors[n] for n in self.server.came], axis=0, dtype=np.uint64)


@pytest.mark.parametrize(
    "gone",
    [
        {},
        {"advertise": [2]},
        {"share": [0]},
        {"mask": [6]},
        {"answer": [3]},
        {"mask": [0, 3, 6]},
        {"answer": [0, 1, 2]},
        {"advertise": [0], "share": [1], "mask": [4]},
        {"share": [5], "mask": [0], "answer": [6]},
        {"advertise": [1], "mask": [2], "answer": [5]},
    ],
)
def test_the_sum_is_exact_down_to_the_threshold(gone):
    one = Round(gone=gone)
    assert np.array_equal(one.run(), one.wanted())
    assert len(one.server.came) == N - sum(len(who) for turn, who in gone.items() if turn != "answer")


@pytest.mark.parametrize(
    ("gone", "sentence"),
    [
        ({"advertise": [0, 1, 2, 3]}, "at most all of them, got 4"),
        ({"share": [0, 1, 2, 3]}, "needs the shares of 4 clients, got 3"),
        ({"mask": [0, 1, 2, 3]}, "needs the vectors of 4 clients, got 3"),
        ({"mask": [0, 1], "answer": [2, 3]}, "needs the answers of 4 clients, got 3"),
    ],
)
def test_below_the_threshold_nothing_is_unmasked(gone, sentence):
    with pytest.raises(RequestError, match=sentence):
        Round(gone=gone).run()


def test_half_of_the_clients_are_too_few():
    with pytest.raises(RequestError, match="more than half of the 8 clients"):
        Round(threshold=4, parties=8).run()


def test_one_masked_upload_is_noise_and_the_sum_is_not():
    length, uploads = 20_000, []
    for level in (0.0, 1e6):
        one = Round(parties=3, threshold=2, length=length)
        ramp = level * np.linspace(-1, 1, length)
        one.vectors = {n: to_fixed(ramp, 32, 3) for n in range(3)}
        assert np.allclose(from_fixed(one.run(), 32), 3 * ramp, atol=3 * 2.0**-32)
        uploads.append((ramp, one.sent["mask"][1]))
    histograms = [np.bincount(masked.view(np.uint8), minlength=256) for _, masked in uploads]
    # uniform bytes whatever was sent: p-values that a true uniform has less than once in 10^5 runs
    assert all(stats.chisquare(found).pvalue > 1e-5 for found in histograms)
    assert stats.chi2_contingency(np.stack(histograms)).pvalue > 1e-5
    ramp, masked = uploads[1]
    assert abs(np.corrcoef(ramp, masked.astype(float))[0, 1]) < 5 / np.sqrt(length)
    plain = to_fixed(ramp, 32, 3)
    assert stats.chisquare(np.bincount(plain.view(np.uint8), minlength=256)).pvalue < 1e-100  # the test can fail


def test_keys_are_fresh_in_every_round():
    first, second = Round(), Round()
    assert np.array_equal(first.run(), second.run())
    assert not np.any(first.sent["mask"][0] == second.sent["mask"][0])


def test_no_party_tells_both_secrets_of_a_client():
    one = Round(gone={"mask": [6]})
    one.run()
    party = one.parties[0]
    assert party.answer(one.server.came) == one.sent["answer"][0]  # the same again tells nothing more
    with pytest.raises(RequestError, match="one set of clients"):
        party.answer(one.server.came - {5})
    for teller, answer in one.sent["answer"].items():
        keys_and_seeds = one.parties[teller]._held
        for number, (key, seed) in keys_and_seeds.items():
            assert answer[number] == (seed if number != 6 else key)
    # from shares of the key nobody makes the seed: what was told of client 6 is its key alone
    told = {teller: answer[6] for teller, answer in list(one.sent["answer"].items())[:4]}
    assert join_shares(told, weights_at_zero(told)) == one.parties[6]._masking


def test_a_party_answers_only_about_its_round():
    one = Round()
    one.run()
    for came in ([0, 1, 2, 9], [1, 2, 3, 4]):
        fresh = Round()
        fresh.run()
        fresh.parties[0]._answered = None
        with pytest.raises(RequestError, match="not in its round"):
            fresh.parties[0].answer(came)
    fresh.parties[0]._answered = None
    with pytest.raises(RequestError, match="needs the vectors of 4 clients, got 3"):
        fresh.parties[0].answer([0, 1, 2])
    with pytest.raises(RequestError, match="masks one vector"):
        one.parties[0].mask(one.vectors[0], {})
    with pytest.raises(RequestError, match="shares its secrets once"):
        one.parties[0].share({})


def flipped(text):
    return bytes([text[0] ^ 1]) + text[1:]


def change_share(turn, messages):
    return messages | {2: messages[2] | {4: flipped(messages[2][4])}} if turn == "share" else messages


def change_answer_of_one_that_came(turn, messages):
    return messages | {1: messages[1] | {2: flipped(messages[1][2])}} if turn == "answer" else messages


def change_answer_of_one_that_left(turn, messages):
    return messages | {1: messages[1] | {6: messages[1][5]}} if turn == "answer" else messages


def leave_out_an_answer(turn, messages):
    return messages | {1: {}} if turn == "answer" else messages


def change_key(turn, messages):
    return (
        messages | {3: messages[3]._replace(masking=flipped(messages[3].masking))} if turn == "advertise" else messages
    )


def shorten_vector(turn, messages):
    return messages | {3: messages[3][:-1]} if turn == "mask" else messages


def leave_out_a_share(turn, messages):
    return messages | {3: {}} if turn == "share" else messages


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (change_share, "from client 2 to client 4 were changed on their way"),
        (change_answer_of_one_that_came, "shares of"),
        (change_answer_of_one_that_left, "shares of"),
        (leave_out_an_answer, "shares of"),
        (change_key, "Client 3 is not among the keys"),
        (shorten_vector, r"not 50 uint64"),
        (leave_out_a_share, r"Clients \[3\] sent shares for others"),
    ],
)
def test_what_was_changed_is_refused(change, sentence):
    one = Round(gone={"mask": [6]})
    one.change = change
    with pytest.raises(RequestError, match=sentence):
        one.run()


def test_shares_rebuild_a_secret_from_the_threshold_on():
    secret = bytes(range(SECRET_BYTES))
    shares = split_secret(secret, range(6), 4)
    for some in ([0, 1, 2, 3], [5, 2, 0, 4], [0, 1, 2, 3, 4, 5]):
        assert join_shares(shares, weights_at_zero(some)) == secret
    few = weights_at_zero([0, 1, 2])
    assert sum(w * int.from_bytes(shares[n], "big") for n, w in few.items()) % PRIME != int.from_bytes(secret, "big")
    assert pow(2, PRIME - 1, PRIME) == 1


def test_fixed_point_is_exact_within_its_range_and_refuses_the_rest():
    values = np.array([0.0, -0.5, 3.25, -1e6, 2.0**-32, 0.4 * 2.0**-32])
    assert from_fixed(to_fixed(values, 32, 100), 32).tolist() == [0.0, -0.5, 3.25, -1e6, 2.0**-32, 0.0]
    most = 2.0 ** (range_bits(100) - 32)
    top = np.full(100, most - 2.0**-20)
    for sign in (1, -1):
        assert from_fixed(to_fixed(sign * top, 32, 100).sum(keepdims=True), 32)[0] == sign * np.sum(top)
    for wrong in (most, -most, np.nan, np.inf):
        with pytest.raises(RequestError, match=r"must be below 1\.67772e"):
            to_fixed(np.array([1.0, wrong]), 32, 100)


def test_without_the_library_a_sentence(monkeypatch):
    from idiolect.protection import ciphers

    ciphers.need_cryptography.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(RequestError, match=r"pip install 'idiolect\[deploy\]'"):
        Party(0, Terms(b"", 2)).advertise()
