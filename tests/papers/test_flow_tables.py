# SPDX-License-Identifier: Apache-2.0
"""The tables of Flow 2023 on a tiny column: equal budgets, steps chosen and remembered, cells shared by the tables."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path

import jax
import numpy as np
import pytest

from idiolect.core.checks import AbsentDataError, RequestError
from idiolect.data import dataset_files
from idiolect.data.dataset_files import VARIABLE
from idiolect.data.federation import Federation
from idiolect.data.split import Split
from idiolect.engines.debug import debug
from idiolect.engines.simulate import Training
from papers import (
    flow,
    flow_ablations,
    flow_data,
    flow_gains,
    flow_table2,
    flow_table3,
    flow_tables,
    flow_variants,
    lanes,
    problems,
)
from papers.catalogue import load_expected, load_spec
from papers.cells import Cells
from papers.drawing import drawing, to_bytes
from papers.flow_summary import summarise
from papers.images import IMAGE_FILES
from papers.runner import reproduce

SLUGS = ("flow-table2", "flow-table3", "flow-ablations")  # of one experiment
METHODS = ["local", "fedavg_fine_tuning", "flow", "flow_equal_steps"]
IMAGES = {name: f"images/{file}.npz.xz" for name, file in IMAGE_FILES.items()}
CHANGES = {"rounds": 2, "cohort": 2, "batch_size": 2, "record_every": 2, "routing_widths": [4], "gradients": 6}


def tiny(size, seed):
    """Four clients of six pixels and three classes, one more held out."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 100)
    inputs = draw.normal(size=(100, 6)) + np.eye(3, 6)[labels]
    return Federation.from_arrays(
        inputs, labels, np.arange(100) // 20, classes=tuple("abc"), held_out=1, split=Split(*size["split"]), seed=seed
    )


@pytest.fixture
def data(monkeypatch):
    """Every data set counts as here, whichever machine this is."""
    monkeypatch.setattr(flow, "find_data", lambda source: Path(source))


@pytest.fixture
def spec(data, monkeypatch):
    monkeypatch.setattr(flow, "make_federation", tiny)
    flow._column.cache_clear()
    table = load_spec("flow-table2")
    table["quick"]["writers"] |= CHANGES | {
        "model_settings": {"hidden": [3]},
        "steps": {"local": 0.1, "flow": 0.1, "flow_equal_steps": 0.1},
    }
    table |= {"methods": METHODS, "seeds": [0, 44]}
    yield table
    flow._column.cache_clear()


@pytest.mark.parametrize("method", flow_tables.NAMES)
def test_a_round_costs_every_method_the_same_gradients(spec, method):
    """6 batches on each client of the cohort, whatever the method makes of them; of each part where it is so named."""
    subject = flow.column("writers", spec)
    run = debug(
        flow.algorithm(subject, flow_tables.variant(method, subject.size), 0.1),
        subject.federation,
        Training(rounds=1, cohort=1),
    )
    gradients = run.tally.shared + run.tally.personal + run.tally.both
    times = 3 if method in ("flow_equal_steps", "fine_tuning_more_steps") else 1
    assert gradients == times * 6 * subject.size["batch_size"]


def test_both_tables_read_the_same_cells(spec, tmp_path, monkeypatch):
    cells = Cells(tmp_path)
    told = []
    measured = flow_table2.measure(spec, lambda *news: told.append(news), cells)
    both = [(f"{name}_minus_fine_tuning", f"shared_{name}_minus_fedavg") for name in ("flow", "flow_equal_steps")]
    assert set(measured.numbers) == {f"writers_{name}" for name in (*both[0], *both[1], "soft_minus_hard")}
    assert told[-1][1:] == (4, 4)
    assert "Flow" in measured.table
    assert "useful / executed" in measured.table
    row = measured.curves.table["writers"]
    assert row["flow"].clients.shape == (4,)
    assert row["local"].tuned == "given"
    assert np.isnan(row["local"].shared).all()
    assert row["flow"].rows.rows == 2 * len(flow.column("writers", spec).federation.test.inputs)  # two seeds
    assert np.isfinite(row["flow"].new_personal)

    def refuse(*arguments):
        raise AssertionError("a cell was computed twice")

    monkeypatch.setattr(flow, "train", refuse)
    helped = flow_table3.measure(spec | {"name": "flow-table3"}, lambda *news: None, cells)
    assert set(helped.numbers) == {"writers_flow_helped"}
    with drawing("test"):
        assert to_bytes(flow_table2.draw(spec, measured.curves), "svg").startswith(b"<?xml")
        assert to_bytes(flow_table3.draw(spec, helped.curves), "svg").startswith(b"<?xml")


def texts(size, seed):
    """Four roles that go through four letters, one more held out; some rows end early."""
    draw = np.random.default_rng(0)
    tokens = np.cumsum(draw.random((100, 7)) < 0.7, axis=1) % 4
    targets = tokens[:, 1:].copy()
    targets[::5, -2:] = -1
    roles, split = np.arange(100) // 20, Split(*size["split"])
    return Federation.from_arrays(
        tokens[:, :-1], targets, roles, classes=tuple("abcd"), held_out=1, split=split, seed=seed, tokens=True
    )


LSTM = {"model": "character_lstm", "model_settings": {"settings": {"embedding": 2, "hidden": 3, "layers": 1}}}


@pytest.mark.parametrize(
    ("data", "changes"),
    [(tiny, {}), (texts, {}), (texts, {"fixed_share": 0.5})],  # of a fixed share, all positions have the same
    ids=["images", "texts", "texts at a fixed share"],
)
def test_a_cell_has_the_routes_of_every_client_by_itself(spec, monkeypatch, data, changes):
    monkeypatch.setattr(flow, "make_federation", data)
    spec["quick"]["writers"] |= {"executor": "chunked", "chunk": 3} | (LSTM if data is texts else {})
    subject = flow.column("writers", spec)
    run = flow.train(
        subject, [flow.algorithm(subject, flow.Variant("flow", "flow", changes), 0.3)], [0], lanes.simulate_many
    )[0]
    cell = flow.measured(run, subject, soft=False)
    models, outputs, test = run.personal_models(), run.outputs(), subject.federation.test
    parts, shares_of = [], jax.jit(run.algorithm.shared_shares)  # clients have equally many rows
    for client in range(test.clients):
        rows = slice(*test.offsets[client : client + 2])
        own, targets = jax.tree.map(itemgetter(client), models), test.targets[rows]
        shares = np.asarray(shares_of(own, test.inputs[rows]))
        if shares.ndim == targets.ndim:
            shares = np.repeat(shares[:, None], targets.shape[1], axis=1)
        right = [outputs[kind][client][: len(targets)].argmax(-1) == targets for kind in ("shared", "personal")]
        parts.append([values[targets >= 0] for values in (shares, *right)])
    shares, shared, personal = map(np.concatenate, zip(*parts))
    assert cell["routes"] == list(run.algorithm.route_names)
    np.testing.assert_allclose(cell["shares"], shares.mean(0), rtol=1e-5)
    np.testing.assert_allclose(cell["taken"], (shares >= 0.5).mean(0))
    chosen = (shared & personal, shared & ~personal, ~shared & personal, ~shared & ~personal)
    for name, rows in zip(("both", "shared_only", "personal_only", "neither"), chosen, strict=True):
        wanted = shares[rows].mean(0) if rows.any() else np.full(shares.shape[1], np.nan)
        np.testing.assert_allclose(cell["shares_by_category"].pop(name), wanted, rtol=1e-5)
    assert not cell["shares_by_category"]


@pytest.mark.parametrize(
    ("scores", "best", "place"),
    [
        ({0.03: 0.1, 0.1: 0.3, 0.3: 0.2}, 0.1, "inside 0.03 to 0.3"),
        # beyond an edge as many again are tried, by the same ratio
        ({0.03: 0.1, 0.1: 0.2, 0.3: 0.3, 1.0: 0.4, 3.3: -1.0, 11.0: -1.0}, 1.0, "inside 0.03 to 11"),
        ({0.009: 0.5, 0.0027: 0.4, 0.00081: 0.1, 0.03: 0.3, 0.1: 0.2, 0.3: 0.1}, 0.009, "inside 0.00081 to 0.3"),
    ],
)
def test_the_grid_grows_where_the_best_stands_at_an_edge(spec, tmp_path, monkeypatch, scores, best, place):
    asked = []

    def tried(subject, variant, steps, spec, cells):
        asked.append(list(steps))
        return {step: scores[step] for step in steps}

    monkeypatch.setattr(flow, "_tried", tried)
    assert flow.best_step(flow.column("writers", spec), flow.plain("ditto"), spec, Cells(tmp_path)) == (best, place)
    assert len(asked) == len(scores) / 3
    given = flow.best_step(flow.column("writers", spec), flow.plain("flow"), spec, Cells(tmp_path))
    assert given == (0.1, "given")
    anew = flow.best_step(flow.column("writers", spec), flow.plain("flow"), spec | {"tune": True}, Cells(tmp_path))
    assert anew == (best, place)


def test_a_step_is_judged_by_all_tuning_seeds_and_one_that_ever_diverges_is_the_worst(spec, tmp_path, monkeypatch):
    accuracy = {(0.03, 7): 0.5, (0.03, 8): 0.7, (0.1, 7): 0.9, (0.1, 8): None}
    trained = []

    def train(subject, algorithms, seeds, how):
        trained.append(list(zip([lane.step_size for lane in algorithms], seeds)))
        ends = [accuracy[pair] for pair in trained[-1]]
        column = {"validation_personal_accuracy_mean": np.array([[end or 0.9] for end in ends])}
        return lanes.Curves(np.zeros(1), column, 1, tuple(None if end else "round 1" for end in ends))

    monkeypatch.setattr(flow, "train", train)
    spec["quick"]["tuning_seeds"] = [7, 8]
    subject, cells = flow.column("writers", spec), Cells(tmp_path)
    for _ in range(2):  # the second time from the cells
        found = flow._tried(subject, flow.plain("ditto"), [0.03, 0.1], spec, cells)
        assert found == {0.03: pytest.approx(0.6), 0.1: -1}
    assert trained == [[(0.03, 7), (0.1, 7)], [(0.03, 8), (0.1, 8)]]


def test_cells_of_routed_methods_from_before_flow_had_its_own_loss_are_not_found(spec):
    subject = flow.column("writers", spec)
    kinds = {method: flow._made_of(subject, method, 0.1, 0, spec)["kind"] for method in ("local", "flow", "pi_flow")}
    assert kinds == {"local": 2, "flow": 4, "pi_flow": 4}


def cell(personal, shared, **more):
    return {
        "personal": personal,
        "shared": shared,
        "new_personal": None,
        "new_shared": None,
        "step": 0.1,
        "tuned": "given",
        "diverged": None,
        "download_bytes": 2e6,
        "upload_bytes": 1e6,
        **more,
    }


def test_summary_over_clients_and_seeds():
    found = [cell([0.5, 1.0, float("nan")], [0.5, 0.5, float("nan")]), cell([0.7, 0.8, 0.3], [0.9, 0.5, 0.3])]
    summary = summarise(found)
    np.testing.assert_allclose(summary.personal, [75, 60])
    np.testing.assert_allclose(summary.shared, [50, 100 * 1.7 / 3])
    np.testing.assert_allclose(summary.clients, [60, 90, 30])
    assert summary.helped == pytest.approx(40)  # two of five pairs of client and seed
    assert summary.hurt == pytest.approx(20)
    assert summary.worst_tenth == pytest.approx(30)
    assert summary.megabytes == pytest.approx(3)


def test_rows_are_held_against_each_other_by_the_seeds_that_both_have():
    short = summarise([cell([0.5, 0.7], [0.4, 0.4])])
    whole = summarise([cell([0.4, 0.7], [0.3, 0.3]), cell([0.9, 0.9], [0.9, 0.9])])
    np.testing.assert_allclose(short.above(whole), [10, 0])
    np.testing.assert_allclose(whole.above(short), [-10, 0])
    assert short.shared_above(whole) == pytest.approx(10)


def test_ties_in_float32_help_and_hurt_nobody():
    """17 of 42 positions right by both models, in other rows: means in float32 differ in the last digit."""
    summary = summarise([cell([0.4047619402, 0.5], [0.4047619104, 0.4])])
    assert (summary.helped, summary.hurt) == (50, 0)


def test_ablations_state_what_is_robust():
    own = {"soft": [0.5, 0.7], "hard": [0.5, 0.6], "taken": [1.0, 1.0]}
    row = {label: [cell([0.5, 0.6], [0.5, 0.6], **own)] for label in flow_ablations.COMPARISON.variants}
    row["pc_flow"] = [cell([0.4, 0.6], [0.4, 0.5])]
    row["printed_no_penalty"] = [cell([0.4, 0.5], [0.4, 0.5])]
    numbers = flow_ablations._numbers(row)
    assert numbers["flow_soft_minus_hard"] == numbers["printed_soft_minus_hard"] == pytest.approx(5)
    assert numbers["flow_minus_pc_flow"] == numbers["printed_minus_pc_flow"] == pytest.approx(5)
    assert numbers["printed_minus_no_penalty"] == pytest.approx(10)
    assert numbers["flow_minus_printed"] == 0
    assert numbers["flow_minus_no_penalty"] == 0
    expected = {entry.name for entry in load_expected("flow-ablations") if entry.size == "quick"}
    assert expected == {f"fashion_0.1_{key}" for key in numbers}


def test_every_variant_is_a_valid_algorithm(spec):
    subject = flow.column("writers", spec)
    for variant in (*flow_ablations.COMPARISON.variants.values(), *flow_gains.VARIANTS.values()):
        assert flow.algorithm(subject, variant, 0.1).step_size == pytest.approx(0.1)


@pytest.mark.parametrize("slug", SLUGS)
def test_every_size_has_its_columns_and_expectations(slug):
    spec = load_spec(slug)
    for size in ("quick", "gpu", "full"):
        named = flow.columns(spec | {"size": size}, "ablations" if slug == "flow-ablations" else "tables")
        told = {entry.name for entry in load_expected(slug) if entry.size == size}
        assert told, size
        assert all(
            any(name.startswith(f"{column}_") for name in told) == flow.has_row(settings, "flow")
            for column, settings in named.items()
        )
    assert spec["quick"] == load_spec("flow-table2")["quick"]  # one experiment, looked at in three ways


def test_bad_requests(spec, tmp_path):
    with pytest.raises(RequestError, match=r"There is no size 'gpus'. Did you mean 'gpu'"):
        flow.columns(spec | {"size": "gpus"})
    with pytest.raises(RequestError, match=r"tables of this size have no 'writer'. Did you mean 'writers'"):
        flow.columns(spec | {"data": ["writer"]})
    with pytest.raises(RequestError, match="is not made of cells"):
        reproduce("plsgd-trajectory", tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seeds = []", "seed"),
        ("methods = ['flow', 'fedavgs']", "which is none of the table's. Did you mean 'fedavg'"),
        ("methods = ['local', 'flow']", "methods must have 'fedavg_fine_tuning'"),
        ("quick.tables = ['writer']", "have no 'writer'. Did you mean 'writers'"),
        ("data = ['writers', 3]", "have no 3"),
        ("quick.writers.gradients = 7", "gradients must be a multiple of 6, to be divided by 2 and by 3, got 7"),
        ("quick.writers.rounds = 0", "rounds must be at least 1, got 0"),
        ("quick.writers.cohort = 0", "cohort must be at least 1, got 0"),
        ("quick.writers.cohort = 21", "quick.writers.cohort must be at most clients, 20, got 21"),
        ("quick.writers.grid = [0.1]", r"grid must have at least two different steps, got \[0.1\]"),
        ("quick.writers.grid = ['a', 'b']", "quick.writers.grid must be a list of numbers"),
        ("quick.writers.split = [0.5]", r"split must be three shares, of train, validation and test, got \[0.5\]"),
        ("quick.writers.split = [0.8, 0.0, 0.2]", "split must leave every part some rows"),
        ("quick.writers.split = [0.6, 0.2, 0.9]", "together at most 1"),
        ("quick.writers.batch_size = -1", "quick.writers.batch_size must be at least 1, got -1"),
        ("quick.writers.source = 'cifar10'", "rows must be given where cifar10 is dealt out, got None"),
        ("quick.writers.source = 'shakespeare'", "length must be given for texts, got None"),
        ("quick.writers.model = 'foo'", "quick.writers.model must be one of"),
        ("quick.writers.steps = {flow = -0.1}", r"steps.flow must be above 0, got -0.1"),
        (
            "gpu.shakespeare.first_seeds.flow_equal_steps = 0; size = 'gpu'",
            r"first_seeds.flow_equal_steps must be at least 1, got 0",
        ),
        ("quick.writers.routing_widths = []", "routing_widths must have at least one entry"),
        ("quick.tables = []", r"quick.tables must have at least one entry, got \[\]"),
        ("seeds = ['a']", "seeds must be a list of whole numbers"),
        ("seeds = [1.5]", "seeds must be a list of whole numbers"),
        ("data_seed = -1", "data_seed must be at least 0, got -1"),
        ("full.writers.steps.flows = 0.1; size = 'full'", "steps has no method 'flows'. Did you mean 'flow'"),
        ("quick.tuning_seeds = []", r"tuning_seeds must have at least one entry, got \[\]"),
        ("quick.tuning_seeds = [7, 7]", r"tuning_seeds must be one or more different whole numbers of at least 0"),
        ("quick.writers.grid = [0.1, inf]", "quick.writers.grid must be a finite number, got inf"),
        ("quick.tuning_seeds = [7, 44]", "tuning_seeds must have none of seeds, got 44 in both"),
        ("quick.workers = 0", "workers must be at least 1, got 0"),
    ],
)
def test_a_request_that_cannot_be_computed_leaves_nothing_behind(tmp_path, override, sentence):
    with pytest.raises(RequestError, match=sentence):
        reproduce("flow-table2", tmp_path / "run", overrides=override.split("; "))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("slug", "lacks"), [("flow-table2", "cifar10"), ("flow-ablations", "mnist_writers")])
def test_all_data_are_looked_for_before_anything_is_computed(tmp_path, monkeypatch, slug, lacks):
    own = load_spec(slug, ("size = 'gpu'",))
    here = {one["source"] for one in own["gpu"].values() if isinstance(one, dict) and "source" in one} - {lacks}
    for relative in [IMAGES.get(one) or problems.NATURAL[one] for one in here]:
        (tmp_path / relative).parent.mkdir(exist_ok=True)
        (tmp_path / relative).touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(dataset_files, "_check", lambda *file: None)  # empty files stand for those that are here
    with pytest.raises(AbsentDataError, match=lacks):
        reproduce(slug, tmp_path / "run", sizes=["gpu"])
    assert not (tmp_path / "run").exists()


def test_cells_that_cannot_be_kept_are_refused_before_anything_is_computed(data, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"folder of cells .* cannot be written \(Not a directory\); choose another"):
        reproduce("flow-table2", tmp_path / "run", cells=tmp_path / "file" / "cells")
    assert not (tmp_path / "run").exists()


def test_cells_need_a_folder_and_a_folder_its_own_request(spec, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for cells in (tmp_path / "file", Path()):
        with pytest.raises(RequestError, match="--cells must name a folder"):
            reproduce("flow-table2", tmp_path / "run", cells=cells)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.toml").write_text("name = 'other'")
    with pytest.raises(RequestError, match=f"{tmp_path}/run/request.json is missing.*choose another --out"):
        reproduce("flow-table2", tmp_path / "run", resume=True)
    (tmp_path / "run" / "rows.json").write_text("{}")
    with pytest.raises(RequestError, match="was begun by `idiolect run`"):
        reproduce("flow-table2", tmp_path / "run", resume=True)


@pytest.mark.parametrize("methods", ["['fedavg_fine_tuning']", "['flow', 'local']", "['local']"])
def test_gains_need_the_rows_that_they_compare(data, tmp_path, methods):
    with pytest.raises(RequestError, match=r"merged_roles: methods must have"):
        reproduce("flow-gains", tmp_path / "run", overrides=[f"methods = {methods}"])
    assert not (tmp_path / "run").exists()


def test_an_unknown_network_is_refused(spec):
    spec["quick"]["writers"]["model"] = "mpl"
    with pytest.raises(RequestError, match="mpl"):
        flow.column("writers", spec)


def test_a_folder_that_was_left_unfinished_goes_on(spec, tmp_path, monkeypatch):
    monkeypatch.setattr("papers.runner.load_spec", lambda slug, overrides=(): spec)
    folder, stopped = tmp_path / "run", flow.cells_of

    def interrupt(subject, variant, spec, cells):
        if variant.label == "flow":
            raise KeyboardInterrupt
        return stopped(subject, variant, spec, cells)

    monkeypatch.setattr(flow, "cells_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        reproduce("flow-table2", folder)
    with pytest.raises(RequestError, match="Add --resume"):
        reproduce("flow-table2", folder)
    monkeypatch.setattr(flow, "cells_of", stopped)
    written = (folder / "spec.toml").read_bytes()
    (folder / "spec.toml").write_bytes(b"\xff" + written)
    with pytest.raises(RequestError, match=f"{folder} was begun with another request, or its spec.toml was changed"):
        reproduce("flow-table2", folder, resume=True)
    (folder / "spec.toml").write_bytes(written)
    outcome = reproduce("flow-table2", folder, resume=True)
    assert len(outcome.rows) == 5
    assert (folder / "figure.png").is_file()


def test_relabelled_rows_are_inverted_and_renamed_by_a_permutation_of_the_client(monkeypatch):
    draw = np.random.default_rng(0)
    images, labels = draw.random((400, 2, 2, 1)), draw.integers(0, 4, 400).astype(np.int32)
    images[:, 0, 0, 0] = np.arange(400) / 1000  # below one half: an inverted image can be told, and found
    monkeypatch.setattr(flow_data, "image_arrays", lambda name: (images, labels, images[:0], labels[:0]))
    size = {"source": "fashion_mnist", "split": [1.0, 0.0, 0.0], "clients": 4, "rows": 100, "concentration": 10.0}
    rows = flow_data.make_federation(size | {"relabelled": 0.25}, 0).train
    maps = []
    for client in range(4):
        inputs, targets = rows.of(client)
        mark = inputs[:, 0, 0, 0]
        changed = mark > 0.5
        assert changed.sum() == 25
        place = np.rint(1000 * np.where(changed, 1 - mark, mark)).astype(int)
        np.testing.assert_allclose(np.where(changed[:, None, None, None], 1 - inputs, inputs), images[place], atol=1e-6)
        assert (targets[~changed] == labels[place[~changed]]).all()
        renamed = dict(zip(labels[place[changed]], targets[changed]))
        assert (targets[changed] == [renamed[label] for label in labels[place[changed]]]).all()
        assert len(set(renamed.values())) == len(renamed)  # no two classes get one name
        maps.append(renamed)
    assert maps[0] != maps[1]


def test_merged_clients_have_the_rows_of_those_they_are_made_of(monkeypatch):
    monkeypatch.setattr(flow_data, "natural_federation", lambda source, size, seed: tiny(size, seed))
    size = {"source": "mnist_writers", "split": [0.6, 0.2, 0.2]}
    single, merged = (flow_data.make_federation(size | {"merged": several}, 0) for several in (1, 2))
    assert (single.clients, merged.clients) == (4, 2)
    for part in ("train", "validation", "test"):
        before, after = getattr(single, part), getattr(merged, part)
        np.testing.assert_array_equal(after.of(1)[0], np.concatenate([before.of(2)[0], before.of(3)[0]]))
    assert merged.names[0] == "+".join(single.names[:2])
    assert merged.held_out.clients == 1


def test_a_column_like_another_has_its_settings_and_only_the_rows_it_names(spec):
    size = {"a": {"rounds": 1, "cohort": 2}, "b": {"like": "a", "rounds": 3, "only": ["flow"]}}
    assert flow._settings(size, "b") == {"rounds": 3, "cohort": 2, "only": ["flow"]}
    assert flow.has_row(size["b"], "flow")
    assert not flow.has_row(size["b"], "ditto")
    assert flow.has_row(size["a"], "ditto")


def test_equal_epochs_give_every_part_as_many_passes(spec):
    spec["quick"]["writers"] |= {"epochs": 2, "batch_size": 4}
    subject = flow.column("writers", spec)
    for name, passes in {"fedavg": 2, "flow": 3, "flow_no_split": 6}.items():  # of Flow w_l, psi, w_g on their parts
        run = debug(
            flow.algorithm(subject, flow_tables.variant(name, subject.size), 0.1),
            subject.federation,
            Training(rounds=1, cohort=4),
        )
        gradients = run.tally.shared + run.tally.personal + run.tally.both
        assert gradients == passes * int(subject.federation.train.counts.sum())


def test_gains_are_over_the_fine_tuning_that_validation_rows_prefer():
    def one(personal, validation):
        return [cell([personal, personal + 0.1], None, history=[[1, validation, None]])]

    row = {"fedavg_fine_tuning": one(0.5, 0.9), "fine_tuning_10": one(0.8, 0.6), "flow": one(0.6, 0.5)}
    assert flow_gains._better(row) == "fedavg_fine_tuning"
    assert flow_variants.gain(row["flow"], row["fedavg_fine_tuning"]) == (pytest.approx(10), pytest.approx(0, abs=1e-9))
    assert "+10.0 [+10.0, +10.0]" in flow_variants.table_text("half", row, "fedavg_fine_tuning")
