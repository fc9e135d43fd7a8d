# pyright: basic
"""The operation methods of `pygraph`, derived from the operations' fields.

Each method takes the operands under cudnn-frontend's names, then the attributes, then
`compute_data_type` and `name`, and returns the result tensor, or a list of several (None for one
that the call leaves out).  What a field can't say (a padding for both sides, a Python slice) is
in a small adapter here.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from .. import dtypes
from ..dialect.op import Field, Op
from ..dialect.ops import (
    OPS,
    Batchnorm,
    BatchnormBackward,
    Broadcast,
    Concatenate,
    ConvDgrad,
    ConvFprop,
    ConvWgrad,
    InstancenormBackward,
    Matmul,
    Pointwise,
    Reduction,
    Resample,
    ResampleBackward,
    Rng,
    SdpaFp8,
    Slice,
    Softmax,
    SoftmaxBackward,
)
from ..dialect.ops import resample as resampling
from ..dialect.ops.conv import Convolution
from ..dialect.pointwise_modes import BY_NAME, MODES, Mode
from ..dialect.tensor import Tensor
from ..errors import DnncError, DnncTypeError, Status
from ..expr import Expr
from ..given import is_integer, is_list
from . import broadcasts
from .enums import CONVOLUTION_MODES, choice_of

_LARGE = 1 << 63
_KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD

# Operations that a graph's FAST_FLOAT_FOR_FP8 is for.
_FAST = (Matmul, ConvFprop, ConvDgrad, ConvWgrad, SdpaFp8)


def _parameter(name: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, _KEYWORD, default=default)


_NAME = _parameter("name", "")
_COMMON = [_parameter("compute_data_type", None), _NAME]
_GENERATE_INDEX = _parameter("generate_index", False)


def _make(name: str, parameters: Sequence[inspect.Parameter], doc: str, body: Any) -> Any:
    """A method with a real signature, so that help() and wrong calls read well."""
    signature = inspect.Signature([_parameter("self"), *parameters])
    accepted = ", ".join(parameter.name for parameter in parameters)

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DnncTypeError(Status.BAD_PARAM, f"{name}(): {error}", accepted) from None
        bound.apply_defaults()
        values = dict(bound.arguments)
        if values.get("compute_data_type") is not None:  # also where nothing is computed
            dtypes.of(values["compute_data_type"])
        graph = values.pop("self")
        values["label"] = graph._label(name, values["name"])
        return body(graph, values)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = doc
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _value(field: Field, given: Any) -> Any:
    """An attribute's value from what the caller gave."""
    if given is None:
        return None
    if field.type is dtypes.DType:
        return dtypes.of(given)
    if field.type is tuple:
        return integers(field.parameter, given)
    if field.type is int:
        return _integer(field.parameter, given)
    if field.choices:
        return choice_of(given, field.choices)
    return given


def integers(parameter: str, given: Any) -> tuple[int, ...]:
    """A list of integers, of any kind that Python takes as indices; nothing else is rounded."""
    if not is_list(given):
        raise _no_integer(parameter, given, "a list of integers")
    return tuple(_integer(parameter, item) for item in given)


def _each(given: Any, count: int) -> Any:
    """A number alone as that of each spatial axis."""
    return (given,) * count if isinstance(given, numbers.Number) else given


def _dims_of(tensor: Tensor, method: str) -> tuple[Expr, ...]:
    """The dims of an operand that a method has to know; BAD_PARAM where they are not set yet."""
    if tensor.dims is None:
        raise DnncError(
            Status.BAD_PARAM,
            f"the dims of {tensor.label} are not known yet",
            "set_dim on it first, where nothing gives them",
            method,
        )
    return tensor.dims


def _integer(parameter: str, given: Any) -> int:
    if not is_integer(given):
        raise _no_integer(parameter, given, "an integer")
    found = operator.index(given)
    if not -_LARGE <= found < _LARGE:
        raise _no_integer(parameter, given, "an integer of 64 bits")
    return found


def _no_integer(parameter: str, given: Any, wanted: str) -> DnncError:
    return DnncError(Status.BAD_PARAM_ATTRIBUTE_TYPE, f"{parameter}={given!r}", wanted)


def compute_type_of(graph: Any, given: Any, kind: type[Op]) -> Any:
    """The type that the call names, or the graph's.

    A graph's FAST_FLOAT_FOR_FP8 is for matmuls and convolutions, and means FLOAT for other
    operations.
    """
    if given is not None:
        return dtypes.of(given)
    chosen = dtypes.f32 if graph.compute_data_type is None else dtypes.of(graph.compute_data_type)
    return chosen if chosen.has_storage or kind in _FAST else dtypes.f32


def _fields(kind: type[Op]) -> list[Field]:
    """Fields that a call gives, in its order: as declared, but the phase of a norm comes first."""
    given = [f for f in kind.fields if f.kind != "result" and f.name != "compute_type"]
    return sorted(given, key=lambda f: f.name != "norm_forward_phase")


def _parameters(kind: type[Op]) -> list[inspect.Parameter]:
    """A parameter a field; once one has a default all have, since Python wants it so."""
    found: list[inspect.Parameter] = []
    for f in _fields(kind):
        follows = bool(found) and found[-1].default is not inspect.Parameter.empty
        has_default = f.optional or _has_default(f) or follows
        default = f.default if has_default else inspect.Parameter.empty
        found.append(_parameter(f.parameter, default))
    return found


def _require(fields: Sequence[Field], given: Mapping[str, Any]) -> None:
    """The operands that must be there are, also where Python wanted a default."""
    for f in fields:
        if f.kind == "operand" and not f.optional and given[f.parameter] is None:
            what = f"missing a required argument: {f.parameter!r}"
            raise DnncTypeError(Status.BAD_PARAM, what, f.doc)


def _listed(parameter: str, value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, Tensor) or not isinstance(value, Iterable):
        kind = "one tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        what = f"{parameter} is {kind}"
        raise DnncError(Status.BAD_PARAM_ATTRIBUTE_TYPE, what, "a list of tensors")
    return tuple(value)


def _op_body(kind: type[Op]) -> Callable[..., Any]:
    """The body of an operation's method, which takes its arguments."""
    fields = _fields(kind)

    def body(graph: Any, given: Mapping[str, Any]) -> Any:
        _require(fields, given)
        values: dict[str, Any] = {"name": given["name"]}
        rank = _rank_of(given[f.parameter] for f in fields if f.kind == "operand")
        for f in fields:
            value = given[f.parameter]
            if f.kind == "attribute":
                values[f.name] = _value(f, value)
            elif f.variadic:
                items = _listed(f.parameter, value)
                values[f.name] = tuple(graph._operand(item, rank) for item in items)
            else:
                values[f.name] = value if value is None else graph._operand(value, rank)
        if any(f.name == "compute_type" for f in kind.fields):
            values["compute_type"] = compute_type_of(graph, given["compute_data_type"], kind)
        return graph._append(kind, values, given["label"])

    return body


def operation_method(kind: type[Op]) -> Any:
    """The method of `pygraph` that an operation's fields say."""
    doc = inspect.cleandoc(kind.__doc__ or "")
    return _make(kind.op_name, [*_parameters(kind), *_COMMON], doc, _op_body(kind))


def _has_default(field: Field) -> bool:
    return field.kind == "attribute" and field.default is not None


def _rank_of(values: Any) -> int:
    """The rank of the first tensor among operands, for numbers that stand in for tensors."""
    for value in values:
        for item in value if isinstance(value, list | tuple) else (value,):
            dims = getattr(item, "dims", None)
            if dims is not None:
                return len(dims)
    return 1


# ---- pointwise: one method a mode and name

_SHORT = {
    "relu_lower_clip": "lower_clip",
    "relu_upper_clip": "upper_clip",
    "relu_lower_clip_slope": "negative_slope",
    "elu_alpha": "elu_alpha",
    "softplus_beta": "softplus_beta",
    "swish_beta": "swish_beta",
    "axis": "axis",
}
_REQUIRED = ("axis",)
_OPERANDS = ("x", "b", "t")


def _pointwise_method(mode: Mode, name: str, operands: tuple[str, ...]) -> Any:
    order = ("relu_lower_clip_slope", "relu_lower_clip", "relu_upper_clip")
    extras = [p for p in order if p in mode.parameters] or list(mode.parameters)
    parameters = [_parameter(operand) for operand in operands]
    parameters += [_parameter(_SHORT[p], *([] if p in _REQUIRED else [None])) for p in extras]

    def body(graph: Any, given: Mapping[str, Any]) -> Any:
        rank = _rank_of(given[operand] for operand in operands)
        values: dict[str, Any] = {
            slot: graph._operand(given[operand], rank)
            for slot, operand in zip(_OPERANDS, operands, strict=False)
        }
        values |= {p: given[_SHORT[p]] for p in extras}
        values |= {"mode": mode.name, "name": given["name"]}
        values["compute_type"] = _pointwise_compute_type(graph, mode, given["compute_data_type"])
        return graph._append(Pointwise, values, given["label"])

    doc = (
        f"{mode.formula}, element by element; dims of 1 broadcast.\n\n"
        f"{', '.join(operands)}: tensors, or numbers; leading dims of 1 are implied.\n"
        f"Result: their broadcast dims.\n"
        f"Source: {mode.cudnn}."
    )
    return _make(name, [*parameters, *_COMMON], doc, body)


def _pointwise_compute_type(graph: Any, mode: Mode, given: Any) -> Any:
    """The graph's compute type where the mode has it, unless the call names one."""
    if given is not None:
        return dtypes.of(given)
    chosen = compute_type_of(graph, None, Pointwise)
    integers_only_sometimes = mode.domain == "float" and not chosen.is_float
    return dtypes.f32 if integers_only_sometimes or chosen.bits == 16 else chosen


def _leaky(mode: str, name: str, operands: tuple[str, ...]) -> Any:
    parameters = [*(_parameter(operand) for operand in operands), _parameter("negative_slope")]
    row = BY_NAME[mode]

    def body(graph: Any, given: Mapping[str, Any]) -> Any:
        rank = max((t.rank for o in operands if isinstance(t := given[o], Tensor)), default=1)
        values: dict[str, Any] = {
            slot: graph._operand(given[operand], rank)
            for slot, operand in zip(_OPERANDS, operands, strict=False)
        }
        values |= {"mode": mode, "relu_lower_clip_slope": given["negative_slope"]}
        compute_type = _pointwise_compute_type(graph, row, given["compute_data_type"])
        values |= {"name": given["name"], "compute_type": compute_type}
        return graph._append(Pointwise, values, given["label"])

    return _make(name, [*parameters, *_COMMON], f"{mode} with a slope below 0.", body)


# ---- adapters


def _convolution(kind: type[Convolution]) -> Callable[..., Any]:
    """A convolution or one of its gradients; `padding` is of both sides."""
    operands = kind.fields_of("operand")

    def body(graph: Any, given: dict[str, Any]) -> Any:
        tensors = {f.name: graph._operand(given[f.parameter], 4) for f in operands}
        spatial = max(1, len(_dims_of(next(iter(tensors.values())), kind.op_name)) - 2)
        listed = {
            name: None if given[name] is None else integers(name, _each(given[name], spatial))
            for name in ("padding", "pre_padding", "post_padding", "stride", "dilation")
        }
        both, pre, post = (listed[name] for name in ("padding", "pre_padding", "post_padding"))
        if both is not None and (pre is not None or post is not None):
            what = "padding and pre_padding or post_padding"
            raise DnncError(Status.BAD_PARAM, what, "one of them")
        values = {
            **tensors,
            "pre_padding": pre if pre is not None else both or (0,) * spatial,
            "post_padding": post if post is not None else both or (0,) * spatial,
            "stride": listed["stride"] or (1,) * spatial,
            "dilation": listed["dilation"] or (1,) * spatial,
            "convolution_mode": choice_of(given["convolution_mode"], CONVOLUTION_MODES),
            "compute_type": compute_type_of(graph, given["compute_data_type"], kind),
            "name": given["name"],
        }
        return graph._append(kind, values, given["label"])

    return body


def _slice(graph: Any, given: dict[str, Any]) -> Any:
    x = graph._operand(given["input"], 1)
    dims = _dims_of(x, "slice")
    listed = () if given["slices"] is None else given["slices"]
    slices = list(listed) if isinstance(listed, Sequence) else [listed, *([None] * x.rank)]
    slices += [slice(None)] * (x.rank - len(slices))
    if len(slices) != x.rank or not all(isinstance(s, slice) and s.step != 0 for s in slices):
        raise DnncError(
            Status.BAD_PARAM,
            f"slices {given['slices']!r}",
            f"a list of at most {x.rank} Python slices, of steps of at least 1",
        )
    bounds = [_bounds(dims[axis].constant, s, axis) for axis, s in enumerate(slices)]
    starts, stops, steps = ([bound[i] for bound in bounds] for i in range(3))
    taken = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    values = {"x": x, **taken, "name": given["name"]}
    return graph._append(Slice, values, given["label"])


def _bounds(extent: int | None, s: slice, axis: int) -> tuple[int, int, int]:
    """(start, stop, step), normalized to the size as Python does; the whole axis is (0, -1, 1)."""
    if s == slice(None):
        return 0, -1, 1
    for number in (s.start, s.stop, s.step):
        if number is not None:
            _integer("slice", number)
    where = f"slice {_slice_text(s)} of axis {axis}"
    if s.step is not None and s.step < 0:
        raise DnncError(Status.BAD_PARAM, f"step {s.step}", "a step of at least 1", where)
    if extent is None:
        start, stop, step = s.start or 0, s.stop, s.step or 1
        if start < 0 or (stop is not None and stop < 0):
            raise DnncError(
                Status.NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
                "a negative bound, counted from an end that is known at run time only",
                "that axis taken whole",
                where,
            )
        return start, -1 if stop is None else stop, step
    start, stop, step = s.indices(extent)
    if start >= stop:
        raise DnncError(
            Status.BAD_PARAM, "no element", f"at least one of the axis's {extent} elements", where
        )
    return start, stop, step


def _slice_text(s: slice) -> str:
    """1:-1:2, as it is written between brackets"""
    parts = ["" if number is None else str(number) for number in (s.start, s.stop, s.step)]
    return ":".join(parts if parts[2] else parts[:2])


def _instancenorm_backward(graph: Any, given: dict[str, Any]) -> Any:
    for name in ("mean", "inv_variance"):
        if given[name] is None:
            raise DnncError(
                Status.BAD_PARAM,
                f"{name} is not given",
                "mean and inv_variance, which instancenorm gives in TRAINING",
                "instancenorm_backward",
            )
    return _op_body(InstancenormBackward)(graph, given)


def _over_axes(kind: type[Op]) -> Callable[..., Any]:
    """An operation whose axis may be a number or a list of them."""
    body = _op_body(kind)

    def listed(graph: Any, given: dict[str, Any]) -> Any:
        axis = given["axis"]
        is_one = hasattr(axis, "__index__")
        return body(graph, {**given, "axis": (axis,) if is_one else axis})

    return listed


def _reduction(graph: Any, given: dict[str, Any]) -> Any:
    """Y alone, or [Y, Index] where an index is asked for."""
    has_index = bool(given["generate_index"])
    made = _op_body(Reduction)(graph, {**given, "generate_index": has_index or None})
    return made if has_index else made[0]


_WINDOW = ("pre_padding", "post_padding", "stride", "window")


def _resampling(kind: type[Op]) -> Callable[..., Any]:
    """An operation over windows, whose sizes may be fractions."""
    body = _op_body(kind)

    def of_numbers(graph: Any, given: dict[str, Any]) -> Any:
        first = next(f.parameter for f in kind.fields_of("operand"))
        spatial = max(1, _rank_of([given[first]]) - 2)
        fractions = {name: _fractions(name, _each(given[name], spatial)) for name in _WINDOW}
        parts = [value for values in fractions.values() for value in values]
        common = math.lcm(*(value.denominator for value in parts))
        whole = {name: [int(v * common) for v in values] for name, values in fractions.items()}
        row = resampling.MODES.get(choice_of(given["resample_mode"], resampling.MODES), ("", None))
        padding = given["padding_mode"] or row[1]
        return body(graph, {**given, **whole, "denominator": common, "padding_mode": padding})

    return of_numbers


def _fractions(parameter: str, given: Any) -> list[Fraction]:
    try:
        return [_fraction(value) for value in given]
    except (TypeError, ValueError, ArithmeticError):
        wanted = "a list of numbers, or of pairs (numerator, denominator)"
        raise _no_integer(parameter, given, wanted) from None


def _fraction(value: Any) -> Fraction:
    """A number, or a pair (numerator, denominator)."""
    if isinstance(value, Sequence):
        return Fraction(*value)
    return Fraction(value).limit_denominator(1 << 10)


def _rng(graph: Any, given: dict[str, Any]) -> Any:
    def number(value: Any) -> Any:
        return graph.tensor_scalar(value, data_type=dtypes.i64) if type(value) is int else value

    scalars = {name: number(given[name]) for name in ("seed", "offset")}
    y = _op_body(Rng)(graph, {**given, **scalars})
    if given["dim"] is not None:
        y.set_dim(given["dim"])
    return y if given["stride"] is None else y.set_stride(given["stride"])


def _concatenate(graph: Any, given: dict[str, Any]) -> Any:
    inputs = tuple(graph._operand(item, 1) for item in _listed("inputs", given["inputs"]))
    values = {"inputs": inputs, "axis": _integer("axis", given["axis"]), "name": given["name"]}
    return graph._append(
        Concatenate, {**values, "in_place_index": given["in_place_index"]}, given["label"]
    )


_ADAPTERS: dict[type[Op], tuple[list[inspect.Parameter], Callable[..., Any]]] = {
    **{
        kind: (
            [
                *(_parameter(f.parameter) for f in kind.fields_of("operand")),
                _parameter("padding", None),
                _parameter("stride", None),
                _parameter("dilation", None),
                _parameter("convolution_mode", "CROSS_CORRELATION"),
                *_COMMON,
                _parameter("pre_padding", None),
                _parameter("post_padding", None),
            ],
            _convolution(kind),
        )
        for kind in (ConvFprop, ConvDgrad, ConvWgrad)
    },
    Slice: ([_parameter("input"), _parameter("slices", ()), *_COMMON], _slice),
    Broadcast: (
        [_parameter("input"), _parameter("dim"), _parameter("name", "")], broadcasts.broadcast
    ),
    Concatenate: (
        [_parameter("inputs"), _parameter("axis"), _parameter("in_place_index", None),
         _NAME],
        _concatenate,
    ),
    **{
        kind: (
            [*(p for p in _parameters(kind) if p.name != "peer_rank"), *_COMMON,
             _parameter("peer_rank", None)],
            _op_body(kind),
        )
        for kind in (Batchnorm, BatchnormBackward)
    },
    Reduction: (
        [_parameter("input"), _parameter("mode"), *_COMMON, _GENERATE_INDEX],
        _reduction,
    ),
    Resample: (
        [_parameter("input"), _parameter("resample_mode"),
         *(_parameter(name) for name in _WINDOW), _parameter("padding_mode", None),
         _GENERATE_INDEX, *_COMMON],
        _resampling(Resample),
    ),
    ResampleBackward: (
        [_parameter("loss"), _parameter("resample_mode"),
         *(_parameter(name) for name in _WINDOW), _parameter("padding_mode", None),
         _parameter("input", None), _parameter("output", None), _parameter("index", None),
         *_COMMON],
        _resampling(ResampleBackward),
    ),
    Rng: (
        [_parameter("seed"), _parameter("offset", 0), _parameter("distribution", "BERNOULLI"),
         *(_parameter(f.name, None) for f in Rng.fields_of("attribute") if f.optional),
         _parameter("dim", None), _parameter("stride", None), _NAME],
        _rng,
    ),
    InstancenormBackward: (
        [_parameter("grad"), _parameter("input"), _parameter("scale"), _parameter("mean", None),
         _parameter("inv_variance", None), *_COMMON],
        _instancenorm_backward,
    ),
    Softmax: (
        [_parameter("input"), _parameter("axis", -1), _parameter("algorithm", "ACCURATE"),
         *_COMMON],
        _over_axes(Softmax),
    ),
    SoftmaxBackward: (
        [_parameter("grad"), _parameter("output"), _parameter("axis", -1),
         _parameter("algorithm", "ACCURATE"), *_COMMON],
        _over_axes(SoftmaxBackward),
    ),
}  # fmt: skip


def methods() -> dict[str, Any]:
    """Every operation method by name."""
    found: dict[str, Any] = {}
    for kind in OPS:
        if kind is Pointwise:
            continue
        if kind in _ADAPTERS:
            parameters, body = _ADAPTERS[kind]
            doc = inspect.cleandoc(kind.__doc__ or "")
            found[kind.op_name] = _make(kind.op_name, parameters, doc, body)
        else:
            found[kind.op_name] = operation_method(kind)
    for mode in MODES:
        for name, operands in mode.methods:
            found[name] = _pointwise_method(mode, name, operands)
    found["leaky_relu"] = _leaky("relu_fwd", "leaky_relu", ("input",))
    found["leaky_relu_backward"] = _leaky("relu_bwd", "leaky_relu_backward", ("loss", "input"))
    return found
