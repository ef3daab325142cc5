# SPDX-License-Identifier: Apache-2.0
"""Habits hold together: pre-commit runs what `make check` runs, and one version stands everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import idiolect

ROOT = Path(__file__).resolve().parents[1]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_pre_commit_runs_the_targets_of_make_check():
    (targets,) = re.findall(r"^check: ([\w ]+?) ##", text_of("Makefile"), re.M)
    hooks = re.findall(r"entry: make --silent (\w+)$", text_of(".pre-commit-config.yaml"), re.M)
    assert hooks == targets.split()


def test_one_version():
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert idiolect.__version__ == version
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    assert f"\n## [{version}]" in text_of("CHANGELOG.md")
