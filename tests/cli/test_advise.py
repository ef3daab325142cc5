# SPDX-License-Identifier: Apache-2.0
"""`idiolect advise`: what it prints, what it leaves behind, and tables that need a default."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.collaborate import many, options
from idiolect.record.advice import ExpectedGain
from idiolect.report.advise_table import advice_text, read_advice, sentences

COLUMNS = ("--client", "clinic", "--target", "dose")


def write_clinics(path, tail=()):
    """Two kinds of clinics whose doses follow opposite slopes: 12 of 25 rows each."""
    draws = np.random.default_rng(0)
    lines = ["clinic,age,weight,dose"]
    for clinic in range(12):
        for age, weight in draws.normal(size=(25, 2)):
            dose = (3 if clinic < 6 else -3) * age + weight + draws.normal()
            lines.append(f"c{clinic:02},{age:.4f},{weight:.4f},{dose:.4f}")
    path.write_text("\n".join([*lines, *tail]) + "\n")


@pytest.fixture
def clinics(here):
    write_clinics(here / "clinics.csv")
    return here


def test_a_table_is_advised_on_and_the_advice_verified(idiolect, clinics):
    answer = idiolect("advise", "clinics.csv", *COLUMNS, "--verify")
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    assert said.startswith("All 12 clients should join neighbours. Squared error is expected to fall from ")
    assert "for 12 of 12 clients" in said
    assert "zeta" not in answer.out + answer.err
    assert "paper" not in answer.out + answer.err
    assert "fewer samples" not in answer.out
    assert "12 clients hold 300 rows" in answer.err
    folder = clinics / "runs" / "clinics-advise"
    assert {path.name for path in folder.iterdir()} == {
        "advise.json", "advise.parquet", "figures", "machine.json", "privacy.json", "spec.toml", "report.html", "done",
        "manifest.json", "request.json",
    }  # fmt: skip
    assert (folder / "figures" / "map.png").read_bytes().startswith(b"\x89PNG")
    rows = pq.read_table(folder / "advise.parquet").to_pylist()
    assert [row["advice"] for row in rows] == ["neighbours"] * 12
    assert all(row["test_neighbours"] < row["test_everybody"] for row in rows)
    found = json.loads((folder / "advise.json").read_text())
    shares = np.array(found["map"]["shares"])
    assert shares[:6, 6:].sum() < 0.3  # the other kind is left out
    assert shares.sum(axis=1) == pytest.approx(np.ones(12))
    assert found["verify"]["regret"]["advice"]["mean"] < found["verify"]["regret"]["always everybody"]["mean"]
    assert found["clients"][0]["round_bytes"] == {
        "alone": 0, "everybody": 24, "neighbours": 24,  # three coefficients of four bytes, both ways
        "neighbours, peer to peer": 24 * len(found["clients"][0]["neighbours"]),
    }  # fmt: skip
    first = found["clients"][0]
    assert first["all_for_one"] == pytest.approx(12 / first["worth"])
    assert first["measured"]["over_everybody"] == pytest.approx(
        first["loss"]["everybody"] - first["loss"]["neighbours"]
    )
    again = idiolect("report", folder, "--quiet")
    assert again.out.strip() == answer.out[: answer.out.index("Run folder:")].strip()
    # a second request finds a folder of its own
    again = idiolect("advise", "clinics.csv", *COLUMNS, "--details")
    assert "runs/clinics-advise-2" in again.out
    assert "(zeta* = " in again.out  # for specialists, with what it means
    assert "agent" not in again.out
    page = (folder / "report.html").read_text()
    assert "{{" not in page
    assert page.index("should join neighbours") < page.index("The map") < page.index("Client by client")
    assert page.index("On test rows") < page.index("<details")


def test_the_headline_has_both_percentages_and_gains_that_may_be_nothing_are_doubted(idiolect, clinics):
    assert idiolect("advise", "clinics.csv", *COLUMNS, "--verify", "--out", "a").code == 0
    found = read_advice(clinics / "a")
    said = " ".join(advice_text(found).split())
    assert re.search(r"[\d.]+ % less \(on test rows [\d.]+ % less\)\.", said)
    lost = dataclasses.replace(found.found.verify.saved_against["always alone"], mean=-0.05)
    verified = dataclasses.replace(found.found.verify, saved_against={"always alone": lost}, test_loss={"alone": 0.5})
    worse = dataclasses.replace(found, found=dataclasses.replace(found.found, verify=verified))
    assert "(on test rows 10 % more)." in " ".join(sentences(worse))
    assert said.count("join neighbours?") == found.found.unsure == 12  # however probable: the intervals hold 0
    assert "no client's gain is clear" in said
    clear = {"neighbours": ExpectedGain(0.1, 0.1, 0.05, 0.3)}
    sure = tuple(dataclasses.replace(one, gain=one.gain | clear, surety=0.95) for one in found.found.clients)
    said = advice_text(dataclasses.replace(found, found=dataclasses.replace(found.found, clients=sure)))
    assert "join neighbours?" not in said
    assert "no client's gain is clear" not in said


def test_json_over_several_splits(idiolect, clinics):
    answer = idiolect(
        "advise", "clinics.csv", *COLUMNS, "--verify", "--seeds", "0-1", "--format", "json", "--quiet", "--out", "a"
    )
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert answer.err == ""
    assert found["verify"]["seeds"] == [0, 1]
    assert found["verify"]["tested"] == 24
    assert set(found["regime"]) >= {"zeta", "sigma", "kappa", "radius"}
    assert found["exchange"]["pairs"] == 12 * 11 * 6  # five folds and all rows
    assert found["score"] == "squared_error"


def test_odd_clients_get_a_default_that_is_said(idiolect, here):
    """One client with two rows, one with one class only, two with the same rows, one like no other."""
    draws = np.random.default_rng(1)
    lines = ["clinic,age,weight,ill"]
    for clinic in range(6):
        for age, weight in draws.normal(size=(20, 2)):
            lines.append(f"c{clinic},{age:.4f},{weight:.4f},{'yes' if age + draws.logistic() > 0 else 'no'}")
    lines += [line.replace("c0,", "copy,") for line in lines if line.startswith("c0,")]
    lines += [f"healthy,{age:.4f},0,no" for age in draws.normal(size=20)]
    lines += ["tiny,0.1,0.2,yes", "tiny,0.3,-0.1,no"]
    lines += [f"stranger,{age:.4f},1,{'yes' if age < 0 else 'no'}" for age in 3 * draws.normal(size=60)]
    (here / "odd.csv").write_text("\n".join(lines) + "\n")
    answer = idiolect("advise", "odd.csv", "--client", "clinic", "--target", "ill", "--verify", "--out", "odd")
    assert answer.code == 0, answer.err
    assert "'tiny' has fewer rows than the model has coefficients (3)" in answer.err
    assert "Clients 'c0' and 'copy' hold the same rows" in answer.err
    assert "one class only" in answer.err
    assert "'tiny' has a single row to learn from" in answer.err
    found = json.loads((here / "odd" / "advise.json").read_text())
    told = {entry["client"]: entry for entry in found["clients"]}
    assert told["stranger"]["own_share"] > 0.9
    assert told["stranger"]["advice"] != "everybody"
    numbers = [value for entry in found["clients"] for value in entry["loss"].values()]
    assert np.isfinite(numbers).all()


def test_the_seed_of_the_split_is_the_one_asked_for(idiolect, clinics):
    """data.seed decides the split as in compare; --seeds may not contradict it."""
    losses = {}
    ways = {"plain": (), "set": ("--set", "data.seed = 7"), "seeds": ("--seeds", "7"), "seed": ("--seed", "7")}
    for name, asked in ways.items():
        answer = idiolect("advise", "clinics.csv", *COLUMNS, *asked, "--out", name, "--quiet")
        assert answer.code == 0, answer.err
        found = json.loads((clinics / name / "advise.json").read_text())
        assert found["seed"] == (0 if name == "plain" else 7)
        spec = tomllib.loads((clinics / name / "spec.toml").read_text())
        assert (spec["data"]["seed"], spec["seeds"]) == (found["seed"], [found["seed"]])
        losses[name] = found["mean_loss"]
    assert losses["set"] == losses["seeds"] == losses["seed"] != losses["plain"]


def test_whom_a_client_joins_is_never_cut(clinics, idiolect, monkeypatch):
    assert idiolect("advise", "clinics.csv", *COLUMNS, "--verify", "--out", "a").code == 0
    advised = read_advice("a")
    # long names, whose neighbours are the answer
    clients = [
        dataclasses.replace(
            one, neighbours=tuple(dataclasses.replace(n, client=f"Klinik {n.client}") for n in one.neighbours)
        )
        for one in advised.found.clients
    ]
    advised = dataclasses.replace(advised, found=dataclasses.replace(advised.found, clients=tuple(clients)))
    joining = [one for one in clients if one.advice == "neighbours"]
    assert joining
    for width in (60, 80, 100, 120, 200):
        printed = advice_text(advised, width=width)
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= width
        words = " ".join(printed.split())
        assert all(words.count(f"Klinik {one.neighbours[0].client.split()[-1]}") for one in joining)
    # a table of its own has those that join neighbours, and says nothing of the others
    below = advice_text(advised, width=80).partition("with whom")[2].partition("alone:")[0]
    assert below.count("itself") == len(joining)
    assert "all clients" not in below


def test_one_line_per_client_in_natural_order(idiolect, here):
    """40 clients with odd names: client 2 before client 10, at most 30 lines, all of them with --details."""
    draws = np.random.default_rng(2)
    names = [f"client {number}" for number in range(1, 37)] + ["Köln", "[bold]", "<b>x</b>", "a name " * 9]
    lines = ["who,x,y"]
    for name in names:
        lines += [f"{name},{x:.4f},{x + 0.1 * noise:.4f}" for x, noise in draws.normal(size=(8, 2))]
    (here / "odd.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answer = idiolect("advise", "odd.csv", "--client", "who", "--target", "y", "--out", "o", "--quiet")
    assert answer.code == 0, answer.err
    table = answer.out.partition("with whom")[0]  # which stands in a table of its own
    printed = [line for line in table.splitlines() if line.startswith(("client ", "K", "[", "<", "a name"))]
    printed = [line for line in printed if len(line.split()) > 1 and "advice" not in line]
    assert len(printed) == 30
    order = [line.split()[1] for line in printed if line.startswith("client ")]
    assert order == [str(number) for number in range(1, len(order) + 1)]
    assert "10 more clients" in answer.out
    everything = idiolect("report", "o", "--quiet").out
    assert everything.strip() == answer.out.strip()
    page = (here / "o" / "report.html").read_text(encoding="utf-8")
    assert "<b>x</b>" not in page
    drawing = (here / "o" / "figures" / "map.svg").read_text(encoding="utf-8")
    assert "client 10" in drawing


def test_many_clients_are_advised_in_blocks(idiolect, here, monkeypatch):
    """More clients than pairs can be judged: blocks, said so, and a page of groups."""
    monkeypatch.setattr(options, "MOST_PAIRS", 30)
    monkeypatch.setattr(many, "BLOCK", 30)
    draws = np.random.default_rng(3)
    lines = ["who,x,y"]
    for number in range(70):
        slope = 2 if number % 2 else -2
        lines += [f"c{number},{x:.3f},{slope * x + 0.3 * noise:.3f}" for x, noise in draws.normal(size=(15, 2))]
    (here / "many.csv").write_text("\n".join(lines) + "\n")
    answer = idiolect("advise", "many.csv", "--client", "who", "--target", "y", "--verify", "--out", "m")
    assert answer.code == 0, answer.err
    assert "sorted into blocks" in answer.err
    found = json.loads((here / "m" / "advise.json").read_text())
    assert found["map"] is None
    assert sum(found["blocks"]) == 70
    assert found["picks"]["neighbours"] > 60
    assert found["verify"]["test_loss"]["neighbours"] < found["verify"]["test_loss"]["alone"]
    assert len(pq.read_table(here / "m" / "advise.parquet")) == 70


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("clinics.csv", "--client", "clinc", "--target", "dose"), "Did you mean 'clinic'?"),
        (("clinics.csv", "--client", "clinic"), "advise TABLE needs --target COLUMN"),
        ((), "advise needs either a TABLE or --data NAME"),
        (("clinics.csv", *COLUMNS, "--set", "data.test = 0", "--verify"), "--verify needs test rows"),
        (("clinics.csv", *COLUMNS, "--set", "data.seed = 7", "--seeds", "3"), "--seeds begins with the split 3"),
        (("clinics.csv", *COLUMNS, "--seeds", "0-4"), "add --verify"),
        (("clinics.csv", *COLUMNS, "--seed", "-1"), "--seed must be at least 0, got -1."),
        (("clinics.csv", *COLUMNS, "--set", "training.rounds = 3"), "has no setting 'training'"),
        (("--data", "shakespear"), "Did you mean 'shakespeare'?"),
    ],
)
def test_wrong_requests_are_one_sentence_and_exit_2(idiolect, clinics, arguments, sentence):
    answer = idiolect("advise", *arguments)
    assert answer.code == 2
    assert sentence in answer.error
    assert not (clinics / "runs").exists()
