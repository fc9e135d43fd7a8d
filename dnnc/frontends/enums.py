"""The enumerations of cudnn-frontend's Python module, under their names there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from .. import dtypes, given
from ..errors import DnncError, Status
from ..knobs import KNOBS


class data_type:
    """cuDNN's data types; a name of ours or a torch or NumPy dtype is accepted in their place.

    FAST_FLOAT_FOR_FP8 is a compute type of matmuls and convolutions only.
    """

    FLOAT = dtypes.f32
    DOUBLE = dtypes.f64
    HALF = dtypes.f16
    BFLOAT16 = dtypes.bf16
    INT8 = dtypes.i8
    UINT8 = dtypes.ui8
    INT32 = dtypes.i32
    INT64 = dtypes.i64
    BOOLEAN = dtypes.i1
    FP8_E4M3 = dtypes.f8e4m3
    FP8_E5M2 = dtypes.f8e5m2
    FAST_FLOAT_FOR_FP8 = dtypes.fast_float_for_fp8
    NOT_SET = None


class heur_mode(Enum):
    """How engine configs are ranked: see `dnnc.choosing.heuristics`."""

    INSTANT = "INSTANT"
    A = "A"
    B = "B"
    FALLBACK = "FALLBACK"


class build_plan_policy(Enum):
    """Which plans `build_plans` builds: the first that builds, or all."""

    HEURISTICS_CHOICE = "HEURISTICS_CHOICE"
    ALL = "ALL"


class reduction_mode(Enum):
    """Modes of a reduction."""

    ADD = "add"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    AMAX = "amax"
    AVG = "avg"
    NORM1 = "norm1"
    NORM2 = "norm2"
    MUL_NO_ZEROS = "mul_no_zeros"


class reshape_mode(Enum):
    """The order that a reshape keeps: places in memory, or indices."""

    VIEW_ONLY = "VIEW_ONLY"
    LOGICAL = "LOGICAL"


class convolution_mode(Enum):
    """Whether the filter is applied as it is."""

    CROSS_CORRELATION = "CROSS_CORRELATION"
    CONVOLUTION = "CONVOLUTION"


CONVOLUTION_MODES = tuple(mode.value for mode in convolution_mode)


class moe_grouped_matmul_mode(Enum):
    """How the rows of a grouped matmul are routed to experts."""

    NONE = "NONE"
    GATHER = "GATHER"
    SCATTER = "SCATTER"
    COMBINE = "COMBINE"


class norm_forward_phase(Enum):
    """Whether a norm keeps its statistics."""

    INFERENCE = "INFERENCE"
    TRAINING = "TRAINING"


class diagonal_alignment(Enum):
    """Where the diagonal of attention begins, or ends."""

    TOP_LEFT = "TOP_LEFT"
    BOTTOM_RIGHT = "BOTTOM_RIGHT"


class attention_implementation(Enum):
    """How cuDNN builds attention; dnnc has one way, which all of them name."""

    AUTO = "AUTO"
    COMPOSITE = "COMPOSITE"
    UNIFIED = "UNIFIED"


class resample_mode(Enum):
    """How a window of a resampling becomes an element."""

    AVGPOOL_EXCLUDE_PADDING = "AVGPOOL_EXCLUDE_PADDING"
    AVGPOOL_INCLUDE_PADDING = "AVGPOOL_INCLUDE_PADDING"
    BILINEAR = "BILINEAR"
    NEAREST = "NEAREST"
    MAXPOOL = "MAXPOOL"


class padding_mode(Enum):
    """Values that surround the input of a resampling."""

    NEG_INF_PAD = "NEG_INF_PAD"
    ZERO_PAD = "ZERO_PAD"
    EDGE_VAL_PAD = "EDGE_VAL_PAD"


class rng_distribution(Enum):
    """Distributions that random numbers are drawn from."""

    BERNOULLI = "BERNOULLI"
    UNIFORM = "UNIFORM"
    NORMAL = "NORMAL"


class tensor_reordering(Enum):
    """How a tensor's elements are reordered in memory."""

    NONE = "NONE"
    INT8x32 = "INT8x32"
    F16x16 = "F16x16"
    F8_128x4 = "F8_128x4"


REORDERINGS = tuple(order.value for order in tensor_reordering)


class scalar_type(Enum):
    """Whether a scalar may be replaced at execution."""

    RUNTIME_PARAM = "RUNTIME_PARAM"
    COMPILE_TIME_CONST = "COMPILE_TIME_CONST"


class numerical_note(Enum):
    """Effects of a plan on numbers beyond plain arithmetic."""

    TENSOR_CORE = "TENSOR_CORE"
    DOWN_CONVERT_INPUTS = "DOWN_CONVERT_INPUTS"
    REDUCED_PRECISION_REDUCTION = "REDUCED_PRECISION_REDUCTION"
    FFT = "FFT"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    WINOGRAD = "WINOGRAD"
    WINOGRAD_TILE_4x4 = "WINOGRAD_TILE_4x4"
    WINOGRAD_TILE_6x6 = "WINOGRAD_TILE_6x6"
    WINOGRAD_TILE_13x13 = "WINOGRAD_TILE_13x13"
    STRICT_NAN_PROP = "STRICT_NAN_PROP"


class behavior_note(Enum):
    """How a plan behaves; kernels of dnnc are made when a plan is built, so that all plans have
    RUNTIME_COMPILATION."""

    RUNTIME_COMPILATION = "RUNTIME_COMPILATION"
    REQUIRES_FILTER_INT8x32_REORDER = "REQUIRES_FILTER_INT8x32_REORDER"
    REQUIRES_BIAS_INT8x32_REORDER = "REQUIRES_BIAS_INT8x32_REORDER"
    CUBLASLT_DEPENDENCY = "CUBLASLT_DEPENDENCY"
    SUPPORTS_CUDA_GRAPH_NATIVE_API = "SUPPORTS_CUDA_GRAPH_NATIVE_API"


# Those that engines may have, and what else cudnn-frontend names.
_KNOBS = (
    *KNOBS,
    *("INPUT_TMA_ENABLE", "OUTPUT_TMA_ENABLE", "PIPELINE_ARCH", "CTA_GROUP", "NOT_SET"),
)

knob_type: Any = Enum("knob_type", [(name, name) for name in _KNOBS])


@dataclass(frozen=True)
class knob:
    """A knob of an engine: cudnn-frontend's fields, then the values themselves and the default.

    stride: the greatest common step of the values, which may leave out some on it.
    """

    type: Any
    max_value: int
    min_value: int
    stride: int
    values: tuple[int, ...]
    default: int


def text_of(value: object) -> str:
    """The text that stands for an enumerator or is given as text."""
    return str(value.value) if isinstance(value, Enum) else str(value)


def choice_of(value: object, choices: Iterable[str]) -> str:
    """The choice that a text or an enumerator names, in any case of letters; else its text."""
    text = text_of(value)
    return next((choice for choice in choices if choice.lower() == text.lower()), text)


def member_of(parameter: str, value: object, kind: type[Enum]) -> str:
    """The value of an enumeration's member; what names none is BAD_PARAM."""
    known = [str(member.value) for member in kind]
    found = choice_of(value, known)
    if found not in known:
        raise DnncError(Status.BAD_PARAM, f"{parameter}={value!r}", ", ".join(known))
    return found


def modes_of(values: object) -> tuple[str, ...]:
    """The names of heuristic modes; what is none, or no mode at all, is BAD_PARAM."""
    known = [mode.value for mode in heur_mode]
    given.verify_list(values, "modes")
    names = tuple(choice_of(value, known) for value in cast("Iterable[object]", values))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"heuristic mode {unknown[0]!r}" if unknown else "no heuristic modes"
        raise DnncError(Status.BAD_PARAM, what, ", ".join(known), "modes")
    return names


def build_all_of(value: object) -> bool:
    """Whether a build policy asks for all plans; what is none is BAD_PARAM."""
    return member_of("policy", value, build_plan_policy) == build_plan_policy.ALL.value
