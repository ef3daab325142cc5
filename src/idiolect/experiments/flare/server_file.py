# SPDX-License-Identifier: Apache-2.0
"""The server's own file, server.toml in its kit: which sites take part, in which spec, and when a round closes."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import tomli_w

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.link import Rules
from idiolect.experiments.strict import fill

FILE, SPEC = "server.toml", "spec.toml"


@dataclasses.dataclass(frozen=True)
class ServerFile:
    """What server.toml says; paths are absolute, or relative to it."""

    sites: list[str]  # certified names: clients are numbered by them, whoever is there
    spec: str = SPEC
    folder: str = "run"  # of checkpoints and results
    patience: float = 600.0  # seconds that sites have to come


def read_server_file(kit: Path) -> tuple[ServerFile, Rules]:
    """The file, checked; without [rules] rounds close as they do anywhere."""
    path = kit / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror}); `idiolect deploy init` writes it.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} is not valid TOML ({error}).") from None
    rules = fill(Rules, content.pop("rules", {}), "rules")
    return fill(ServerFile, content, FILE), rules


def write_server_file(kit: Path, sites: tuple[str, ...]) -> None:
    """With everything else as it is by default."""
    (kit / FILE).write_text(tomli_w.dumps({"sites": list(sites)}), encoding="utf-8")
