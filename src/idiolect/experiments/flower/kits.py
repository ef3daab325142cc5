# SPDX-License-Identifier: Apache-2.0
"""Kits for Flower: a certificate for the server, a key for each site's node, and an app that holds no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tomli_w
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from idiolect import __version__
from idiolect.engines.deploy.tls import Papers
from idiolect.experiments.deploy.certificates import make_authority, make_papers, write_secret
from idiolect.experiments.deploy.kits import Connect, fill_kits, new_kits
from idiolect.experiments.deploy.site_file import FILE
from idiolect.experiments.flower.server import FOLDER, NODES
from idiolect.experiments.spec import Spec

APP, HOME, NODE_KEY = "app", "home", "node.key"
CONNECTION = "kit"  # what Flower's own commands call the server of a kit
LOOPBACK = "127.0.0.1"


def make_flower_kits(
    folder: Path, spec: Spec, sites: Sequence[str], host: str, port: int, later: Sequence[str] = ()
) -> dict[str, Path]:
    """A kit for "server" and for each site."""
    kits, authority = new_kits(folder, spec, sites, later), make_authority(spec.name)
    # the server's own processes come by the loopback address
    papers = make_papers(kits["server"], authority, "server", server=True, hosts=(host, LOOPBACK))
    nodes = kits["server"] / FOLDER / NODES
    nodes.mkdir(parents=True)
    for site in (*sites, *later):
        kit = kits[site]
        (kit / FOLDER).mkdir(parents=True)
        (nodes / f"{site}.pub").write_bytes(_make_key(kit / FOLDER / NODE_KEY))
        Papers.of(kit).authority.write_bytes(papers.authority.read_bytes())
    fill_kits(kits, spec, later, Connect(host, port))
    for site in (*sites, *later):
        with open(kits[site] / FILE, "a", encoding="utf-8") as file:
            file.write("# Flower lets all who reach its server run code of theirs here; see docs/deploy-flower.md\n")
            file.write("shipped_code = false\n")
    _write_app(kits["server"] / FOLDER / APP)
    return kits


def _make_key(path: Path) -> bytes:
    """A node's key, for its owner alone; the public one, by which the server knows the site."""
    key = ec.generate_private_key(ec.SECP384R1())
    kind = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    write_secret(path, key.private_bytes(serialization.Encoding.PEM, *kind))
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def _write_app(folder: Path) -> None:
    """An app of Flower's: names of installed objects, and no file that runs."""
    components = {
        "serverapp": "idiolect.experiments.flower.server:server_app",
        "clientapp": "idiolect.experiments.flower.relay:client_app",
    }
    content = {
        "project": {
            "name": "idiolect-run",
            "version": __version__,
            "description": "A run of idiolect over the sites of a kit",
            "license": "Apache-2.0",
            "dependencies": [],  # Flower can install what an app names: nothing
        },
        "tool": {
            "flwr": {
                "app": {"publisher": "idiolect", "components": components, "config": {"kit": "", "out": ""}},
            }
        },
    }
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(content), encoding="utf-8")


def write_connection(kit: Path, port: int) -> Path:
    """Where Flower's own commands find the server of a kit; the folder that FLWR_HOME names."""
    home = kit / FOLDER / HOME
    home.mkdir(parents=True, exist_ok=True)
    where = {"address": f"{LOOPBACK}:{port}", "root-certificates": str(Papers.of(kit).authority.resolve())}
    content = {"superlink": {"default": CONNECTION, CONNECTION: where}}
    (home / "config.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    return home
