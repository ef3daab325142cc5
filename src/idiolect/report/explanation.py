# SPDX-License-Identifier: Apache-2.0
"""An explanation of an algorithm or an objective as text: settings, wire types, theory, citation."""

from __future__ import annotations

from typing import Any

COUNTS = {
    "rounds": "rounds",
    "full_shared_gradients": "gradients by w, all rows",
    "full_personal_gradients": "gradients by beta, all rows",
    "shared_gradients": "gradients by w, single rows",
    "personal_gradients": "gradients by beta, single rows",
}


def explanation_text(facts: dict[str, Any]) -> str:
    """Everything that `idiolect explain NAME` prints."""
    lines = [facts["name"], "=" * len(facts["name"]), "", facts["text"], "", *_settings("Settings", facts["settings"])]
    if facts["kind"] == "objective":
        return "\n".join([*lines, "", *_theory(facts["theory"], False)]).rstrip()
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
    lines += ["", *_theory(facts["theory"]), f"Reference: {facts['reference']}"]
    # printed mistakes, each with its place on the page of errata
    errata = [f"  {one['number']}: {one['text']} ({one['link']})" for one in facts["errata"]]
    return "\n".join([*lines, *(["", "Errata of its paper", *errata] if errata else [])])


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
    remarks = [f"  Not chosen: {facts['silent']}"] if facts["silent"] else []
    remarks += [f"  Warning: {text}" for text in facts["warnings"]]
    if constants is None:
        return [*lines, "  The constants of F are not known.", *remarks, ""]
    values = ", ".join(f"{symbol} {value:.3g}" for symbol, value in constants.items() if symbol != "source")
    lines += [f"  {values}", f"    {constants['source']}"]
    for entry in facts["parameters"]:
        value, how = entry["value"], "set by hand" if entry["by_hand"] else entry["formula"]
        shown = f"{min(value):.4g} to {max(value):.4g}" if isinstance(value, list) else f"{value:.4g}"
        lines.append(f"  {entry['name']} = {shown}  {how}")
    if facts["parameters"]:
        lines.append(f"    {facts['theorem']}")
    return [*lines, *remarks, *_promise(facts, of_algorithm), ""]


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
    reference = facts["gradient_descent"]["rounds"]
    lines.append(f"    gradient descent on F: {reference:,.0f} rounds, predicted")
    return [*lines, "    at least: Unified 2023, theorem 6, up to a constant factor"]
