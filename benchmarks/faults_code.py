# SPDX-License-Identifier: Apache-2.0
"""Code planted where a command could trip over it: every place, every command in a process of its own, executions."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MISSING = ("pytz", "lz4", "zstandard", "filelock", "brotli", "cloudpickle", "tensorflow", "torch", "cupy", "flwr")
INSTALLED = ("numpy", "jax", "typer", "rich", "pandas", "pyarrow", "scipy", "matplotlib", "optax", "sklearn")
STANDARD = ("json", "typing", "tomllib", "shutil", "dataclasses", "zipfile", "multiprocessing")
SPEC = """
[data]
source = "table"
path = "rows.csv"
client = "site"
target = "y"
[training]
rounds = 1
executor = "batched"
[defaults]
epochs = 1
[output]
models = "all"
"""
OWN = """
from idiolect.algorithms import LocalSGD
from idiolect.core import settings
from idiolect.models import Linear
def make(input_shape, outputs):
    return Linear(input_shape[0], outputs)
@settings
class Own(LocalSGD):
    pass
"""


PROGRAMS = "programs"  # cache of `predict`


class _Fires:
    """A pickle that executes a line of code when it is read."""

    def __init__(self, code: str):
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (self.code,)


class Scene:
    """A working directory with a run folder in it, as somebody could send it, and a record of what was executed."""

    def __init__(self, folder: Path):
        self.folder, self.record = folder, folder.parent / f"{folder.name}-executed"
        self.places: dict[str, list[str]] = {}  # place: the code that was planted there
        self.commands: list[dict[str, Any]] = []
        self.cache = folder.parent / f"{folder.name}-cache"

    def code(self, place: str) -> str:
        """A line that notes its place when it is executed."""
        line = f"open({str(self.record)!r}, 'a').write({place + chr(10)!r})"
        self.places.setdefault(place, []).append(line)
        return line

    def plant(self, place: str, path: str, around: str = "{code}\n") -> None:
        """Write a file with the code in it, below the working directory."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(around.format(code=self.code(place)))

    def pickle(self, place: str) -> _Fires:
        """An object whose pickle executes the code."""
        return _Fires(self.code(place))

    def idiolect(self, *arguments: str, start: str = "script") -> int:
        """Run a command here, by its script or by `python -m`; gives its exit code."""
        script = [str(Path(sys.executable).with_name("idiolect"))]
        command = [*(script if start == "script" else [sys.executable, "-m", "idiolect"]), *arguments]
        environment = os.environ | {"IDIOLECT_CACHE": str(self.cache), "PYTHONPATH": _python_path()}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        last = (done.stderr.strip().splitlines() or [""])[-1]
        self.commands.append({"command": f"{start}: {' '.join(arguments)}", "code": done.returncode, "said": last})
        return done.returncode

    def executed(self) -> Counter[str]:
        """How often each place was executed."""
        return Counter(self.record.read_text().split("\n")[:-1]) if self.record.exists() else Counter()

    def alive(self) -> int:
        """In how many places the planted line would leave its mark if it were executed: checked by executing it."""
        trial = self.record.with_name(f"{self.record.name}-trial")
        lines = "\n".join(line.replace(str(self.record), str(trial)) for own in self.places.values() for line in own)
        subprocess.run([sys.executable, "-c", lines], check=True, timeout=60)
        return len(set(trial.read_text().split("\n")[:-1]))


def planted(quick: bool, run: Path | None = None) -> dict[str, Any]:
    """Plant code, run the commands, count; `run` is a finished run of SPEC, where there is one already."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        scenes = [_around(base / "around", quick, run)]
        run = base / "around" / "run"
        scenes.append(_named(base / "named", quick, run))
        if not quick:
            scenes.append(_inside(base / "inside", run))
        programs, loaded = _foreign_programs(base / "around", quick)
        executed = sum((scene.executed() for scene in scenes), Counter())
        places = [place for scene in scenes for place in scene.places]
        commands = [entry for scene in (*scenes, programs) for entry in scene.commands]
        alive = sum(scene.alive() for scene in scenes)
    return {
        "places": [*places, *loaded],
        "planted": len(places) + len(loaded),
        "alive": alive,  # of the places that hold lines of Python; compiled programs are known by their files
        "executed": sum(executed.values()) + sum(loaded.values()),
        "executed_by_place": dict(executed) | {place: count for place, count in loaded.items() if count},
        "commands": len(commands),
        "unexpected": [entry for entry in commands if "Unexpected" in entry["said"] or entry["code"] not in (0, 1, 2)],
    }


def _around(folder: Path, quick: bool, run: Path | None) -> Scene:
    """An honest run, and files around it that Python or a package could take for their own."""
    scene = Scene(folder)
    folder.mkdir()
    _write_rows(folder)
    if run is None:
        (folder / "spec.toml").write_text(f"{SPEC}[methods.fedavg]\n")
        _must(scene.idiolect("run", "spec.toml", "--out", "run", "--quiet"), scene)
    else:
        shutil.copytree(run, folder / "run")
    for place, names in (("missing", MISSING), ("installed", INSTALLED), ("standard", STANDARD)):
        for name in names:
            scene.plant(f"working directory: {place} module", f"{name}.py")
    for name in ("sitecustomize", "usercustomize"):
        scene.plant(f"working directory: {name}", f"{name}.py")
    for where in (".", "run"):
        scene.plant(".pth file", f"{where}/planted.pth", "import sys; {code}\n")
        scene.plant("conftest", f"{where}/conftest.py")
    scene.plant("entry point of a plug-in", "planted_plugin.py", "def initialize():\n    {code}\n")
    (folder / "planted-1.0.dist-info").mkdir()
    (folder / "planted-1.0.dist-info" / "entry_points.txt").write_text("[jax_plugins]\nplanted = planted_plugin\n")
    scene.plant("namespace of plug-ins", "jax_plugins/planted/__init__.py", "{code}\ndef initialize(): pass\n")
    scene.plant("matplotlibrc", "planted_backend.py")
    (folder / "matplotlibrc").write_text("backend: module://planted_backend\n")
    for name in ("__init__", "spec", "report", "jax", "pytz"):
        scene.plant("run folder: modules", f"run/{name}.py")
    if quick:
        scene.cache = folder.parent / PROGRAMS  # filled by `predict` alone
    _reading_commands(scene, ("script",) if quick else ("script", "module"), quick)
    if not quick:
        scene.plant("working directory: package idiolect", "idiolect/__init__.py")  # `python -m` would look here first
        _reading_commands(scene, ("script",), quick)
    return scene


def _reading_commands(scene: Scene, starts: Iterable[str], quick: bool) -> None:
    for start in starts:
        requests = [["report", "run"], ["predict", "run", "rows.csv"]]
        if not quick:
            requests += [["list"], ["explain", "fedavg"], ["advise", "rows.csv", "--client", "site", "--target", "y"]]
        for request in requests:
            _must(scene.idiolect(*request, start=start), scene)


KINDS = {
    "model": "[methods.fedavg]\n[model]\nname = 'sent_along:make'\n",
    "algorithm": "[methods.own]\nname = 'sent_along:Own'\nobjective = 'global_model'\n",
}


def _named(folder: Path, quick: bool, run: Path) -> Scene:
    """Runs and specs that name code, which lies beside them, inside them, and in the working directory."""
    scene = Scene(folder)
    folder.mkdir()
    _write_rows(folder)
    kinds = [*KINDS][:1] if quick else [*KINDS]
    for kind in kinds:
        (folder / f"{kind}.toml").write_text(SPEC + KINDS[kind])
        _send_along(scene, kind, run if quick else None)
        scene.plant(f"spec names its {kind}: module inside the run folder", f"{kind}/sent_along.py", "{code}\n" + OWN)
    scene.plant("spec names code: module in the working directory, beside the spec", "sent_along.py", "{code}\n" + OWN)
    for kind in kinds:
        scene.idiolect("predict", kind, "rows.csv")
        scene.idiolect("run", f"{kind}.toml", "--out", f"new-{kind}")
        if not quick:
            _more_on(scene, kind)
    return scene


def _send_along(scene: Scene, kind: str, run: Path | None) -> None:
    """A finished run whose spec names code, trained as its sender did, or made of an honest `run` in less time."""
    if run is not None:
        spec = shutil.copytree(run, scene.folder / kind) / "spec.toml"
        spec.write_text(spec.read_text().replace('name = "linear"', 'name = "sent_along:make"'))
        return
    own = scene.folder.parent / "own"
    own.mkdir(exist_ok=True)
    (own / "sent_along.py").write_text(OWN)
    _must(scene.idiolect("run", f"{kind}.toml", "--out", kind, "--plugins", str(own), "--quiet"), scene)


def _more_on(scene: Scene, kind: str) -> None:
    scene.idiolect("report", kind)
    scene.idiolect("predict", kind, "rows.csv", "--plugins", ".", start="module")
    scene.idiolect("predict", kind, "rows.csv", "--trust", "sent_along:make", "--trust", "sent_along:Own")
    scene.idiolect("run", kind, "--resume")
    for command in ("run", "sweep", "dial"):
        scene.idiolect(command, f"{kind}.toml", "--out", f"new-{command}", start="module")
    scene.idiolect("explain", "sent_along:Own", "--objective", "global_model")


def _inside(folder: Path, run: Path) -> Scene:
    """Files of a run folder and rows replaced by pickles; what they say is not asked, only that none is read."""
    scene = Scene(folder)
    folder.mkdir()
    _write_rows(folder)
    shutil.copytree(run, folder / "run")
    for path in [*(folder / "run").rglob("*.safetensors"), *(folder / "run").glob("*.json")]:
        path.write_bytes(pickle.dumps(scene.pickle("run folder: pickles in place of models and JSON")))
    for path in (folder / "run").glob("*.parquet"):
        _write_extension(path, scene.pickle("run folder: pickled type in Parquet metadata"))
    _write_extension(folder / "rows.parquet", scene.pickle("rows: pickled type in Parquet metadata"))
    objects = np.array([scene.pickle("rows: pickled objects in npy and npz")], dtype=object)
    np.save(folder / "weights.npy", objects, allow_pickle=True)
    np.savez(folder / "rows.npz", x=objects, y=np.zeros(1), client=np.zeros(1))
    for name, text in (
        ("npz", "[data]\nsource = 'npz'\npath = 'rows.npz'\n[methods.fedavg]\n"),
        ("matrix", SPEC + "[collaboration]\nsource = 'file'\npath = 'weights.npy'\n[methods.all_for_all]\n"),
        ("again", f"{SPEC}[methods.fedavg]\n"),
    ):
        (folder / f"{name}.toml").write_text(text)
    objects = np.array([scene.pickle("checkpoint: pickled objects")], dtype=object)
    (folder / "again" / "checkpoint" / "fedavg").mkdir(parents=True)
    shutil.copy(folder / "run" / "spec.toml", folder / "again" / "spec.toml")
    for name in ("latest", "previous"):
        np.savez(folder / "again" / "checkpoint" / "fedavg" / f"{name}.npz", facts=objects, leaf_0=objects)
    for arguments in (
        ("report", "run"),
        ("predict", "run", "rows.csv"),
        ("predict", "again", "rows.parquet"),
        ("compare", "rows.parquet", "--client", "site", "--target", "y", "--methods", "fedavg", "--rounds", "1"),
        ("run", "npz.toml"),
        ("run", "matrix.toml"),
        ("run", "again", "--resume"),
    ):
        scene.idiolect(*arguments)
    return scene


def _foreign_programs(around: Path, quick: bool) -> tuple[Scene, dict[str, int]]:
    """How many compiled programs `predict` loaded that others could have written; one not loaded is written anew."""
    scene = Scene(around)
    scene.cache = around.parent / PROGRAMS
    if not scene.cache.exists():
        scene.idiolect("predict", "run", "rows.csv")
    changes = {"programs that others can write": _writable}
    if not quick:
        changes |= {"folder of programs that others can write": _open_folder, "programs that are links": _links}
        changes |= {"damaged programs": _damage}
        changes |= {"programs of another owner": _give_away} if os.geteuid() == 0 else {}
    loaded = {}
    for place, change in changes.items():
        before = change(scene.cache)
        if not before:
            raise RuntimeError("predict kept no program to replace.")
        _must(scene.idiolect("predict", "run", "rows.csv"), scene)
        after = {path.name: path.lstat().st_ino for path in scene.cache.iterdir()}
        loaded[place] = sum(after.get(name) == inode for name, inode in before.items())
    return scene, loaded


def _programs(cache: Path) -> dict[str, int]:
    """Names and numbers of the files; a second link to each keeps its number from being given to a new file."""
    held = cache.with_name(f"{cache.name}-held")
    shutil.rmtree(held, ignore_errors=True)
    held.mkdir()
    for path in cache.iterdir():
        os.link(path, held / path.name, follow_symlinks=False)
    return {path.name: path.lstat().st_ino for path in cache.iterdir()}


def _writable(cache: Path) -> dict[str, int]:
    for path in cache.iterdir():
        path.chmod(0o666)
    return _programs(cache)


def _open_folder(cache: Path) -> dict[str, int]:
    cache.chmod(0o777)
    return _programs(cache)


def _links(cache: Path) -> dict[str, int]:
    elsewhere = cache.with_name("elsewhere")
    elsewhere.mkdir()
    for path in cache.iterdir():
        path.symlink_to(path.rename(elsewhere / path.name))
    return _programs(cache)


def _damage(cache: Path) -> dict[str, int]:
    for path in cache.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    return _programs(cache)


def _give_away(cache: Path) -> dict[str, int]:
    for path in cache.iterdir():
        os.chown(path, 12345, 12345)
    return _programs(cache)


def _write_rows(folder: Path) -> None:
    draw = np.random.default_rng(3)
    lines = [f"s{row % 3},{a:.3f},{b:.3f},{int(a > b)}" for row, (a, b) in enumerate(draw.normal(size=(60, 2)))]
    (folder / "rows.csv").write_text("\n".join(["site,a,b,y", *lines]) + "\n")


def _write_extension(path: Path, fires: _Fires) -> None:
    """A Parquet file whose columns say that they have a type of Python's own, to be read with pickle."""
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(fires)}
    columns = {"site": ["a", "b"] * 20, "x": np.arange(40.0), "y": [0, 1] * 20}
    table = pa.table(columns)
    schema = pa.schema([field.with_metadata(metadata) for field in table.schema])
    pq.write_table(table.cast(schema), path)


def _python_path() -> str:
    """Where this process found the package: the user's own choice, without which a source tree is not found."""
    import idiolect

    return str(Path(idiolect.__file__).parents[1])


def _must(code: int, scene: Scene) -> None:
    if code:
        raise RuntimeError(f"A command that should not notice the attack failed: {scene.commands[-1]}.")
