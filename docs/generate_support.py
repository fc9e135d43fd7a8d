"""Writes docs/support.md: what dnnc supports, asked of the engines and the operations.

    python docs/generate_support.py            rewrites it
    python docs/generate_support.py --check    exits 1 if it is not current

A cell is what `supports` and `candidates` of the engines, or `verify` of an operation, say of
small graphs.  Typed is only which tests belong to which row: `support_table/linked_tests.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

# The parts of the table, this checkout's dnnc, and its tests, whose example graphs are used.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from support_table.engines_part import engines_part
from support_table.linked_tests import HOPPER, RUN_TARGET
from support_table.modes_part import modes_part
from support_table.operations_part import NO_ENGINE, operations_part
from support_table.types_part import types_part

TABLE = Path(__file__).resolve().parent / "support.md"

_HEAD = f"""\
# What dnnc supports

`python docs/generate_support.py` writes this file: it asks the engines and the operations of the
code about small graphs. For any other graph, `dnnc engines GRAPH` says which engines take it, and
which clause of the others refuses it.

- **run**: tests run the kernels on a device of the architecture, which so far is Hopper: code of
  `{RUN_TARGET}`, and of `{HOPPER}` for engines that need it.
- **interpreted**: tests run the final PTX in the interpreter, on a machine without a GPU.
- **assembled**: tests assemble the final PTX for the architecture, and look at registers, shared
  memory and spills.
- **untested**: the engine takes graphs for the architecture, and no test looks at the code.
- **refused**: the engine takes no graph for the architecture.
- **{NO_ENGINE}**: the graph can be built, verified, stored, and run by the NumPy
  reference; every engine refuses it, and says which clause does.
- Tests called **graph** need no engine; tests called **refused** are of what is turned down.
"""


def text() -> str:
    """The whole file."""
    parts = (engines_part(), operations_part(), modes_part(), types_part())
    return "\n".join([_HEAD, *(piece for part in parts for piece in part)])


def main(arguments: Sequence[str], path: Path = TABLE) -> int:
    """Writes the file, or with --check says whether it is current; gives the exit status."""
    made = text()
    if "--check" not in arguments:
        path.write_text(made)
        return 0
    if path.exists() and path.read_text() == made:
        return 0
    print(f"{path.name} is not current; run python docs/generate_support.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
