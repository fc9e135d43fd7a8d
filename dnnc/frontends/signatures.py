"""Types and descriptions of the operation methods' parameters and results.

They come from the operations' fields.  What a field can't say, since the method takes something
else than the operation has, is in the tables here.  `describe` puts them on the methods, for
`help` and `inspect.signature`; `docs/generate_stubs.py` writes them as `operations.pyi`, which
editors and type checkers read.  Annotations are texts: names of `argument_types`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..dialect.op import Field, Op
from ..dialect.ops import BY_NAME, Pointwise
from ..dtypes import DType
from . import enums

# Where the constraints of an operation begin in its docstring.
CONSTRAINTS = "\n\nConstraints:"

_EMPTY = inspect.Parameter.empty

# ---- types

_CHOICES = {
    "convolution_mode": "ConvolutionMode",
    "distribution": "RngDistribution",
    "norm_forward_phase": "NormPhase",
    "padding_mode": "PaddingMode",
    "resample_mode": "ResampleMode",
    "reshape_mode": "ReshapeMode",
    "activation": "Activation",
    "algorithm": "SoftmaxAlgorithm",
    "moe_grouped_matmul.mode": "GroupedMatmulMode",
    "peer_reduction.mode": "PeerMode",
    "reduction.mode": "ReductionMode",
}
_ATTRIBUTES: dict[Any, str] = {
    DType: "DataType", bool: "bool", float: "float", int: "SupportsIndex", tuple: "Integers",
}  # fmt: skip

# Parameters that are taken in another form than the field has, or that are no fields, by method
# and name or by name alone: (type, what it is).
_BOTH_SIDES = "elements before and after each spatial dim"
_OTHERS = {
    "compute_data_type": ("DataType | None", ""),
    "name": ("str", "a label; results are named after it"),
    "conv.padding": ("Spatial | None", f"{_BOTH_SIDES}; default 0"),
    "conv.stride": ("Spatial | None", "steps of the filter in each spatial dim; default 1"),
    "conv.dilation": ("Spatial | None", "distance of the filter's elements; default 1"),
    "conv.pre_padding": (
        "Spatial | None",
        "elements before each spatial dim, if padding is not given",
    ),
    "conv.post_padding": (
        "Spatial | None",
        "elements after each spatial dim, if padding is not given",
    ),
    "resample.pre_padding": ("Fractions", "elements before each spatial dim"),
    "resample.post_padding": ("Fractions", "elements after each spatial dim"),
    "resample.stride": ("Fractions", "from a window to the next, in each spatial dim"),
    "resample.window": ("Fractions", "its size, in each spatial dim"),
    "resample.padding_mode": ("PaddingMode | None", "what is around X; default: the mode's own"),
    "resample.generate_index": ("bool", "whether MAXPOOL has an index"),
    "reduction.generate_index": ("bool", "whether there is an index, of min, max and amax"),
    "broadcast.dim": ("Sizes", "dims of the result"),
    "rng.seed": ("Operand", "[1, ..., 1], INT64, or a number"),
    "rng.offset": ("Operand", "[1, ..., 1], INT64, or a number"),
    "rng.dim": ("Sizes | None", "dims of the result; None: set_dim sets them"),
    "rng.stride": ("Sizes | None", "strides of the result, in elements; default row-major"),
    "slice.slices": ("Slices", "a Python slice for each axis; what is left out is taken whole"),
    "softmax.axis": ("Spatial", "the axes of a sum: one, or several"),
    "gen_index.axis": ("SupportsIndex", "the axis whose indices are given"),
    "leaky_relu.negative_slope": ("float", "relu's slope below 0"),
    # Those of attention are written out, with their types.
    "sdpa.is_inference": ("", "whether there are no stats: the negation of generate_stats"),
    "sdpa.generate_stats": ("", "whether stats are made; it or is_inference must be given"),
    "sdpa.use_padding_mask": ("", "whether keys and rows past seq_len_kv and seq_len_q are hidden"),
    "sdpa.use_causal_mask": ("", "TOP_LEFT and a right bound of 0"),
    "sdpa.use_causal_mask_bottom_right": ("", "BOTTOM_RIGHT and a right bound of 0"),
    "sdpa.sliding_window_length": ("", "a left bound"),
    "sdpa.sliding_window": ("", "a left bound"),
    "sdpa.dropout": ("", "(probability, seed, offset), or (mask, scale)"),
    "sdpa.score_mod": ("", "a function of the graph and the scaled scores that gives others"),
    "sdpa.fn": ("", "a function of the graph and the scaled scores that gives others"),
    "sdpa.score_mod_bprop": (
        "",
        "a function of the graph and the gradient of what score_mod gives",
    ),
    "sdpa.implementation": ("", "any of cuDNN's; all are the same here"),
    "sdpa.unfuse_fma": ("", "False"),
    "sdpa.max_total_seq_len_q": ("", "rows that packed queries have; default B * Sq"),
    "sdpa.max_total_seq_len_kv": ("", "rows that packed keys have; default B * Skv"),
    "sdpa.cu_seq_len_q": ("", "[B + 1, 1, 1, 1], INT32, where queries of a batch begin, in rows"),
    "sdpa.cu_seq_len_kv": ("", "[B + 1, 1, 1, 1], INT32, where keys of a batch begin, in rows"),
    "sdpa.softmax_precision": ("", "none: what compute_data_type says"),
    "sdpa.attn_scale_prefolded": ("", "False"),
    "sdpa.kv_mask": ("", "none: a bias says it"),
}
_FAMILIES = {
    "conv_fprop": "conv", "conv_dgrad": "conv", "conv_wgrad": "conv", "sdpa_fp8": "sdpa",
    "sdpa_backward": "sdpa", "sdpa_fp8_backward": "sdpa",
    "resample_backward": "resample", "softmax_backward": "softmax",
    "leaky_relu_backward": "leaky_relu",
}  # fmt: skip

# Calls of a method whose results are known more exactly: parameters -> their types, then the names
# of the operation's results that are None.
_STATISTICS = ("mean", "inv_variance")
_FORMS: dict[str, tuple[tuple[dict[str, str], tuple[str, ...]], ...]] = {
    **{
        name: (({"norm_forward_phase": "Training"}, ()),
               ({"norm_forward_phase": "Inference"}, _STATISTICS))
        for name in ("layernorm", "rmsnorm", "adalayernorm", "instancenorm")
    },
    "batchnorm": (
        ({"in_running_mean": "Tensor", "in_running_var": "Tensor", "momentum": "Operand"}, ()),
    ),
    "bn_finalize": (
        ({"prev_running_mean": "Tensor", "prev_running_var": "Tensor", "momentum": "Operand"}, ()),
    ),
    "rmsnorm_backward": (
        ({"has_dbias": "Literal[True]"}, ()),
        ({"has_dbias": "Literal[False]"}, ("dbias",)),
    ),
    "reduction": (
        ({"generate_index": "Literal[False]"}, ("index",)),
        ({"generate_index": "Literal[True]"}, ()),
    ),
    "resample": (
        ({"generate_index": "Literal[False]"}, ("index",)),
        ({"resample_mode": "MaxPool", "generate_index": "Literal[True]"}, ()),
    ),
    **{
        name: (({"generate_stats": "Literal[True]", "is_inference": "Literal[False] | None"}, ()),
               ({"generate_stats": "Literal[False]", "is_inference": "Literal[True] | None"},
                ("stats",)),
               ({"is_inference": "Literal[True]", "generate_stats": "None"}, ("stats",)),
               ({"is_inference": "Literal[False]", "generate_stats": "None"}, ()))
        for name in ("sdpa", "sdpa_fp8")
    },
}  # fmt: skip


def _kind_of(method: str) -> type[Op]:
    return BY_NAME.get(method, Pointwise)


def _field_of(method: str, parameter: str) -> Field | None:
    """The field that a parameter gives; operands of pointwise modes have none."""
    kind = _kind_of(method)
    fields = [f for f in kind.fields if kind is not Pointwise or f.kind == "attribute"]
    named = {f.name: f for f in fields} | {f.parameter: f for f in fields}
    return named.get(parameter)


def _other(method: str, parameter: str) -> tuple[str, str] | None:
    for key in (f"{method}.", f"{_FAMILIES.get(method)}.", ""):
        if (found := _OTHERS.get(f"{key}{parameter}")) is not None:
            return found
    return None


def _annotation(method: str, parameter: str) -> str:
    other, field = _other(method, parameter), _field_of(method, parameter)
    if other is not None:
        return other[0]
    if field is None:
        assert _kind_of(method) is Pointwise, (
            f"_OTHERS needs {method}.{parameter}, which is no field"
        )
        return "Operand"
    if field.kind == "operand":
        named = "Tensors" if field.variadic else "Tensor"
        is_scalar = field.doc == "a scalar"
        return _or_none("Operand" if is_scalar else named, field.optional)
    named = _CHOICES.get(f"{method}.{parameter}") or _CHOICES.get(parameter)
    return _or_none(named or _ATTRIBUTES[field.type], field.optional)


def _or_none(annotation: str, is_optional: bool) -> str:
    return f"{annotation} | None" if is_optional else annotation


def is_required(method: str, parameter: inspect.Parameter) -> bool:
    """Whether a call must give it, though Python has a default after others with one."""
    field = _field_of(method, parameter.name)
    if field is None or _other(method, parameter.name) is not None:
        return False
    return not field.optional and field.default is None


# ---- results


def _results(method: str) -> Sequence[Field]:
    results = _kind_of(method).fields_of("result")
    if method in ("sdpa", "sdpa_fp8"):
        return [f for f in results if f.name in ("o", "stats", "amax_s", "amax_o")]
    if method == "sdpa_backward":
        return [f for f in results if f.name in ("dq", "dk", "dv")]
    if method == "sdpa_fp8_backward":
        return [f for f in results if f.name != "dsink_token"]
    return results


def _returned(method: str, absent: tuple[str, ...] | None) -> str:
    """The type of what a call returns; absent: the results that are None, None: not known."""
    results = _results(method)
    if len(results) == 1 or (method == "reduction" and absent == ("index",)):
        return "GraphTensor"
    if method == "reduction" and absent is None:
        return "GraphTensor | tuple[GraphTensor, GraphTensor]"
    given = [
        "None"
        if f.name in (absent or ())
        else _or_none("GraphTensor", f.optional and absent is None)
        for f in results
    ]
    return f"tuple[{', '.join(given)}]"


def signatures(method: str, signature: inspect.Signature) -> Iterator[inspect.Signature]:
    """The overloads of a method, the most general one last."""
    for given, absent in _FORMS.get(method, ()):
        narrowed = _in_order([_narrowed(p, given) for p in signature.parameters.values()], method)
        yield inspect.Signature(narrowed, return_annotation=_returned(method, absent))
    yield signature


def _narrowed(parameter: inspect.Parameter, given: Mapping[str, str]) -> inspect.Parameter:
    """A parameter as an overload has it: with a default only if that is of the overload's type."""
    annotation = given.get(parameter.name)
    if annotation is None:
        return parameter
    default = parameter.default
    fits = annotation == f"Literal[{default}]" or (default is None and "None" in annotation)
    return parameter.replace(annotation=annotation, default=default if fits else _EMPTY)


def _in_order(parameters: Sequence[inspect.Parameter], method: str) -> list[inspect.Parameter]:
    """The parameters; what must be given after one with a default is given by name."""
    found: list[inspect.Parameter] = []
    for p in parameters:
        has_defaults = any(before.default is not _EMPTY for before in found)
        if not has_defaults and is_required(method, p):
            p = p.replace(default=_EMPTY)
        by_name = found and found[-1].kind is p.KEYWORD_ONLY
        if by_name or (has_defaults and p.default is _EMPTY):
            p = p.replace(kind=p.KEYWORD_ONLY)
        found.append(p)
    return found


# ---- on the methods


def describe(methods: Mapping[str, Any]) -> None:
    """Gives methods types of their parameters and results, and describes these in the docstrings.

    Methods that are written out have their types.
    """
    for name, method in methods.items():
        if method.__name__ != name:  # a second name
            continue
        typed = list(inspect.signature(method).parameters.values())
        if hasattr(method, "__signature__"):
            typed[1:] = [p.replace(annotation=_annotation(name, p.name)) for p in typed[1:]]
            method.__signature__ = inspect.Signature(typed, return_annotation=_returned(name, None))
        doc = inspect.cleandoc(method.__doc__)
        text, constraints, listed = doc.partition(CONSTRAINTS)
        method.__doc__ = f"{text}\n\n{_described(name, typed[1:])}{constraints}{listed}"


def _described(method: str, parameters: Sequence[inspect.Parameter]) -> str:
    said = [f"    {p.name}: {_meaning(method, p)}" for p in parameters]
    results = [f"{f.name}: {f.doc}" + "; may be None" * f.optional for f in _results(method)]
    if len(results) == 1:
        results = [_results(method)[0].doc]
    return "\n".join(["Arguments:", *said, "", "Returns:", *(f"    {text}" for text in results)])


def _meaning(method: str, parameter: inspect.Parameter) -> str:
    other, field = _other(method, parameter.name), _field_of(method, parameter.name)
    said = other[1] if other else field.doc if field else "a tensor, or a number"
    if parameter.name == "compute_data_type":
        if field is None:
            return "accepted; nothing is computed"
        return f"{field.doc}; default: the graph's"
    default = enums.text_of(parameter.default)
    if parameter.default in (_EMPTY, None, "", ()) or "default" in said:
        return f"{said}; optional" if field and field.optional and not other else said
    return f"{said}; default {default}"
