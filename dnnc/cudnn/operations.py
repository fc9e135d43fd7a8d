"""The operation methods of cudnn-frontend's graph, one row each.

A row says under which names and in which order a method takes its arguments, which results it
gives, how cuDNN names them, and, for an operation that dnnc lacks, why and from which step on the
graph is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import DnncError, DnncTypeError
from . import moments

_FAMILIES = (
    "COMPOSITE CONV_FPROP CONV_DGRAD CONV_WGRAD GENSTATS RESHAPE SLICE CONCATENATE TRANSPOSE ROPE "
    "ROPE_BWD MOE_GROUPED_MATMUL_BWD MATMUL MATMUL_FP8 POINTWISE REDUCTION RMSNORM RMSNORM_BWD "
    "LAYERNORM LAYERNORM_BWD ADALAYERNORM ADALAYERNORM_BWD INSTANCENORM INSTANCENORM_BWD "
    "BATCHNORM BATCHNORM_INFERENCE BATCHNORM_BWD SDPA SDPA_BWD SDPA_FP8 SDPA_FP8_BWD SDPA_MXFP8 "
    "SDPA_MXFP8_BWD GDN GDN_BWD KDA KDA_BWD GDN2 GDN2_BWD MOE_GROUPED_MATMUL BLOCK_SCALE_QUANTIZE "
    "BLOCK_SCALE_DEQUANTIZE GDP GDP_BWD GDN_SUMMARY KDA_SUMMARY GDN2_SUMMARY GDP_SUMMARY "
    "GDN_SUMMARY_BWD KDA_SUMMARY_BWD GDN2_SUMMARY_BWD GDP_SUMMARY_BWD MAMBA2 MAMBA2_BWD "
    "MAMBA2_SUMMARY MAMBA2_SUMMARY_BWD"
)

NodeType: Any = Enum("NodeType", _FAMILIES)


@dataclass(frozen=True)
class Missing:
    """Why dnnc lacks an operation, and the step that refuses a graph with it."""

    reason: str
    step: str = moments.VALIDATE


Given = Mapping[str, Any]


@dataclass(frozen=True)
class Operation:
    """A method of a graph.

    method: its name.  family: the type of its node.  arguments: names in positional order, `name`
    and `compute_data_type` among them where a caller may give these by position.  required:
    arguments without which, or with None, the call is a TypeError.  needed: arguments without which
    `validate` refuses the graph, with the class of its error.  results: ports in the order they are
    returned.  suffixes: how cuDNN names a result, where not as its port.  conditions: port ->
    whether a call has that result.  is_listed: whether a call gives a list, also of one.
    written: arguments that are results, whose descriptors the caller gives.  is_open: whether it
    takes keywords beside its arguments.
    """

    method: str
    family: Any
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    required: tuple[str, ...] = ()
    needed: Mapping[str, type[DnncError]] = field(default_factory=dict[str, type[DnncError]])
    suffixes: Mapping[str, str] = field(default_factory=dict[str, str])
    conditions: Mapping[str, Callable[[Given], bool]] = field(
        default_factory=dict[str, Callable[[Given], bool]]
    )
    is_listed: bool = False
    written: tuple[str, ...] = ()
    missing: Missing | None = None
    is_open: bool = False

    @property
    def is_pointwise(self) -> bool:
        return self.family is NodeType.POINTWISE

    def label(self, port: str) -> str:
        """The suffix of a result's name."""
        return self.suffixes.get(port, port)


_TYPE_AND_NAME = ("compute_data_type", "name")


def _pointwise(methods: str, tensors: str, extra: str = "") -> list[Operation]:
    """Methods of one shape."""
    ports = tuple(tensors.split())
    # Methods with numbers have the name ahead of the type in 1.32.
    common = ("name", "compute_data_type") if extra else _TYPE_AND_NAME
    required = (*ports, *(e for e in extra.split() if e in ("axis", "negative_slope!")))
    extras = tuple(e.rstrip("!") for e in extra.split())
    return [
        Operation(
            method, NodeType.POINTWISE, (*ports, *extras, *common), ("OUT_0",),
            tuple(name.rstrip("!") for name in required),
        )
        for method in methods.split()
    ]  # fmt: skip


def _row(
    method: str,
    family: str,
    arguments: str,
    results: str,
    conditions: Mapping[str, Callable[[Given], bool]] | None = None,
    missing: Missing | None = None,
    written: str = "",
    is_open: bool = False,
    common: tuple[str, ...] = _TYPE_AND_NAME,
    required: str = "",
    needed: str = "",
) -> Operation:
    """A row; a result is `port` or `port:SUFFIX`.

    needed: names; where cudnn-frontend's error is a TypeError, not a ValueError, with a "!".
    """
    pairs = [text.partition(":") for text in results.split()]
    listed = arguments.split()
    return Operation(
        method,
        NodeType[family],
        (*listed, *(name for name in common if name not in listed)),
        tuple(port for port, _, _ in pairs),
        required=tuple(required.split()),
        needed={
            name.rstrip("!"): DnncTypeError if name.endswith("!") else DnncError
            for name in needed.split()
        },
        suffixes={port: suffix for port, _, suffix in pairs if suffix},
        conditions=conditions or {},
        is_listed=len(pairs) > 1,
        written=tuple(written.split()),
        missing=missing,
        is_open=is_open,
    )


# ---- which results a call has


def _is_training(given: Given) -> bool:
    """Whether a norm gives statistics, as it does until `validate` where it is not told."""
    phase = given.get("norm_forward_phase")
    return str(getattr(phase, "name", phase)).upper() != "INFERENCE"


def _has(argument: str) -> Callable[[Given], bool]:
    return lambda given: given.get(argument) is not None


def _has_dbias(given: Given) -> bool:
    return given.get("scale") is not None and given.get("has_dbias") is not False


def _has_stats(given: Given) -> bool:
    generate, is_inference = given.get("generate_stats"), given.get("is_inference")
    return bool(generate) if generate is not None else is_inference is False


_STATS = {"mean": _is_training, "inv_var": _is_training}
_PHASE = "norm_forward_phase"
_FORWARD = f"input scale bias epsilon {_PHASE}"
_MOMENTS = "Y mean:MEAN inv_var:INV_VARIANCE"
_BACKWARD = "grad input scale mean inv_variance"
_NEEDED_FORWARD = f"input epsilon! {_PHASE}!"
_NEEDED_BACKWARD = "grad! input scale mean! inv_variance!"
_GRADIENTS = "DX DScale:DSCALE DBias:DBIAS"
_SCALED = {"DScale": _has("scale"), "DBias": _has("scale")}
_WINDOW = "padding pre_padding post_padding stride dilation convolution_mode"

# ---- why there is none

_SM_100 = "of sm_100: its formats and tensor-core instructions are not on Hopper or before"
_RECURRENT = "a linear recurrence, which cudnn-frontend's own kernels for sm_100 serve"
_SERVED_ELSEWHERE = Missing(_RECURRENT, moments.PLAN)

_MASKS = (
    "use_causal_mask use_causal_mask_bottom_right {window} diagonal_alignment {left} {right} "
    "dropout rng_dump"
)
_PAGES = "paged_attention_k_table paged_attention_v_table paged_attention_max_seq_len_kv"
_TOTALS = "max_total_seq_len_q max_total_seq_len_kv"
_SUMS = "cu_seq_len_q cu_seq_len_kv"
_ENGINES_OWN = "stats_use_log2 softmax_precision attn_scale_prefolded"
_LENGTHS = "use_padding_mask seq_len_q seq_len_kv"
_F16_MASKS = _MASKS.format(
    window="sliding_window_length",
    left="diagonal_band_left_bound",
    right="diagonal_band_right_bound",
)
_FP8_MASKS = _MASKS.format(window="sliding_window", left="left_bound", right="right_bound")
_QKV = "q k v descale_q descale_k descale_v"

_SDPA = (
    f"q k v is_inference attn_scale bias block_mask use_alibi_mask {_LENGTHS} {_F16_MASKS} "
    f"{_PAGES} {_TOTALS} compute_data_type name score_mod generate_stats implementation score_max "
    f"score_sum_exp sink_token unfuse_fma {_SUMS} {_ENGINES_OWN} kv_mask"
)
_SDPA_FP8 = (
    f"{_QKV} descale_s scale_s scale_o is_inference attn_scale bias use_alibi_mask {_LENGTHS} "
    f"{_FP8_MASKS} {_PAGES} {_TOTALS} compute_data_type name fn generate_stats score_max "
    f"score_sum_exp sink_token unfuse_fma implementation {_SUMS} {_ENGINES_OWN} sf_o"
)
_SDPA_BACKWARD = (
    f"q k v o dO stats attn_scale bias dBias use_alibi_mask {_LENGTHS} {_TOTALS} {_F16_MASKS} "
    "use_deterministic_algorithm compute_data_type name score_mod score_mod_bprop sink_token "
    f"dSink_token {_ENGINES_OWN}"
)
_FP8_GRADIENT = (
    "q k v o dO stats descale_q descale_k descale_v descale_o descale_dO descale_s descale_dP "
    "scale_s scale_dQ scale_dK scale_dV scale_dP"
)
_FP8_GRADIENT_END = (
    f"attn_scale {_LENGTHS} use_causal_mask use_causal_mask_bottom_right diagonal_alignment "
    "left_bound right_bound use_deterministic_algorithm dropout compute_data_type name sink_token "
    f"dSink_token {_TOTALS} {_ENGINES_OWN}"
)

_UNARY = (
    "abs ceil cos elu erf exp floor gelu gelu_approx_tanh identity log logical_not neg reciprocal "
    "rsqrt sigmoid sin softplus sqrt tan tanh"
)
_DERIVED = (
    "elu_backward gelu_approx_tanh_backward gelu_backward sigmoid_backward softplus_backward "
    "tanh_backward"
)
_CLIPS = "negative_slope lower_clip upper_clip"

_RECURRENCES = tuple(
    _row(
        method, method.upper(), arguments, results,
        missing=_SERVED_ELSEWHERE, is_open=True,
    )
    for kind, gates in (("gdn", "beta"), ("gdn2", "beta w"), ("gdp", "beta"), ("kda", "beta"),
                        ("mamba2", "a"))
    for method, arguments, results in (
        (kind, f"q k v g {gates} cu_seqlens", "O final_state state_checkpoints"),
        (f"{kind}_bwd", f"q k v g {gates} cu_seqlens dO", "dQ dK dV dG"),
        (f"{kind}_summary", f"k v g {gates} cu_seqlens", "final_state transition"),
        (f"{kind}_summary_bwd", f"q k g {gates} cu_seqlens dO", "d_initial_state transition"),
    )
)  # fmt: skip

OPERATIONS: Mapping[str, Operation] = {
    row.method: row
    for row in (
        *_pointwise(_UNARY, "input"),
        *_pointwise("add add_square div logical_and logical_or mul sub", "a b"),
        *_pointwise("max min mod pow", "input0 input1"),
        *_pointwise("cmp_eq cmp_ge cmp_gt cmp_le cmp_lt cmp_neq", "input comparison"),
        *_pointwise("bias", "input bias"),
        *_pointwise("scale", "input scale"),
        *_pointwise(_DERIVED, "loss input"),
        *_pointwise("binary_select", "input0 input1 mask"),
        *_pointwise("relu", "input", _CLIPS),
        *_pointwise("relu_backward", "loss input", _CLIPS),
        *_pointwise("leaky_relu", "input", "negative_slope!"),
        *_pointwise("leaky_relu_backward", "loss input", "negative_slope!"),
        *_pointwise("swish", "input", "swish_beta"),
        *_pointwise("swish_backward", "loss input", "swish_beta"),
        *_pointwise("gen_index", "input", "axis"),
        _row("matmul", "MATMUL", "A B compute_data_type padding name", "C",
             required="A B"),
        _row("conv_fprop", "CONV_FPROP", f"image weight {_WINDOW}", "Y",
             needed="image weight"),
        _row("conv_dgrad", "CONV_DGRAD", f"loss filter {_WINDOW}", "DX",
             needed="loss! filter!"),
        _row("conv_wgrad", "CONV_WGRAD", f"image loss {_WINDOW}", "DW",
             needed="image! loss!"),
        _row("genstats", "GENSTATS", "input", "SUM SQ_SUM", needed="input"),
        _row("reduction", "REDUCTION", "input group_offset mode", "OUT_0",
             needed="input! mode!"),
        _row("reshape", "RESHAPE", "input name reshape_mode", "OUT_0", needed="input!"),
        _row("slice", "SLICE", "input slices", "OUT_0", needed="input slices"),
        _row("transpose", "TRANSPOSE", "input permutation", "OUT_0",
             needed="input permutation"),
        _row("concatenate", "CONCATENATE", "inputs axis in_place_index name", "OUT_0",
             needed="inputs axis"),
        _row("rmsnorm", "RMSNORM", _FORWARD, "Y inv_var:INV_VARIANCE", _STATS,
             needed=_NEEDED_FORWARD),
        _row(
            "rmsnorm_backward", "RMSNORM_BWD", "grad input scale inv_variance has_dbias",
            "DX DScale:Dscale DBias:Dbias", {"DScale": _has("scale"), "DBias": _has_dbias},
            needed="grad! input inv_variance!",
        ),
        _row("layernorm", "LAYERNORM", _FORWARD, _MOMENTS, _STATS, needed=_NEEDED_FORWARD),
        _row("layernorm_backward", "LAYERNORM_BWD", _BACKWARD, _GRADIENTS, _SCALED,
             needed="grad! input mean! inv_variance!"),
        _row("adalayernorm", "ADALAYERNORM", _FORWARD, _MOMENTS, _STATS,
             needed=f"{_NEEDED_FORWARD} scale!"),
        _row("adalayernorm_backward", "ADALAYERNORM_BWD", _BACKWARD, _GRADIENTS,
             needed=_NEEDED_BACKWARD),
        _row("instancenorm", "INSTANCENORM", _FORWARD, _MOMENTS, _STATS,
             needed=f"{_NEEDED_FORWARD} scale! bias!"),
        _row("instancenorm_backward", "INSTANCENORM_BWD", _BACKWARD, _GRADIENTS,
             needed="grad! input scale"),
        _row(
            "batchnorm", "BATCHNORM",
            "input scale bias in_running_mean in_running_var epsilon momentum peer_stats",
            f"{_MOMENTS} next_running_mean:NEXT_RUNNING_MEAN next_running_var:NEXT_RUNNING_VAR",
            {"next_running_mean": _has("in_running_mean"),
             "next_running_var": _has("in_running_var")},
            needed="input scale! bias! epsilon!",
        ),
        _row("batchnorm_inference", "BATCHNORM_INFERENCE",
             "input mean inv_variance scale bias", "Y",
             needed="input mean! inv_variance! scale! bias!"),
        _row("batchnorm_backward", "BATCHNORM_BWD", f"{_BACKWARD} peer_stats", _GRADIENTS,
             needed=_NEEDED_BACKWARD),
        _row(
            "moe_grouped_matmul", "MOE_GROUPED_MATMUL",
            "token weight first_token_offset token_index token_ks mode top_k compute_data_type "
            "name top_k_scores", "OUT_0", needed="token weight first_token_offset!",
        ),
        _row(
            "moe_grouped_matmul_bwd", "MOE_GROUPED_MATMUL_BWD",
            "doutput token first_token_offset", "dweight",
            missing=Missing("the gradient of a grouped matmul's weights", moments.BUILD),
        ),
        _row("rope", "ROPE", "input freqs output_scale rope_dim", "OUT_0",
             needed="input freqs!"),
        _row("rope_backward", "ROPE_BWD", "dY freqs output_scale rope_dim", "OUT_0",
             needed="dY freqs!"),
        _row("block_scale_dequantize", "BLOCK_SCALE_DEQUANTIZE",
             "input descale block_size is_negative_scale", "OUT_0",
             missing=Missing(_SM_100, moments.PLAN)),
        _row("block_scale_quantize", "BLOCK_SCALE_QUANTIZE",
             "input group_offset block_size axis transpose", "Y scale",
             missing=Missing(_SM_100, moments.PLAN)),
        _row("sdpa", "SDPA", _SDPA, "O Stats", {"Stats": _has_stats}, needed="q! k! v!",
             written="rng_dump score_max score_sum_exp"),
        _row("sdpa_fp8", "SDPA_FP8", _SDPA_FP8, "O Stats Amax_S Amax_O", {"Stats": _has_stats},
             needed="q! k! v! descale_q! descale_k! descale_v! descale_s! scale_s! scale_o!",
             written="rng_dump score_max score_sum_exp sf_o"),
        _row("sdpa_backward", "SDPA_BWD", _SDPA_BACKWARD, "dQ dK dV",
             needed="q! k! v! o! dO! stats!",
             written="dBias dSink_token rng_dump"),
        _row("sdpa_fp8_backward", "SDPA_FP8_BWD",
             f"{_FP8_GRADIENT} {_FP8_GRADIENT_END}",
             "dQ dK dV amax_dQ amax_dK amax_dV amax_dP",
             needed=_FP8_GRADIENT, written="dSink_token"),
        _row("sdpa_mxfp8", "SDPA_MXFP8",
             f"{_QKV} attn_scale use_causal_mask use_causal_mask_bottom_right diagonal_alignment "
             "diagonal_band_left_bound diagonal_band_right_bound compute_data_type name "
             f"generate_stats sink_token unfuse_fma implementation {_LENGTHS} {_TOTALS} {_SUMS} "
             f"{_PAGES} {_ENGINES_OWN} sf_o scale_o",
             "O Stats Amax_O", {"Stats": _has_stats}, missing=Missing(_SM_100), written="sf_o"),
        _row("sdpa_mxfp8_backward", "SDPA_MXFP8_BWD",
             "q q_T k k_T v o_f16 dO_f16 dO dO_T stats descale_q descale_q_T descale_k "
             f"descale_k_T descale_v descale_dO descale_dO_T {_FP8_GRADIENT_END}",
             "dQ dK dV amax_dQ amax_dK amax_dV",
             missing=Missing(_SM_100), written="dSink_token"),
        *_RECURRENCES,
    )
}  # fmt: skip

# Older names.
ALIASES = {
    "scaled_dot_product_flash_attention": "sdpa",
    "scaled_dot_product_flash_attention_backward": "sdpa_backward",
}
