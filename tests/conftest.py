# SPDX-License-Identifier: Apache-2.0
"""What every test may use: strict array arithmetic, three tiny federations, and algorithms built by name."""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings

from idiolect.algorithms import ALGORITHMS
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import unset
from idiolect.core.data import Rows
from idiolect.core.settings import know_population
from idiolect.data import dataset_files
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.experiments import compilation
from idiolect.models import MLP, Linear
from idiolect.objectives import OBJECTIVES, ClientLoss

hypothesis_settings.register_profile("seeded", derandomize=True, database=None, deadline=None, max_examples=20)
hypothesis_settings.load_profile("seeded")

# Compiling is most of the suite's cost and its programs run for milliseconds, so they are compiled in a hurry; JAX has
# no public way to say this for every program. A release that does not know an option would refuse all of them.
IN_A_HURRY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
HURRIED = jax.__version_info__ < (0, 11) and os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") != "0"
compiler_options: dict[str, int | bool] = {}  # of the file whose tests run
if HURRIED:
    from jax._src import compiler
    from jax._src.interpreters import mlir

    # A context knows all dialects and is filled in 2 ms; JAX makes one per program, keeps it as long as the program,
    # and half of the suite's memory were such contexts. One for each thread will do.
    usual_context, contexts = mlir.make_ir_context, threading.local()

    def shared_context():
        """The context of this thread; a new one inside another program, which would take up what is made in its own."""
        if mlir.ir.Context.current is not None:
            return usual_context()
        contexts.own = getattr(contexts, "own", None) or usual_context()
        return contexts.own

    mlir.make_ir_context = shared_context

    usual_options = compiler.get_compile_options

    def with_options(*arguments, env_options_overrides=None, **more):
        """The options of a program that JAX is about to compile, with those of the file."""
        return usual_options(*arguments, env_options_overrides=compiler_options | (env_options_overrides or {}), **more)

    compiler.get_compile_options = with_options

# Where in Python an operation comes from is written beside each one, an eighth of the cost of a small program.
jax.config.update("jax_traceback_in_locations_limit", 0)

# Both workers, the commands that tests call and the next run of the suite share their programs; `make clean` forgets
# them. They are found by all that goes into compiling them, the options above too.
PROGRAMS = Path(__file__).resolve().parents[1] / "build" / "programs"
os.environ.setdefault(compilation.VARIABLE, str(PROGRAMS))
compilation.enable_cache()

# Data files beside the checkout are found where no folder is named; a fresh clone has the bundled ones alone.
DATASETS = Path(__file__).resolve().parents[2] / "shared" / "datasets"
if DATASETS.is_dir():
    os.environ.setdefault(dataset_files.VARIABLE, str(DATASETS))

FEATURES, CLASSES, L2 = 3, 3, 0.1
RAGGED = (3, 5, 4, 5, 3, 4)  # training rows per client; few distinct sizes, so that eager code compiles little
UNIFORM = (4, 4, 4, 4, 4, 4)


def pytest_collection_modifyitems(items):
    """Files marked `optimized` stand side by side, since each change of options forgets all programs; and first."""
    items.sort(key=lambda item: item.get_closest_marker("optimized") is None)


def pytest_collection_finish():
    """What was imported stays, so the garbage collector need not walk over it: a tenth of the suite's cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """In a hurry, but for files marked `optimized`, compiled as users' programs are; no program is used in both.

    Before any fixture: those of the session come before those of a file.
    """
    wanted = IN_A_HURRY if HURRIED and item.get_closest_marker("optimized") is None else {}
    if compiler_options != wanted:
        jax.clear_caches()
        compiler_options.clear()
        compiler_options.update(wanted)


@pytest.fixture(scope="module")
def environment():
    """For a process that is to compile as this file does; others compile as users do."""
    flags = " ".join(f"--{name}={str(value).lower()}" for name, value in compiler_options.items())
    return os.environ | {"XLA_FLAGS": f"{flags} {os.environ.get('XLA_FLAGS', '')}"}


@pytest.fixture(autouse=True, scope="session")
def strict_dtypes():
    """No silent change of dtype in any test: an operation of mixed dtypes raises."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(autouse=True, scope="module")
def few_memory_maps():
    """Forget compiled programs before they use up the process's memory maps.

    Every compiled program holds some ten maps; Linux allows a process 65530 (vm.max_map_count) and the compiler
    crashes beyond. Programs are shared between modules, so they are only forgotten when half of that is in use.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def one_drawing():
    """The figures of a run's report are laid out and drawn as SVG; the same drawing as PNG is left to tests/report."""
    from idiolect.report import figures, style

    to_bytes = style.to_bytes

    def drawn(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(style, "to_bytes", lambda figure, kind: to_bytes(figure, kind) if kind == "svg" else b"PNG")
            return style.drawn(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "drawn", drawn)
        yield


@pytest.fixture
def standard_dtypes():
    """For tests of optax's adaptive optimizers, which mix dtypes (a float to the power of a counter)."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def _rows(sizes, coordinate, kind):
    """Heterogeneous clients: client m's inputs are centred at its own point and its labels lean its own way."""
    draw = np.random.default_rng(coordinate)
    inputs, targets = [], []
    for client, size in enumerate(sizes):
        x = draw.normal(size=(size, FEATURES)) + 0.5 * np.cos(client + np.arange(FEATURES))
        score = x @ (draw.normal(size=(FEATURES, CLASSES)) if client % 2 else np.eye(FEATURES, CLASSES))
        inputs.append(x)
        targets.append(score.argmax(axis=1).astype(np.int32) if kind == "classification" else score[:, 0])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Rows(np.concatenate(inputs), np.concatenate(targets), offsets)


def make_federation(sizes, kind="classification", held_out=()):
    """Clients with `sizes` training rows and two validation and three test rows each, in float64."""
    task = Task.regression(1) if kind == "regression" else Task.classification(("a", "b", "c"))
    parts = [_rows(s, place, kind) for place, s in enumerate((sizes, (2,) * len(sizes), (3,) * len(sizes)))]
    names = tuple(f"clinic {client}" for client in range(len(sizes)))
    new = make_federation(held_out, kind) if held_out else None
    return Federation(*parts, names, task, held_out=new)


@pytest.fixture(scope="session")
def ragged():
    """Six clients of unequal size, three classes."""
    return make_federation(RAGGED)


@pytest.fixture(scope="session")
def uniform():
    """Six clients of equal size, three classes."""
    return make_federation(UNIFORM)


@pytest.fixture(scope="session")
def regression():
    """Six clients of unequal size, one number to predict."""
    return make_federation(RAGGED, "regression")


def client_loss(kind="classification", l2=L2):
    """Softmax or linear regression with a ridge."""
    if kind == "regression":
        return ClientLoss(model=Linear(FEATURES), criterion="squared", l2=l2)
    return ClientLoss(model=Linear(FEATURES, CLASSES), criterion="cross_entropy", l2=l2)


def build_objective(name, kind="classification", **settings):
    """The named objective; settings that have no default get the least remarkable value."""
    cls = OBJECTIVES[name]
    given = dict(settings)
    for field in dataclasses.fields(cls):
        bare = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name != "client_loss" and bare:
            given[field.name] = 0.5
    if "client_loss" in inspect.signature(cls).parameters:
        given["client_loss"] = client_loss(kind)
    if "norm" in given.get("personal_part", ""):
        given["client_loss"] = ClientLoss(model=MLP(FEATURES, CLASSES, (4,), normalize="layer"), l2=L2)
    return cls(**given)


# What theory would decide; any values will do where only the contract is at stake.
DECIDED = {
    "step_size": 0.1,
    "strong_convexity": 0.1,
    "shared_smoothness": 0.5,
    "personal_smoothness": 2.0,
    "shared_probability": 0.3,
    "averaging_probability": 0.5,
    "refresh_probability": 0.2,
    "momentum": 0.4,
    "early_momentum": 0.6,
    "mirror_step": 0.2,
    "inner_step": 0.1,
    "local_step": 0.1,
    "communication_probability": 0.4,
}


BATCHING = ("epochs", "local_steps", "batch_size")  # of algorithms that draw batches; given to all, they take theirs


def build(name, objective=None, kind="classification", **settings):
    """The named algorithm with its preset, on the named objective or else its own; what theory decides is decided."""
    method = ALGORITHMS[name]
    has = {field.name for field in dataclasses.fields(method.algorithm)}
    settings = {key: value for key, value in settings.items() if key in has or key not in BATCHING}
    preset = method.objective_preset if objective in (None, method.objective) else {}
    chosen = build_objective(objective or method.objective or "additive", kind, **preset)
    algorithm = know_population(method.algorithm(chosen, **{**method.preset, **settings}), len(RAGGED))
    return dataclasses.replace(algorithm, **{field: DECIDED[field] for field in unset(algorithm)})


def _contract(algorithm):
    """The functions that make up an algorithm's rounds."""
    return tuple(getattr(algorithm, name) for name in ("broadcast", "receive", "step", "send", "server_step", "settle"))


PART_OF = {"fedbabu": "fedrep"}  # its rounds are the second half of the other's
SWITCHES = ("ascd_then_asvrcd",)  # from one method to another, both tried on all objectives: one of each kind of blocks


@functools.cache  # asked for once per test function that has a `trial`
def fitting_rows():
    """(name, objective, further settings) of every pair that fits, and of every choice no registered name makes."""
    rows, made = [], set()
    for name, method in ALGORITHMS.items():
        for objective, cls in OBJECTIVES.items():
            # a preset is tried on its own objective; on the others it would only repeat its class, and so does one
            # that only weighs clients otherwise or divides a model elsewhere. A class that inherits its whole
            # contract repeats its relatives, but for the kind of blocks that an objective has.
            chosen = {item for item in method.preset.items() if item[0] != "weighting"}
            alike = (method.algorithm, objective, frozenset(chosen))
            blocks = (method.algorithm, cls.has_shared, cls.has_personal)
            known = (_contract(method.algorithm), objective) in made or name in SWITCHES
            repeats = known and blocks in made
            elsewhere = repeats or (method.algorithm, objective) in made
            new = alike not in made and name not in PART_OF if objective == method.objective else not elsewhere
            if new and fit_of(build(name, objective)).refused is None:
                made |= {(method.algorithm, objective), (_contract(method.algorithm), objective), alike, blocks}
                rows.append((name, objective, {}))
        made |= {(method.algorithm, field, value) for field, value in method.preset.items()}
    for name, method in ALGORITHMS.items():
        for field in dataclasses.fields(method.algorithm):
            limits = field.metadata.get("range")
            # weighting is one shared function, in half of the presets; optimizers are optax's, two of them presets; a
            # route only changes the bill, without phases there is nothing between them, and test_all_for_all.py has
            # streams of rows; truth/test_flow.py walks what Flow trains and adapts, in every order, on which rows;
            # what Per-FedAvg does with the Hessian is one more term of a step, held to a reference in truth
            skipped = (
                "weighting",
                "server_optimizer",
                "client_optimizer",
                "split_rows",
                "route",
                "between_phases",
                "order",
                "training_order",
                "adaptation",
                "variant",
            )
            if limits is None or field.name in skipped:
                continue
            for choice in limits.choices:
                if choice != field.default and (method.algorithm, field.name, choice) not in made:
                    made.add((method.algorithm, field.name, choice))
                    rows.append((name, method.objective, {field.name: choice}))
    # a memory of an optimizer is a state of the client's own
    rows.append(("fedavg", "global_model", {"client_optimizer": "momentum", "keep_memory": True}))
    return rows


def misfit_rows():
    """(name, objective) of every pair that does not fit."""
    return [
        (name, objective)
        for name in ALGORITHMS
        for objective in OBJECTIVES
        if fit_of(build(name, objective)).refused is not None
    ]


def pytest_generate_tests(metafunc):
    """`trial`: every pair that fits; `misfit`: every one that does not; `own_pair`: each class on its own objective."""
    if "trial" in metafunc.fixturenames:
        rows = fitting_rows()
        ids = ["-".join((name, objective, *map(str, more.values()))) for name, objective, more in rows]
        metafunc.parametrize("trial", rows, ids=ids, indirect=True, scope="module")
    if "own_pair" in metafunc.fixturenames:
        first = {method.algorithm: (name, method.objective) for name, method in reversed(ALGORITHMS.items())}
        metafunc.parametrize("own_pair", first.values(), ids="-".join)
    if "misfit" in metafunc.fixturenames:
        metafunc.parametrize("misfit", misfit_rows(), ids="-".join)


def same_bits(left, right):
    """Whether two pytrees have one structure and their leaves equal dtypes, shapes and bits."""
    if jax.tree.structure(left) != jax.tree.structure(right):
        return False
    pairs = zip(map(np.asarray, jax.tree.leaves(left)), map(np.asarray, jax.tree.leaves(right)))
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def distance(left, right):
    """Largest difference between two pytrees, relative to the larger of 1 and the leaf's largest entry."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    worst = 0.0
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right)):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape
        if a.size:
            worst = max(worst, float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b)))))
    return worst


@pytest.fixture(scope="session")
def workbench():
    """The functions of this file; test files cannot import one another."""
    return SimpleNamespace(
        make_federation=make_federation,
        client_loss=client_loss,
        build_objective=build_objective,
        build=build,
        same_bits=same_bits,
        distance=distance,
        features=FEATURES,
        classes=CLASSES,
    )
