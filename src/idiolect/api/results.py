# SPDX-License-Identifier: Apache-2.0
"""What every result of the Python interface is: a finished folder that can be read, kept, sent and shown."""

from __future__ import annotations

import abc
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from idiolect.api.sentences import in_python
from idiolect.record.errors import RequestError
from idiolect.record.manifest import DONE
from idiolect.report import build_report
from idiolect.report.notebook import text_html


class Workplace:
    """The folder that a result is written to: the caller's own, or one that goes away with the result."""

    def __init__(self, out: str | os.PathLike[str] | None, name: str):
        if out is not None:
            self.folder = Path(out)
            return
        made = tempfile.mkdtemp(prefix="idiolect-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)  # with this object, or when Python ends
        self.folder = Path(made) / name


class Result(abc.ABC):
    """A finished folder of a command, read when asked; abstract."""

    def __init__(self, place: Workplace):
        self._place = place

    @property
    def folder(self) -> Path:
        """Where the files lie; a temporary folder is removed with this object: `save` keeps it."""
        return self._place.folder

    @in_python()
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the folder to `path`, which must not exist, with its page; `load` and the commands read it."""
        target = Path(path)
        if target.exists():
            raise RequestError(f"{target} exists, and nothing is overwritten; choose another path.")
        target.parent.mkdir(parents=True, exist_ok=True)
        skipped = str(self.folder)
        shutil.copytree(self.folder, target, ignore=lambda at, names: [DONE] if str(at) == skipped else [])
        shutil.copy2(self.folder / DONE, target / DONE)  # last: a copy that was cut short is not taken for a whole one
        build_report(target)
        return target

    @abc.abstractmethod
    def _text(self) -> str:
        """The answer, for a terminal."""

    def __str__(self) -> str:
        return self._text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return text_html(self._text())

    def __getstate__(self) -> dict[str, object]:
        """All files, so that a result can be pickled, copied and sent to another process."""
        every = [path for path in self.folder.rglob("*") if path.is_file()]
        files = {str(path.relative_to(self.folder)): path.read_bytes() for path in every}
        return {"name": self.folder.name, "files": files}

    def __setstate__(self, state: dict[str, object]) -> None:
        name, files = state["name"], state["files"]
        assert isinstance(name, str)
        assert isinstance(files, dict)
        # another process gets files of its own: the first one's folder goes away with the first one
        self._place = Workplace(None, name)
        for inside, content in files.items():
            path = self.folder / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
