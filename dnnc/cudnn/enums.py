"""The enumerations of cudnn-frontend 1.32, with its members and values."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar, cast

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, DnncTypeError, Status
from ..frontends import enums as own


class data_type(Enum):
    """Data types; torch, NumPy and dnnc's own types and names are taken in their place."""

    NOT_SET = 0
    FLOAT = 1
    DOUBLE = 2
    HALF = 3
    INT8 = 4
    INT32 = 5
    INT8x4 = 6
    UINT8 = 7
    UINT8x4 = 8
    INT8x32 = 9
    BFLOAT16 = 10
    INT64 = 11
    BOOLEAN = 12
    FP8_E4M3 = 14
    FP8_E5M2 = 15
    FAST_FLOAT_FOR_FP8 = 16
    FP8_E8M0 = 17
    FP8_E5M3 = 18
    FP4_E2M1 = 19
    INT4 = 20


class heur_mode(Enum):
    """How plans are ranked; OPENSOURCE ranks as A does."""

    A = 0
    B = 1
    FALLBACK = 2
    OPENSOURCE = 3


class build_plan_policy(Enum):
    """Which plans `build_plans` builds."""

    HEURISTICS_CHOICE = 0
    ALL = 1


class norm_forward_phase(Enum):
    """Whether a norm keeps its statistics."""

    NOT_SET = 0
    INFERENCE = 1
    TRAINING = 2


class reduction_mode(Enum):
    """Modes of a reduction."""

    NOT_SET = 0
    ADD = 1
    MUL = 2
    MIN = 3
    MAX = 4
    AMAX = 5
    AVG = 6
    NORM1 = 7
    NORM2 = 8
    MUL_NO_ZEROS = 9


class convolution_mode(Enum):
    """Whether the filter is applied as it is."""

    CONVOLUTION = 1
    CROSS_CORRELATION = 2


class reshape_mode(Enum):
    """The order that a reshape keeps: places in memory, or indices."""

    VIEW_ONLY = 1
    LOGICAL = 2


class scalar_type(Enum):
    """Whether a scalar may be replaced at execution."""

    RUNTIME_PARAM = 0
    COMPILE_TIME_CONST = 1


class tensor_reordering(Enum):
    """How a tensor's elements are reordered in memory."""

    NONE = 0
    INT8x32 = 1
    F16x16 = 2
    F8_128x4 = 3


class diagonal_alignment(Enum):
    """Where the diagonal of attention begins, or ends."""

    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


class attention_implementation(Enum):
    """How cuDNN builds attention; dnnc has one way, which all of them name."""

    AUTO = 0
    COMPOSITE = 1
    UNIFIED = 2


class moe_grouped_matmul_mode(Enum):
    """How the rows of a grouped matmul are routed to experts."""

    NONE = 1
    GATHER = 2
    SCATTER = 3
    COMBINE = 4


class cuda_graph_retention(Enum):
    """Whether cuDNN keeps a CUDA graph for each graph; dnnc keeps none in either case."""

    PER_GRAPH = 0
    NONE = 1


class numerical_note(Enum):
    """Effects of a plan on numbers beyond plain arithmetic."""

    TENSOR_CORE = 1
    DOWN_CONVERT_INPUTS = 2
    REDUCED_PRECISION_REDUCTION = 3
    FFT = 4
    NONDETERMINISTIC = 5
    WINOGRAD = 6
    WINOGRAD_TILE_4x4 = 7
    WINOGRAD_TILE_6x6 = 8
    WINOGRAD_TILE_13x13 = 9
    STRICT_NAN_PROP = 10


class behavior_note(Enum):
    """How a plan behaves."""

    RUNTIME_COMPILATION = 1
    REQUIRES_FILTER_INT8x32_REORDER = 2
    REQUIRES_BIAS_INT8x32_REORDER = 3
    SUPPORTS_CUDA_GRAPH_NATIVE_API = 4
    CUBLASLT_DEPENDENCY = 5


class knob_type(Enum):
    """Knobs of engines.  TF32 is dnnc's own, SPLIT_H cuDNN's, which cudnn-frontend leaves out."""

    NOT_SET = 0
    SWIZZLE = 1
    TILE_SIZE = 2
    EDGE = 3
    MULTIPLY = 4
    SPLIT_K_BUF = 5
    TILEK = 6
    STAGES = 7
    REDUCTION_MODE = 8
    SPLIT_K_SLC = 9
    IDX_MODE = 10
    SPECFILT = 11
    KERNEL_CFG = 12
    WORKSPACE = 13
    TILE_CGA_M = 14
    TILE_CGA_N = 15
    BLOCK_SIZE = 16
    OCCUPANCY = 17
    ARRAY_SIZE_PER_THREAD = 18
    SPLIT_COLS = 19
    TILE_ROWS = 20
    TILE_COLS = 21
    LOAD_SIZE = 22
    CTA_COUNT = 23
    STREAM_K = 24
    SPLIT_P_SLC = 25
    TILE_M = 26
    TILE_N = 27
    WARP_SPEC_CFG = 28
    SWAP_AB = 29
    INPUT_TMA_ENABLE = 30
    OUTPUT_TMA_ENABLE = 31
    TILE_CGA = 32
    SCHED_POLICY = 1000
    PACK_GQA = 1001
    SPLIT_KV = 1002
    PIPELINE_ARCH = 1003
    MMA_TILE_M = 1004
    MMA_TILE_N = 1005
    MMA_TILE_K = 1006
    CTA_GROUP = 1007
    WARPS_M = 1008
    WARPS_N = 1009
    TF32 = 100000
    SPLIT_H = 100001


# Data types of cuDNN that no tensor of dnnc has, and why not.
ABSENT_TYPES = {
    data_type.INT8x4: "INT8 with set_vector_count_and_dimension(4, dimension)",
    data_type.UINT8x4: "UINT8 with set_vector_count_and_dimension(4, dimension)",
    data_type.INT8x32: "INT8 with set_vector_count_and_dimension(32, dimension)",
    data_type.FP8_E8M0: "none: block scales are of sm_100",
    data_type.FP8_E5M3: "none: block scales are of sm_100",
    data_type.FP4_E2M1: "none: FP4 is of sm_100",
    data_type.INT4: "INT8",
}

_OWN_OF = {row.cudnn: row for row in dtypes.COMPUTE}
_TYPE_OF = {row: data_type[name] for name, row in _OWN_OF.items()}


def type_of(value: Any) -> data_type | None:
    """The member that a type or its name means; None for NOT_SET and None."""
    if value is None or value is data_type.NOT_SET:
        return None
    if isinstance(value, data_type):
        return value
    if isinstance(value, str) and value in data_type.__members__:
        return type_of(data_type[value])
    if str(value) in ("torch.bool", "bool"):
        return data_type.BOOLEAN
    return _TYPE_OF[dtypes.of(value)]


def own_type(value: data_type | None, where: str = "data type") -> DType | None:
    """dnnc's row of a type; NOT_SUPPORTED_DATA_TYPE where there is none."""
    if value is None:
        return None
    row = _OWN_OF.get(value.name)
    if row is None:
        raise DnncError(
            Status.NOT_SUPPORTED_DATA_TYPE, f"data type {value.name}", ABSENT_TYPES[value], where
        )
    return row


def type_of_own(row: DType | None) -> data_type | None:
    """The member for a row of dnnc's types."""
    return None if row is None else _TYPE_OF[row]


Kind = TypeVar("Kind", bound=Enum)


def member_of(kind: type[Kind], value: object) -> Kind:
    """The member that a member or a name means, in any case of letters."""
    if isinstance(value, kind):
        return value
    text = own.text_of(value)
    for name, member in kind.__members__.items():
        if name.lower() == text.lower():
            return member
    accepted = ", ".join(kind.__members__)
    raise DnncTypeError(Status.BAD_PARAM, f"{value!r} is no {kind.__name__}", accepted)


def members_of(kind: type[Kind], values: object) -> list[Kind]:
    """The members that a list names; one alone is an error."""
    if isinstance(values, str | Enum) or not isinstance(values, Iterable):
        raise DnncTypeError(Status.BAD_PARAM, f"{values!r}", f"a list of {kind.__name__}")
    return [member_of(kind, value) for value in cast("Iterable[object]", values)]


def own_modes(values: object) -> list[str]:
    """dnnc's names of heuristic modes, each once."""
    members = members_of(heur_mode, values)
    names = [("A" if mode is heur_mode.OPENSOURCE else mode.name) for mode in members]
    return list(dict.fromkeys(names))
