"""Descriptors in one call, and graphs of the dialect written as descriptors.

`SPELLED` says for every operation which attributes of cuDNN hold its fields, with their whole
names, so that the tables of `dnnc.backend`, which are derived, are held against another source:
cuDNN 9.19's header.
"""

from fractions import Fraction

from dnnc import backend as b
from dnnc import dtypes

D = b.CUDNN_TYPE_BACKEND_DESCRIPTOR
I64 = b.CUDNN_TYPE_INT64
DOUBLE = b.CUDNN_TYPE_DOUBLE
DATA_TYPE = b.CUDNN_TYPE_DATA_TYPE


def opened(kind, *attributes):
    """A descriptor with attributes set: (name, type, elements)."""
    descriptor = b.create_descriptor(kind)
    for name, attribute_type, elements in attributes:
        b.set_attribute(descriptor, name, attribute_type, len(elements), elements)
    return descriptor


def made(kind, *attributes):
    """A descriptor with these attributes, finalized."""
    descriptor = opened(kind, *attributes)
    b.finalize(descriptor)
    return descriptor


def got(descriptor, name, attribute_type, *requested):
    """The elements of an attribute."""
    return b.get_attribute(descriptor, name, attribute_type, *requested).elements


def tensor(uid, dims, strides=None, dtype=b.CUDNN_DATA_FLOAT, *more, virtual=False, alignment=16):
    """A tensor descriptor, packed row-major unless strides are given; more: other attributes."""
    if strides is None:
        strides = [1] * len(dims)
        for axis in range(len(dims) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * dims[axis + 1]
    return made(
        b.CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        (b.CUDNN_ATTR_TENSOR_UNIQUE_ID, I64, [uid]),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, DATA_TYPE, [dtype]),
        (b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, I64, [alignment]),
        (b.CUDNN_ATTR_TENSOR_DIMENSIONS, I64, dims),
        (b.CUDNN_ATTR_TENSOR_STRIDES, I64, strides),
        (b.CUDNN_ATTR_TENSOR_IS_VIRTUAL, b.CUDNN_TYPE_BOOLEAN, [virtual]),
        *more,
    )


def device(target="sm_80"):
    """A device properties descriptor of a target."""
    text = f'{{"dnnc_device": 1, "target": "{target}"}}'
    name = b.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
    return made(b.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, (name, b.CUDNN_TYPE_CHAR, text))


def graph_of(*operations, handle=None):
    """An operation graph descriptor."""
    given = [(b.CUDNN_ATTR_OPERATIONGRAPH_OPS, D, list(operations))]
    if handle is not None:
        given.append((b.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, b.CUDNN_TYPE_HANDLE, [handle]))
    return made(b.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, *given)


def heuristics(graph, mode=b.CUDNN_HEUR_MODE_A, target="sm_80"):
    """Engine configs, best first."""
    found = made(
        b.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, D, [graph]),
        (b.CUDNN_ATTR_ENGINEHEUR_MODE, b.CUDNN_TYPE_HEUR_MODE, [mode]),
        (b.CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, D, [device(target)]),
    )
    return got(found, b.CUDNN_ATTR_ENGINEHEUR_RESULTS, D)


def engine(graph, index, target="sm_80"):
    """An engine descriptor."""
    return made(
        b.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINE_OPERATION_GRAPH, D, [graph]),
        (b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64, [index]),
        (b.CUDNN_ATTR_ENGINE_DEVICEPROP, D, [device(target)]),
    )


def plan_of(config, *more):
    """An execution plan descriptor."""
    name = b.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
    return made(b.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, (name, D, [config]), *more)


def pointwise(mode, compute=b.CUDNN_DATA_FLOAT, parameters=(), factors=(), **tensors):
    """A pointwise operation; tensors: X=..., Y=... and so on."""
    mathematics = made(
        b.CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
        (b.CUDNN_ATTR_POINTWISE_MODE, b.CUDNN_TYPE_POINTWISE_MODE, [mode]),
        (b.CUDNN_ATTR_POINTWISE_MATH_PREC, DATA_TYPE, [compute]),
        *parameters,
    )
    attributes = b.cudnnBackendAttributeName_t
    given = [
        (attributes[f"CUDNN_ATTR_OPERATION_POINTWISE_{end}DESC"], D, [value])
        for end, value in tensors.items()
    ]
    return made(
        b.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, D, [mathematics]),
        *given,
        *factors,
    )


def matmul(a, other, c, compute=b.CUDNN_DATA_FLOAT, *more):
    """A matmul operation."""
    product = made(
        b.CUDNN_BACKEND_MATMUL_DESCRIPTOR, (b.CUDNN_ATTR_MATMUL_COMP_TYPE, DATA_TYPE, [compute])
    )
    return made(
        b.CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_MATMUL_ADESC, D, [a]),
        (b.CUDNN_ATTR_OPERATION_MATMUL_BDESC, D, [other]),
        (b.CUDNN_ATTR_OPERATION_MATMUL_CDESC, D, [c]),
        (b.CUDNN_ATTR_OPERATION_MATMUL_DESC, D, [product]),
        *more,
    )


# ---- graphs of the dialect as descriptors

_NORM_FORWARD = {
    "x": "XDESC", "scale": "SCALE_DESC", "bias": "BIAS_DESC", "epsilon": "EPSILON_DESC",
    "mean": "MEAN_DESC", "inv_variance": "INV_VARIANCE_DESC", "y": "YDESC",
    "in_running_mean": "INPUT_RUNNING_MEAN_DESC", "in_running_var": "INPUT_RUNNING_VAR_DESC",
    "next_running_mean": "OUTPUT_RUNNING_MEAN_DESC",
    "next_running_var": "OUTPUT_RUNNING_VAR_DESC", "momentum": "EXP_AVG_FACTOR_DESC",
    "peer_stats": "PEER_STAT_DESCS", "norm_forward_phase": "PHASE",
}  # fmt: skip
_NORM_BACKWARD = {
    "dy": "DYDESC", "x": "XDESC", "scale": "SCALE_DESC", "mean": "MEAN_DESC",
    "inv_variance": "INV_VARIANCE_DESC", "dx": "DXDESC", "dscale": "DSCALE_DESC",
    "dbias": "DBIAS_DESC", "peer_stats": "PEER_STAT_DESCS",
}  # fmt: skip
_WINDOWS = {
    "resample_mode": "MODE", "padding_mode": "PADDING_MODE", "pre_padding": "PRE_PADDINGS",
    "post_padding": "POST_PADDINGS", "stride": "STRIDES", "window": "WINDOW_DIMS",
    "compute_type": "COMP_TYPE",
}  # fmt: skip

# Operation -> (descriptor, prefix of its attributes, field -> end of the attribute's name).
SPELLED = {
    "matmul": ("OPERATION_MATMUL", "OPERATION_MATMUL",
               {"a": "ADESC", "b": "BDESC", "c": "CDESC"}),
    "moe_grouped_matmul": (
        "OPERATION_MOE_GROUPED_MATMUL", "OPERATION_MOE_GROUPED_MATMUL",
        {"token": "TOKEN_DESC", "weight": "WEIGHT_DESC", "output": "OUTPUT_DESC",
         "first_token_offset": "FIRST_TOKEN_OFFSET_DESC", "mode": "MODE", "top_k": "TOP_K",
         "compute_type": "MATH_PREC"}),
    "pointwise": ("OPERATION_POINTWISE", "OPERATION_POINTWISE",
                  {"x": "XDESC", "b": "BDESC", "t": "TDESC", "y": "YDESC"}),
    "reduction": ("OPERATION_REDUCTION", "OPERATION_REDUCTION", {"x": "XDESC", "y": "YDESC"}),
    "reshape": ("OPERATION_RESHAPE", "OPERATION_RESHAPE", {"x": "XDESC", "y": "YDESC"}),
    "concatenate": ("OPERATION_CONCAT", "OPERATION_CONCAT",
                    {"inputs": "INPUT_DESCS", "y": "OUTPUT_DESC", "axis": "AXIS"}),
    "conv_fprop": ("OPERATION_CONVOLUTION_FORWARD", "OPERATION_CONVOLUTION_FORWARD",
                   {"x": "X", "w": "W", "y": "Y"}),
    "conv_dgrad": ("OPERATION_CONVOLUTION_BACKWARD_DATA", "OPERATION_CONVOLUTION_BWD_DATA",
                   {"dy": "DY", "w": "W", "dx": "DX"}),
    "conv_wgrad": ("OPERATION_CONVOLUTION_BACKWARD_FILTER", "OPERATION_CONVOLUTION_BWD_FILTER",
                   {"x": "X", "dy": "DY", "dw": "DW"}),
    "resample": ("OPERATION_RESAMPLE_FWD", "OPERATION_RESAMPLE_FWD",
                 {"x": "XDESC", "y": "YDESC", "index": "IDXDESC"}),
    "resample_backward": (
        "OPERATION_RESAMPLE_BWD", "OPERATION_RESAMPLE_BWD",
        {"x": "XDESC", "y": "YDESC", "index": "IDXDESC", "dy": "DYDESC", "dx": "DXDESC"}),
    "sdpa": (
        "OPERATION_SDPA_FWD", "OPERATION_SDPA_FWD",
        {"q": "QDESC", "k": "KDESC", "v": "VDESC", "o": "ODESC", "stats": "STATSDESC",
         "attn_scale": "SCALEDESC", "page_table_k": "PAGE_TABLE_KDESC",
         "page_table_v": "PAGE_TABLE_VDESC", "seq_len_q": "SEQ_LEN_QDESC",
         "seq_len_kv": "SEQ_LEN_KVDESC", "block_mask": "BLOCK_MASK_DESC"}),
    "sdpa_backward": (
        "OPERATION_SDPA_BWD", "OPERATION_SDPA_BWD",
        {"q": "QDESC", "k": "KDESC", "v": "VDESC", "o": "ODESC", "stats": "STATSDESC",
         "attn_scale": "SCALEDESC", "seq_len_q": "SEQ_LEN_QDESC", "seq_len_kv": "SEQ_LEN_KVDESC",
         "do": "DODDESC", "dq": "DQDESC", "dk": "DKDESC", "dv": "DVDESC"}),
    "paged_cache_load": (
        "OPERATION_PAGED_CACHE_LOAD", "OPERATION_PAGED_CACHE_LOAD",
        {"container": "CONTAINER_DESC", "sequence": "SEQUENCE_DESC",
         "page_table": "PAGE_TABLE_DESC", "y": "YDESC"}),
    "rng": ("OPERATION_RNG", "OPERATION_RNG",
            {"seed": "SEED", "offset": "OFFSET_DESC", "y": "YDESC"}),
    "genstats": ("OPERATION_GEN_STATS", "OPERATION_GENSTATS",
                 {"x": "XDESC", "sum": "SUMDESC", "sq_sum": "SQSUMDESC",
                  "compute_type": "MATH_PREC"}),
    "bn_finalize": (
        "OPERATION_BN_FINALIZE_STATISTICS", "OPERATION_BN_FINALIZE",
        {"sum": "Y_SUM_DESC", "sq_sum": "Y_SQ_SUM_DESC", "scale": "SCALE_DESC",
         "bias": "BIAS_DESC", "epsilon": "EPSILON_DESC", "accum_count": "ACCUM_COUNT_DESC",
         "prev_running_mean": "PREV_RUNNING_MEAN_DESC",
         "prev_running_var": "PREV_RUNNING_VAR_DESC", "momentum": "EXP_AVERATE_FACTOR_DESC",
         "eq_scale": "EQ_SCALE_DESC", "eq_bias": "EQ_BIAS_DESC", "mean": "SAVED_MEAN_DESC",
         "inv_variance": "SAVED_INV_STD_DESC",
         "next_running_mean": "UPDATED_RUNNING_MEAN_DESC",
         "next_running_var": "UPDATED_RUNNING_VAR_DESC", "compute_type": "MATH_PREC"}),
    "dbn_weight": (
        "OPERATION_BN_BWD_WEIGHTS", "OPERATION_BN_BWD_WEIGHTS",
        {"dy": "DY_DESC", "x": "X_DESC", "mean": "MEAN_DESC", "inv_variance": "INVSTD_DESC",
         "scale": "BN_SCALE_DESC", "dscale": "DBN_SCALE_DESC", "dbias": "DBN_BIAS_DESC",
         "eq_scale_dy": "EQ_DY_SCALE_DESC", "eq_scale_x": "EQ_X_SCALE_DESC",
         "eq_bias": "EQ_BIAS", "compute_type": "MATH_PREC"}),
    **{name: ("OPERATION_NORM_FORWARD", "OPERATION_NORM_FWD", _NORM_FORWARD)
       for name in ("layernorm", "rmsnorm", "adalayernorm", "instancenorm", "batchnorm",
                    "batchnorm_inference")},
    **{f"{name}_backward": ("OPERATION_NORM_BACKWARD", "OPERATION_NORM_BWD", _NORM_BACKWARD)
       for name in ("layernorm", "rmsnorm", "adalayernorm", "instancenorm", "batchnorm")},
}  # fmt: skip

_CONVOLUTION = (
    "CONVOLUTION", "CONV_DESC",
    {"compute_type": "COMP_TYPE", "convolution_mode": "CONV_MODE", "dilation": "DILATIONS",
     "stride": "FILTER_STRIDES", "pre_padding": "PRE_PADDINGS", "post_padding": "POST_PADDINGS"},
)  # fmt: skip

# Operation -> (descriptor of its parameters, attribute that names it, field -> end of the name).
PARAMETERS = {
    "matmul": ("MATMUL", "DESC", {"compute_type": "COMP_TYPE"}),
    "pointwise": (
        "POINTWISE", "PW_DESCRIPTOR",
        {"mode": "MODE", "compute_type": "MATH_PREC", "axis": "AXIS", "elu_alpha": "ELU_ALPHA",
         "relu_lower_clip": "RELU_LOWER_CLIP", "relu_upper_clip": "RELU_UPPER_CLIP",
         "relu_lower_clip_slope": "RELU_LOWER_CLIP_SLOPE", "softplus_beta": "SOFTPLUS_BETA",
         "swish_beta": "SWISH_BETA"}),
    "reduction": ("REDUCTION", "DESC", {"mode": "OPERATOR", "compute_type": "COMP_TYPE"}),
    **{name: _CONVOLUTION for name in ("conv_fprop", "conv_dgrad", "conv_wgrad")},
    "resample": ("RESAMPLE", "DESC", _WINDOWS),
    "resample_backward": ("RESAMPLE", "DESC", _WINDOWS),
    "rng": (
        "RNG", "DESC",
        {"distribution": "DISTRIBUTION", "normal_mean": "NORMAL_DIST_MEAN",
         "normal_standard_deviation": "NORMAL_DIST_STANDARD_DEVIATION",
         "uniform_minimum": "UNIFORM_DIST_MINIMUM", "uniform_maximum": "UNIFORM_DIST_MAXIMUM",
         "bernoulli_probability": "BERNOULLI_DIST_PROBABILITY"}),
}  # fmt: skip

_CHOICES = {
    "mode": {"pointwise": (b.CUDNN_TYPE_POINTWISE_MODE, "CUDNN_POINTWISE_{}"),
             "reduction": (b.CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, "CUDNN_REDUCE_TENSOR_{}"),
             "moe_grouped_matmul": (b.CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE,
                                    "CUDNN_MOE_GROUPED_MATMUL_MODE_{}")},
    "convolution_mode": (b.CUDNN_TYPE_CONVOLUTION_MODE, "CUDNN_{}"),
    "resample_mode": (b.CUDNN_TYPE_RESAMPLE_MODE, "CUDNN_RESAMPLE_{}"),
    "padding_mode": (b.CUDNN_TYPE_PADDING_MODE, "CUDNN_{}"),
    "distribution": (b.CUDNN_TYPE_RNG_DISTRIBUTION, "CUDNN_RNG_DISTRIBUTION_{}"),
    "norm_forward_phase": (b.CUDNN_TYPE_NORM_FWD_PHASE, "CUDNN_NORM_FWD_{}"),
}  # fmt: skip

# What the descriptor says beside the fields.
_MODES_OF_NORMS = {
    "layernorm": b.CUDNN_LAYER_NORM, "rmsnorm": b.CUDNN_RMS_NORM,
    "adalayernorm": b.CUDNN_ADA_LAYER_NORM, "instancenorm": b.CUDNN_INSTANCE_NORM,
    "batchnorm": b.CUDNN_BATCH_NORM,
}  # fmt: skip


def inexpressible(graph):
    """The part of a graph that cuDNN 9.19's descriptors can't express; "" if they can."""
    if any(tensor.rank == 0 for tensor in graph.tensors):
        return "a tensor without dims"
    for op in graph.ops:
        if op.op_name not in SPELLED:
            return op.op_name
        has_type = "compute_type" in {**SPELLED[op.op_name][2], **_parameter_names(op)}
        if not has_type and getattr(op, "compute_type", dtypes.f32) != dtypes.f32:
            return "a norm that computes in another type than FLOAT"
        if getattr(op, "reshape_mode", "VIEW_ONLY") != "VIEW_ONLY":
            return "a reshape that keeps the order of indices"
        if op.op_name == "reduction" and op.index is not None:
            return "the index of a reduction"
        if op.op_name in ("sdpa", "sdpa_backward") and _has_more(op):
            return "what attention does beside scale, lengths and pages"
    scalars = [t for t in graph.tensors if t.value is not None]
    return "a default of a scalar" if scalars else ""


def _has_more(op):
    """Whether an operation has tensors or attributes that its descriptor has not."""
    known = {*SPELLED[op.op_name][2], "compute_type"}
    return any(getattr(op, f.name) != f.default for f in op.fields if f.name not in known)


def _parameter_names(op):
    return PARAMETERS[op.op_name][2] if op.op_name in PARAMETERS else {}


def name_of(prefix, end):
    return b.cudnnBackendAttributeName_t[f"CUDNN_ATTR_{prefix}_{end}"]


class Writer:
    """Writes a finalized graph as descriptors; tensors by uid."""

    def __init__(self, graph):
        self.graph = graph
        self.tensors = {t.uid: self._tensor(t) for t in graph.tensors}

    def _tensor(self, t):
        by_value = (b.CUDNN_ATTR_TENSOR_IS_BY_VALUE, b.CUDNN_TYPE_BOOLEAN, [t.is_by_value])
        mode = b.enums.CONSTANTS[f"CUDNN_TENSOR_REORDERING_{t.reordering}"]
        reordered = (
            b.CUDNN_ATTR_TENSOR_REORDERING_MODE, b.CUDNN_TYPE_TENSOR_REORDERING_MODE, [mode]
        )  # fmt: skip
        vectors = (b.CUDNN_ATTR_TENSOR_VECTOR_COUNT, I64, [t.vector_count])
        along = (b.CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION, I64, [t.vector_dim or 0])
        return tensor(
            t.uid, _plain(t.dims), _plain(t.strides), t.dtype.value,
            by_value, reordered, vectors, along, virtual=t.is_virtual, alignment=t.alignment,
        )  # fmt: skip

    def operations(self):
        return [self._operation(op) for op in self.graph.ops]

    def _operation(self, op):
        kind, prefix, fields = SPELLED[op.op_name]
        if op.op_name == "pointwise" and op.mode.endswith("_bwd"):
            fields = {"x": "DYDESC", "b": "XDESC", "y": "DXDESC"}
        given = self._attributes(op, prefix, fields) + self._beside(op, prefix)
        if op.op_name in PARAMETERS:
            kind_of_parameters, link, names = PARAMETERS[op.op_name]
            more = self._attributes(op, kind_of_parameters, names)
            if kind_of_parameters in ("CONVOLUTION", "RESAMPLE"):
                spatial = [len(op.pre_padding)]
                more.append((name_of(kind_of_parameters, "SPATIAL_DIMS"), I64, spatial))
            parameters = made(
                b.enums.CONSTANTS[f"CUDNN_BACKEND_{kind_of_parameters}_DESCRIPTOR"], *more
            )
            given.append((name_of(prefix, link), D, [parameters]))
        return made(b.enums.CONSTANTS[f"CUDNN_BACKEND_{kind}_DESCRIPTOR"], *given)

    def _attributes(self, op, prefix, names):
        found = []
        for field in op.fields:
            value = getattr(op, field.name)
            if field.name not in names or value is None or value == ():
                continue
            attribute_type, elements = self._elements(op, field, value)
            found.append((name_of(prefix, names[field.name]), attribute_type, elements))
        return found

    def _elements(self, op, field, value):
        if field.kind != "attribute":
            values = value if field.variadic else [value]
            return D, [self.tensors[t.uid] for t in values]
        if field.choices:
            row = _CHOICES[field.name]
            kind, text = row[op.op_name] if isinstance(row, dict) else row
            return kind, [b.enums.CONSTANTS[text.format(value.upper())]]
        if field.type is dtypes.DType:
            return DATA_TYPE, [value.value]
        if field.type is tuple and getattr(op, "denominator", 1) != 1:
            return b.CUDNN_TYPE_FRACTION, [Fraction(v, op.denominator) for v in value]
        if field.type is tuple:
            return I64, list(value)
        if field.name == "top_k":
            return b.CUDNN_TYPE_INT32, [value]
        return (DOUBLE, [value]) if field.type is float else (I64, [value])

    def _beside(self, op, prefix):
        mode = op.op_name.removesuffix("_backward").removesuffix("_inference")
        if mode in _MODES_OF_NORMS:
            found = [(name_of(prefix, "MODE"), b.CUDNN_TYPE_NORM_MODE, [_MODES_OF_NORMS[mode]])]
            if mode == "batchnorm" and prefix.endswith("FWD"):
                is_inference = op.op_name.endswith("_inference")
                phase = b.CUDNN_NORM_FWD_INFERENCE if is_inference else b.CUDNN_NORM_FWD_TRAINING
                found.append((name_of(prefix, "PHASE"), b.CUDNN_TYPE_NORM_FWD_PHASE, [phase]))
            return found
        if op.op_name == "genstats":
            mode = b.CUDNN_GENSTATS_SUM_SQSUM
            return [(name_of(prefix, "MODE"), b.CUDNN_TYPE_GENSTATS_MODE, [mode])]
        if op.op_name == "bn_finalize":
            mode = b.CUDNN_BN_FINALIZE_STATISTICS_TRAINING
            return [(name_of(prefix, "STATS_MODE"), b.CUDNN_TYPE_BN_FINALIZE_STATS_MODE, [mode])]
        if op.op_name.startswith("conv_"):
            return [(name_of(prefix, "ALPHA"), DOUBLE, [1.0]),
                    (name_of(prefix, "BETA"), DOUBLE, [0.0])]  # fmt: skip
        return []


def _plain(sizes):
    return [size if size.constant is None else size.constant for size in sizes]
