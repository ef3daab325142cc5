# SPDX-License-Identifier: Apache-2.0
"""The tables of these pages that repeat what the code says. `python docs/tables.py` writes them into the pages.

A page marks a table's place with `<!-- table NAME -->` and `<!-- end -->`. A test holds every page to what this
file would write, so a setting that is added, renamed or given another default cannot be forgotten here.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.accounting.bytes import model_units
from idiolect.accounting.time_model import TIME_MODELS
from idiolect.algorithms import ALGORITHMS
from idiolect.algorithms.errata import ERRATA
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import unset
from idiolect.core.data import ClientData
from idiolect.core.settings import know_population
from idiolect.data.catalogue import DATASETS
from idiolect.data.dataset_files import BUNDLED
from idiolect.data.partition import PARTITIONERS
from idiolect.engines.billing import sends
from idiolect.engines.start import wire_types
from idiolect.experiments import spec
from idiolect.experiments.build import NETWORKS, network_settings
from idiolect.experiments.reproductions import reproductions
from idiolect.experiments.sources import READERS, SOURCES
from idiolect.metrics.scores import SCORES
from idiolect.models import MLP, MODELS, Linear
from idiolect.objectives import OBJECTIVES, ClientLoss

DOCS = Path(__file__).resolve().parent
REPRODUCED = DOCS.parent / "benchmarks" / "results" / "reproductions.json"
MARK = re.compile(r"<!-- table (?P<name>[\w ]+) -->\n(?P<body>.*?)<!-- end -->", re.S)

# Meanings of the settings whose dataclass has no `doc`; a missing or a left-over entry is an error.
MEANINGS: dict[str, dict[str, str]] = {
    "spec": {
        "name": "names the run; the folder is `runs/NAME` unless `--out` says otherwise. Default: the file's name",
        "methods": "`[methods.LABEL]` tables, or one `[algorithm]` table",
        "seeds": "one run per seed; `seed = 3` is short for `seeds = [3]`",
        "data": "`[data]`",
        "model": "`[model]`",
        "training": "`[training]`",
        "evaluation": "`[evaluation]`",
        "tuning": "`[tuning]`",
        "collaboration": "`[collaboration]`",
        "output": "`[output]`",
        "privacy": "`[privacy]`",
        "compression": "`[compression]`",
        "robustness": "`[robustness]`",
        "attack": "`[attack]`",
        "secure_aggregation": "`[secure_aggregation]`",
        "resolved": "`[resolved.LABEL]`, written by the run",
    },
    "data": {
        "source": "a reader of your own file or a known data set; see [data](data.md)",
        "path": "the file, for a reader of your own file; relative to the working directory",
        "client": "`table`: the column that names the client; `npz`: the array of client ids",
        "target": "`table`: the column to predict",
        "features": "`table`: the columns to predict from; unset: all that have no other role",
        "drop": "`table`: columns not to predict from",
        "categorical": "`table`: columns that are names, one input per value, though they look like numbers",
        "weight_column": "`table`: a column of numbers, how much each row counts ([weights](data.md#weights)); unset: "
        "all alike",
        "preparation": "`table`: what columns are scaled and filled by: sums over clients, each client's own rows, or "
        "`recipe` ([data](data.md#preparation))",
        "recipe": '`table`: a `preprocessing.json`, where `preparation = "given"`',
        "task": "unset: inferred from the targets, and said in a note",
        "train": "fraction of each client's rows to learn from",
        "validation": "fraction to choose by: rounds, what `[tuning]` chooses, and the method to announce",
        "test": "fraction to judge by, read once at the end",
        "split_column": "`table`: a column that says train, validation or test; replaces the fractions",
        "group_column": "`table`: rows with equal values stay on one side of the split",
        "time_column": "`table`: a column of numbers or dates; each client's oldest rows train, the newest test",
        "held_out": "clients that never train: a number, or a fraction below 1",
        "seed": "of the split, the partition and synthetic rows; apart from the training `seeds`",
        "settings": "passed on to the source by name; unknown names are refused",
    },
    "model": {
        "name": "`linear` is softmax or linear regression; [your own](networks.md) by path; synthetic data bring one",
        "hidden": "`mlp`: widths of the hidden layers",
        "bias": "`linear`: whether there is one",
        "loss": "of classes: `cross_entropy` has one output per class, `logistic` one output, for two classes; of a "
        "number: `pinball` fits a quantile; otherwise squares of numbers and the Poisson loss of counts",
        "quantile": "with `pinball`: which one, a whole percent such as 0.9",
        "l2": "weight of half the squared norm of all parameters, added to every client's loss; unset: none",
        "settings": "settings of a [network](networks.md), by name; unknown names are refused",
    },
    "method": {
        "label": "the LABEL of `[methods.LABEL]`: names the method in tables and folders",
        "algorithm": "written as `name`: a registered algorithm, or `package.module:Class`. Default: the label",
        "objective": "unset: the algorithm's own; a `package.module:Class` needs one",
        "settings": "every other key of the table: settings of the algorithm or of its objective, over those of "
        "`[defaults]`",
        "swept": "written by a sweep: the `method` it was made of, and the `settings` that it varies",
    },
    "evaluation": {
        "scores": "what is recorded; the first one is shown and decides which clients are helped; empty: chosen by "
        "task and class balance",
        "unfit": "methods that cannot run on these rows: refused with the reason, or left out with a note",
        "untested": "data without a test row: refused, or trained on without being judged",
        "choose_by": "the score by which validation rows choose rounds, settings and the announced method; unset: the "
        "proper one of the task, `log_loss`, `squared_error`, `pinball_NN` or `poisson_deviance`",
        "time_model": "presumed speed of links and machines behind `modelled_seconds`",
        "optimum": "when the [exact optimum](theory.md#exact-optima) of a method's own objective is solved for, so "
        "that its gap is recorded: `auto` on synthetic problems, `always` (refused where it is not known), `never`",
        "flops": "whether [operations](concepts.md#what-a-client-keeps-and-computes) of one client are counted; "
        "takes a second or so per method, more with deep networks",
    },
    "tuning": {
        "step_size": "candidates for every method that states no `step_size`, none beyond them; empty: none, or with "
        "`auto` those around the step that theory recommends",
        "auto": "also choose how personal a method is, where it states no strength of its own, and try further step "
        "sizes and strengths while the best one stands at the edge of those tried",
        "until": "`rounds`: candidates train for `training.rounds`; `converged`: until the last third of their rounds "
        "brought no progress on validation rows, `training.rounds` at most",
        "refit": "whether, once all is chosen, the delivered models are fitted on training and validation rows",
        "minutes": "time for all methods together; a method that it cuts short is marked. Unset: no limit",
    },
    "collaboration": {
        "source": "`identity`: all clients alone; `uniform`: all clients alike; `mixture`: between them; `models`, "
        "`data`: estimated from [training rows](advise.md); `file`: a matrix of your own. Unset: each "
        "method's own `own_share`",
        "own_share": "`mixture`: the weight of a client's own gradient",
        "path": "`file`: a .npy or .csv file with a row and a column for every client, in their order: discrepancies b "
        "where `accuracy` is set, otherwise weights Lambda, whose rows sum to 1",
        "accuracy": "`file`: the target eps; clients with b of at most eps/2 listen to each other, and steps left to "
        "theory aim at it. `all_for_all_adaptive` begins with it",
        "asymmetric": "`file`: what becomes of b_ij that differs from b_ji",
    },
    "output": {
        "models": "`shared`: the shared model of the selected round; `all`: also every client's; "
        "`auto`: `all` up to 1000 clients, else `shared`; `none`: neither",
        "checkpoint_every": "rounds between checkpoints, rounded up to the end of a compiled block",
    },
    "privacy": {
        "level": "what is hidden: a whole client with all that it sends, or each row of a client",
        "epsilon": "budget of all rounds of a method; it chooses the noise. Unset, with noise_multiplier: none",
        "noise_multiplier": "instead of a budget, the noise itself: its standard deviation in clips",
        "delta": "the chance that epsilon does not hold. Unset: 0.1 over the number of clients; of rows 1e-5",
        "clip": "largest norm of a client's change, of the first round where it adapts; or of a row's gradient",
        "clipping": "`adaptive`: the clip follows a quantile of the norms, found under the same budget",
        "quantile": "`adaptive`: the fraction of clients whose change is not clipped",
        "noise": "`server`: added to the mean; `clients`: each adds a part, which hides a client from the server only "
        "where sums alone reach it",
        "sampling": "`fixed`: `training.cohort` clients, or all; `poisson`: all are asked, each takes part with the "
        "chance 1 - `training.dropout`, by a coin of its own",
        "accountant": "`rdp`: Renyi divergences; `pld`: privacy loss distributions, tighter and slower",
    },
    "compression": {
        "kind": "`quantise`: each number in a few bits, rounded at random; `top_k`: the largest entries of each array; "
        "`random_k`: entries at drawn places; `low_rank`: factors of matrices; `whole`: as it is, for `only`. Unset: "
        "nothing is compressed",
        "bits": "`quantise`: bits per number",
        "one_in": "`top_k`, `random_k`: of so many entries one is sent",
        "rank": "`low_rank`: of what is sent of a matrix",
        "error_feedback": "`top_k`, `random_k`, `low_rank`: whether clients add next time what was not sent",
        "only": "layers of which anything is sent, by name or pattern; the others stay at the server's value. Empty: "
        "all",
    },
    "robustness": {
        "rule": "in place of the mean of uploads. Unset: the mean",
        "attackers": "`trimmed_mean`, `krum`, `multi_krum`: wrong uploads to withstand",
        "bound": "`norm_bound`: the largest norm of an upload. Unset: the median of the norms",
    },
    "attack": {
        "kind": "what simulated attackers do. Unset: there are none",
        "clients": "how many attack; `data.seed` draws which",
        "strength": "factor of what they do",
    },
    "secure_aggregation": {
        "threshold": "clients of a round that must stay to its end, more than half of those asked. Unset: uploads are "
        "not masked",
        "fraction_bits": "bits of a number after the point, of 64: more are finer, fewer leave room for larger ones",
    },
    "resolved": {
        "executor": "what `auto` chose",
        "chunk": "clients at a time, for `chunked`",
        "block": "rounds per compiled block",
        "devices": "that clients were laid over",
        "rounds": "of the fit that is delivered, chosen on validation rows; unset: `training.rounds`",
    },
    "training": {},
}
RECORDS: dict[str, type] = {
    "spec": spec.Spec,
    "data": spec.DataSpec,
    "model": spec.ModelSpec,
    "method": spec.MethodSpec,
    "training": spec.Training,
    "evaluation": spec.EvaluationSpec,
    "tuning": spec.TuningSpec,
    "collaboration": spec.CollaborationSpec,
    "output": spec.OutputSpec,
    "resolved": spec.Resolved,
    **spec.PROTECTIONS,
}
COMMON = ("local_steps", "epochs", "batch_size")
# settings, besides a name's preset, that change what crosses the wire
VARIANTS = {
    "personalized_local_sgd": {"output": ("last", "mean_of_means", "own_mean")},
    "lsgd_pfl": {"output": ("last", "weighted_average")},
    "scaffold": {"option": (2, 1)},
    "ifca": {"clusters": (2, 5)},
    "flow": {"fixed_share": (None, 0.5)},
}


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def record_table(name: str) -> str:
    """One dataclass of a spec: key, type, default, rule, meaning."""
    cls, meanings = RECORDS[name], dict(MEANINGS[name])
    hints = typing.get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        meaning = field.metadata.get("doc") or meanings.pop(field.name, "")
        if not meaning:
            raise KeyError(f"docs/tables.py says nothing about {cls.__name__}.{field.name}")
        limits = field.metadata.get("range")
        rule = limits.rule() if limits is not None else ""
        rows.append((f"`{field.name}`", _type(hints[field.name]), _default(field), rule, meaning))
    if meanings:
        raise KeyError(f"docs/tables.py speaks of {sorted(meanings)}, which {cls.__name__} does not have")
    return markdown(("key", "type", "default", "rule", "meaning"), rows)


def _type(hint: Any) -> str:
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if typing.get_origin(hint) in (list, tuple):
        inner = kinds[0]
        return "tables" if dataclasses.is_dataclass(inner) else f"list of {_type(inner)}s"
    if typing.get_origin(hint) is dict:
        return "table"
    if dataclasses.is_dataclass(hint):
        return "table"
    words = {str: "text", int: "integer", float: "number", bool: "true/false"}
    return words[hint] if not kinds else " or ".join(_type(kind) for kind in kinds)


def _default(field: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        return "" if dataclasses.is_dataclass(value) or value in ([], {}) else f"`{value}`"
    if field.default is dataclasses.MISSING or field.default is None:
        return ""
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else f"{value}"
    return f"`{text}`"


def pages() -> dict[str, list[str]]:
    """Page name -> the registered names it describes: one page per algorithm file."""
    found: dict[str, list[str]] = {}
    for name, method in ALGORITHMS.items():
        found.setdefault(method.algorithm.__module__.rpartition(".")[2], []).append(name)
    return found


def names_table(page: str) -> str:
    """The registered names of one algorithm file."""
    rows = []
    for name in pages()[page]:
        method = ALGORITHMS[name]
        preset = ", ".join(_line(key, value) for key, value in {**method.preset, **method.objective_preset}.items())
        rows.append((f"`{name}`", method.summary, f"`{method.objective}`", preset or "none", method.reference))
    return markdown(("name", "what it is", "objective", "preset", "reference"), rows)


def _line(key: str, value: Any) -> str:
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return f"`{key} = {shown}`"


def settings_table(page: str) -> str:
    """The settings of one algorithm file, the common ones last; where its classes differ, whose they are."""
    classes = {ALGORITHMS[name].algorithm: name for name in reversed(pages()[page])}
    found: dict[str, dict[str, Any]] = {}
    for cls, name in reversed(classes.items()):
        for field in dataclasses.fields(cls):
            if field.name in spec.own_settings(cls):
                found.setdefault(field.name, {})[name] = field
    rows = []
    for setting, owners in sorted(found.items(), key=lambda entry: entry[0] in COMMON):
        field = next(iter(owners.values()))
        meaning = field.metadata["doc"]
        if len(owners) < len(classes):
            meaning += f" ({', '.join(f'`{name}`' for name in owners)} only)"
        default = {name: _setting_default(field) for name, field in owners.items()}
        shown = next(iter(default.values()))
        if len(set(default.values())) > 1:
            shown = ", ".join(f"{value} ({name})" for name, value in default.items())
        rows.append((f"`{setting}`", shown, field.metadata["range"].rule(), meaning))
    return markdown(("setting", "default", "rule", "meaning"), rows)


def _setting_default(field: Any) -> str:
    return _default(field) or ("from theory" if field.metadata.get("theory") else "unset")


def objective_settings_table() -> str:
    """The settings of every objective that has some."""
    rows = []
    for name, cls in OBJECTIVES.items():
        for field in dataclasses.fields(cls):
            if field.name in spec.own_settings(cls):
                rule = field.metadata["range"].rule()
                rows.append((f"`{name}`", f"`{field.name}`", _default(field), rule, field.metadata["doc"]))
    return markdown(("objective", "setting", "default", "rule", "meaning"), rows)


def errata_table(page: str) -> str:
    """The errata that concern the names of one algorithm file."""
    named: dict[str, list[str]] = {}
    for name in pages()[page]:
        for number in ALGORITHMS[name].errata:
            named.setdefault(number, []).append(name)
    rows = [
        (f"[{number}](../errata.md#{number.lower()})", ", ".join(f"`{name}`" for name in names), ERRATA[number])
        for number, names in sorted(named.items(), key=lambda entry: _place(entry[0]))
    ]
    return markdown(("erratum", "concerns", "in one line"), rows)


def paper_errata_table(paper: str) -> str:
    """The errata of one paper."""
    rows = [(f"[{one}](#{one.lower()})", ERRATA[one]) for one in sorted(ERRATA, key=_place) if one.startswith(paper)]
    return markdown(("erratum", "in one line"), rows)


def _place(number: str) -> tuple[int, int]:
    paper, _, place = number.removeprefix("E").partition("-")
    return int(paper), int(place)


def traffic_table(page: str) -> str:
    """What one client is sent and sends in a round, and is sent at the end, in models (scalars are ignored)."""
    rows = []
    for name in pages()[page]:
        ((key, choices),) = VARIANTS.get(name, {"": (None,)}).items()
        for choice in choices:
            given = {key: choice} if key else {}
            shown = f"`{name}`" + (f" with `{key} = {choice!r}`".replace("'", '"') if choice is not None else "")
            rows.append((shown, *_units(name, given)))
    return markdown(("method", "down", "up", "delivered at the end"), rows)


def _units(name: str, given: dict[str, Any]) -> tuple[str, str, str]:
    method = ALGORITHMS[name]
    parts = "personal_part" in method.objective_preset
    model = MLP(3, 2, (4,), normalize="layer") if parts else Linear(3, 2)
    objective = OBJECTIVES[method.objective](ClientLoss(model=model), **method.objective_preset)
    algorithm = know_population(method.algorithm(objective, **{**method.preset, **given}), 4)
    algorithm = dataclasses.replace(algorithm, **dict.fromkeys(unset(algorithm), 0.5))  # no type depends on them
    rows = ClientData(jnp.zeros((1, 5, 3)), jnp.zeros((1, 5), jnp.int32), jnp.full(1, 5, jnp.int32))
    types = wire_types(algorithm, rows)
    if not sends(algorithm):
        return "0", "0", "0"
    unit = model.init(jax.random.key(0))
    # how large the shared part is depends on the network
    word = {model_units(objective.init_shared(jax.random.key(0)), unit): "u_w"} if parts else {}
    return tuple(_shown_units(part, unit, word) for part in (types.sent, types.upload, types.delivered))


def _shown_units(part: Any, unit: Any, word: dict[float, str]) -> str:
    """Models in what is sent; a routing net is none of them."""
    if not jax.tree.leaves(getattr(part, "routing", ())):
        number = model_units(part, unit)
        return word.get(number, f"{number:g}")
    return f"{model_units(part._replace(routing=()), unit):g} + |psi|"


def _first_line(subject: Any) -> str:
    return (inspect.getdoc(subject) or "").splitlines()[0]


def _setting_names(function: Any) -> str:
    skipped = ("seed", "split", "held_out", "dtype", "preparation", "options")
    names = [name for name in inspect.signature(function).parameters if name not in skipped]
    return ", ".join(f"`{name}`" for name in names) or "none"


def sources_table() -> str:
    """Known data sets."""
    rows = [(f"`{name}`", _first_line(source), _setting_names(source)) for name, source in SOURCES.items()]
    return markdown(("source", "what it is", "`[data.settings]`"), rows)


def datasets_table() -> str:
    """Data sets that need files."""
    rows = []
    for row in DATASETS.values():
        bundled = "yes" if all((BUNDLED / path).is_file() for path in row.files) else "no"
        facts = (row.title, row.clients, str(row.rows), row.predicted, row.licence, row.shown_size, bundled)
        rows.append((f"`{row.name}`", *facts))
    return markdown(("name", "what it is", "clients", "rows", "predicted", "licence", "size", "bundled"), rows)


def origins_table() -> str:
    """Homes and citations of data sets, and how a built one may differ from ours."""
    rows = []
    for row in DATASETS.values():
        known = sum(one.sha256 is not None for one in row.originals)
        checked = f"{known} of {len(row.originals)}"
        remark = row.remark if row.exact else f"may differ: {row.remark}"
        rows.append((f"`{row.name}`", f"[home]({row.home})", checked, row.citation, remark or "none"))
    return markdown(("name", "origin", "originals with a known checksum", "citation", "remark"), rows)


def scores_table() -> str:
    """Scores."""
    rows = []
    for name, score in SCORES.items():
        better = "higher" if score.higher_is_better else "lower"
        rows.append((f"`{name}`", score.task, better, _first_line(score.function)))
    return markdown(("score", "task", "better", "meaning"), rows)


def partitioners_table() -> str:
    """Partitioners."""
    skipped = ("seed", "rows", "labels", "inputs", "clients", "values")
    rows = []
    for name, function in PARTITIONERS.items():
        names = [key for key in inspect.signature(function).parameters if key not in skipped]
        rows.append((f"`{name}`", _first_line(function), ", ".join(f"`{key}`" for key in names) or "none"))
    return markdown(("partition", "what it does", "further settings"), rows)


def objectives_table() -> str:
    """Objectives and who fits them."""
    rows = []
    for name, cls in OBJECTIVES.items():
        fitting = [key for key, method in ALGORITHMS.items() if _fits(method, cls)]
        own = [f"`{key}`" for key in fitting if ALGORITHMS[key].objective == name]
        other = [f"`{key}`" for key in fitting if ALGORITHMS[key].objective != name]
        blocks = [word for word, has in (("shared", cls.has_shared), ("personal", cls.has_personal)) if has]
        rows.append((f"`{name}`", ", ".join(blocks), ", ".join(own), ", ".join(other) or "none"))
    return markdown(("objective", "blocks", "default of", "also fits"), rows)


def _fits(method: Any, cls: type) -> bool:
    required = [f for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.name != "client_loss"]
    objective = cls(ClientLoss(model=Linear(3, 2)), **{field.name: 0.5 for field in required})
    return fit_of(method.algorithm(objective, **method.preset)).refused is None


def models_table() -> str:
    """Models."""
    return markdown(("model", "what it is"), [(f"`{name}`", _first_line(cls)) for name, cls in MODELS.items()])


def networks_table() -> str:
    """What can be set on each network."""
    beside = next(field for field in dataclasses.fields(spec.ModelSpec) if field.name == "hidden")
    rule, meaning = (
        beside.metadata["range"].rule(),
        "widths of the hidden layers; stands in `[model]`, not in `settings`",
    )
    rows = [("`mlp`", "`hidden`", "list of integers", _default(beside), rule, meaning)]
    for name in ("mlp", *NETWORKS):
        hints = typing.get_type_hints(MODELS[name])
        for key, field in network_settings(name).items():
            kind = " and ".join(_type(part) for part in typing.get_args(hints[key])) or _type(hints[key])
            rule = field.metadata["range"].rule()
            rows.append((f"`{name}`", f"`{key}`", kind, _default(field), rule, field.metadata["doc"]))
    return markdown(("network", "setting", "type", "default", "rule", "meaning"), rows)


def time_models_table() -> str:
    """Presumed speeds."""
    head = ("time model", "down, Mbit/s", "up, Mbit/s", "latency, s", "seconds per gradient")
    rows = []
    for name, model in TIME_MODELS.items():
        speeds = (model.download_bits_per_second / 1e6, model.upload_bits_per_second / 1e6)
        numbers = (*speeds, model.latency_seconds, model.seconds_per_gradient)
        rows.append((f"`{name}`", *(f"{number:g}" for number in numbers)))
    return markdown(head, rows)


def papers_table() -> str:
    """Reproductions."""
    with reproductions("catalogue") as papers:
        every = papers.all_entries().items()
    rows = [(f"`{slug}`", entry.title, entry.shows, entry.paper) for slug, entry in every]
    return markdown(("slug", "what it shows", "in the paper", "paper"), rows)


def reproduced_table() -> str:
    """What the reproductions found, from the file that `python -m benchmarks.reproductions` writes."""
    rows = []
    for entry in json.loads(REPRODUCED.read_text(encoding="utf-8")):
        counts = {origin: f"{one['hold']} of {one['of']}" for origin, one in entry["counts"].items()}
        others = [f"{counts[origin]} {origin}" for origin in ("theory", "released", "independent") if origin in counts]
        reasons = [f"{_few(one['names'])}: {one['because']}" for one in entry["misses"]]
        reasons += [f"changed: {', '.join(entry['changed'])}"] if entry["changed"] else []
        reasons += [f"left out: {', '.join(entry['left_out'])}"] if entry["left_out"] else []
        size = f" `--{entry['size']}`" if entry["size"] else ""
        claims = counts.get("paper", "none")
        kept = counts.get("regression", "none")
        cells = (f"`{entry['slug']}`{size}", claims, ", ".join(others) or "none", kept, "; ".join(reasons) or "none")
        rows.append((*cells, _machine_words(entry), f"{entry['date']}, {entry['commit']}"))
    head = ("slug", "claims of the paper that hold", "other numbers that hold", "regression values unchanged")
    return markdown((*head, "which claims do not hold, and why", "machine", "date, commit"), rows)


def _few(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:2])
    return shown + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _machine_words(entry: dict[str, Any]) -> str:
    machine = entry["machine"]
    device = f"{machine['cpu_count']} cores" if machine["devices"] == ["cpu"] else ", ".join(machine["devices"])
    return f"{device}, load {machine['load_average'][0]:.0f}, {entry['seconds']:.0f} s"


def readers() -> tuple[str, ...]:
    """Readers of a user's own file."""
    return tuple(READERS)


SINGLE = {
    "sources": sources_table,
    "datasets": datasets_table,
    "dataset origins": origins_table,
    "scores": scores_table,
    "partitioners": partitioners_table,
    "objectives": objectives_table,
    "objective settings": objective_settings_table,
    "models": models_table,
    "networks": networks_table,
    "time models": time_models_table,
    "papers": papers_table,
    "reproduced": reproduced_table,
}
BY_PAGE = {"names": names_table, "settings": settings_table, "traffic": traffic_table}
SOME_PAGES = {"errata": errata_table, "errata_of": paper_errata_table}


def table(name: str) -> str:
    """The table of that name."""
    if name in SINGLE:
        return SINGLE[name]()
    kind, _, subject = name.partition(" ")
    on_pages = BY_PAGE | SOME_PAGES
    return on_pages[kind](subject) if kind in on_pages else record_table(name)


def filled(text: str) -> str:
    """A page's text with every marked table written anew."""
    return MARK.sub(lambda mark: f"<!-- table {mark['name']} -->\n{table(mark['name'])}<!-- end -->", text)


def add_missing_pages() -> None:
    """A page for every algorithm file without one: its docstring and tables, named in the index and in the site."""
    for page, names in pages().items():
        path = DOCS / "algorithms" / f"{page}.md"
        if path.exists():
            continue
        text = inspect.getdoc(inspect.getmodule(ALGORITHMS[names[0]].algorithm)) or page
        title = re.split(r" \(|[:.\n]", text)[0]
        places = "\n\n".join(f"<!-- table {kind} {page} -->\n<!-- end -->" for kind in BY_PAGE)
        path.write_text(f"# {title}\n\n```text\n{text}\n```\n\n{places}\n", encoding="utf-8")
        shown = ", ".join(f"`{name}`" for name in names)
        _insert(DOCS / "algorithms" / "README.md", "|---|---|\n", f"| [{title}]({page}.md) | {shown} |\n")
        first = "      - All names: algorithms/README.md\n"
        _insert(DOCS.parent / "mkdocs.yml", first, f"      - {title}: algorithms/{page}.md\n")


def _insert(path: Path, after: str, line: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(after, after + line, 1), encoding="utf-8")


def main() -> None:
    """Rewrite the pages in place."""
    add_missing_pages()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
