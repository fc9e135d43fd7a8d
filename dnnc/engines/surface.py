"""Clauses of support surfaces, and arithmetic of predictions, that engines share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .. import dtypes
from ..codegen.kernel import MOST_COUNT, bits_of_count
from ..dialect.fusion import Fusion, remembered
from ..dialect.op import Op
from ..dialect.ops import Reshape
from ..dialect.tensor import Tensor
from ..dtypes import DType
from ..errors import Status
from ..expr import Expr, product, typical
from ..target import TARGETS, Target
from .engine import Prediction, Reason

# Time from a launch to the next one that depends on it, and the share of the bandwidth that
# streaming kernels reach.
LAUNCH_SECONDS = 2.0e-6
MEMSET_SECONDS = 1.5e-6
BANDWIDTH_SHARE = 0.92

# Type of a product's operands -> its rate among those of a target (`mma_tflops`).
RATE_OF: Mapping[DType, str] = {
    dtypes.f16: "f16", dtypes.bf16: "bf16", dtypes.f32: "f32", dtypes.i8: "i8",
    dtypes.f8e4m3: "i8", dtypes.f8e5m2: "i8",
}  # fmt: skip


def fp8_reasons(fusion: Fusion, target: Target) -> list[Reason]:
    """fp8 needs an architecture that converts it."""
    uses = [t for t in fusion.tensors if t.type.is_float and t.type.bits == 8]
    if not uses or target.has_fp8_convert:
        return []
    fitting = ", ".join(row.name for row in TARGETS if row.has_fp8_convert)
    return [
        Reason(Status.NOT_SUPPORTED_ARCH_MISMATCH, "fp8", f"{uses[0].label} on {target}", fitting)
    ]


@remembered
def too_large_reasons(fusion: Fusion) -> list[Reason]:
    """Offsets are counted in 64 bits, but coordinates, and bits of booleans, in 31."""
    reasons = [
        reason for op in fusion.ops if isinstance(op, Reshape) for reason in _run_reasons(op)
    ]
    for tensor in fusion.tensors:
        count = tensor.elements()
        elements = count.bounds()[1]
        limit = 1 << 31 if tensor.type.kind == "b" else 1 << 34
        if elements >= limit:
            reasons.append(
                Reason(
                    Status.NOT_SUPPORTED_SHAPE,
                    "size",
                    f"{tensor.label} may have {elements} elements",
                    fewer_than(limit, count),
                )
            )
    return reasons


def _run_reasons(op: Reshape) -> list[Reason]:
    """Coordinates before a reshape are made of the place among the axes that become others."""
    for _, axes in op.runs():
        run = product(op.y.shape[axis] for axis in axes)
        if len(axes) > 1 and (most := run.bounds()[1]) > 1 << 31:
            what = f"{op.label} of axes that have up to {most} elements together"
            supported = fewer_than((1 << 31) + 1, run)
            return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", what, supported)]
    return []


def count_reasons(count: Expr, what: str) -> list[Reason]:
    """Why more is counted than kernels count in 31 bits; what: is counted."""
    if bits_of_count(count) == 32:
        return []
    found = f"up to {count.bounds()[1]} {what}"
    supported = fewer_than(MOST_COUNT + 1, count)
    return [Reason(Status.NOT_SUPPORTED_SHAPE, "size", found, supported)]


def fewer_than(limit: int, count: Expr) -> str:
    """The accepted range for a count that is too large, by the sizes that it may have."""
    dims = sorted(f"{dim.name} (now {dim.max})" for dim in count.dims())
    said = f"fewer than {limit}" + (f": a smaller max of {', '.join(dims)}" if dims else "")
    return f"{said}, or a bound of their product" if len(dims) > 1 else said


def listed(ops: Sequence[Op], none: str) -> str:
    """The labels of operations, alike ones counted: matmul 'qk', 4 x matmul; `none` without any."""
    counts = Counter(op.label for op in ops)
    return ", ".join(f"{n} x {label}" if n > 1 else label for label, n in counts.items()) or none


def pattern_reason(what: str, supported: str, about: Op | None = None) -> Reason:
    """The fusion's operations are not of the engine's pattern; about: the one that is not."""
    return Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, "operations", what, supported, about)


def target_reasons(only: str, target: Target) -> list[Reason]:
    """Why an engine that is only for one target is not for this one."""
    if target.name == only:
        return []
    return [Reason(Status.NOT_SUPPORTED_ARCH_MISMATCH, "architecture", str(target), only)]


def boolean_reason(output: Tensor) -> Reason:
    """An output whose bytes hold eight elements each, which would have several writers."""
    return Reason(
        Status.NOT_SUPPORTED_DATA_TYPE,
        "boolean output",
        f"{output.label} is boolean",
        "outputs of other types",
    )


def smem_reasons(needed: int, target: Target, most: int = 0) -> tuple[Reason, ...]:
    """A block may not ask for more shared memory than the target has; most: or than its kernels
    may have."""
    most = most or target.limits.smem_block_bytes
    if needed <= most:
        return ()
    return (
        Reason(
            Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT,
            "shared memory",
            f"{needed} bytes",
            f"at most {most} on {target}",
        ),
    )


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes that reading or writing each tensor once moves."""
    return sum(
        t.type.storage_bytes(math.prod(map(typical, t.shape))) for t in tensors if not t.is_by_value
    )


def memory_seconds(fusion: Fusion, target: Target, *, blocks: int) -> Prediction:
    """Each input read and each output written once, by so many blocks of 256 threads."""
    moved = bytes_of((*fusion.inputs, *fusion.outputs))
    # Fewer blocks than four an SM leave bandwidth unused.
    filled = min(1.0, blocks / (4 * target.sm_count))
    stream = moved / (target.dram_gbs * 1e9 * BANDWIDTH_SHARE * max(filled, 1e-3))
    bound = "memory" if stream > LAUNCH_SECONDS else "launch"
    return Prediction(LAUNCH_SECONDS + stream, bound)
