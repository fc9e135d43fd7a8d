"""The example of docs/c.md: its files, as the page has them."""

import re
import runpy
from pathlib import Path

from dnnc.compiler import compile_graph
from dnnc.emit import write_c
from dnnc.options import DEFAULTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "c.md"


def blocks(kind):
    """The page's blocks of a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def write_files(folder):
    """ffn.py, main.c, ffn.h, ffn.c; the last for the targets that the page names."""
    (graph,), (program,) = blocks("python"), blocks("c")
    (folder / "ffn.py").write_text(graph)
    (folder / "main.c").write_text(program)
    build = runpy.run_path(str(folder / "ffn.py"))["build"]
    plan = compile_graph(build().graph.finalize(), "sm_80,sm_90a", DEFAULTS)
    write_c(folder / "ffn.c", plan)
    return plan
