# SPDX-License-Identifier: Apache-2.0
"""Epsilon is that of dp-accounting, called as its own documentation does; noise is found for an epsilon."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from idiolect.accounting import client_privacy
from idiolect.accounting.client_privacy import Rounds, noise_for, spent_epsilon
from idiolect.core.checks import RequestError

ALL = Rounds(40, 40, 1.0, False, "rdp")
FIXED = Rounds(40, 4, 1.0, False, "rdp")
COINS = Rounds(40, 40, 0.1, True, "rdp")
PLD = COINS._replace(accountant="pld")
SETTINGS = [*itertools.product((ALL, FIXED, COINS), (1.0, 3.0), (5, 40, 200)), (PLD, 2.0, 10), (ALL, 10.0, 1)]


def own_epsilon(rounds, noise, number, delta):
    """By dp-accounting alone."""
    package = pytest.importorskip("dp_accounting")
    if rounds.accountant == "pld":
        accountant = package.pld.PLDAccountant()
    else:
        replaced = rounds is FIXED
        relation = (
            package.NeighboringRelation.REPLACE_ONE if replaced else package.NeighboringRelation.ADD_OR_REMOVE_ONE
        )
        accountant = package.rdp.RdpAccountant(neighboring_relation=relation)
    if rounds is ALL:
        event = package.GaussianDpEvent(noise)
    elif rounds is FIXED:
        event = package.SampledWithoutReplacementDpEvent(40, 4, package.GaussianDpEvent(noise / 2))
    else:
        event = package.PoissonSampledDpEvent(0.1, package.GaussianDpEvent(noise))
    return accountant.compose(package.SelfComposedDpEvent(event, number)).get_epsilon(delta)


def test_twenty_settings_equal_dp_accounting():
    assert len(SETTINGS) == 20
    for rounds, noise, number in SETTINGS:
        wanted = own_epsilon(rounds, noise, number, 1e-3)
        assert spent_epsilon(rounds, number, noise, 1e-3) == pytest.approx(wanted, rel=1e-9)


def test_noise_for_an_epsilon_spends_just_that():
    pytest.importorskip("dp_accounting")
    for rounds in (ALL, COINS, FIXED):
        noise = noise_for(rounds, 30, 3.0, 1e-3)
        spent = spent_epsilon(rounds, 30, noise, 1e-3)
        assert 2.98 < spent <= 3.0


def test_a_budget_beyond_all_noise_still_has_some():
    pytest.importorskip("dp_accounting")
    for rounds in (ALL, COINS, FIXED):
        for epsilon in (1e9, 1e300):
            noise = noise_for(rounds, 5, epsilon, 1e-3)
            assert noise > 0
            assert spent_epsilon(rounds, 5, noise, 1e-3) <= epsilon


def test_no_round_spends_nothing_and_no_noise_all():
    pytest.importorskip("dp_accounting")
    assert spent_epsilon(ALL, 0, 1.0, 1e-3) == 0.0
    assert noise_for(ALL, 0, 3.0, 1e-3) > 0
    assert spent_epsilon(ALL, 1, 0.0, 1e-3) == math.inf


def test_coins_spend_less_than_rounds_of_all_clients():
    pytest.importorskip("dp_accounting")
    assert spent_epsilon(COINS, 40, 3.0, 1e-3) < 0.5 * spent_epsilon(ALL, 40, 3.0, 1e-3)


def test_without_the_package_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    with pytest.raises(RequestError, match=r"idiolect\[privacy\]"):
        client_privacy.spent_epsilon.__wrapped__(ALL, 1, 1.0, 1e-3)


def test_a_membership_attack_stays_below_epsilon():
    """The best test of whether a client was in a noisy sum, on draws of the mechanism itself, and what it proves.

    Its true positives and false positives bound epsilon from below; the bound holds with a chance of 95 %.
    """
    pytest.importorskip("dp_accounting")
    import jax
    import jax.numpy as jnp
    from scipy.stats import beta

    from idiolect.core import keys
    from idiolect.protection.clipping import add_noise, clip

    draws, noise, delta = 20_000, 1.0, 0.01
    change = clip({"w": jnp.array([3.0, 4.0])}, 1.0)["w"]  # the canary: as long as the clip lets it

    def released(key, there):
        # along the change: the most revealing direction
        return add_noise(key, noise, {"w": there * change})["w"] @ change

    all_keys = jax.vmap(lambda n: jax.random.fold_in(keys.root_key(7), n))(jnp.arange(2 * draws))
    inside = np.asarray(jax.vmap(lambda key: released(key, 1.0))(all_keys[:draws]))
    outside = np.asarray(jax.vmap(lambda key: released(key, 0.0))(all_keys[draws:]))
    found = 0.0
    for threshold in np.linspace(0.5, 2.5, 9):
        right, wrong = (inside > threshold).sum(), (outside > threshold).sum()
        low, high = beta.ppf(0.025, right, draws - right + 1), beta.ppf(0.975, wrong + 1, draws - wrong)
        found = max(found, math.log(max(low - delta, 1e-12) / high))
    spent = spent_epsilon(ALL, 1, noise, delta)
    assert 0.5 * spent < found < spent  # the attack works, and no better than it may
