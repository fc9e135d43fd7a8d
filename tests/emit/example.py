"""The example of docs/c.md: its files, as the page has them."""

import functools
import re
from pathlib import Path

import dnnc
from dnnc.emit import write_c

PAGE = Path(__file__).parent.parent.parent / "docs" / "c.md"


def blocks(kind):
    """The page's blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@functools.cache
def plan_of(graph):
    """The plan of a graph file's text, for the targets that the page names."""
    names = {}
    exec(compile(graph, PAGE.name, "exec"), names)
    return dnnc.compile(names["build"](), "sm_80,sm_90a")


def write_files(folder):
    """ffn.py, main.c, ffn.h, ffn.c."""
    (graph,), (program,) = blocks("python"), blocks("c")
    (folder / "ffn.py").write_text(graph)
    (folder / "main.c").write_text(program)
    plan = plan_of(graph)
    write_c(folder / "ffn.c", plan)
    return plan
