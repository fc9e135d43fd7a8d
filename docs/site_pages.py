"""Pages of the site that stand outside docs/, and links that leave it.

The README is the first page.  A link to a file of the repository that is no page keeps its text:
the site does not know where the repository is, unless `repo_url` says so.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import dnnc
from dnnc.frontends import enums
from dnnc.frontends.operations import Operations

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
REFERENCE = "reference.md"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"(!\[[^\]]*\])\(docs/([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the repository's root."""
    for source, page in PAGES.items():
        text = _PICTURE.sub(r"\1(\2)", (ROOT / source).read_text())
        files.append(File.generated(config, page, content=_with_links(text, "", config)))
    files.append(File.generated(config, REFERENCE, content=_reference()))
    return files


def _reference() -> str:
    """The page of the names that `import dnnc` has, each where it is defined."""
    lines = [
        "# Reference",
        "",
        "The names of `import dnnc`; an editor shows the same docstrings.",
        "",
    ]
    for name, module in sorted(dnnc._LAZY.items()):
        defined = dnnc._RENAMED.get(name, name)
        # A tool that reads source wants the module of the definition, not one that passes it on.
        found = getattr(getattr(dnnc, name), "__module__", module)
        lines += [f"## dnnc.{name}", "", f"::: {found}.{defined}", ""]
    lines += ["## Operations of a pygraph", "", *_operations()]
    return "\n".join(lines)


def _operations() -> Iterator[str]:
    """The methods that a pygraph has for operations: no source has them, so they are asked."""
    for name, method in sorted(vars(Operations).items()):
        if inspect.isfunction(method):
            signature = inspect.signature(method)
            listed = [_parameter(p) for p in signature.parameters.values() if p.name != "self"]
            result = f") -> {signature.return_annotation}"
            yield from (f"### {name}", "", "```python", f"{name}(", *listed, result, "```")
            yield from ("```text", inspect.cleandoc(method.__doc__ or ""), "```", "")


def _parameter(parameter: inspect.Parameter) -> str:
    default = parameter.default
    value = enums.text_of(default) if isinstance(default, Enum) else default
    given = "" if default is parameter.empty else f" = {value!r}"
    return f"    {parameter.name}: {parameter.annotation}{given},"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Gives the page's links a target on the site."""
    if page.file.src_uri in (*PAGES.values(), REFERENCE):
        return markdown
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return _with_links(markdown, folder, config, page.file.src_uri)


def _with_links(text: str, folder: str, config: Any, page: str = "index.md") -> str:
    """folder: of the file in the repository."""

    def changed(link: re.Match[str]) -> str:
        words, target = link.groups()
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        path, mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        within = PAGES.get(path) or (path.removeprefix("docs/") if _is_page(path) else "")
        if within:
            start = posixpath.dirname(page) or "."
            return f"[{words}]({posixpath.relpath(within, start)}{mark}{anchor})"
        if config.repo_url:
            return f"[{words}]({config.repo_url.rstrip('/')}/blob/main/{path}{mark}{anchor})"
        return words

    return _LINK.sub(changed, text)


def _is_page(path: str) -> bool:
    return path.startswith("docs/") and path.endswith((".md", ".svg", ".png"))
