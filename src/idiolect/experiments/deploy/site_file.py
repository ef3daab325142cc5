# SPDX-License-Identifier: Apache-2.0
"""A site's own file, site.toml: where its table is, and what it agrees to. It never leaves the site."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from idiolect.core.checks import RequestError, setting
from idiolect.data.preparation import WAYS
from idiolect.engines.deploy.site import Allows
from idiolect.experiments.strict import fill

FILE, SPEC = "site.toml", "spec.toml"


@dataclasses.dataclass(frozen=True)
class Consent(Allows):
    """What the site agrees to; [allows] of site.toml."""

    preparation: list[str] = dataclasses.field(default_factory=lambda: list(WAYS))  # ways to scale and fill columns
    texts: bool = setting(default=True, doc="whether names of categories and classes may be sent")
    shipped_code: bool = setting(default=False, doc="whether others may run code here, which Flower cannot prevent")


@dataclasses.dataclass(frozen=True)
class SiteFile:
    """What site.toml says; paths are absolute, or relative to it."""

    name: str  # certified, as the coordinator knows it
    table: Path
    spec: Path
    folder: Path  # of the site's states, models and log
    consent: Consent


@dataclasses.dataclass(frozen=True)
class _Written:
    name: str
    table: str
    spec: str = SPEC
    folder: str = "kept"


def read_toml(path: Path, what: str = "", give: str = "the folder of a kit") -> dict[str, Any]:
    """A kit's file; RequestError where it is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{what}{path} cannot be read ({error.strerror}); give {give}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{what}{path} is not valid TOML ({error}).") from None


def read_site_file(path: Path) -> SiteFile:
    """The file, checked."""
    path = path / FILE if path.is_dir() else path
    content = read_toml(path, "The site's file ", "its kit, or the file")
    consent = fill(Consent, content.pop("allows", {}), "allows")
    # a word that names no way would agree to nothing, and be found out in the middle of a run
    unknown = next((way for way in consent.preparation if way not in WAYS), None)
    if unknown is not None:
        raise RequestError(f"allows.preparation must name some of {', '.join(WAYS)}, got {unknown!r}.")
    written = fill(_Written, content, FILE)
    home = path.parent
    return SiteFile(written.name, home / written.table, home / written.spec, home / written.folder, consent)
