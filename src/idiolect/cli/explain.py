# SPDX-License-Identifier: Apache-2.0
"""`idiolect explain NAME`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.options import AsFormat, Format, Plugins

COUNTS = {
    "exchanges": "exchanges",
    "full_shared_gradients": "gradients by w, all rows",
    "full_personal_gradients": "gradients by beta, all rows",
    "shared_gradients": "gradients by w, single rows",
    "personal_gradients": "gradients by beta, single rows",
}


def explain(
    name: Annotated[str, typer.Argument(help="An algorithm, an objective, or the folder of a run, a dial or advice.")],
    objective: Annotated[str | None, typer.Option(help="Objective for an algorithm; default: its own.")] = None,
    clients: Annotated[int, typer.Option(help="Of the example: clients M.")] = 20,
    rows: Annotated[int, typer.Option(help="Of the example: rows n per client.")] = 100,
    smoothness: Annotated[float, typer.Option(help="Of the example: L' of every client's loss.")] = 1.0,
    convexity: Annotated[float, typer.Option(help="Of the example: strong convexity mu'.")] = 0.01,
    component_smoothness: Annotated[
        float | None, typer.Option(help="Of the example: Lc' of a single row's loss; default: L'.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Accuracy to reach, as a fraction of the start's gap.")] = 1e-6,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of algorithm or objective, as TOML: 'penalty = 0.1'.")
    ] = None,
    plugins: Plugins = None,
    as_format: AsFormat = Format.text,
) -> None:
    """Equations, settings, wire types with their bytes, what ever leaves a client, what theory says, the citation.

    Of a run folder: what left each client, how often, how many bytes, from how many rows.
    """
    if Path(name).is_dir():
        typer.echo(_of_run(Path(name), as_format))
        return
    from idiolect.core.importing import own_code
    from idiolect.experiments.explain import Example
    from idiolect.experiments.explain import explain as look_up

    example = Example(clients, rows, smoothness, convexity, component_smoothness, epsilon)
    with own_code(plugins, only=[name]):  # what the user has typed, and nothing that a file names
        facts = look_up(name, objective, example, changes or [])
    typer.echo(json.dumps(facts) if as_format is Format.json else _text(facts))


def _of_run(folder: Path, as_format: Format) -> str:
    """What left each client in a run, a dial, advice, or repeated splits, each of which is a run of its own."""
    from idiolect.report.privacy import EACH_SPLIT, statement_lines
    from idiolect.report.splits_table import is_splits

    if not is_splits(folder):
        statement = _statement(folder)
        return json.dumps(statement) if as_format is Format.json else "\n".join(statement_lines(statement))
    inner = sorted(path for path in folder.glob("split-*") if path.is_dir())
    if as_format is Format.json:
        return json.dumps({path.name: _statement(path) for path in inner})
    return "\n".join([EACH_SPLIT, f"That of {inner[0].name}:", "", *statement_lines(_statement(inner[0]))])


def _statement(folder: Path) -> dict[str, Any]:
    from idiolect.core.checks import RequestError
    from idiolect.report.advise_table import is_advice
    from idiolect.report.choice import is_dial
    from idiolect.report.folder import read
    from idiolect.report.privacy import read_statement

    statement = read_statement(folder) if is_dial(folder) or is_advice(folder) else read(folder).privacy
    if statement is None:
        raise RequestError(f"{folder} has no privacy.json, which says what left each client; run it again to have one.")
    return statement


def _text(facts: dict[str, Any]) -> str:
    lines = [facts["name"], "=" * len(facts["name"]), "", facts["text"], ""]
    if facts["kind"] == "objective":
        return "\n".join(
            [*lines, *_settings("Settings", facts["settings"]), "", *_theory(facts["theory"], False)]
        ).rstrip()
    lines += _settings("Settings", facts["settings"])
    if facts["objective_settings"]:
        lines += ["", *_settings(f"Settings of {facts['objective']}", facts["objective_settings"])]
    wire = facts["wire"]
    lines += ["", f"On the wire, per client and round, for {facts['example']}, objective {facts['objective']}"]
    for way, total in (("down", "download_bytes"), ("up", "upload_bytes")):
        lines.append(f"  {way}: {wire[total]} bytes")
        lines += [f"    {leaf['path']} {tuple(leaf['shape'])} {leaf['dtype']}: {leaf['bytes']}" for leaf in wire[way]]
    lines += [f"  {warning}" for warning in wire["warnings"]]
    lines.append(f"Leaves a client: {', '.join(facts['leaves_the_client']) or 'nothing'}")
    lines.append(f"Stays on a client: {', '.join(facts['stays_on_the_client']) or 'nothing is kept between rounds'}")
    return "\n".join([*lines, "", *_theory(facts["theory"]), f"Reference: {facts['reference']}"])


def _settings(title: str, entries: list[dict[str, Any]]) -> list[str]:
    lines = [title] if entries else [f"{title}: none"]
    for entry in entries:
        rule = f" ({entry['rule']})" if entry["rule"] else ""
        default = "from theory" if entry["theory"] and entry["default"] is None else entry["default"]
        lines.append(f"  {entry['name']} = {default}{rule}  {entry['doc']}".rstrip())
    return lines


def _theory(facts: dict[str, Any], of_algorithm: bool = True) -> list[str]:
    """Constants, parameters, and what they promise; an objective promises nothing, it only has limits."""
    example = facts["example"]
    lines = [
        f"Theory, for {example['clients']} clients of {example['rows']} rows, L' = {example['smoothness']:g}, "
        f"mu' = {example['convexity']:g}, Lc' = {example['component_smoothness']:g}"
    ]
    constants = facts["constants"]
    if constants is None:
        return [*lines, "  The constants of F are not known.", *_remarks(facts), ""]
    values = ", ".join(f"{symbol} {value:.3g}" for symbol, value in constants.items() if symbol != "source")
    lines += [f"  {values}", f"    {constants['source']}"]
    for entry in facts["parameters"]:
        how = "set by hand" if entry["by_hand"] else entry["formula"]
        lines.append(f"  {entry['name']} = {_value(entry['value'])}  {how}")
    if facts["parameters"]:
        lines.append(f"    {facts['theorem']}")
    return [*lines, *_remarks(facts), *_promise(facts, of_algorithm), ""]


def _value(value: Any) -> str:
    return f"{min(value):.4g} to {max(value):.4g}" if isinstance(value, list) else f"{value:.4g}"


def _remarks(facts: dict[str, Any]) -> list[str]:
    refused = [f"  Not chosen: {facts['silent']}"] if facts["silent"] else []
    return [*refused, *(f"  Warning: {text}" for text in facts["warnings"])]


def _promise(facts: dict[str, Any], of_algorithm: bool) -> list[str]:
    """Predicted and least counts, side by side."""
    predicted, least, ratio = facts["predicted"], facts["at_least"], facts["ratio"]
    if least is None:
        return ["  Without strong convexity there is no linear rate to predict."]
    head = f"{'predicted':>12}" if predicted else ""
    lines = [f"  {'to a gap of ' + format(facts['example']['epsilon'], 'g'):<32}{head}{'at least':>12}"]
    for name, words in COUNTS.items():
        count = f"{predicted[name]:>12,.0f}" if predicted else ""
        compared = f"  {ratio[name]:.3g} times" if ratio and name in ratio else ""
        lines.append(f"    {words:<30}{count}{least[name]:>12,.0f}{compared}")
    if predicted:
        lines.append(f"    {predicted['statement']}")
    elif of_algorithm:
        lines.append("    no prediction: theory states no linear rate for it here")
    reference = facts["gradient_descent"]["exchanges"]
    lines.append(f"    gradient descent on F: {reference:,.0f} exchanges, predicted")
    return [*lines, "    at least: paper 002, theorem 6, up to a constant factor"]
