# SPDX-License-Identifier: Apache-2.0
"""What the pages about deployment print: container files that are whole, commands and options that exist."""

from __future__ import annotations

import importlib
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest
import typer.main
import yaml

from idiolect.cli.deploy import app
from idiolect.core.checks import RequestError

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("deploy", "deploy-flare", "deploy-flower")}
COMMANDS = typer.main.get_command(app).commands
GIVEN = {"records"}  # a claim that holds the table: the party's own


@pytest.mark.parametrize(("extra", "package"), [("flare", "nvflare"), ("flower", "flwr")])
def test_where_a_transport_is_missing_a_sentence_names_the_extra(extra, package):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(RequestError, match=rf"idiolect\[{extra}\]"):
        importlib.import_module(f"idiolect.experiments.{extra}.kits")


def documents(page: str) -> list[dict]:
    fences = re.findall(r"^```yaml\n(.*?)^```", PAGES[page], re.S | re.M)
    return [document for fence in fences for document in yaml.safe_load_all(textwrap.dedent(fence))]


def check_words(words: list[str]) -> None:
    """Parsed as the program would, without running it."""
    assert words[0] in COMMANDS, words
    command = COMMANDS[words[0]]
    command.make_context(words[0], words[1:])


def pods(page: str) -> list[dict]:
    return [file["spec"]["template"]["spec"] for file in documents(page) if file.get("kind") in ("StatefulSet", "Job")]


@pytest.mark.parametrize(("page", "services", "sites"), [("deploy", 3, 1), ("deploy-flare", 2, 1)])
def test_container_files_name_commands_that_exist(page, services, sites):
    found = [service for file in documents(page) for service in file.get("services", {}).values()]
    containers = [container for pod in pods(page) for container in pod["containers"]]
    assert (len(found), len(containers)) == (services, sites)
    for words in [*(service["command"] for service in found), *(container["args"] for container in containers)]:
        check_words(words)
    for service in found:
        assert any(volume.endswith(":/kit") for volume in service["volumes"])
        assert service["command"][1] == "/kit"
    images = {one["image"] for one in [*found, *containers]}
    assert images == {"idiolect-deploy"}
    assert all(f"docker build --tag {image}" in PAGES[page] for image in images)


@pytest.mark.parametrize("page", ["deploy", "deploy-flare"])
def test_what_a_pod_mounts_is_there(page):
    files = documents(page)
    claims = {file["metadata"]["name"] for file in files if file.get("kind") == "PersistentVolumeClaim"}
    for pod in pods(page):
        every = [*pod["containers"], *pod.get("initContainers", ())]
        mounted = {mount["name"] for container in every for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        asked = {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "secret" not in volume}
        assert asked == claims | GIVEN
    labels = {
        str(file["spec"]["template"]["metadata"]["labels"]) for file in files if "template" in file.get("spec", {})
    }
    policies = [file["spec"]["podSelector"]["matchLabels"] for file in files if file.get("kind") == "NetworkPolicy"]
    assert {str(policy) for policy in policies} == labels


def test_the_secret_of_a_pod_is_made_by_a_command_of_the_page():
    named = {
        volume["secret"]["secretName"] for pod in pods("deploy") for volume in pod["volumes"] if "secret" in volume
    }
    assert named == set(re.findall(r"kubectl create secret generic (\S+) --from-file=kits/north", PAGES["deploy"]))


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_a_page_exist(page):
    """Every `idiolect deploy ...`, in prose and in transcripts, a backslash going on in the next line."""
    text = re.sub(r"\\\n\s*|(?<=sites)\n", " ", PAGES[page])
    uses = re.findall(r"idiolect deploy (\w+)([^`\n#]*)", text)
    assert uses
    for name, rest in uses:
        assert name in COMMANDS, name
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert set(re.findall(r"--[\w-]+", rest)) <= known, (name, rest)


def test_the_image_installs_the_extras_and_runs_the_program():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    words = {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}
    assert words["ENTRYPOINT"] == '["idiolect", "deploy"]'
    extras = importlib.import_module("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {words["ARG"].removeprefix("EXTRA="), "flare"} <= set(extras["optional-dependencies"])
    for line in lines:
        if line.startswith("COPY "):
            assert all((ROOT / source).exists() for source in line.split()[1:-1]), line
