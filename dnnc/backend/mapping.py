"""Differences between cuDNN's descriptors and the operations' fields.

The tables of operation descriptors are made of the operations' own fields (`dialect/ops`), whose
`backend` names are the ends of cuDNN's attribute names.  Here is the rest: attributes that cuDNN
keeps in a descriptor beside the operation, what it calls their types, and what it has beyond the
operation's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from . import enums
from .attributes import ENUM_OF
from .enums import cudnnBackendAttributeType_t as Type
from .tables import BOOLEAN, DESCRIPTOR, FRACTION, INT32, INT64, REAL, Row, tensor_row


@dataclass(frozen=True)
class Parameters:
    """The descriptor that holds some of an operation's attributes.

    kind: its type, which is the prefix of its attributes too.  link: the end of the operation's
    attribute that names it.  names: field of the operation -> end of the attribute's name.
    """

    kind: str
    link: str
    names: Mapping[str, str]


_CONVOLUTION = Parameters(
    "CONVOLUTION",
    "CONV_DESC",
    {
        "compute_type": "COMP_TYPE",
        "convolution_mode": "CONV_MODE",
        "dilation": "DILATIONS",
        "stride": "FILTER_STRIDES",
        "post_padding": "POST_PADDINGS",
        "pre_padding": "PRE_PADDINGS",
    },
)
_RESAMPLE = Parameters(
    "RESAMPLE",
    "DESC",
    {
        "resample_mode": "MODE",
        "compute_type": "COMP_TYPE",
        "post_padding": "POST_PADDINGS",
        "pre_padding": "PRE_PADDINGS",
        "stride": "STRIDES",
        "window": "WINDOW_DIMS",
        "padding_mode": "PADDING_MODE",
    },
)

# Operation descriptor -> where its other attributes are.
PARAMETERS: dict[str, Parameters] = {
    "OPERATION_POINTWISE": Parameters(
        "POINTWISE",
        "PW_DESCRIPTOR",
        {
            "mode": "MODE",
            "compute_type": "MATH_PREC",
            "relu_lower_clip": "RELU_LOWER_CLIP",
            "relu_upper_clip": "RELU_UPPER_CLIP",
            "relu_lower_clip_slope": "RELU_LOWER_CLIP_SLOPE",
            "elu_alpha": "ELU_ALPHA",
            "softplus_beta": "SOFTPLUS_BETA",
            "swish_beta": "SWISH_BETA",
            "axis": "AXIS",
        },
    ),
    "OPERATION_CONVOLUTION_FORWARD": _CONVOLUTION,
    "OPERATION_CONVOLUTION_BACKWARD_DATA": _CONVOLUTION,
    "OPERATION_CONVOLUTION_BACKWARD_FILTER": _CONVOLUTION,
    "OPERATION_MATMUL": Parameters("MATMUL", "DESC", {"compute_type": "COMP_TYPE"}),
    "OPERATION_REDUCTION": Parameters(
        "REDUCTION", "DESC", {"mode": "OPERATOR", "compute_type": "COMP_TYPE"}
    ),
    "OPERATION_RESAMPLE_FWD": _RESAMPLE,
    "OPERATION_RESAMPLE_BWD": _RESAMPLE,
    "OPERATION_RNG": Parameters(
        "RNG",
        "DESC",
        {
            "distribution": "DISTRIBUTION",
            "normal_mean": "NORMAL_DIST_MEAN",
            "normal_standard_deviation": "NORMAL_DIST_STANDARD_DEVIATION",
            "uniform_maximum": "UNIFORM_DIST_MAXIMUM",
            "uniform_minimum": "UNIFORM_DIST_MINIMUM",
            "bernoulli_probability": "BERNOULLI_DIST_PROBABILITY",
        },
    ),
}

_DOUBLE = (Type.CUDNN_TYPE_DOUBLE,)

# Attribute, without CUDNN_ATTR_ -> its types, where the field's Python type does not say them.
TYPES: dict[str, tuple[Type, ...]] = {
    "POINTWISE_MODE": (Type.CUDNN_TYPE_POINTWISE_MODE,),
    "CONVOLUTION_CONV_MODE": (Type.CUDNN_TYPE_CONVOLUTION_MODE,),
    "REDUCTION_OPERATOR": (Type.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,),
    "RESAMPLE_MODE": (Type.CUDNN_TYPE_RESAMPLE_MODE,),
    "RESAMPLE_PADDING_MODE": (Type.CUDNN_TYPE_PADDING_MODE,),
    "RESAMPLE_POST_PADDINGS": (INT64, FRACTION),
    "RESAMPLE_PRE_PADDINGS": (INT64, FRACTION),
    "RESAMPLE_STRIDES": (INT64, FRACTION),
    "RESAMPLE_WINDOW_DIMS": (INT64, FRACTION),
    "RNG_DISTRIBUTION": (Type.CUDNN_TYPE_RNG_DISTRIBUTION,),
    "RNG_NORMAL_DIST_MEAN": _DOUBLE,
    "RNG_NORMAL_DIST_STANDARD_DEVIATION": _DOUBLE,
    "RNG_UNIFORM_DIST_MAXIMUM": _DOUBLE,
    "RNG_UNIFORM_DIST_MINIMUM": _DOUBLE,
    "RNG_BERNOULLI_DIST_PROBABILITY": _DOUBLE,
    "OPERATION_RNG_SEED": (INT64, DESCRIPTOR),
    "OPERATION_NORM_FWD_PHASE": (Type.CUDNN_TYPE_NORM_FWD_PHASE,),
    "OPERATION_MOE_GROUPED_MATMUL_MODE": (Type.CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE,),
    "OPERATION_MOE_GROUPED_MATMUL_TOP_K": (INT32,),
}

# What cuDNN's enumerators have before the choice of the operation's field.
CHOICE_PREFIX: dict[type[IntEnum], str] = {
    enums.cudnnPointwiseMode_t: "CUDNN_POINTWISE_",
    enums.cudnnConvolutionMode_t: "CUDNN_",
    enums.cudnnReduceTensorOp_t: "CUDNN_REDUCE_TENSOR_",
    enums.cudnnResampleMode_t: "CUDNN_RESAMPLE_",
    enums.cudnnPaddingMode_t: "CUDNN_",
    enums.cudnnRngDistribution_t: "CUDNN_RNG_DISTRIBUTION_",
    enums.cudnnBackendNormFwdPhase_t: "CUDNN_NORM_FWD_",
    enums.cudnnMoeGroupedMatmulMode_t: "CUDNN_MOE_GROUPED_MATMUL_MODE_",
}

# Attributes that cuDNN has a default for, where the field has none.
DEFAULTS: dict[str, IntEnum | int] = {
    "RESAMPLE_MODE": enums.cudnnResampleMode_t.CUDNN_RESAMPLE_NEAREST,
    "RESAMPLE_PADDING_MODE": enums.cudnnPaddingMode_t.CUDNN_ZERO_PAD,
    "RESAMPLE_COMP_TYPE": enums.cudnnDataType_t.CUDNN_DATA_FLOAT,
    "RNG_DISTRIBUTION": enums.cudnnRngDistribution_t.CUDNN_RNG_DISTRIBUTION_BERNOULLI,
    "OPERATION_RNG_SEED": 0,
}

_NAN = Row("NAN_PROPAGATION", Type.CUDNN_TYPE_NAN_PROPOGATION)
_SPATIAL_DIMS = Row("SPATIAL_DIMS", INT64, required=True)
_MODE_OF_NORM = Row("MODE", Type.CUDNN_TYPE_NORM_MODE, required=True)
# The reference says "one or more elements", not what several would mean; cuDNN takes one.
_SCALED = [Row("ALPHA", REAL, required=True), Row("BETA", REAL, required=True)]
_MAYBE_SCALED = [Row("ALPHA", REAL, default=1.0), Row("BETA", REAL, default=0.0)]

# Attributes beside those of the fields: of parameters' descriptors, and of operations.
EXTRAS: dict[str, list[Row]] = {
    "POINTWISE": [_NAN],
    "CONVOLUTION": [_SPATIAL_DIMS],
    "RESAMPLE": [_SPATIAL_DIMS, _NAN],
    "MATMUL": [Row("PADDING_VALUE", (*REAL, INT32, INT64), default=0.0)],
    "REDUCTION": [Row("IS_DETERMINISTIC", BOOLEAN)],
    "OPERATION_POINTWISE": [
        Row("ALPHA1", REAL, default=1.0),
        Row("ALPHA2", REAL, default=1.0),
        tensor_row("DXDESC", required=False),
        tensor_row("DYDESC", required=False),
    ],
    "OPERATION_CONVOLUTION_FORWARD": _SCALED,
    "OPERATION_CONVOLUTION_BACKWARD_DATA": _SCALED,
    "OPERATION_CONVOLUTION_BACKWARD_FILTER": _SCALED,
    "OPERATION_MATMUL": [
        Row("IRREGULARLY_STRIDED_BATCH_COUNT", INT64, default=1),
        *(tensor_row(f"GEMM_{side}_OVERRIDE_DESC", required=False) for side in "MNK"),
    ],
    "OPERATION_RESAMPLE_FWD": _MAYBE_SCALED,
    "OPERATION_RESAMPLE_BWD": _MAYBE_SCALED,
    "OPERATION_NORM_FORWARD": [_MODE_OF_NORM],
    "OPERATION_NORM_BACKWARD": [_MODE_OF_NORM, tensor_row("EPSILON_DESC", required=False)],
    "OPERATION_GEN_STATS": [Row("MODE", Type.CUDNN_TYPE_GENSTATS_MODE, required=True)],
    "OPERATION_BN_FINALIZE_STATISTICS": [
        Row("STATS_MODE", Type.CUDNN_TYPE_BN_FINALIZE_STATS_MODE, required=True)
    ],
}


def choice_of(value: IntEnum) -> str:
    """A field's name of an enumerator, in upper case."""
    return value.name.removeprefix(CHOICE_PREFIX[type(value)])


def enumeration_of(types: tuple[Type, ...]) -> type[IntEnum] | None:
    """The enumeration of a type that has one."""
    return ENUM_OF.get(types[0])
