"""Every stage of a graph's compilation as text: files, and the lines that show it best."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dnnc import compiler
from dnnc import target as targets
from dnnc.dialect import dnn
from dnnc.frontends.pygraph import pygraph

_COLUMNS = 100

# Where a stage's own work shows: the excerpt starts at the first line that holds the text.
_TELLING = {
    "graph": "func.func @",
    "fused": "func.func private",
    "linalg": "linalg.generic",
    "kernel": "scf.for",
    "nvvm": "mma",
    "ptx": "mma",
}

WHAT = {
    "graph": "the operation graph in the dnn dialect; layouts are maps over its sizes",
    "fused": "partitioned into fusions, with roles; engine and knobs are attributes",
    "linalg": "the anchor's call, and the rest as linalg.generic of scalar arithmetic",
    "kernel": "loops, copies and tensor-core instructions in a gpu.module",
    "nvvm": "the same in LLVM's dialects",
    "ptx": "what LLVM's NVPTX back end made of it",
}


@dataclass(frozen=True)
class Stage:
    """The text form of a stage, and the file that it was written to."""

    name: str
    path: Path
    text: str

    def excerpt(self, lines: int) -> str:
        """Some lines from where the stage's work shows, each cut at 100 columns."""
        rows = self.text.splitlines()
        telling = _TELLING.get(self.name, "")
        start = next((i for i, row in enumerate(rows) if telling in row), 0)
        shown = [
            row if len(row) <= _COLUMNS else f"{row[: _COLUMNS - 1]}…"
            for row in (row.expandtabs(4) for row in rows[start : start + lines])
        ]
        return "\n".join(shown)


def write(graph: pygraph, target: str, folder: Path) -> list[Stage]:
    """Compiles a graph in this process and writes the text of each stage before cubin."""
    folder.mkdir(parents=True, exist_ok=True)
    graph.build_operation_graph()
    found: list[Stage] = []
    with dnn.context():
        work = compiler.start(graph.graph, targets.of(target))
        for number, name in enumerate(compiler.TEXT_STAGES, 1):
            compiler.advance(work, name)
            suffix = "ptx" if name == "ptx" else "mlir"
            path = folder / f"{number}-{name}.{suffix}"
            path.write_text(work.text())
            found.append(Stage(name, path, work.text()))
    return found
