# pyright: basic
"""lower-to-linalg: the operations of each fusion become linalg over scalar arith and math.

Precondition: fusions as `prepare-fusions` leaves them.  Postcondition: each fusion's function
holds `linalg.generic` operations (attribute `dnn.role`) and calls of anchors.  An anchor is a
private function that holds its own decomposition, which an engine may inline or replace; its
attributes are those of the operation (`dnn.compute_type`).  `dnn.parts` has the names by which an
engine knows operations of a pattern.  A function's arguments are the inputs of the fusion in the
order in which its operations use them, by which `dnn.tile` numbers them.

    "dnn.pointwise"(%c, %b) {mode = "add", role = "g2"}
->  linalg.generic {indexing_maps = [(d0, d1, d2) -> (d0, d1, d2), ... -> (0, 0, d2), ...]}
        ins(%c, %b) outs(%empty) attrs = {dnn.role = "g2"} { arith.addf ... }

The bodies convert operands to the compute type and the result to its data type, so that virtual
tensors are rounded.  Reductions become a map (where the mode has one), a combination that is
associative and a finish.  Tensors keep their layouts; ui8 becomes signless i8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import dtypes
from ..codegen.walk.region_walk import is_reduction
from ..dialect import dnn, structure
from ..dialect.attributes import UNSIGNED, dict_of
from ..dialect.op import Op
from ..dialect.ops import (
    BlockMaskLoad,
    Concatenate,
    ConvDgrad,
    ConvFprop,
    ConvWgrad,
    Matmul,
    MoeGroupedMatmul,
    PagedCacheLoad,
    PeerReduction,
    Pointwise,
    RaggedLoad,
    RaggedStore,
    Reduction,
    Resample,
    ResampleBackward,
    Reshape,
    Rng,
    Slice,
    Transpose,
)
from ..dialect.tensor import Tensor
from ..errors import DnncError, Status
from ..mlir import func, ir, located
from .linalg_block_mask import block_mask_load
from .linalg_conv import convolution
from .linalg_grouped import moe_grouped_matmul
from .linalg_lowering import Lowering
from .linalg_matmul import matmul
from .linalg_paged import paged_cache_load
from .linalg_peers import peer_reduction
from .linalg_pointwise import pointwise
from .linalg_ragged import ragged_load, ragged_store
from .linalg_reduction import reduction
from .linalg_resample import resample, resample_backward
from .linalg_rng import rng
from .linalg_views import concatenate, view
from .pass_base import Pass
from .prepare_fusions import read_prepared

_RULES: dict[type[Op], Callable[[Lowering, Any], None]] = {
    Pointwise: pointwise,
    Reduction: reduction,
    Transpose: view,
    Slice: view,
    Reshape: view,
    Concatenate: concatenate,
    PagedCacheLoad: paged_cache_load,
    BlockMaskLoad: block_mask_load,
    RaggedLoad: ragged_load,
    RaggedStore: ragged_store,
    Matmul: matmul,
    MoeGroupedMatmul: moe_grouped_matmul,
    ConvFprop: convolution,
    ConvDgrad: convolution,
    ConvWgrad: convolution,
    Resample: resample,
    ResampleBackward: resample_backward,
    Rng: rng,
    PeerReduction: peer_reduction,
}


@dataclass(frozen=True)
class LowerToLinalg(Pass):
    """The pass; see the file's docstring."""

    name: ClassVar[str] = "lower-to-linalg"
    takes: ClassVar[str] = "fused"
    makes: ClassVar[str] = "linalg"

    def run(self, module: Any) -> None:
        for function in list(structure.fusion_functions(module)):
            with located(function.operation):
                _lower_fusion(module, function)


def _lower_fusion(module: Any, old: Any) -> None:
    fusion, marks = read_prepared(old)
    symbols = {dim.name: dim for dim in dnn.read_symbols(old)}
    name = old.name.value
    kept = structure.kept_attributes(old)
    kept.pop(structure.PREPARED, None)
    ends: dict[int | None, Tensor] = {t.uid: t for t in fusion.outputs}
    results = [ends[t.uid] for t in structure.read_results(old)]
    location = old.operation.location
    old.operation.erase()
    with ir.InsertionPoint(module.body), location:
        function = dnn.begin_function(name, fusion.inputs, results, symbols)
        for key, value in kept.items():
            function.attributes[key] = value
    low = Lowering(module, fusion, marks, name, list(symbols))
    _make_signless(function, low, fusion.inputs, results)
    low.values |= zip(fusion.inputs, function.arguments, strict=True)
    with ir.InsertionPoint(function.entry_block):
        for op in fusion.ops:
            rule = _RULES.get(type(op))
            if rule is None:
                raise DnncError(
                    Status.NOT_SUPPORTED_GRAPH_PATTERN,
                    "no lowering to linalg",
                    ", ".join(kind.op_name for kind in _RULES),
                    op.label,
                )
            low.role, low.is_fixed = fusion.roles[op], op in marks.fixed
            with dnn.location_of(op):
                rule(low, op)
        for name, ops in marks.parts.items():
            for op in ops:
                _mark(low, op, name)
        func.ReturnOp([low.values[output] for output in fusion.outputs])


def _mark(low: Lowering, op: Op, name: str) -> None:
    """Writes that what an operation became is a part of this name."""
    made = low.values[op.results[0]].owner
    while not _is_work_of(low, op, made):  # it converts what that gives
        made = made.operands[0].owner
    known = ir.ArrayAttr(made.attributes["dnn.parts"]) if "dnn.parts" in made.attributes else []
    made.attributes["dnn.parts"] = ir.ArrayAttr.get([*known, ir.StringAttr.get(name)])


def _is_work_of(low: Lowering, op: Op, made: Any) -> bool:
    """Whether an operation at the linalg stage does the work of one of the fusion."""
    if op.role == "anchor":
        return made.name == "func.call"
    reduces = isinstance(op, Reduction) and (op.axes or op in low.marks.row_reductions)
    return is_reduction(made) if reduces else True


def _make_signless(
    function: Any, low: Lowering, inputs: Sequence[Tensor], results: Sequence[Tensor]
) -> None:
    """The function's types with signless elements; `dnn.unsigned` marks the numbers of ui8, which
    the host rounds to their data type."""
    types = [[low.type_of(t) for t in tensors] for tensors in (inputs, results)]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
    for argument, type_ in zip(function.arguments, types[0], strict=True):
        argument.set_type(type_)
    if not any(_is_unsigned_number(t) for t in inputs):
        return
    records = [dict_of(entry) for entry in function.attributes["arg_attrs"]]
    for tensor, record in zip(inputs, records, strict=True):
        if _is_unsigned_number(tensor):
            record[UNSIGNED] = ir.UnitAttr.get()
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(r) for r in records])


def _is_unsigned_number(tensor: Tensor) -> bool:
    return tensor.is_by_value and tensor.type == dtypes.ui8
