# pyright: basic
"""lower-to-kernels: each fusion becomes kernels and the steps that launch them.

Precondition: fusions at the linalg stage with `dnn.engine` and `dnn.tile`.  Postcondition: a
`gpu.module` of `llvm.func` kernels for each fusion, and a `dnn.program` that holds the steps in
order; the fusions' functions are gone, the graph's function stays.  Equal fusions share a module.

    func.func private @g_fusion2(...) { linalg.generic ... }
->  gpu.module @fusion2 [#nvvm.target<chip = "sm_90a">] { llvm.func @fusion0_rows(...) { ... } }
    "dnn.program"() {fusions = [...], steps = [{launch = {kernel = "fusion2_rows", ...}}], ...}

In its module a kernel is called as if its fusion were the graph's only one: so the code of a fusion
is the same, and found in the cache, in whichever graph it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..codegen import nvptx
from ..codegen.output import Output
from ..codegen.region import Region
from ..dialect import structure
from ..engines import engine_named
from ..engines.plain_data import record_of
from ..errors import DnncError, Status
from ..expr import Expr
from ..mlir import gpu, ir, located
from ..plan import codec
from ..plan.plan import FusionRecord
from ..target import Target
from .equal_fusions import Made, key_of
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
    takes: ClassVar[str] = "linalg"
    makes: ClassVar[str] = "kernel"

    def run(self, module: Any) -> None:
        target = target_of(module)
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        steps: list[Any] = []
        buffers: dict[str, Expr] = {}
        records: list[FusionRecord] = []
        kernels: dict[str, Made] = {}
        suffix = structure.variant_suffix(module)
        functions = list(structure.fusion_functions(module))
        for index, function in enumerate(functions):
            with located(function.operation):
                engine_name, knobs = structure.engine_of(function)
            key, uids = key_of(function)
            if key not in kernels:
                output = _emitted(function, _new_gpu_module(module, target, index), target)
                kernels[key] = Made(len(kernels), index, uids, output)
            made = kernels[key]
            own = made.steps(index, uids, suffix)
            steps += own
            buffers |= made.buffers(index)
            labels, notes = (
                tuple(structure.from_attribute(_attribute(function, name)))
                for name in ("dnn.ops", "dnn.notes")
            )
            records.append(
                FusionRecord(
                    labels, engine_name, engine_named(engine_name).index, knobs, notes,
                    module=made.place, places=tuple(_attribute(function, structure.PLACES)),
                    steps=len(own),
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


def _emitted(function: Any, gpu_module: Any, target: Target) -> Output:
    with located(function.operation):
        engine_name, knobs = structure.engine_of(function)
        output = Output(gpu_module, target, f"{structure.ALONE}_{engine_name}")
        engine = engine_named(engine_name)
        region, tile = Region.of(function), record_of(engine.tiling, structure.tile_of(function))
        is_inlined = not (engine.inlines_anchors and structure.calls_anchors(function))
        if engine.completed(tile, region) is not tile or not is_inlined:
            what = f"@{function.name.value}, whose dnn.tile is not complete"
            raise DnncError(Status.BAD_PARAM, what, "tile first")
        engine.emit(region, knobs, tile, output)
        return output


def _new_gpu_module(module: Any, target: Target, index: int) -> Any:
    """The module for the kernels of a fusion, by the fusion's place."""
    with ir.InsertionPoint(module.body):
        made = gpu.GPUModuleOp(f"fusion{index}")
    nvptx.set_target(made.operation, target)
    if not made.operation.regions[0].blocks:
        made.operation.regions[0].blocks.append()
    return made.operation
