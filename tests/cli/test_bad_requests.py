# SPDX-License-Identifier: Apache-2.0
"""A wrong request: exit 2, one sentence that says what to do, nothing on standard output, nothing left behind."""

from __future__ import annotations

import pytest

SPEC_SETTINGS = [  # (--set, a part of the sentence)
    ("training.rounds = '5'", "training.rounds must be a whole number, got '5'."),
    ("training.rounds = 2.5", "training.rounds must be a whole number, got 2.5."),
    ("training.rounds = true", "training.rounds must be a whole number, got True."),
    ("training.rounds = -1", "training.rounds must be at least 0, got -1."),
    ("training.rounds = 99999999999", "training.rounds must be below 2^31, got 99999999999; use a smaller number."),
    ("training.cohort = 9", "training.cohort must be at most the number of clients, 4, got 9. Use 0 to let every"),
    ("training.dropout = 1", "training.dropout must be at least 0 and below 1, got 1."),
    ("training.dropout = nan", "training.dropout must be a finite number, got nan"),
    ("training.executor = 'fast'", "training.executor must be one of 'auto', 'batched'"),
    ("training.executor = 'chunked'", "training.chunk must be at least 1 with executor 'chunked', got 0. Set it, or"),
    ("training.precision = 'float16'", "training.precision must be one of 'float32', 'float64', got 'float16'."),
    ("training.round = 3", "[training] has no setting 'round'. Did you mean 'rounds'?"),
    ("trainin.rounds = 3", "A spec has no setting 'trainin'. Did you mean 'training'?"),
    ("rounds = 3", "A spec has no setting 'rounds'. Did you mean 'training.rounds'?"),
    ("training = 3", "[training] must be a table of settings, got 3."),
    ("nonsense", "--set needs one line of TOML such as 'training.rounds = 50', got 'nonsense'"),
    ("", "--set needs one line of TOML such as 'training.rounds = 50', got ''."),
    ("x = " + 3000 * "[", "--set needs one line of TOML"),
    ("training.rounds = " + 5000 * "9", "--set needs one line of TOML"),
    ("seeds = []", "seeds must be one or more different whole numbers of at least 0, got []."),
    ("seeds = [1, 1]", "seeds must be one or more different whole numbers of at least 0, got [1, 1]."),
    ("seeds = [-1]", "seeds must be one or more different whole numbers of at least 0, got [-1]."),
    ("seeds = 3", "seeds must be a list of whole numbers, got 3."),
    ("seed = 'x'", "seed must be a whole number, got 'x'."),
    ("seeds = [9999999999]", "seeds must be below 2^31, got 9999999999"),
    ("methods.fedavg.step_size = 'fast'", "methods.fedavg.step_size must be a number, got 'fast'."),
    ("methods.fedavg.step_size = -1.0", "methods.fedavg.step_size must be above 0, got -1. Try 0.1"),
    ("methods.fedavg.step_size = inf", "methods.fedavg.step_size must be a finite number, got inf"),
    ("methods.fedavg.stepsize = 1", "[methods.fedavg] fedavg has no setting 'stepsize'. Did you mean 'step_size'?"),
    ("methods.fedavg.batch_size = 99999999999", "methods.fedavg.batch_size must be below 2^31"),
    ("methods.fedavg.weighting = 'x'", "methods.fedavg.weighting must be one of 'equal', 'samples', got 'x'."),
    ("methods.fedavg.objective = 'additiv'", "There is no objective 'additiv'. Did you mean 'additive'?"),
    ("methods.fedavg.objective = 'additive'", "[methods.fedavg] fedavg cannot minimise additive: it trains one shared"),
    ("methods.fedavg.objective = 5", "methods.fedavg.objective must be a text in quotes or left out, got 5."),
    ("methods.fedavg.name = 'fedavgg'", "There is no algorithm 'fedavgg'. Did you mean 'fedavg'?"),
    ("methods.own.name = 'no_package:Thing'", "An algorithm's path must be 'package.module:Class' and importable"),
    ("methods.own = 5", "methods.own must be a table of settings, got 5."),
    ("methods = []", "methods must be a table of settings, got []."),
    ("methods.'' = {name = 'local'}", "A method's label must not be empty"),
    ("algorithm.step_size = 1", "--set 'algorithm. ...' needs a spec with one method, got 2; write 'methods.LABEL"),
    ("defaults.stepsize = 1", "[defaults] has no setting 'stepsize'. Did you mean 'step_size'?"),
    ("defaults = 1", "defaults must be a table of settings, got 1."),
    ("model.loss = 'logit'", "model.loss must be one of 'cross_entropy', 'logistic', 'pinball', got 'logit'."),
    ("model.name = 'tree'", "model.name must be one of 'linear', 'mlp', 'cnn', 'resnet18', "),
    ("model.hidden = [8, 0]", "model.hidden must be at least 1, got [8, 0]."),
    ("model.l2 = -1", "model.l2 must be at least 0, got -1."),
    ("evaluation.scores = ['accurracy']", "There is no score 'accurracy'. Did you mean 'accuracy'?"),
    ("evaluation.scores = ['squared_error']", "Score squared_error is for regression, and the task is classification"),
    ("evaluation.scores = ['auc', 'auc']", "evaluation.scores must differ, got ['auc', 'auc']; name each once."),
    ("evaluation.time_model = 'mars'", "There is no time model 'mars'. Known: datacenter, hospital, phone."),
    ("tuning.step_size = [0.1, -1]", "tuning.step_size must be above 0, got [0.1, -1.0]."),
    ("output.models = 'some'", "output.models must be one of 'auto', 'none', 'shared', 'all', got 'some'."),
    ("output.checkpoint_every = 0", "output.checkpoint_every must be at least 1, got 0."),
    ("resolved = 3", "resolved must be a table of settings, got 3."),
    ("resolved.fedavg.executor = 'batched'", "[resolved.fedavg] needs chunk; set it to a whole number."),
    ("data.source = 'tabel'", "[data] source 'tabel' is not known. Did you mean 'table'?"),
    ("data.source = 'quadratics'", "[data.settings] quadratics needs clients and dimension; set them to numbers."),
    ("data.path = 'hospital.csv'", "There is no file hospital.csv; check the path. Did you mean 'hospitals.csv'?"),
    ("data.path = 3", "data.path must be a text in quotes or left out, got 3."),
    ("data.client = 'Site'", "The client column 'Site' is not in the table. Did you mean 'site'?"),
    ("data.target = 'site'", "The client and the target must be two columns, got 'site' for both;"),
    ("data.train = 0.9", "Split fractions must be at least 0, train above 0, and together at most 1, got 0.9"),
    ("data.test = 0.0", "No client has a test row, so no method could be judged."),
    ("data.held_out = 3", "held_out must leave at least 2 of 4 clients to train, got 3 held out; hold out fewer."),
    ("data.held_out = -1", "data.held_out must be at least 0, got -1."),
    ("data.features = ['weight']", "The feature column 'weight' is not in the table. Known: age, dose, ill, site."),
    ("data.task = 'ranking'", "data.task must be one of 'classification', 'regression', 'counts', got 'ranking'."),
    ("data.settings.scale = 1", "[data.settings] table has no setting 'scale'. Did you mean 'scaling'?"),
    (
        "name = 'a/b'",
        "name must be printable and able to name a folder under runs/, got 'a/b'; use letters and digits.",
    ),
]


def assert_refused(answer, sentence):
    assert answer.code == 2, answer
    assert answer.out == ""
    assert answer.err.count("Error: ") == 1
    assert answer.error.startswith("Error: ")
    assert sentence in answer.error


@pytest.mark.parametrize(("change", "sentence"), SPEC_SETTINGS, ids=[change[:60] for change, _ in SPEC_SETTINGS])
def test_a_wrong_setting_is_refused_before_anything_is_made(idiolect, here, change, sentence):
    answer = idiolect("run", "spec.toml", "--out", "out", "--set", change)
    assert_refused(answer, sentence)
    assert not (here / "out").exists()


FLIX_SETTINGS = [  # (settings of scafflix, a part of the sentence)
    ("personalization = 1.2", "must be at least 0 and at most 1, got 1.2. 1 trains one model for all, 0 every client"),
    ("personalization = [0.1, -1, 0, 1]", "must be at least 0 and at most 1, got [0.1, -1.0, 0.0, 1.0]. 1 trains"),
    ("personalization = [0.1, 0.2]", "an entry for each of the 4 clients, got 2; give one number for all."),
    ("personalization = 0.5", "Client 's0' has no unique optimum of its own to be mixed in: its rows leave some "),
    ("personalization = 0.5", "direction of the model free; give l2 a value above 0, or personalization 1, or set "),
    ("communication_probability = 0", "must be above 0 and at most 1, got 0. 1 communicates in every iteration."),
    ("communication_probability = 1.5", "must be above 0 and at most 1, got 1.5. 1 communicates in every"),
    ("local_step = -1", "methods.scafflix.local_step must be above 0, got -1."),
    ("personalization = 1", "set model.l2, or communication_probability by hand."),
]


@pytest.mark.parametrize(("settings", "sentence"), FLIX_SETTINGS)
def test_a_wrong_personalization_is_refused_before_anything_is_made(idiolect, here, settings, sentence):
    (here / "flix.toml").write_text((here / "spec.toml").read_text() + f"[methods.scafflix]\n{settings}\n")
    answer = idiolect("run", "flix.toml", "--out", "out")
    assert_refused(answer, sentence)
    assert not (here / "out").exists()


@pytest.mark.parametrize("method", ["lg_fedavg", "fedper", "fedrep", "fedbabu"])
def test_a_model_of_one_layer_has_no_body(idiolect, here, method):
    (here / "bare.toml").write_text((here / "spec.toml").read_text() + f"[methods.{method}]\n[model]\nbias = false\n")
    sentence = (
        "needs a model that has a body beside its head, got Linear with weights alone; use a linear model with bias"
    )
    assert_refused(idiolect("run", "bare.toml", "--out", "out"), sentence)
    assert not (here / "out").exists()


def test_a_cohort_of_more_than_take_part_is_refused(idiolect, here):
    spec = (here / "spec.toml").read_text() + "[methods.scafflix]\npersonalization = [0, 0, 1, 0.5]\n"
    (here / "flix.toml").write_text(spec)
    answer = idiolect("run", "flix.toml", "--out", "out", "--set", "model.l2 = 0.1", "--set", "training.cohort = 3")
    assert_refused(answer, "training.cohort must be at most the number of clients that take part, 2 of 4, got 3.")
    assert not (here / "out").exists()


COMMANDS = [  # (command line, a part of the sentence)
    ("run nothing.toml", "There is no spec file nothing.toml; write one, or start from `idiolect compare`."),
    ("run full", "There is no spec file full/spec.toml"),
    ("run broken.toml", "The spec file broken.toml is not valid TOML: Expected ']'"),
    ("run binary.toml", "The spec file binary.toml is not text in UTF-8; save it as a plain TOML file."),
    ("run empty.toml", "either one [algorithm] table or a [methods.LABEL] table for each method, got neither."),
    ("run spec.toml --out spec.toml/below", "The run folder spec.toml/below cannot be written (Not a directory)"),
    ("run spec.toml --out spec.toml", "A run needs a folder, and spec.toml is a file; choose another --out."),
    ("run spec.toml --out full", "The folder full holds other files; a run needs its own: choose another --out."),
    ("run spec.toml --out new --resume", "There is no run to resume in new; start one without --resume."),
    ("run spec.toml --format xml", "'xml' is not one of 'text', 'json'"),
    ("run spec.toml --outt x", "No such option: --outt"),
    ("run", "Missing argument"),
    ("runn", "No such command 'runn'"),
    ("compare", "compare needs either a TABLE or --data NAME"),
    ("compare hospitals.csv --data digits", "Both TABLE hospitals.csv and --data digits are given; leave one"),
    ("compare hospitals.csv --client site", "compare TABLE needs --target COLUMN, the column that is to be predicted."),
    ("compare hospitals.csv --target ill", "compare TABLE needs --client COLUMN, the column that names the client."),
    ("compare --data digit", "[data] source 'digit' is not known. Did you mean 'digits'?"),
    ("compare --data table", "[data] source 'table' needs path"),
    ("compare --data digits --methods fedavgg", "There is no algorithm 'fedavgg'. Did you mean 'fedavg'?"),
    ("compare --data digits --methods ,", "--methods needs names such as local,fedavg, or all, got ','."),
    ("compare --data digits --rounds many", "Invalid value for '--rounds'"),
    ("compare --data digits --seeds 5-3", "--seeds must be one or more different whole numbers of at least 0"),
    ("compare --data digits --seeds one", "--seeds needs numbers such as 0,1,2 or 0-9, got 'one'."),
    ("compare --data digits --step-sizes small", "--step-sizes needs numbers such as 0.01,0.1,1, got 'small'."),
    ("compare --data digits --step-sizes nan,1", "--step-sizes must be a finite number, got nan"),
    ("compare --data digits --held-out 1.5", "--held-out must be a number of clients (0, 1, ...), a fraction below 1"),
    ("sweep spec.toml", "A sweep needs something to vary: --over 'step_size = [0.1, 0.3]', or several --seeds."),
    ("sweep spec.toml --over step_size=0.1", "--over step_size needs a list of values such as [0.1, 0.3], got 0.1."),
    ("sweep spec.toml --over fedavg.step_size=[1]", "of a method; write 'methods.fedavg.step_size = [...]'."),
    (
        "sweep spec.toml --over methods.fedavg=[1]",
        "--over methods.fedavg names a method; write 'methods.fedavg.SETTING",
    ),
    ("sweep spec.toml --over methods.fedavg.x.y=[1]", "--over methods.fedavg.x.y goes too deep; write 'methods.LABEL."),
    ("sweep spec.toml --over defaults.step_size=[1]", "names no setting of a method; write 'step_size = [...]'."),
    (
        "sweep spec.toml --over training.rounds=[1,2]",
        "--over varies settings of methods, got training.rounds; run once",
    ),
    (
        "sweep spec.toml --over step=[1]",
        "--over: no method of the spec has a setting 'step'. Did you mean 'step_size'?",
    ),
    ("sweep spec.toml --over methods.fedavg.step=[1]", "--over: fedavg has no setting 'step'. Did you mean"),
    ("sweep spec.toml --over methods.fed.step_size=[1]", "--over methods.fed.step_size: there is no such method in"),
    ("sweep spec.toml --over step_size=[1,1]", "--over names local[step_size=1] twice; give every value once."),
    (
        "sweep spec.toml --over step_size=[0.1,0.2] --over step_size=[0.3]",
        "--over must name a setting once, got step_size with [0.1, 0.2] and with [0.3]; put all values into one list.",
    ),
    ("sweep spec.toml --over step_size=[1] --over algorithm.step_size=[2]", "got step_size with [1] and with [2]; put"),
    (
        "sweep spec.toml --over step_size=[1] --over methods.fedavg.step_size=[2]",
        "got step_size and methods.fedavg.step_size; vary step_size for every method together, or for each as methods.",
    ),
    ("sweep spec.toml --over x", "--over needs one line of TOML such as 'step_size = [0.1, 0.3]', got 'x'"),
    ("sweep spec.toml --seeds 0,0", "seeds must be one or more different whole numbers of at least 0, got [0, 0]."),
    ("sweep spec.toml --seeds 0-99999", "--seeds '0-99999' names more than 10000 seeds; use fewer."),
    ("reproduce plsgd-rates --gpu", "plsgd-rates has one size only; leave it out, got --gpu."),
    ("reproduce plsgd-rates --quick --full", "has one size only; leave it out, got --quick and --full."),
    ("reproduce all --quick --full", "all takes one size, got --quick and --full; name one."),
    ("reproduce all --jobs 0", "--jobs must be at least 1, got 0; leave it out for one per core."),
    ("reproduce all --out spec.toml", "needs a folder, and spec.toml is a file; choose another --out."),
    ("reproduce all --out spec.toml --resume", "needs a folder, and spec.toml is a file; choose another --out."),
    ("reproduce all --out spec.toml/all", "spec.toml/all cannot be written (Not a directory); choose another --out."),
    ("reproduce flow-table2 --quick --gpu", "has sizes: --quick, --gpu, --full; name one, got --quick and --gpu."),
    ("reproduce scafflix-networks --full", "has sizes: --quick, --gpu; name one, got --full."),
    ("reproduce plsgd-rates --resume", "leave out --resume and --cells"),
    ("reproduce plsgd-rate", "There is no reproduction 'plsgd-rate'. Did you mean 'plsgd-rates'?"),
    ("list everything", "'everything' is not one of 'all', 'algorithms'"),
    ("explain fedavgg", "There is nothing called 'fedavgg'. Did you mean 'fedavg'?"),
    ("explain fedavg --objective additive", "fedavg cannot minimise additive: it trains one shared model"),
    ("explain fedavg --objective whole", "There is no objective 'whole'."),
    ("report nothing", "There is no folder 'nothing'"),
    ("report full", "'full' is not a run folder"),
    ("predict nothing hospitals.csv", "nothing is not a run folder"),
]


@pytest.fixture
def oddities(here):
    (here / "broken.toml").write_text("[data\n")
    (here / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (here / "empty.toml").write_text("")
    (here / "full").mkdir()
    (here / "full" / "letter.txt").write_text("mine")


@pytest.mark.parametrize(("line", "sentence"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_a_wrong_command_is_refused_before_anything_is_made(idiolect, here, oddities, line, sentence):
    before = sorted(here.rglob("*"))
    assert_refused(idiolect(*line.split()), sentence)
    assert sorted(here.rglob("*")) == before


def rows(*cells):
    """A CSV with these rows under site,age,ill."""
    return "site,age,ill\n" + "".join(",".join(map(str, row)) + "\n" for row in cells)


FILES = {  # name -> (content, a part of the sentence)
    "empty.csv": ("", "empty.csv is empty; it needs a header line and rows."),
    "header.csv": ("site,age,ill\n", "header.csv has no rows; add at least one."),
    "doubled.csv": ("site,age,age,ill\n1,2,3,0\n", "doubled.csv has more than one column named 'age'; rename one"),
    "ragged.csv": ("site,age,ill\n1,2,0\n1,2\n", "ragged.csv is not a well-formed table"),
    "binary.csv": (bytes(range(256)) * 8, "binary.csv is not a well-formed table"),
    "one_client.csv": (rows(*(("a", i, i % 2) for i in range(9))), "A federation needs at least 2 clients, got 1"),
    "single_rows.csv": (rows(*((i, i, i % 2) for i in range(9))), "No client has a test row, so no method could be"),
    "constant.csv": (rows(*((i % 3, i, 1) for i in range(12))), "The target 'ill' is always '1'; choose a column that"),
    "constant_number.csv": (rows(*((i % 3, i, 1.5) for i in range(12))), "The target 'ill' is always 1.5; choose a"),
    "no_target.csv": (rows(*((i % 3, i, "") for i in range(12))), "No row has both a client and a target; fill these"),
    "infinite.csv": (rows(*((i % 3, "inf" if i == 4 else i, i % 2) for i in range(12))), "Column 'age' is infinite"),
    "huge.csv": (
        rows(*((i % 3, 1e308, i % 2) for i in range(6)), *((i % 3, i, i % 2) for i in range(6))),
        "Column 'age'",
    ),
    "huge_target.csv": (
        rows(*((i % 3, i, i / 7 if i % 2 else 1e300) for i in range(24))),
        "Column 'ill' holds a number too",
    ),
    "bare.csv": ("site,ill\n" + "".join(f"{i % 3},{i % 2}\n" for i in range(12)), "No column is left to be a feature"),
    "table.xlsx": ("", "has the extension '.xlsx', which is not one of .csv, .tsv, .parquet"),
    "cut.parquet": ("PAR1", "cut.parquet (4 bytes) is not a whole parquet file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_table_that_cannot_be_used_is_refused(idiolect, here, name):
    content, sentence = FILES[name]
    (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = idiolect("compare", name, "--client", "site", "--target", "ill", "--out", "out")
    assert_refused(answer, sentence)
    assert not (here / "out").exists()


def test_a_folder_instead_of_a_table(idiolect, here):
    (here / "folder.csv").mkdir()
    answer = idiolect("compare", "folder.csv", "--client", "site", "--target", "ill")
    assert_refused(answer, "folder.csv is a folder, but a file is needed; name the file inside it.")


def test_texts_are_no_target_of_a_regression(idiolect, here):
    (here / "texts.csv").write_text(rows(*((i % 3, i, "yes" if i % 2 else "no") for i in range(12))))
    options = ("--client", "site", "--target", "ill", "--set", "data.task = 'regression'")
    assert_refused(
        idiolect("compare", "texts.csv", *options), "Regression needs a numeric target, but 'ill' holds texts"
    )


def test_tuning_needs_validation_rows(idiolect, here):
    options = ("--client", "site", "--target", "ill", "--set", "data.validation = 0.0", "--out", "out")
    answer = idiolect("compare", "hospitals.csv", *options)
    assert_refused(answer, "No client has a validation row to choose a step size on.")
    assert not (here / "out").exists()


def test_theory_needs_a_model_with_constants(idiolect, here):
    changes = ("--set", "model.name = 'mlp'", "--set", "methods.fedavg.step_size = 'theory'")
    answer = idiolect("run", "spec.toml", *changes)
    assert_refused(answer, 'methods.fedavg.step_size = "theory" needs a rule and known constants')
    assert not (here / "runs").exists()
