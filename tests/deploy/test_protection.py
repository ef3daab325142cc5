# SPDX-License-Identifier: Apache-2.0
"""Protections over sites: the numbers of a simulation where nothing is secret, and noise that follows from no seed."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from idiolect.core.checks import RequestError
from idiolect.engines.cohorts import Participation
from idiolect.engines.deploy import wire
from idiolect.engines.deploy.kept import LOG
from idiolect.engines.deploy.link import Rules
from idiolect.engines.deploy.transport import Loopback, no_fault
from idiolect.experiments.deploy import desk
from idiolect.experiments.deploy.agreement import check_deployable, rounds_to_answer
from idiolect.experiments.deploy.desk import make_site
from idiolect.experiments.deploy.serve import coordinate
from idiolect.experiments.deploy.site_file import read_site_file
from idiolect.experiments.execute import execute
from idiolect.experiments.spec import from_table, load, override

SITES = ("a", "b", "c")
SPEC = """
name = "study"
[data]
source = "table"
path = "all.csv"
client = "site"
target = "outcome"
preparation = "local"
[training]
rounds = 2
record_every = 1
executor = "batched"
[methods.ditto]
local_steps = 2
step_size = 0.2
"""
COMPRESSED = '[compression]\nkind = "top_k"\none_in = 2\n[robustness]\nrule = "median"\n'
PRIVATE = "[privacy]\nnoise_multiplier = 1.0\n"


@pytest.fixture
def study(tmp_path):
    draw = np.random.default_rng(3)
    pooled = []
    for place, site in enumerate(SITES):
        values = draw.normal(size=(24, 2)) + place
        lines = [f"{x:.4f},{y:.4f},{x - y + 0.3 * place:.4f}" for x, y in values]
        (tmp_path / f"{site}.csv").write_text("\n".join(["x,y,outcome", *lines]) + "\n")
        pooled += [f"{line},{site}" for line in lines]
        (tmp_path / site).mkdir()
        allows = '[allows]\npreparation = ["local", "given"]\n'
        text = f'name = "{site}"\ntable = "../{site}.csv"\nspec = "../spec.toml"\n{allows}'
        (tmp_path / site / "site.toml").write_text(text)
    (tmp_path / "all.csv").write_text("\n".join(["x,y,outcome,site", *pooled]) + "\n")
    return tmp_path


def deploy(study, spec, name, fault=no_fault):
    """The shared model, and the folder of a deployment."""
    (study / "spec.toml").write_text(spec)
    sites = {site: make_site(read_site_file(study / site)) for site in SITES}
    coordinate(Loopback(sites, fault), load(study / "spec.toml"), study / name, SITES, Rules(wait=0), patience=1)
    return safetensors.numpy.load_file(study / name / "models/ditto-seed0/shared.safetensors")


def test_compressed_uploads_and_a_median_equal_the_simulation(study, monkeypatch):
    found = deploy(study, SPEC + COMPRESSED, "server")
    monkeypatch.chdir(study)
    execute(load(study / "spec.toml"), study / "simulated")
    wanted = safetensors.numpy.load_file(study / "simulated/models/ditto-seed0/shared.safetensors")
    assert all(np.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    here, there = (pq.read_table(study / name / "history.parquet").to_pylist()[-1] for name in ("server", "simulated"))
    assert here["upload_bytes"] == there["upload_bytes"] > 0


def test_noise_of_sites_is_their_own_and_the_server_sees_its_sum_under_masks(study, monkeypatch):
    pytest.importorskip("dp_accounting")
    pytest.importorskip("cryptography")
    masks = "[secure_aggregation]\nthreshold = 2\n"
    plain = deploy(study, SPEC + masks, "masked")
    monkeypatch.chdir(study)
    execute(load(study / "spec.toml"), study / "simulated")
    wanted = safetensors.numpy.load_file(study / "simulated/models/ditto-seed0/shared.safetensors")
    assert all(np.allclose(plain[name], wanted[name], atol=1e-6) for name in wanted)
    forget(study)
    noisy = PRIVATE.replace("1.0", '1.0\nnoise = "clients"')
    found = deploy(study, SPEC + masks + noisy, "private")
    execute(load(study / "spec.toml"), study / "seeded")
    seeded = safetensors.numpy.load_file(study / "seeded/models/ditto-seed0/shared.safetensors")
    assert any(not np.allclose(found[name], seeded[name], atol=1e-3) for name in found)  # one spec, one seed
    (method,) = json.loads((study / "private" / "privacy.json").read_text())["methods"]
    assert "each site's private source, of which the server sees the sum" in method["protection"]
    sent = [json.loads(line) for line in (study / "a" / "kept" / LOG).read_text().splitlines()]
    assert {name for line in sent for name in line["arrays"]} == {"advert", "sealed", "masked", "shares"}


def forget(study):
    """Sites begin anew with a new run of the same spec."""
    for site in SITES:
        for path in sorted((study / site).rglob("*"), reverse=True):
            if path.name != "site.toml":
                path.rmdir() if path.is_dir() else path.unlink()


def test_noise_of_a_server_is_its_own(study):
    pytest.importorskip("dp_accounting")
    first = deploy(study, SPEC + PRIVATE, "first")
    forget(study)
    second = deploy(study, SPEC + PRIVATE, "second")
    assert any(not np.allclose(first[name], second[name], atol=1e-3) for name in first)  # one spec, one seed
    rows = pq.read_table(study / "first" / "history.parquet").to_pylist()
    assert rows[0]["epsilon"] == 0.0 < rows[1]["epsilon"] < rows[2]["epsilon"]
    (method,) = json.loads((study / "first" / "privacy.json").read_text())["methods"]
    assert "noise from the server's private source" in method["protection"]
    assert "simulated" not in method["protection"]


ROWS = 'batch_size = 4\n[privacy]\nlevel = "rows"\nnoise_multiplier = 2.0\n'


@pytest.fixture
def of_rows(study, monkeypatch):
    """A spec that hides rows, by a recipe of public numbers; the study is the working folder."""
    pytest.importorskip("dp_accounting")
    (study / "spec.toml").write_text(SPEC.replace('"local"', '"federated"'))
    monkeypatch.chdir(study)
    execute(load(study / "spec.toml"), study / "first")
    return SPEC.replace('"local"', f'"given"\nrecipe = "{study}/first/models/preprocessing.json"') + ROWS


def test_rows_are_hidden_at_each_site_by_a_source_of_its_own(study, of_rows):
    shared = deploy(study, of_rows, "sites")
    execute(load(study / "spec.toml"), study / "simulated")
    seeded = safetensors.numpy.load_file(study / "simulated/models/ditto-seed0/shared.safetensors")
    assert any(not np.allclose(shared[name], seeded[name], atol=1e-3) for name in shared)  # one spec, one seed
    one, other = (
        json.loads((study / name / "privacy.json").read_text())["methods"][0] for name in ("sites", "simulated")
    )
    assert "each site's private source" in one["protection"]
    assert one["epsilons"] == other["epsilons"] != []
    said = [json.loads(line) for line in (study / "a" / "kept" / LOG).read_text().splitlines()]
    before = {line["kind"]: line["content"] for line in said}
    assert (before["sums"]["features"], before["sums"]["class_counts"]) == ({}, {})
    assert before["constants"] == {"constants": None}
    # a second run of the same spec would tell as much again: its owner must agree
    with pytest.raises(RequestError, match="needs 1 sites to begin, and 0 did"):
        deploy(study, of_rows, "again")
    assert (study / "a" / "kept" / LOG).read_text().count("answered 2 rounds of this method in another run") == 1


def test_sites_that_count_their_answers_find_the_numbers_of_the_simulation(study, of_rows, monkeypatch):
    monkeypatch.setattr(desk, "with_private_rows", lambda own: own)  # noise from the seed, which can be repeated
    found = deploy(study, of_rows, "sites")
    execute(load(study / "spec.toml"), study / "simulated")
    wanted = safetensors.numpy.load_file(study / "simulated/models/ditto-seed0/shared.safetensors")
    assert all(np.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    assert len(list((study / "a" / "kept" / "answers").rglob("count.safetensors"))) == 1


@pytest.mark.parametrize(
    ("said", "little", "nothing"),
    [
        ("noise_multiplier = 2.0", "= 1.98, less than the 2 of", "= 0, less than the 2 of"),
        ("epsilon = 5.0", "epsilon 5.08 at this site, more than the 5", "epsilon inf at this site"),
    ],
)
def test_a_site_refuses_numbers_that_would_spend_more_of_its_rows(study, of_rows, said, little, nothing):
    asked = []

    def keep(site, number, message, handler):
        asked.append(wire.decode(message, "the server"))
        return handler.handle(message)

    spec = of_rows.replace("noise_multiplier = 2.0", said)
    deploy(study, spec, "sites", keep)
    begin = next(one for one in asked if one.kind == "begin")
    here = desk.SpecDesk(read_site_file(study / "a"))

    def refused(noise=1.0, **chosen):
        leaves = [leaf * noise if leaf == noises[0] else leaf for leaf in begin.content["leaves"]]
        with pytest.raises(RequestError) as caught:
            here.begin(begin.content | {"leaves": leaves, "chosen": chosen})
        return str(caught.value)

    post = here.begin(begin.content)
    assert post.rounds == {0, 1}
    told = float(post.algorithm.objective.row_privacy.noise_multiplier)
    noises = [leaf for leaf in begin.content["leaves"] if leaf == pytest.approx(told)]
    assert len(noises) == 1
    assert little in refused(0.99)
    assert nothing in refused(0.0)
    assert "read rows more often" in refused(local_steps=200)


def test_a_site_knows_itself_which_rounds_it_answers(workbench):
    def rounds(*lines, number=1, seed=0, method="local_sgd"):
        spec = from_table(override(tomllib.loads(SPEC), ["training.rounds = 50", *lines]))
        return rounds_to_answer(spec, workbench.build(method), number, 6, seed)

    rows = ('privacy.level = "rows"', "privacy.noise_multiplier = 1.0")
    assert rounds(*rows) == frozenset(range(50))
    assert rounds("privacy.noise_multiplier = 1.0", 'privacy.noise = "clients"') == frozenset(range(50))
    assert rounds() is rounds("privacy.noise_multiplier = 1.0") is rounds(*rows, method="local") is None
    drawn, _ = Participation(6, 2).draw(0, range(50))
    assert rounds(*rows, "training.cohort = 2") == {number for number in range(50) if 1 in drawn[number]}
    with pytest.raises(RequestError, match="seed 3, which this site's spec does not name"):
        rounds(*rows, seed=3)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('attack.kind = "noise"', "for simulations"),
        ('privacy = {noise_multiplier = 1.0, noise = "clients"}', "under .secure_aggregation."),
        ("training.cohort = 2", "the seed, which all sites know"),
    ],
)
def test_what_a_deployment_cannot_protect_is_refused(study, line, sentence):
    lines = [line] if "privacy" in line or "attack" in line else ["privacy.noise_multiplier = 1.0", line]
    with pytest.raises(RequestError, match=sentence):
        check_deployable(from_table(override(tomllib.loads(SPEC), lines)))
