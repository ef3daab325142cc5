# SPDX-License-Identifier: Apache-2.0
"""A spec over sites with their own tables: the folder of a simulation on the pooled table, and models at the sites."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.core.checks import DivergedError, RequestError
from idiolect.engines.deploy.link import Link, Question, Rules
from idiolect.engines.deploy.transport import Loopback
from idiolect.experiments.build import assemble
from idiolect.experiments.deploy.agreement import check_joinable, run_digest
from idiolect.experiments.deploy.desk import RESULT, make_site
from idiolect.experiments.deploy.serve import _wait_for, coordinate
from idiolect.experiments.deploy.site_file import read_site_file
from idiolect.experiments.deploy.tuned import choose_step
from idiolect.experiments.execute import execute
from idiolect.experiments.predict import predict
from idiolect.experiments.prepare import prepare
from idiolect.experiments.spec import from_table, load
from idiolect.models import Linear
from idiolect.objectives import ClientLoss
from idiolect.report import report_on

SITES = ("north", "south 2", "south 10")
SPEC = """
name = "study"
[data]
source = "table"
path = "all.csv"
client = "site"
target = "outcome"
[model]
l2 = 0.1
[training]
rounds = 4
record_every = 2
executor = "batched"
[methods.local]
[methods.fedavg]
local_steps = 2
step_size = 0.2
[methods.scafflix]
personalization = [0.3, 0.5, 0.7]
"""


def write_tables(folder):
    """One table per site, without a column that names it, and all of them in one."""
    draw = np.random.default_rng(3)
    heading, pooled = "age,dose,ward,outcome", []
    for place, site in enumerate(SITES):
        lines = []
        for row in range(30 + 5 * place):
            age, dose = draw.normal(size=2)
            ward = "ABC"[int(draw.integers(0, 2 + (place > 0)))]
            shown = "" if row % 11 == 3 else f"{age:.4f}"
            lines.append(f"{shown},{dose:.4f},{ward},{'yes' if age + (place - 1) * dose > 0 else 'no'}")
        (folder / f"{site}.csv").write_text("\n".join([heading, *lines]) + "\n")
        pooled += [f"{line},{site}" for line in lines]
    (folder / "all.csv").write_text("\n".join([f"{heading},site", *pooled]) + "\n")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_tables(folder)
    (folder / "spec.toml").write_text(SPEC)
    for site in SITES:
        (folder / site).mkdir()
        (folder / site / "site.toml").write_text(f'name = "{site}"\ntable = "../{site}.csv"\nspec = "../spec.toml"\n')
    return folder


def sites_of(folder):
    return {site: make_site(read_site_file(folder / site)) for site in SITES}


@pytest.fixture(scope="module")
def deployed(study):
    said = []
    coordinate(
        Loopback(sites_of(study)), load(study / "spec.toml"), study / "server", SITES, Rules(wait=0), said.append, 1
    )
    return study / "server", said


@pytest.fixture(scope="module")
def simulated(study):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(study)
        execute(load(study / "spec.toml"), study / "simulated")
    return study / "simulated"


def test_the_folder_is_that_of_a_simulation_on_the_pooled_table(deployed, simulated):
    ours, theirs = (pq.read_table(folder / "clients.parquet").to_pandas() for folder in (deployed[0], simulated))
    assert ours["client"].tolist() == theirs["client"].tolist() == list(SITES) * 3
    same = [name for name in ours.columns if "_low" not in name and "_high" not in name and "expected" not in name]
    for name in [name for name in same if name not in ("verdict", "method", "client")]:
        np.testing.assert_allclose(ours[name].to_numpy(float), theirs[name].to_numpy(float), atol=1e-5, err_msg=name)
    history = [pq.read_table(folder / "history.parquet").to_pandas() for folder in (deployed[0], simulated)]
    for name in ("round", "upload_bytes", "download_bytes", "preparation_bytes", "gradients_both", "useful_steps"):
        assert history[0][name].tolist() == history[1][name].tolist(), name


def test_the_mean_gains_are_those_of_a_simulation_and_verdicts_are_not_known(deployed, simulated):
    ours, theirs = (json.loads((folder / "summary.json").read_text())["methods"] for folder in (deployed[0], simulated))
    assert any(entry["gain"] for entry in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("gain", "gain_over_one"):
            assert (mine[name] is None) == (other[name] is None)
            for part in ("mean", "low", "high") if mine[name] else ():
                assert mine[name][part] == pytest.approx(other[name][part], abs=1e-5)
        assert (mine["better"], mine["worse"]) == (other["better"], other["worse"])
        assert mine["helped"] is mine["same"] is None


def test_the_server_has_a_report_and_no_model_of_a_client(deployed):
    folder, _ = deployed
    assert "fedavg" in report_on(folder).text(True, 100)
    assert not list(folder.rglob("personal.safetensors"))
    assert (folder / "traffic.json").is_file()


def test_a_site_predicts_from_its_own_folder(deployed, simulated, study):
    for method in ("local", "scafflix"):
        table = study / "new.csv"
        table.write_text("age,dose,ward\n0.1,0.2,A\n-1.0,0.4,C\n")
        ours = predict(study / "south 2" / "kept" / RESULT, str(table), method, say=lambda text: None)
        table = study / "named.csv"
        table.write_text("age,dose,ward,site\n0.1,0.2,A,south 2\n-1.0,0.4,C,south 2\n")
        theirs = predict(simulated, str(table), method, say=lambda text: None)
        name = "probability of yes"
        np.testing.assert_allclose(ours[name].to_numpy(), theirs[name].to_numpy(), atol=1e-5)
        assert set(ours["model"].to_pylist()) == {"personal"}


def test_a_finished_run_is_not_trained_again(deployed, study):
    with pytest.raises(RequestError, match="finished"):
        coordinate(Loopback(sites_of(study)), load(study / "spec.toml"), study / "server", SITES)


def test_a_site_that_does_not_agree_stops_the_run_before_training(study, tmp_path):
    texts = {
        "least_rows = 1000": "fewer training rows",
        "texts = false": "names of categories",
        'preparation = ["given"]': "does not agree to preparation",
    }
    for line, sentence in texts.items():
        own = study / "north" / "other.toml"
        own.write_text((study / "north" / "site.toml").read_text() + f"[allows]\n{line}\n")
        said, sites = [], sites_of(study)
        sites["north"] = make_site(read_site_file(own))
        with pytest.raises(RequestError, match="north"):
            coordinate(
                Loopback(sites), load(study / "spec.toml"), tmp_path / "server", SITES, Rules(wait=0), said.append, 1
            )
        assert any(sentence in text and "north" in text for text in said)
        assert not (tmp_path / "server").exists()


def test_what_needs_all_rows_is_refused_with_a_way_out(study):
    for change, word in (
        ("data.source = 'digits'", "table"),
        ("data.held_out = 1", "held_out"),
        ("tuning.auto = true", "simulation"),
        ("evaluation.optimum = 'always'", "optimum"),
        ("collaboration.source = 'models'", "file"),
    ):
        with pytest.raises(RequestError, match=word):
            coordinate(Loopback({}), load(study / "spec.toml", [change]), study / "never", SITES)


def test_another_spec_or_version_is_refused_at_hello(study, tmp_path, monkeypatch):
    said = []
    spec = load(study / "spec.toml", ["training.rounds = 5"])
    with pytest.raises(RequestError, match="missing: north"):
        coordinate(Loopback(sites_of(study)), spec, tmp_path / "server", SITES, Rules(wait=0), said.append, 0.1)
    assert "another run" in said[0]


class Late(Loopback):
    """A site that is not there when it is first looked for."""

    looks = 0

    @property
    def sites(self):
        self.looks += 1
        return tuple(name for name in super().sites if name != SITES[0] or self.looks > len(SITES))


def test_sites_are_waited_for_and_their_absence_is_said_once(study):
    said, spec, names = [], load(study / "spec.toml"), list(SITES)
    numbers = {name: place for place, name in enumerate(names)}
    link = Link(Late(sites_of(study)), run_digest(spec), numbers, Rules(), said.append)
    assert _wait_for(link, names, 0.0) == names[:1]
    assert _wait_for(link, names, 30.0) == []
    link.transport.looks = -100
    for _ in range(2):
        link.ask("hello", 0, {names[0]: Question({}, {})}, lambda site, message: True)
    assert (len(said), link.absent[names[0]]) == (1, 2)
    assert names[0] in said[0]
    assert "did not answer" in said[0]


class Comes:
    """A loopback in which a site is not there before some round."""

    def __init__(self, sites, late, first):
        self.inner, self.late, self.first, self.now = Loopback(sites), late, first, 0

    @property
    def sites(self):
        return [name for name in self.inner.sites if name != self.late or self.now >= self.first]

    def exchange(self, round, messages, deadline):
        self.now = max(self.now, round)
        return self.inner.exchange(round, messages, deadline)


LATE = "south 10"
JOINED = SPEC.replace("[methods.local]\n", "").partition("[methods.scafflix]")[0]


def make_sites(study, name, spec):
    """Sites of a study of that name, with the rows of the first one."""
    (study / f"{name}.toml").write_text(spec)
    for site in SITES:
        home = study / name / site
        home.mkdir(parents=True)
        (home / "site.toml").write_text(f'name = "{site}"\ntable = "../../{site}.csv"\nspec = "../../{name}.toml"\n')
    return sites_of(study / name)


@pytest.fixture(scope="module")
def joined(study):
    """The last site comes in round 2 of 4; its spec is that of the others."""
    sites = make_sites(study, "later", JOINED)
    said, early = [], [site for site in SITES if site != LATE]
    coordinate(
        Comes(sites, LATE, 2),
        load(study / "later.toml"),
        study / "later" / "server",
        early,
        Rules(wait=0),
        said.append,
        1,
        [LATE],
    )
    return study / "later"


def test_a_site_that_joins_in_the_middle_gets_the_next_number_and_a_model(joined):
    table = pq.read_table(joined / "server" / "clients.parquet", filters=[("method", "=", "fedavg")])
    assert table["client"].to_pylist() == ["north", "south 2", LATE]
    assert np.isfinite(table["test_personal_log_loss_selected"].to_numpy()).all()
    assert table["train_rows"].to_pylist()[2] == 24  # three fifths of 40, sent when it came
    sent = [json.loads(line) for line in (joined / LATE / "kept" / "sent.jsonl").read_text().splitlines()]
    assert [line["round"] for line in sent if line["kind"] == "upload"][:2] == [2, 3]
    answered = predict(
        joined / LATE / "kept" / RESULT, str(joined.parent / f"{LATE}.csv"), "fedavg", say=lambda text: None
    )
    assert answered.num_rows == 40


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        ("scafflix", "personalization = [0.3, 0.5, 0.7]", "settings of its own for each client"),
        ("all_for_all", "", "who listens to whom"),
        ("asvrcd_pfl", "", "every client in every round"),
    ],
)
def test_what_cannot_be_joined_in_the_middle_is_refused(method, settings, reason):
    spec = from_table(tomllib.loads(SPEC.partition("[methods.local]")[0] + f"[methods.{method}]\n{settings}\n"))
    loss = ClientLoss(model=Linear(3, 2))
    built = assemble(spec.methods[0], loss, 3, "methods").algorithm
    with pytest.raises(RequestError, match=reason):
        check_joinable(method, built, [LATE])
    check_joinable(method, built, [])


TUNED = (
    SPEC.partition("[methods.local]")[0]
    + "[tuning]\nstep_size = [0.05, 0.4, 1e30]\n[methods.fedavg]\nlocal_steps = 2\n"
)


def test_a_step_is_chosen_by_what_sites_report_and_its_run_is_that_of_a_simulation_with_it(study):
    sites = make_sites(study, "tuned", TUNED)
    said, folder = [], study / "tuned" / "server"
    coordinate(Loopback(sites), load(study / "tuned.toml"), folder, SITES, Rules(wait=0), said.append, 1)
    (method,) = json.loads((folder / "summary.json").read_text())["methods"]
    assert (method["settings"]["step_size"], method["diverged"]) == (0.4, None)
    assert "1e+30: none" in method["tuned"]
    assert method["tuned"] in said
    given = load(study / "tuned.toml", ["tuning.step_size = []", "methods.fedavg.step_size = 0.4"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(study)
        execute(given, study / "given")
    ours, theirs = (pq.read_table(at / "clients.parquet") for at in (folder, study / "given"))
    for name in ("validation_personal_log_loss_last", "test_personal_log_loss_selected"):
        np.testing.assert_allclose(ours[name].to_numpy(), theirs[name].to_numpy(), atol=1e-6, err_msg=name)
    predicted = predict(study / "tuned" / "north" / "kept" / RESULT, str(study / "north.csv"), say=lambda text: None)
    assert predicted.num_rows == 30


def test_where_every_step_diverges_that_is_said(study, tmp_path):
    spec = load(study / "tuned.toml", ["tuning.step_size = [1e30, 1e31]"])
    with pytest.raises(RequestError, match="diverged with every step_size"):
        choose_step(prepared_of(study), spec.methods[0], diverging)


def diverging(method, name):
    raise DivergedError("lost")


def prepared_of(study):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(study)
        return prepare(load(study / "tuned.toml"))
