"""Where dnnc differs from what was recorded of cudnn-frontend, and why.

    python -m tests.frontend_oracle.differences     prints the table of docs/cudnn.md

A case that differs and stands in no row fails the tests, as does a row's case that is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .steps import Module


@dataclass(frozen=True)
class Row:
    """One difference.

    what: as docs say it.  why: "a fault there", "an operation of other devices", "stricter here",
    or "cuDNN 9.19 refuses it as well".  cases: those of the recorded file that have it.
    """

    what: str
    why: str
    cases: tuple[str, ...]


FAULT = "a fault there"
DEVICES = "an operation of other devices"
STRICT = "stricter here"
REFUSED = "cuDNN 9.19 refuses it as well"

ROWS = (
    Row(
        "`reshape` of memory with gaps is taken as a view, and reads the gaps. Here it is refused; "
        "`reshape_mode.LOGICAL` copies.",
        FAULT,
        ("reshape/wide_flat", "reshape/wide_4d", "reshape/wide_3d",
         "random/46", "random/117", "random/135", "random/140", "random/173", "random/182",
         "random/268"),
    ),
    Row(
        "`reshape` without dims gives a tensor of one element, whatever its input has; "
        "`cudnn.pygraph` refuses it as dnnc does.",
        FAULT,
        ("reshape/packed_no_dims", "reshape/wide_no_dims", "reshape/swapped_no_dims"),
    ),
    Row(
        "`reduction` to a part of an axis, [8, 2] of [8, 4], is taken.",
        FAULT,
        ("reduction/part", "reduction/rank"),
    ),
    Row(
        "`set_stride` on the result of a convolution, norm or view is forgotten if its dims are "
        "not known yet.",
        FAULT,
        ("random/56", "random/144"),
    ),
    Row(
        "The result of an operand whose elements overlap gets its strides, and overlaps too.",
        FAULT,
        ("wrong/layernorm/rows_training/input_shorter",
         "wrong/rmsnorm/rows_training/input_shorter"),
    ),
    Row(
        "A matmul of operands of two ranks gets dims that mix their axes.",
        FAULT,
        ("matmul/ranks",),
    ),
    Row(
        "A convolution with one padding for two spatial axes reads past the list.",
        FAULT,
        ("conv_fprop/one_padding",),
    ),
    Row(
        "An empty slice is taken, and refused when plans are made.",
        FAULT,
        ("slice/empty",),
    ),
    Row(
        "A convolution whose channels do not divide is refused by `build_operation_graph`; here by "
        "the method.",
        STRICT,
        ("conv_fprop/channels",),
    ),
    Row(
        "A dim of 0 or below is refused by `build_operation_graph` or later; here by `validate`.",
        STRICT,
        ("arguments/zero_dim", "arguments/negative_dim"),
    ),
    Row(
        "A virtual tensor that no operation makes, and a graph without an output, are valid there.",
        STRICT,
        ("arguments/virtual", "arguments/no_output"),
    ),
    Row(
        "An epsilon of several elements, and scales, biases and statistics that do not fit the "
        "input of a norm, are refused when plans are made, or never.",
        STRICT,
        (*(f"wrong/{norm}/epsilon_{how}" for how in ("shorter", "narrower") for norm in (
            "layernorm/rows_training", "rmsnorm/rows_training", "adalayernorm/tokens_training",
            "instancenorm/nhwc_training")),
         *(f"wrong/{norm}_backward/same/scale_{how}" for how in ("shorter", "narrower")
           for norm in ("layernorm", "rmsnorm", "adalayernorm")),
         "wrong/rmsnorm_backward/same/inv_variance_shorter",
         "wrong/rmsnorm_backward/same/inv_variance_narrower",
         "wrong/adalayernorm_backward/same/scale_flat",
         "wrong/instancenorm/nhwc_training/input_narrower",
         "wrong/batchnorm_inference/nhwc/input_narrower"),
    ),
    Row(
        "`block_scale_dequantize` and `block_scale_quantize`: sm_100 and later.",
        DEVICES,
        ("block_scale_dequantize/rows", "block_scale_quantize/rows"),
    ),
    Row(
        "`moe_grouped_matmul_bwd`, modes of `moe_grouped_matmul` that gather, and `concatenate` in "
        "place are inferred there, and refused later, on Hopper.",
        REFUSED,
        ("moe_grouped_matmul_bwd/plain", "moe_grouped_matmul/gather", "concatenate/in_place"),
    ),
    Row(
        "`padding` of `matmul` is a keyword of `dnnc.cudnn` alone: it says nothing where no size "
        "is overridden.",
        STRICT,
        ("matmul/padding",),
    ),
    Row(
        "Results of operands whose strides are 0: packed here, while all elements along an axis "
        "share one place there.",
        FAULT,
        ("add/zero_second", "add_virtual/zero_second", "example/pointwise_58",
         "example/pointwise_59", "example/pointwise_63"),
    ),
    Row(
        "The amax of `sdpa_fp8` and `sdpa_fp8_backward` without a data type of their own get that "
        "of the graph's inputs, FP8. Here they are FLOAT.",
        FAULT,
        (*(f"example/sdpa_fp8_{n}" for n in (0, 1, 2, 3, 5, 6)),
         *(f"example/sdpa_fp8_backward_{n}" for n in (0, 1))),
    ),
)  # fmt: skip


def inferred(case: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The frontend's inference of a case, by its C++ graph where `cudnn.pygraph` has nothing."""
    return case.get("results") or case.get("inner")


def problems(module: Module, case: Mapping[str, Any]) -> Iterator[str]:
    """How a module's inference of a case differs from the recorded one.

    A case that is made wrong ("of") may be refused here where it is there, at any step.
    """
    wanted = inferred(case)
    if wanted is None:
        return
    outcome = module.outcome(case)
    found = outcome.get("results", {})
    if not found:
        if "of" not in case or "error" not in case:
            yield f"refused: {outcome.get('error')}"
        return
    # The C++ graph has names of its own.
    first = 0 if "results" in case else 1
    for name, row in wanted.items():
        pairs = zip(("name", "dims", "strides", "type"), row, found.get(name, ()), strict=False)
        differ = [(what, there, here) for what, there, here in pairs if there != here]
        if name not in found:
            yield f"{name} is missing"
        for what, there, here in differ:
            if what != "name" or first == 0:
                yield f"{what} of {name}: there {there}, here {here}"


def table() -> str:
    """The rows as Markdown."""
    lines = ["| cudnn-frontend | why it differs |", "|---|---|"]
    return "\n".join([*lines, *(f"| {row.what} | {row.why} |" for row in ROWS)])


if __name__ == "__main__":
    print(table())
