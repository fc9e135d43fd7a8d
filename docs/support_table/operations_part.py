"""The part about operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product

from dnnc import dtypes
from dnnc.dialect.op import Op
from dnnc.dialect.ops import OPS, Pointwise
from dnnc.dtypes import DType
from tests.dialect.examples import EXAMPLES

from .answers import engines_of_operation, is_taken, runs
from .graphs import Build, fusion_of, graphs_of_operation, valid_compute_types
from .linked_tests import TESTS, links
from .markdown import table, types_text

NO_ENGINE = "graph only: no engine"


def status_of(name: str) -> str:
    """How far an operation gets."""
    if not runs(name):
        return NO_ENGINE
    kinds = {test.kind for key in _test_keys(name) for test in TESTS[key]}
    ladder = {"run": "run", "interpreted": "interpreted", "assembled": "assembled only"}
    return next(status for kind, status in ladder.items() if kind in kinds)


def _test_keys(name: str) -> tuple[str, ...]:
    """The rows of TESTS that are about an operation."""
    own = f"operation {name}"
    if not runs(name):
        return own, "all operations"
    return own, "operations that an engine takes", "all operations"


def _io_types(name: str) -> tuple[DType, ...]:
    """The types that all tensors of an example may have at once.

    Where engines take the operation, they have to take that.
    """
    has_engine = is_taken(graphs_of_operation(name))

    def fits(io: DType) -> bool:
        made = (fusion_of(build, io) for build in EXAMPLES[name])
        return any(f is not None and (not has_engine or is_taken((f,))) for f in made)

    return tuple(filter(fits, dtypes.ALL))


def compute_types_of(builds: Iterable[Build]) -> tuple[DType, ...]:
    """The compute types that one of the graphs may have, on float or on integer tensors."""
    found: set[DType] = set()
    for build, io in product(builds, (dtypes.f32, dtypes.i32, dtypes.f8e4m3)):
        found.update(valid_compute_types(build, io, [c for c in dtypes.COMPUTE if c not in found]))
    return tuple(compute for compute in dtypes.COMPUTE if compute in found)


@cache
def compute_types_of_operation(kind: type[Op]) -> tuple[DType, ...]:
    if all(field.name != "compute_type" for field in kind.fields):
        return ()
    return compute_types_of(EXAMPLES[kind.op_name])


def _operation_row(kind: type[Op]) -> Sequence[object]:
    name = kind.op_name
    method = "[a method a mode](#pointwise-modes)" if kind is Pointwise else f"`{name}`"
    return (
        f"`{name}`",
        f"`CUDNN_BACKEND_{kind.backend}_DESCRIPTOR`" if kind.backend else "none",
        method,
        types_text(_io_types(name)),
        types_text(compute_types_of_operation(kind)),
        engines_of_operation(name),
        status_of(name),
        links(f"operation {name}"),
    )


_OPERATIONS = """\
## Operations

An engine takes an operation if it takes an example of it: alone, with the result summed along an
axis, or with the result as operand of a matrix product. Where none takes an example whole, it runs
as several kernels, whose engines are named. Data types are those that all tensors of
an example may have at once; most operations mix types too.

Every operation has more tests than its own:

- all operations: {all}
- operations that an engine takes: {taken}
"""


def operations_part() -> Iterator[str]:
    yield _OPERATIONS.format(
        all=links("all operations"), taken=links("operations that an engine takes")
    )
    yield table(
        ("operation", "cuDNN", "pygraph", "data types", "compute types", "engines", "status",
         "tests"),
        map(_operation_row, OPS),
    )  # fmt: skip
