# pyright: basic
"""lower-to-kernels: each fusion becomes kernels and the steps that launch them.

Precondition: fusions at the linalg stage with `dnn.engine` and `dnn.tile`.  Postcondition: a
`gpu.module` of `llvm.func` kernels for the target, and a `dnn.program` that holds the steps in
order; the fusions' functions are gone, the graph's function stays.  Equal fusions share kernels.

    func.func private @g_fusion0(...) { linalg.generic ... }
->  gpu.module @kernels [#nvvm.target<chip = "sm_90a">] { llvm.func @g_fusion0(...) { ... } }
    "dnn.program"() {fusions = [...], steps = [{launch = {kernel = "g_fusion0", ...}}], ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..codegen.output import Output
from ..codegen.region import Region
from ..dialect import structure
from ..engines import engine_named
from ..errors import DnncError, Status
from ..expr import Expr
from ..mlir import gpu, ir
from ..plan import codec
from ..plan.plan import FusionRecord
from ..target import Target
from .equal_fusions import KernelsOfEqual
from .fuse import target_of
from .pass_base import Pass


def _attribute(function: Any, key: str) -> Any:
    if key not in function.attributes:
        raise KeyError(key)
    return function.attributes[key]


@dataclass(frozen=True)
class LowerToKernels(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "lower-to-kernels"

    def run(self, module: Any) -> None:
        target = target_of(module)
        gpu_module = _new_gpu_module(module, target)
        steps: list[Any] = []
        buffers: dict[str, Expr] = {}
        records: list[FusionRecord] = []
        equal = KernelsOfEqual()
        suffix = structure.variant_suffix(module)
        functions = list(structure.fusion_functions(module))
        if not functions:
            raise DnncError(
                Status.BAD_PARAM,
                "the module has no fusions to lower",
                "fuse, select-engine, lower-to-linalg and tile first",
            )
        for index, function in enumerate(functions):
            engine_name, knobs = structure.engine_of(function)
            engine = engine_named(engine_name)
            output = Output(gpu_module, target, f"fusion{index}_{engine_name}{suffix}")
            tile = structure.tile_of(function)
            emit = partial(engine.emit, Region.of(function), knobs, tile, output)
            output = equal.output(function, output, emit)
            steps += output.steps
            buffers |= output.buffers
            labels, notes = (
                tuple(structure.from_attribute(_attribute(function, key)))
                for key in ("dnn.ops", "dnn.notes")
            )
            records.append(
                FusionRecord(
                    labels, engine_name, engine.index, knobs, notes,
                    places=tuple(_attribute(function, structure.PLACES)), steps=len(output.steps),
                )
            )  # fmt: skip
        for op in list(module.body.operations):
            attributes = op.operation.attributes
            if "dnn.fusion" in attributes or "dnn.anchor" in attributes:
                op.operation.erase()
        structure.write_program(
            module,
            {
                "steps": codec.encode(steps),
                "buffers": [{"name": n, "bytes": str(b)} for n, b in buffers.items()],
                "fusions": codec.encode(records),
            },
        )


def _new_gpu_module(module: Any, target: Target) -> Any:
    module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    with ir.InsertionPoint(module.body):
        made = gpu.GPUModuleOp("kernels")
    features = f', features = "+ptx{target.ptx_version}"'
    made.operation.attributes["targets"] = ir.Attribute.parse(
        f'[#nvvm.target<O = 3, chip = "{target.chip}"{features}>]'
    )
    if not made.operation.regions[0].blocks:
        made.operation.regions[0].blocks.append()
    return made.operation
