# SPDX-License-Identifier: Apache-2.0
"""What can be said of FLARE without it: the sentence where it is missing, and the files that its page prints."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
import yaml

from idiolect.cli.deploy import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy-flare.md"
COMMANDS = {command.callback.__name__ for command in app.registered_commands}


@pytest.mark.skipif(importlib.util.find_spec("nvflare") is not None, reason="the extra flare is installed")
def test_where_flare_is_missing_a_sentence_names_the_extra():
    from idiolect.core.checks import RequestError

    with pytest.raises(RequestError, match=r"idiolect\[flare\]"):
        importlib.import_module("idiolect.experiments.flare.kits")


def documents() -> list[dict]:
    fences = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    return [document for fence in fences for document in yaml.safe_load_all(textwrap.dedent(fence))]


def test_container_files_are_valid_and_name_commands_that_exist():
    found = documents()
    services = [service for file in found for service in file.get("services", {}).values()]
    pods = [file["spec"]["template"]["spec"] for file in found if file.get("kind") == "StatefulSet"]
    commands = [service["command"] for service in services]
    commands += [container["args"] for pod in pods for container in pod["containers"]]
    assert len(commands) == 3
    assert {command[0] for command in commands} <= COMMANDS
    for pod in pods:
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    claims = {file["metadata"]["name"] for file in found if file.get("kind") == "PersistentVolumeClaim"}
    assert claims == {"kit-north"}


def test_commands_of_the_page_exist():
    named = set(re.findall(r"idiolect deploy (\w+)", PAGE.read_text(encoding="utf-8")))
    assert {"init", "check", "serve", "join", "submit", "status", "demo"} <= named <= COMMANDS
