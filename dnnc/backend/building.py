"""Finalizing operation descriptors and those of their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from .. import dtypes
from ..dialect.op import Field, Op
from ..dialect.ops import BY_NAME, BnFinalize, Pointwise, Resample
from ..dtypes import DType
from ..errors import DnncError, Status
from . import enums
from .attributes import dtype_of
from .descriptor import Given
from .enums import cudnnBackendAttributeName_t as Name
from .mapping import EXTRAS, Parameters, choice_of, enumeration_of
from .nodes import (
    Node,
    Refusal,
    Scale,
    is_in_place,
    made,
    made_of_several,
    made_pointwise,
    pointwise_alone,
    unsupported,
)
from .several import FROM_RESULT, bn_finalize_of_running, gradient_from_result
from .tensors import TensorSpec


def suffix_of(op: type[Op], field: Field, parameters: Parameters | None) -> str:
    """The end of the attribute that the operation's own descriptor has of a field, "" for none."""
    in_parameters = parameters is not None and field.name in parameters.names
    known = f"CUDNN_ATTR_{prefix_of(op)}_{field.backend}" in Name.__members__
    return field.backend if field.backend and known and not in_parameters else ""


def prefix_of(op: type[Op]) -> str:
    return op.prefix or op.backend


def _value(given: Given, suffix: str, field: Field) -> Any:
    """The field's value of an attribute that is set."""
    values = given.all(suffix)
    name = given.kind.name_of(suffix)
    types = given.kind.attributes[name].types
    if field.type is DType:
        dtype = dtype_of(values[0])
        if dtype is None:
            raise given.error(
                suffix, values[0].name, ", ".join(row.cudnn for row in dtypes.COMPUTE),
                Status.NOT_SUPPORTED_DATA_TYPE,
            )  # fmt: skip
        return dtype
    if enumeration_of(types) is not None:
        wanted = choice_of(values[0])
        found = next((c for c in field.choices if c.upper() == wanted), None)
        if found is None:
            raise given.error(
                suffix, values[0].name, ", ".join(field.choices), Status.NOT_SUPPORTED
            )
        return found
    return values if field.type is tuple else values[0]


def build_parameters(fields: Mapping[str, Field], given: Given) -> dict[str, Any]:
    """Field -> value of a descriptor of parameters; what is not of a field by the attribute's."""
    found: dict[str, Any] = {}
    for suffix in given:
        field = fields.get(suffix)
        if field is None:
            found[suffix] = given.one(suffix)
        else:
            found[field.name] = _value(given, suffix, field)
    if "SPATIAL_DIMS" in found:
        _verify_counts(given, found["SPATIAL_DIMS"], fields)
    return found


def _verify_counts(given: Given, spatial: int, fields: Mapping[str, Field]) -> None:
    for suffix, field in fields.items():
        if field.type is tuple and len(given.all(suffix)) != spatial:
            raise given.error(
                suffix, f"{len(given.all(suffix))} elements", f"SPATIAL_DIMS = {spatial}"
            )


def build(ops: Sequence[type[Op]], parameters: Parameters | None, given: Given) -> Node:
    """The node of an operation descriptor."""
    if _is_inference_of_bn(ops[0], given):
        return _bn_finalize_of_running(given)
    op = _CHOICES.get(ops[0].backend, lambda given: ops[0])(given)
    values = dict(given.payload(parameters.link)) if parameters else {}
    if op is Pointwise:
        return _pointwise(given, values)
    known = {"PHASE", *(row.suffix for row in EXTRAS.get(op.backend, ()))}
    if parameters is not None:
        known.add(parameters.link)
    for field in op.fields:
        suffix = suffix_of(op, field, parameters)
        if not suffix:
            continue
        known.add(suffix)
        if suffix in given:
            values[field.name] = _taken(given, suffix, field)
        elif field.kind != "attribute" and not field.optional:
            raise given.error(suffix, f"it is not set, for {op.op_name}", "a tensor")
    _require_known(given, known, op)
    return _finished(op, given, values)


def _taken(given: Given, suffix: str, field: Field) -> Any:
    """Specs of tensors, or an attribute's value; a number that stands for a tensor stays one."""
    if field.kind == "attribute":
        return _value(given, suffix, field)
    found = tuple(getattr(item, "payload", item) for item in given.all(suffix))
    return found if field.variadic else found[0]


def _require_known(given: Given, known: set[str], op: type[Op]) -> None:
    for suffix in given:
        is_ours = suffix in known or given.kind.name_of(suffix).name in _IGNORED
        if not is_ours:
            raise given.error(suffix, f"it is set, for {op.op_name}", "nothing: it has no such")


# What cuDNN asks for where the statistics are given, and does not use then.
_IGNORED = ("CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC",)


def _finished(op: type[Op], given: Given, values: dict[str, Any]) -> Node:
    """The node of an operation of such values; what cuDNN leaves unsaid is filled in."""
    spatial = values.pop("SPATIAL_DIMS", None)
    values.pop("NAN_PROPAGATION", None)
    values.pop("IS_DETERMINISTIC", None)
    refusal = _refusal(op, given, values)
    values.pop("PADDING_VALUE", None)
    _whole_windows(values)
    if op is Resample:
        values["generate_index"] = "IDXDESC" in given
    if op.op_name == "rmsnorm_backward":
        values["has_dbias"] = "DBIAS_DESC" in given
    is_convolution = op.backend.startswith("OPERATION_CONVOLUTION")
    groups = _joined_groups(given, values, spatial) if is_convolution else {}
    scale = Scale(given.one("ALPHA"), given.one("BETA")) if _is_scaled(op) else Scale()
    _verify_beta(op, given, values, scale)
    node = Node(partial(made, op, values, scale, groups), refusal, is_in_place(op, values))
    return node.verified()


def _is_scaled(op: type[Op]) -> bool:
    """Whether it has ALPHA and BETA."""
    return any(row.suffix == "BETA" for row in EXTRAS.get(op.backend, ()))


def _verify_beta(op: type[Op], given: Given, values: Mapping[str, Any], scale: Scale) -> None:
    """Refuses BETA of a virtual result, which holds nothing before the graph runs."""
    if scale.beta and values[op.fields_of("result")[0].name].is_virtual:
        raise given.error(
            "BETA",
            f"{scale.beta} of a result that is virtual, which holds nothing before",
            "0, or a result that is not virtual",
        )


# ---- what single operations need beside that


def _refusal(op: type[Op], given: Given, values: Mapping[str, Any]) -> Refusal | None:
    """Why no graph may have it, though its attributes are as they should be."""
    if op.op_name != "matmul":
        return None
    if values.get("PADDING_VALUE", 0.0) != 0:
        return unsupported("MATMUL_PADDING_VALUE", f"{values['PADDING_VALUE']}", "0")
    if given.one("IRREGULARLY_STRIDED_BATCH_COUNT") != 1:
        name = "OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT"
        return unsupported(name, f"{given.one('IRREGULARLY_STRIDED_BATCH_COUNT')}", "1")
    for side in "MNK":
        if f"GEMM_{side}_OVERRIDE_DESC" in given:
            name = f"OPERATION_MATMUL_GEMM_{side}_OVERRIDE_DESC"
            return unsupported(name, "sizes from the device", "sizes of dnnc.Dim")
    return None


def _whole_windows(values: dict[str, Any]) -> None:
    """Windows, strides and paddings that are fractions, over one denominator."""
    names = [name for name in ("pre_padding", "post_padding", "stride", "window") if name in values]
    if "window" not in names:
        return
    parts = {name: [Fraction(value) for value in values[name]] for name in names}
    common = math.lcm(*(value.denominator for of_name in parts.values() for value in of_name))
    for name, of_name in parts.items():
        values[name] = tuple(int(value * common) for value in of_name)
    values["denominator"] = common


def _joined_groups(given: Given, values: dict[str, Any], spatial: int) -> dict[str, int]:
    """Makes tensors [N, G, C, ...] of a convolution [N, G * C, ...] where their strides allow it.

    Gives field -> axis of the groups for the tensors whose groups lie apart.  Filters are
    [G, K, C, ...] and become [G * K, C, ...].
    """
    apart: dict[str, int] = {}
    for name, value in values.items():
        if not isinstance(value, TensorSpec) or len(value.dims) != spatial + 3:
            continue
        is_filter = value in (given.payload(end) for end in ("W", "DW") if _has(given, end))
        axis = 0 if is_filter else 1
        if value.vector_dim == axis:
            raise DnncError(
                Status.NOT_SUPPORTED_LAYOUT,
                f"vectors of groups of tensor {value.uid}",
                f"vectors along dimension {axis + 1}",
                given.kind.type.name,
            )
        outer, inner = value.dims[axis : axis + 2]
        stride, inner_stride = value.strides[axis : axis + 2]
        if outer.constant == 1 or stride == inner * inner_stride:
            values[name] = _packed_groups(value, axis)
        else:
            apart[name] = axis
    return apart


def _packed_groups(spec: TensorSpec, axis: int) -> TensorSpec:
    """The tensor with its groups, along an axis, as a part of the channels behind them."""
    dims = (*spec.dims[:axis], spec.dims[axis] * spec.dims[axis + 1], *spec.dims[axis + 2 :])
    strides = (*spec.strides[:axis], *spec.strides[axis + 1 :])
    vector_dim = spec.vector_dim
    if vector_dim is not None and vector_dim > axis:
        vector_dim -= 1
    return replace(spec, dims=dims, strides=strides, vector_dim=vector_dim, had_groups=True)


def _has(given: Given, suffix: str) -> bool:
    return f"CUDNN_ATTR_{given.kind.prefix}_{suffix}" in Name.__members__


def _pointwise(given: Given, values: dict[str, Any]) -> Node:
    """A pointwise operation; gradients have their tensors under other names."""
    values.pop("NAN_PROPAGATION", None)
    is_backward = values["mode"].endswith("_bwd")
    if is_backward:
        ends = {"x": "DYDESC", "b": "XDESC", "y": "DXDESC"}
    else:
        ends = {"x": "XDESC", "b": "BDESC", "t": "TDESC", "y": "YDESC"}
    make = pointwise_alone
    if is_backward and "YDESC" in given and "XDESC" not in given:
        _require_from_result(given, values)
        ends["b"], make = "YDESC", gradient_from_result
    strange = [end for end in given if end.endswith("DESC") and end not in ends.values()]
    if strange:
        raise given.error(strange[0], f"it is set, for {values['mode']}", ", ".join(ends.values()))
    for name, end in ends.items():
        if end in given:
            values[name] = given.payload(end)
        elif name in ("x", "y") or is_backward:
            raise given.error(end, f"it is not set, for {values['mode']}", "a tensor")
    factors = {"x": given.one("ALPHA1"), "b": given.one("ALPHA2")}
    if "b" not in values and factors["b"] != 1:
        raise given.error("ALPHA2", f"{factors['b']} without a second operand", "nothing")
    node = Node(
        partial(made_pointwise, values, factors, make), is_in_place=is_in_place(Pointwise, values)
    )
    return node.verified()


def _require_from_result(given: Given, values: Mapping[str, Any]) -> None:
    """The derivative follows from the result of the forward pass."""
    slope = values.get("relu_lower_clip_slope") or 0.0
    if values["mode"] not in FROM_RESULT or slope < 0 or (values.get("elu_alpha") or 1.0) < 0:
        what = f"the gradient of {values['mode']} from the result of the forward pass"
        wanted = f"XDESC, its input; YDESC with {', '.join(FROM_RESULT)} of no negative slope"
        raise given.error("YDESC", what, wanted, Status.NOT_SUPPORTED)


def _forward_norm(given: Given) -> type[Op]:
    mode = _norm_mode(given)
    is_inference = given.one("PHASE") == enums.cudnnBackendNormFwdPhase_t.CUDNN_NORM_FWD_INFERENCE
    is_given = mode == "batchnorm" and is_inference
    return BY_NAME["batchnorm_inference" if is_given else mode]


def _backward_norm(given: Given) -> type[Op]:
    mode = _norm_mode(given)
    wanted = ["INV_VARIANCE_DESC", *(["MEAN_DESC"] if mode != "rmsnorm" else [])]
    for suffix in wanted:
        if suffix not in given:
            raise given.error(
                suffix, "it is not set", "the statistics of the forward pass", Status.NOT_SUPPORTED
            )
    return BY_NAME[f"{mode}_backward"]


def _norm_mode(given: Given) -> str:
    """CUDNN_ADA_LAYER_NORM is adalayernorm, and so on."""
    value: enums.cudnnBackendNormMode_t = given.one("MODE")
    mode = value.name.removeprefix("CUDNN_").replace("_", "").lower()
    if mode not in BY_NAME:
        known = [m.name for m in enums.cudnnBackendNormMode_t if m is not value]
        raise given.error("MODE", value.name, ", ".join(known), Status.NOT_SUPPORTED)
    return mode


def _is_inference_of_bn(op: type[Op], given: Given) -> bool:
    wanted = enums.cudnnBnFinalizeStatsMode_t.CUDNN_BN_FINALIZE_STATISTICS_INFERENCE
    return op is BnFinalize and given.one("STATS_MODE") is wanted


# What BN_FINALIZE of running statistics reads and gives.
_OF_RUNNING = ("scale", "bias", "prev_running_mean", "prev_running_var", "epsilon", "eq_scale",
               "eq_bias")  # fmt: skip


def _bn_finalize_of_running(given: Given) -> Node:
    fields = {suffix_of(BnFinalize, field, None): field for field in BnFinalize.fields}
    wanted = [end for end, field in fields.items() if field.name in _OF_RUNNING]
    for end in wanted:
        if end not in given:
            raise given.error(end, "it is not set, for STATISTICS_INFERENCE", "a tensor")
    _require_known(given, {"STATS_MODE", "MATH_PREC", *wanted}, BnFinalize)
    values = {fields[end].name: _taken(given, end, fields[end]) for end in wanted}
    values["compute_type"] = _value(given, "MATH_PREC", fields["MATH_PREC"])
    node = Node(
        partial(made_of_several, values, bn_finalize_of_running),
        is_in_place=is_in_place(BnFinalize, values),
    )
    return node.verified()


# Operation descriptor -> which of the operations it stands for.
_CHOICES: dict[str, Callable[[Given], type[Op]]] = {
    "OPERATION_NORM_FORWARD": _forward_norm,
    "OPERATION_NORM_BACKWARD": _backward_norm,
}
