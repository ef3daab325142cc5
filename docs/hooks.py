# SPDX-License-Identifier: Apache-2.0
"""Hooks of the site: pages for linked files outside of docs, equations as MathML, the names of the API."""

from __future__ import annotations

import html
import inspect
import posixpath
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

import idiolect

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
FONT = "STIXTwoMath-Regular.ttf"  # it has signs of all the sizes that equations need; ziamath brings it
LINK = re.compile(r"(?P<before>^(?P<indent> *)```.*?^(?P=indent)```|\]\()(?P<target>[^)\s#]*)", re.S | re.M)
RUN = re.compile(r"^( *```console) run$", re.M)
NAMED = re.compile(r"^( *```toml) file=(\S+)$", re.M)
ORDERED = re.compile(r"^\d+\. .*(?:\n(?: {3}.*)?)+", re.M)
ERRATUM = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`|\[[^\]]*\]\([^)]*\)|^#.*?$|\b(?P<number>E00\d-\d+)\b", re.S | re.M)
MATH = re.compile(r"<(?P<tag>span|div) class=\"arithmatex\">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>", re.S)
SPACES = {"<mi>;</mi>": "<mo>;</mo>", "<mi>log</mi>": '<mi>log</mi><mspace width="0.17em" />'}


def links(text: str) -> list[str]:
    """The relative links of a page, fences left out."""
    found = (match["target"] for match in LINK.finditer(text) if match["before"] == "](")
    return [target for target in found if target and "://" not in target]


def source_of(uri: str) -> str:
    """The file of the repository that a page of the site is made of."""
    if (ROOT / "docs" / uri).exists():
        return f"docs/{uri}"
    return uri if (ROOT / uri).exists() else uri.removesuffix(".md")


def page_of(source: str) -> str:
    """The page of the site that shows a file of the repository."""
    if source.startswith("docs/"):
        return source.removeprefix("docs/")
    return source if source.endswith(".md") else f"{source}.md"


def resolve(source: str, target: str) -> str:
    """The file of the repository that a link of another one leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def text_of(source: str) -> str:
    """A file outside of docs as a page."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        return text
    kind = "python" if source.endswith(".py") else "text"
    return f"---\nsearch: {{exclude: true}}\n---\n# `{source}`\n\n```{kind}\n{text}```\n"


def outside(sources: list[str]) -> dict[str, str]:
    """Files outside of docs that these pages lead to, and those that they lead to in turn, with their text."""
    found: dict[str, str] = {}
    waiting = [*sources, *FROM_THE_ROOT]
    while waiting:
        source = waiting.pop()
        if source in found or not (ROOT / source).is_file():  # a link to nothing is the strict build's to refuse
            continue
        text = text_of(source)
        if not source.startswith("docs/"):
            found[source] = text
        if source.endswith(".md"):
            goals = {resolve(source, target) for target in links(text)}
            waiting += [goal for goal in goals if not goal.startswith("docs/")]
    return found


def on_files(files: Any, config: Any) -> Any:
    """Add the font of equations, and a page for every file outside of docs that is linked to."""
    found = find_spec("ziamath")
    if found is None or found.origin is None:
        raise PluginError("the site needs the packages of idiolect[docs]: run `make docs`")
    files.append(File.generated(config, f"assets/{FONT}", abs_src_path=str(Path(found.origin).parent / "fonts" / FONT)))
    for source, text in outside([source_of(file.src_uri) for file in files.documentation_pages()]).items():
        files.append(File.generated(config, page_of(source), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to the pages of this site, and list the public names."""
    here = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        target = match["target"]
        if match["before"] != "](" or not target or "://" in target:
            return match[0]
        goal = page_of(resolve(source_of(here), target))
        return match["before"] + posixpath.relpath(goal, posixpath.dirname(here) or ".")

    markdown = with_errata(LINK.sub(moved, markdown), posixpath.relpath("errata.md", posixpath.dirname(here) or "."))
    markdown = dialect(markdown)
    return markdown.replace("<!-- api -->", api()) if here == "api.md" else markdown


def with_errata(markdown: str, page: str) -> str:
    """Lead the number of an erratum to its place on their page; not in code, links and headings."""

    def linked(match: re.Match[str]) -> str:
        number = match["number"]
        return f"[{number}]({page}#{number.lower()})" if number else match[0]

    return ERRATUM.sub(linked, markdown)


def dialect(markdown: str) -> str:
    """The site's reader knows neither the marks for tests/docs nor steps of a list that are indented by three."""
    markdown = NAMED.sub(r'\1 title="\2"', RUN.sub(r"\1", markdown))
    return ORDERED.sub(lambda step: step[0].replace("\n   ", "\n    "), markdown)


def api() -> str:
    """Every public name by kind: from its docstring, or, of a table of names, the names."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Tables of names": []}
    for name in idiolect.__all__:
        value = getattr(idiolect, name)
        kind = "Classes" if inspect.isclass(value) else "Functions" if callable(value) else "Tables of names"
        kinds[kind].append(f"### {name}\n\n{shown(value)}" if kind == "Tables of names" else documented(name, value))
    return "\n".join(f"## {kind}\n\n" + "\n".join(entries) for kind, entries in kinds.items() if entries)


def documented(name: str, value: Any) -> str:
    """A class or a function, read by mkdocstrings where it is defined; its heading is the public name."""
    return f"::: {value.__module__}.{value.__qualname__}\n    options: {{heading: {name}, toc_label: {name}}}\n"


def shown(value: Any) -> str:
    """A plain value: its names, or itself."""
    return ", ".join(f"`{name}`" for name in value) + "\n" if isinstance(value, Mapping) else f"`{value!r}`\n"


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Equations as MathML, which a browser draws by itself."""
    return MATH.sub(lambda found: mathml(found["latex"], found["tag"] == "div", page.file.src_uri), content)


def mathml(latex: str, block: bool, where: str) -> str:
    """One equation; a command that has no counterpart ends the build."""
    latex = " ".join(html.unescape(latex).split())
    written = convert(latex, display="block" if block else "inline")
    if "\\" in written:
        raise PluginError(f"{where}: no MathML for {latex}")
    for short, spaced in SPACES.items():
        written = written.replace(short, spaced)
    return f'<div class="equation" data-search-exclude>{written}</div>' if block else written
