"""Compilation targets: one row of hardware facts per architecture.

Sources: CUDA C++ programming guide 13.0, "Compute Capabilities" (shared memory, threads,
registers); PTX ISA 9.0, "Target ISA notes" (instruction sets, which targets are forward
compatible).  The rates and L2 are those of one usual part; no kernel's result
depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .errors import DnncError, Status

WARP_THREADS = 32
REGISTERS_PER_THREAD = 255
STATIC_SMEM_BYTES = 48 * 1024


@dataclass(frozen=True)
class Limits:
    """Limits of an SM.

    smem_block_bytes, smem_sm_bytes: shared memory that a block may ask for, and of an SM.
    """

    smem_block_bytes: int
    smem_sm_bytes: int
    threads_sm: int
    blocks_sm: int
    registers_sm: int = 65536


@dataclass(frozen=True)
class Target:
    """An architecture that cubins are made for.

    name: `sm_90` or, with the features of that architecture alone, `sm_90a`.
    capability: compute capability (major, minor).
    ptx_version: lowest PTX ISA version that has what engines use on the target, ten times.
    has_fp8_convert: `cvt` to and from e4m3 and e5m2.  has_bf16x2: bf16 arithmetic.
    part, sm_count, l2_mib, dram_gbs, mma_tflops (by operand type), f32_tflops: the usual part.
    """

    name: str
    capability: tuple[int, int]
    ptx_version: int
    limits: Limits
    has_fp8_convert: bool
    part: str
    sm_count: int
    l2_mib: int
    dram_gbs: float
    f32_tflops: float
    mma_tflops: Mapping[str, float]
    arch_specific: bool = False

    @property
    def chip(self) -> str:
        return self.name

    @property
    def is_forward_compatible(self) -> bool:
        """Whether PTX made for it may be compiled for a later architecture."""
        return not self.arch_specific

    @property
    def multiplies_fp8(self) -> bool:
        """Whether `mma.sync` of fp8 is one instruction, not made of f16's by the assembler."""
        return self.has_fp8_convert and self.capability[0] not in (9, 10)

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel may start before the one ahead of it ends, and wait for it."""
        return self.capability >= (9, 0)

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)


def _rates(f16: float, tf32: float, i8: float) -> dict[str, float]:
    return {"f16": f16, "bf16": f16, "f32": tf32, "i8": i8}


_SM80 = Target(
    "sm_80", (8, 0), 70, Limits(163 << 10, 164 << 10, 2048, 32), False,
    "A100", 108, 40, 1555.0, 19.5, _rates(312.0, 156.0, 624.0),
)  # fmt: skip
_SM86 = Target(
    "sm_86", (8, 6), 71, Limits(99 << 10, 100 << 10, 1536, 16), False,
    "RTX 3090", 82, 6, 936.0, 35.6, _rates(71.0, 35.6, 284.0),
)  # fmt: skip
_SM89 = Target(
    "sm_89", (8, 9), 81, Limits(99 << 10, 100 << 10, 1536, 24), True,
    "RTX 4090", 128, 72, 1008.0, 82.6, _rates(165.2, 82.6, 660.6),
)  # fmt: skip
_SM90 = Target(
    "sm_90", (9, 0), 81, Limits(227 << 10, 228 << 10, 2048, 32), True,
    "H100 SXM", 132, 50, 3350.0, 66.9, _rates(989.0, 494.0, 1979.0),
)  # fmt: skip
_SM100 = Target(
    "sm_100", (10, 0), 86, Limits(227 << 10, 228 << 10, 2048, 32), True,
    "B200", 148, 126, 8000.0, 80.0, _rates(2250.0, 1120.0, 4500.0),
)  # fmt: skip
_SM120 = Target(
    "sm_120", (12, 0), 87, Limits(99 << 10, 100 << 10, 1536, 24), True,
    "RTX 5090", 170, 96, 1792.0, 104.8, _rates(209.5, 104.8, 838.0),
)  # fmt: skip

TARGETS: tuple[Target, ...] = (
    _SM80,
    _SM86,
    _SM89,
    _SM90,
    replace(_SM90, name="sm_90a", arch_specific=True),
    _SM100,
    replace(_SM100, name="sm_100a", ptx_version=86, arch_specific=True),
    _SM120,
    replace(_SM120, name="sm_120a", ptx_version=87, arch_specific=True),
)

_BY_NAME = {row.name: row for row in TARGETS}

# Names of generations and parts -> the target that such a device is compiled for by default.
ALIASES: dict[str, str] = {
    **dict.fromkeys(("ampere", "a100", "a30"), "sm_80"),
    **dict.fromkeys(("a10", "a40", "rtx3090"), "sm_86"),
    **dict.fromkeys(("ada", "l4", "l40", "l40s", "rtx4090"), "sm_89"),
    **dict.fromkeys(("hopper", "h100", "h200", "gh200"), "sm_90a"),
    **dict.fromkeys(("blackwell", "b200", "gb200"), "sm_100"),
    **dict.fromkeys(("rtx5090", "rtxpro6000"), "sm_120"),
}

# One plan for any card: the oldest architecture, whose PTX newer ones take, and Hopper.
PORTABLE = "sm_80,sm_90a"
# Stands in for sm_80 there where a graph needs fp8 conversion.
OLDEST_WITH_FP8 = "sm_89"
# Where one target is wanted and none is named: texts of a stage, `dnnc engines`, the interpreter.
SINGLE = "sm_90a"

# Capability -> the row of the features that engines use on it alone.
_OWN_FEATURES = {(9, 0): _BY_NAME["sm_90a"]}


def of(name: str | Target) -> Target:
    """The row of `sm_90a`, or of an alias such as `h100`, in any case of letters.

    Any other name is NOT_SUPPORTED_ARCH_MISMATCH.
    """
    if isinstance(name, Target):
        return name
    plain = name.strip().lower()
    row = _BY_NAME.get(ALIASES.get(plain.replace(" ", "").replace("_", ""), plain))
    if row is None:
        accepted = f"{', '.join(_BY_NAME)}, or an alias: {', '.join(ALIASES)}"
        raise DnncError(Status.NOT_SUPPORTED_ARCH_MISMATCH, f"target {name!r}", accepted, "target")
    return row


def of_list(names: str) -> tuple[Target, ...]:
    """The rows of `sm_80,sm_90a`, in that order; a target named twice is BAD_PARAM.

    `portable` stands for `sm_80,sm_90a`.
    """
    if names.strip().lower() == "portable":
        names = PORTABLE
    rows = tuple(of(name) for name in names.split(","))
    if len(set(rows)) != len(rows):
        raise DnncError(
            Status.BAD_PARAM_DUPLICATED_ENTRIES, f"targets {names}", "each target once", "target"
        )
    return rows


def other_sm_count(rows: Sequence[Target]) -> int:
    """The SMs of a row of a device that is not the usual part; 0 if there is none."""
    return next((row.sm_count for row in rows if row.sm_count != of(row.name).sm_count), 0)


def with_sm_count(target: Target, sm_count: int) -> Target:
    """The row with so many SMs; 0: its own."""
    return replace(target, sm_count=sm_count) if sm_count else target


def rows_of(target: str | Target | Sequence[Target]) -> tuple[Target, ...]:
    """The rows of `sm_80,sm_90a`, of a row, or of several."""
    if isinstance(target, Target):
        return (target,)
    return of_list(target) if isinstance(target, str) else tuple(target)


def of_capability(major: int, minor: int) -> Target:
    """The row that a device of this compute capability is compiled for by default.

    A cubin runs on later minor versions of its major version, so 8.7 takes sm_86.  Hopper takes
    sm_90a, whose own features engine matmul_sm90 uses; code for other devices is asked for by name.
    """
    if (major, minor) in _OWN_FEATURES:
        return _OWN_FEATURES[major, minor]
    fitting = [
        row
        for row in TARGETS
        if row.capability[0] == major and row.capability[1] <= minor and not row.arch_specific
    ]
    if not fitting:
        raise DnncError(
            Status.NOT_SUPPORTED_ARCH_MISMATCH,
            f"a device of compute capability {major}.{minor}",
            ", ".join(sorted({f"{t.capability[0]}.x" for t in TARGETS})),
            "target",
        )
    return max(fitting, key=lambda row: row.capability)
