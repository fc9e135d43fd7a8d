"""The part about data types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from dnnc import dtypes
from dnnc.dialect.fusion import Fusion
from dnnc.dialect.ops import OPS
from dnnc.dtypes import DType
from dnnc.engines import ENGINES
from dnnc.engines.engine import Engine
from dnnc.target import TARGETS, Target
from tests.dialect.example_parts import finish, new_graph
from tests.dialect.examples import EXAMPLES

from .answers import engines_of, targets_of
from .graphs import fusion_of, fusions
from .linked_tests import links
from .markdown import table, types_text
from .operations_part import compute_types_of_operation


@cache
def casts(source: DType, result: DType) -> tuple[Fusion, ...]:
    """From a type to a type: a cast, a transposed one, a sum, a cast before a product, averages."""

    def cast() -> Any:
        g = new_graph()
        y = g.identity(g.tensor([8, 8], data_type=source))
        return finish(g, y.set_data_type(result))

    def transposed() -> Any:
        g = new_graph()
        y = g.identity(g.tensor([8, 8], [1, 8], data_type=source)).set_stride([8, 1])
        return finish(g, y.set_data_type(result))

    def total() -> Any:
        g = new_graph()
        y = g.reduction(g.tensor([8, 8], data_type=source), "add").set_dim([8, 1])
        return finish(g, y.set_data_type(result))

    def product() -> Any:
        g = new_graph()
        a = g.identity(g.tensor([8, 8], data_type=source))
        return finish(g, g.matmul(a, g.tensor([8, 8])).set_data_type(result))

    def pooled() -> Any:
        g = new_graph()
        x = g.tensor([1, 8, 8], data_type=source)
        y, _ = g.resample(x, "AVGPOOL_INCLUDE_PADDING", [0], [0], [2], [2])
        return finish(g, y.set_data_type(result))

    return fusions((cast, transposed, total, product, pooled))


@cache
def convolutions(io: DType, op: str = "conv_fprop") -> tuple[Fusion, ...]:
    """The example convolutions, or gradients, of a type; of an integer one with integer sums."""
    compute = dtypes.i32 if io.is_integer else dtypes.f32
    made = (fusion_of(build, io, compute) for build in EXAMPLES[op])
    return tuple(fusion for fusion in made if fusion is not None)


@cache
def products(operand: DType, computes: tuple[DType, ...] = dtypes.COMPUTE) -> tuple[Fusion, ...]:
    """A matrix product of two operands of a type, for each compute type that it may have."""

    def product() -> Any:
        g = new_graph()
        a, b = (g.tensor([8, 8], data_type=operand) for _ in range(2))
        return finish(g, g.matmul(a, b))

    made = (fusion_of(product, compute=compute) for compute in computes)
    return tuple(fusion for fusion in made if fusion is not None)


def _names(engines: Sequence[Engine]) -> str:
    return "all" if engines == ENGINES else ", ".join(engine.name for engine in engines)


def _operand_text(dtype: DType) -> str:
    """The engines that multiply two matrices of a type, with their compute types."""
    cells: list[str] = []
    for engine in ENGINES:
        types = [c for c in dtypes.COMPUTE if targets_of(engine, products(dtype, (c,)))]
        if types:
            cells.append(f"{engine.name} in {types_text(types)}")
    return "; ".join(cells)


def type_targets(dtype: DType) -> tuple[Target, ...]:
    """The targets for which an engine takes the type."""
    found = (*casts(dtype, dtypes.f32), *casts(dtypes.f32, dtype), *products(dtype))
    fitting = {target for engine in ENGINES for target in targets_of(engine, found)}
    return tuple(target for target in TARGETS if target in fitting)


def _type_row(dtype: DType) -> Sequence[object]:
    targets = type_targets(dtype)
    computing = [op.op_name for op in OPS if dtype in compute_types_of_operation(op)]
    return (
        f"`{dtype.name}`",
        f"`CUDNN_DATA_{dtype.cudnn}`",
        "a bit, eight a byte" if dtype.bits == 1 else f"{dtype.bits} bits",
        ", ".join(computing) or "none",
        _names(engines_of(casts(dtype, dtypes.f32))),
        _names(engines_of(casts(dtypes.f32, dtype))),
        _operand_text(dtype),
        "all" if targets == TARGETS else ", ".join(map(str, targets)),
    )


_DATA_TYPES = """\
## Data types

Storage: of an element. Compute: the operations that may have it as compute type. Input and output:
the engines that read a tensor of the type, and that write one. Matmul operands: the engines that
multiply two matrices of the type with no cast before, and the compute types in which they do.

{compute_only}

Tests: {tests}
"""


def _compute_only() -> str:
    """Which types no tensor may have, and the operations that compute in them."""
    rows = (row for row in dtypes.COMPUTE if not row.has_storage)
    return "\n".join(
        f"`{row.name}` (`CUDNN_DATA_{row.cudnn}`) is a compute type only, of"
        f" {', '.join(op.op_name for op in OPS if row in compute_types_of_operation(op))}."
        for row in rows
    )


def types_part() -> Iterator[str]:
    yield _DATA_TYPES.format(compute_only=_compute_only(), tests=links("data types"))
    yield table(
        ("type", "cuDNN", "storage", "compute", "input", "output", "matmul operands",
         "architectures"),
        map(_type_row, dtypes.ALL),
    )  # fmt: skip
