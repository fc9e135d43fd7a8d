# pyright: basic
"""Prints what the text of a stage, or a cubin, holds."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from ..dialect.graph import OperationGraph
from ..errors import DnncError, Status
from ..expr import bounds_of, range_text
from ..frontends.device_properties import target_rows
from . import console
from .files import Source


def show_source(source: Source) -> None:
    """The stage, the graph, and what the stage has made of it."""
    names = [row.name for row in target_rows(source.target)] if source.target else []
    named = f" for {', '.join(names)}" if names else ""
    console.heading(f"graph '{source.graph.name}' at stage {source.stage}{named}")
    for dim in source.graph.symbols.values():
        console.field("size", f"{dim.name}: {range_text(dim)}")
    for bound in bounds_of(source.graph.symbols.values()):
        console.field("size", f"{bound}: at most {bound.max}")
    _show_tensors(source.graph)
    _show_ops(source.graph)
    if source.text:
        _show_functions(source)


def _show_tensors(graph: OperationGraph) -> None:
    console.heading("\ntensors")
    table = console.tensor_table()
    inputs, outputs = graph.inputs, graph.outputs
    for tensor in graph.tensors:
        role = "input" if tensor in inputs else "output" if tensor in outputs else "virtual"
        if tensor.prior_of is not None:
            role = f"uid {tensor.prior_of} before"
        table.add_row(
            str(tensor.uid),
            tensor.name,
            "constant" if tensor.is_constant else role,
            tensor.type.name,
            console.shape_text(tensor.shape),
            console.shape_text(tensor.layout),
            "by value" if tensor.is_by_value else f"{tensor.alignment} B",
            console.value_text(tensor.value),
        )
    console.show(table)


def _show_ops(graph: OperationGraph) -> None:
    console.heading("\noperations")
    table = console.table("operation", "operands", "results", "compute type")
    for op in graph.ops:
        compute = op.attributes().get("compute_type", "")
        table.add_row(
            op.label,
            ", ".join(t.name or f"uid {t.uid}" for t in op.operands),
            ", ".join(t.name or f"uid {t.uid}" for t in op.results),
            str(compute),
        )
    console.show(table)


def _show_functions(source: Source) -> None:
    from ..dialect import dnn

    with dnn.context():
        module = source.resumed().module
        rows = [row for op in module.body.operations for row in _rows_of(op.operation)]
    if source.stage == "ptx":
        rows += [("kernel", name, "") for name in _entries(source.text)]
    console.heading("\nin the module")
    table = console.table("what", "name", "holds")
    for row in rows:
        table.add_row(*row)
    console.show(table)


def _rows_of(operation: Any) -> Iterator[tuple[str, str, str]]:
    """(what, name, holds) of an operation of the module."""
    from ..dialect import structure

    attributes = operation.attributes
    if operation.name == "gpu.module":
        for op in operation.regions[0].blocks[0].operations:
            if "nvvm.kernel" in op.operation.attributes:
                holds = f"{_count(op.operation)}, of {_symbol(operation)}"
                yield "kernel", _symbol(op.operation), holds
        return
    if operation.name == "dnn.program":
        steps = structure.from_attribute(attributes["steps"])
        launched = [step["launch"]["kernel"] for step in steps if "launch" in step]
        yield "program", "", f"{len(steps)} step{'s' * (len(steps) != 1)}: {', '.join(launched)}"
        return
    if "dnn.fusion" in attributes:
        chosen = ""
        if "dnn.engine" in attributes:
            engine, knobs = structure.engine_of(operation.opview)
            chosen = f", engine {engine} {console.knobs_text(knobs)}"
        yield "fusion", _symbol(operation), _count(operation) + chosen
    elif "dnn.anchor" in attributes:
        yield "anchor", _symbol(operation), _count(operation)
    elif "dnn.graph" in attributes:
        yield "graph", _symbol(operation), _count(operation)


def _symbol(operation: Any) -> str:
    return str(operation.attributes["sym_name"]).strip('"')


def _count(operation: Any) -> str:
    count = sum(len(list(block.operations)) for block in operation.regions[0].blocks)
    return f"{count} operations"


def _entries(ptx: str) -> list[str]:
    return re.findall(r"^\.visible \.entry (\w+)", ptx, re.MULTILINE)


# ---- cubins


def show_cubin(file: str, code: bytes) -> None:
    """The kernels of a cubin."""
    kernels = kernels_of(code, file)
    console.heading(f"{file}: stage cubin, {len(code):,} bytes")
    for name in kernels:
        console.field("kernel", name)


def kernels_of(code: bytes, where: str) -> list[str]:
    """The kernels of a cubin, an ELF file (64-bit, little endian): a section .text.NAME each."""
    try:
        if code[:6] != b"\x7fELF\x02\x01":
            raise ValueError
        (table,) = struct.unpack_from("<Q", code, 0x28)
        size, count, names = struct.unpack_from("<HHH", code, 0x3A)
        heads = [struct.unpack_from("<IIQQQQ", code, table + i * size) for i in range(count)]
        texts = code[heads[names][4] : heads[names][4] + heads[names][5]]
        found = [texts[head[0] :].split(b"\0")[0].decode() for head in heads]
    except (ValueError, IndexError, struct.error) as error:
        raise DnncError(
            Status.BAD_PARAM, "not a cubin, or a truncated one", "a file of --emit cubin", where
        ) from error
    return [name.removeprefix(".text.") for name in found if name.startswith(".text.")]
