# SPDX-License-Identifier: Apache-2.0
"""The coordinator of a spec: hello, preparation and constants by sums, every method over the sites, a run folder."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.core.keys import secret_token
from idiolect.core.order import natural_key
from idiolect.data.preparation import GIVEN, Preparation
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.site_sums import SiteSums, from_facts, recipe_of, to_facts
from idiolect.engines.deploy.link import Found, Link, Question, Rules
from idiolect.engines.deploy.transport import Transport
from idiolect.engines.deploy.wire import Facts, Message, WireError
from idiolect.experiments.deploy.agreement import (
    Agreed,
    check_deployable,
    constants_from_facts,
    constants_to_facts,
    run_digest,
    versions,
)
from idiolect.experiments.deploy.hollow import hollow_federation, prepare_hollow
from idiolect.experiments.deploy.later import check_joinable, padded, with_unknown
from idiolect.experiments.deploy.methods import MethodRuns
from idiolect.experiments.deploy.result import write_result
from idiolect.experiments.deploy.rows import table_request
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.run_folder import RunFolder
from idiolect.experiments.sources import read_recipe
from idiolect.experiments.spec import Spec, resumed

Say = Callable[[str], None]
AGREED = "deploy.json"  # what all sites agreed on before round 0
MUST = {"sums": "say what their columns hold", "constants": "compute the constants of their losses"}
DEFAULT_RULES = Rules()


def coordinate(
    transport: Transport,
    spec: Spec,
    folder: Path,
    sites: Sequence[str],
    rules: Rules = DEFAULT_RULES,
    say: Say = lambda text: None,
    patience: float = 600.0,
    later: Sequence[str] = (),
) -> None:
    """Train every method of the spec over the sites and leave a run folder; goes on where an earlier process stopped.

    `sites` are the certified names that take part: all of them at the beginning, for which they have `patience`
    seconds to come; after that a round closes with those that answer. Those in `later` may come at any time.
    """
    check_deployable(spec)
    names, later = _ordered(sites), sorted(later, key=natural_key)
    if overlap := set(later) & set(names):
        raise RequestError(f"A site is there at the beginning or comes later, not both: {', '.join(sorted(overlap))}.")
    kept = RunFolder(folder)
    resume = kept.begun
    kept.check(resume)
    if resume:
        spec = resumed(kept.read_spec(), spec, folder)
    # numbers follow from names, not from who comes first: a restarted coordinator gives the same ones
    link = Link(transport, run_digest(spec), {name: place for place, name in enumerate([*names, *later])}, rules, say)
    # agreed once: asked again, a site whose table has grown would change the recipe in the middle of a run
    known = kept.read_sealed(AGREED) if resume else None
    agreed = agree(link, spec, names, patience) if known is None else _go_on(link, spec, known, names, patience)
    weighted = spec.data.weight_column is not None
    # from here on all is prepared as in a simulation, from counts and constants instead of rows
    hollow = hollow_federation(agreed.recipe, agreed.preparation, agreed.sums, weighted)
    prepared = prepare_hollow(spec, hollow, agreed.constants)
    for method, built in zip(prepared.methods, prepared.built):
        check_joinable(method.label, built.algorithm, later)
    with kept.begin(spec, prepared.federation, resume):
        kept.write_sealed(AGREED, _to_facts(agreed))
        of_methods = itertools.chain.from_iterable(one.notes for one in prepared.built)
        # said where a simulation would print them: the person at the server sees the same
        for text in (*prepared.notes(), prepared.reason, *of_methods):
            say(text)
        run = MethodRuns(link, kept, prepared, agreed)
        trials = [trial for method in prepared.methods for trial in run.trials(method)]
        write_result(kept, _with_all(link, prepared, agreed, weighted), trials)


def _go_on(link: Link, spec: Spec, known: Facts, names: list[str], patience: float) -> Agreed:
    """What an earlier process agreed on; sites have a deadline's time to come back."""
    agreed = _restore(known, link, spec)
    # they do so by themselves: a round that began before would go on without them
    if away := _wait_for(link, names, min(patience, link.rules.deadline)):
        link.say(f"Going on without {', '.join(away)}, until they are there.")
    return agreed


def _with_all(link: Link, prepared: Prepared, agreed: Agreed, weighted: bool) -> Prepared:
    """The same with the sites that came later, whose rows are asked for now; those that never came have none."""
    later = [name for name in link.numbers if name not in agreed.sums]
    if not later:
        return prepared
    found = link.ask("sums", 0, dict.fromkeys(later, Question()), _sums)
    # in the order of their numbers, which those who came later have from the beginning
    sums = with_unknown(agreed.sums | found, list(link.numbers))
    preparation = padded(agreed.preparation, len(link.numbers))
    whole = hollow_federation(agreed.recipe, preparation, sums, weighted)
    return dataclasses.replace(prepared, federation=whole)


def _ordered(sites: Sequence[str]) -> list[str]:
    """Their natural order gives sites their numbers."""
    names = sorted(sites, key=natural_key)
    if len(names) < 2 or len(set(names)) < len(names):
        raise RequestError(f"A deployment needs at least 2 sites of different names, got {', '.join(names)}.")
    return names


def agree(link: Link, spec: Spec, names: list[str], patience: float) -> Agreed:
    """Hello, sums and constants: what these sites must say before the first round."""
    if away := _wait_for(link, names, patience):
        raise RequestError(f"Not all sites are there; missing: {', '.join(away)}. Start them, then start again.")
    sums = _ask_all(link, "sums", names, Question(), _sums)
    recipe, preparation = _recipe(spec, sums)
    told = Question({"recipe": recipe.to_json()})
    found = _ask_all(link, "constants", names, told, lambda site, message: message.content.get("constants"))
    constants = constants_from_facts(list(found.values()))
    return Agreed(link.run, secret_token(), dict(link.numbers), recipe, preparation, sums, constants)


def _wait_for(link: Link, names: list[str], patience: float) -> list[str]:
    """Until all sites have said hello in the same versions; who has not in time."""
    # sites are started by people: in any order, and some minutes apart
    until, away = time.monotonic() + patience, list(names)
    while True:
        asked = [name for name in away if name in link.transport.sites]
        here = link.ask("hello", 0, dict.fromkeys(asked, Question()), _hello) if asked else {}
        away = [name for name in away if name not in here]
        # looked at after asking, so that with no patience at all they are still asked once
        if not away or time.monotonic() > until:
            return away
        time.sleep(min(0.5, patience / 10))


def _hello(site: str, message: Message) -> bool:
    content = message.content
    if content.get("versions") != versions() or content.get("site") != site:
        raise WireError(f"Site {site!r} runs other versions, or under another name: {content}."[:300])
    return True


def _sums(site: str, message: Message) -> SiteSums:
    try:
        return from_facts(message.content, f"Site {site!r}")
    except RequestError as error:
        raise WireError(str(error)) from None


def _ask_all(
    link: Link, kind: str, names: list[str], question: Question, check: Callable[[str, Message], Found]
) -> dict[str, Found]:
    """Every site's answer to one question, in the order of names; RequestError where one has none."""
    found = link.ask(kind, 0, dict.fromkeys(names, question), check)
    if missing := [name for name in names if name not in found]:
        raise RequestError(
            f"Before training all sites must {MUST[kind]}; missing: {', '.join(missing)}. See what they said."
        )
    return found


def _to_facts(agreed: Agreed) -> Facts:
    constants = agreed.constants
    return {
        "run": agreed.run,
        "name": agreed.name,
        "numbers": agreed.numbers,
        "sums": {site: to_facts(one) for site, one in agreed.sums.items()},
        "constants": constants and [constants_to_facts(constants, place) for place in range(constants.clients)],
    }


def _restore(facts: Mapping[str, Any], link: Link, spec: Spec) -> Agreed:
    """What an earlier process agreed on with the sites."""
    if facts["run"] != link.run or facts["numbers"] != link.numbers:
        raise RequestError("This folder holds a run of other sites, versions or another spec; choose another --out.")
    sums = {site: from_facts(one, site) for site, one in facts["sums"].items()}
    constants = facts["constants"] and constants_from_facts(facts["constants"])
    return Agreed(link.run, facts["name"], link.numbers, *_recipe(spec, sums), sums, constants)


def _recipe(spec: Spec, sums: Mapping[str, SiteSums]) -> tuple[Preprocessing, Preparation]:
    """How rows are prepared, and what was sent for it."""
    if spec.data.preparation != GIVEN:
        return recipe_of(sums, table_request(spec.data))
    recipe = read_recipe(spec.data)
    assert recipe is not None
    return recipe, Preparation(GIVEN, np.array([one.rows["train"] for one in sums.values()]))
