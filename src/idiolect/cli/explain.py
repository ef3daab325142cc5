# SPDX-License-Identifier: Apache-2.0
"""`idiolect explain NAME`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from idiolect.cli.options import AsFormat, Format


def explain(
    name: Annotated[str, typer.Argument(help="An algorithm or an objective.")],
    objective: Annotated[str | None, typer.Option(help="Objective for an algorithm; default: its own.")] = None,
    as_format: AsFormat = Format.text,
) -> None:
    """Equations, settings, wire types with their bytes, what ever leaves a client, and the citation."""
    from idiolect.experiments.explain import explain as look_up

    facts = look_up(name, objective)
    typer.echo(json.dumps(facts) if as_format is Format.json else _text(facts))


def _text(facts: dict[str, Any]) -> str:
    lines = [facts["name"], "=" * len(facts["name"]), "", facts["text"], ""]
    if facts["kind"] == "objective":
        return "\n".join(lines).rstrip()
    lines += ["Settings"]
    for entry in facts["settings"]:
        rule = f" ({entry['rule']})" if entry["rule"] else ""
        lines.append(f"  {entry['name']} = {entry['default']}{rule}  {entry['doc']}".rstrip())
    wire = facts["wire"]
    lines += ["", f"On the wire, per client and round, for {facts['example']}, objective {facts['objective']}"]
    for way, total in (("down", "download_bytes"), ("up", "upload_bytes")):
        lines.append(f"  {way}: {wire[total]} bytes")
        lines += [f"    {leaf['path']} {tuple(leaf['shape'])} {leaf['dtype']}: {leaf['bytes']}" for leaf in wire[way]]
    lines += [f"  {warning}" for warning in wire["warnings"]]
    lines.append(f"Leaves a client: {', '.join(facts['leaves_the_client']) or 'nothing'}")
    lines.append(f"Stays on a client: {', '.join(facts['stays_on_the_client']) or 'nothing is kept between rounds'}")
    return "\n".join([*lines, "", f"Reference: {facts['reference']}"])
