"""A graph or more of every operation method that cudnn-frontend 1.32 has, and ones that it refuses.

CASES: name -> case, as `steps` describes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

UNARY = (
    "abs", "ceil", "cos", "elu", "erf", "exp", "floor", "gelu", "gelu_approx_tanh", "identity",
    "log", "logical_not", "neg", "reciprocal", "relu", "rsqrt", "sigmoid", "sin", "softplus",
    "sqrt", "swish", "tan", "tanh",
)  # fmt: skip
BINARY = {
    **dict.fromkeys(
        ("add", "add_square", "div", "logical_and", "logical_or", "mul", "sub"), ("a", "b")
    ),
    **dict.fromkeys(("max", "min", "mod", "pow"), ("input0", "input1")),
    **dict.fromkeys(
        ("cmp_eq", "cmp_ge", "cmp_gt", "cmp_le", "cmp_lt", "cmp_neq"), ("input", "comparison")
    ),
    "bias": ("input", "bias"),
    "scale": ("input", "scale"),
    **dict.fromkeys(
        ("elu_backward", "gelu_approx_tanh_backward", "gelu_backward", "relu_backward",
         "sigmoid_backward", "softplus_backward", "swish_backward", "tanh_backward"),
        ("loss", "input"),
    ),
}  # fmt: skip

PACKED = ([4, 16, 8], [128, 8, 1])
WIDE = ([4, 16, 8], [2048, 128, 1])
SWAPPED = ([4, 16, 8], [128, 1, 16])
NHWC = ([2, 8, 4, 6], [192, 1, 48, 8])
NCHW = ([2, 8, 4, 6], [192, 24, 6, 1])
CHANNEL = ([1, 8, 1, 1], [8, 1, 8, 8])
KRSC = ([16, 8, 3, 3], [72, 1, 24, 8])
KCRS = ([16, 8, 3, 3], [72, 9, 3, 1])
ONES = ([1, 1, 1, 1], [1, 1, 1, 1])
FLOAT = {"data_type": "@FLOAT"}

Steps = list[list[Any]]


def case(steps: Steps, outputs: str = "", **types: str) -> dict[str, Any]:
    """A case whose named results are outputs."""
    types = {"io": "@HALF", "intermediate": "@FLOAT", "compute": "@FLOAT", **types}
    marks = [[name, "set_output", [True]] for name in outputs.split()]
    return {"types": " ".join(types.values()), "steps": [*steps, *marks]}


def tensor(name: str, form: Any, **keywords: Any) -> list[Any]:
    """A step that makes a tensor; form: (dims, strides), or dims alone."""
    dims, strides = form if isinstance(form, tuple) else (form, None)
    given = {"dim": dims, **({"stride": strides} if strides else {}), **keywords}
    return [name, "tensor", given]


def operands(**forms: Any) -> tuple[Steps, dict[str, str]]:
    """Steps that make tensors of such names, and the keywords that hand them to a method."""
    return [tensor(n, f) for n, f in forms.items()], {n: f"${n}" for n in forms}


def one(
    method: str, keywords: dict[str, Any], results: str = "y", outputs: str = "y", **forms: Any
):
    """A case of one operation; forms: its operands by their keywords."""
    made, given = operands(**forms)
    return case([*made, [results, method, {**given, **keywords}]], outputs)


def _pointwise() -> Iterator[tuple[str, Any]]:
    for method in UNARY:
        for label, form in (("wide", WIDE), ("nhwc", NHWC)):
            yield f"{method}/{label}", one(method, {}, input=form)
    for method, names in BINARY.items():
        forms = {
            "wide_packed": (WIDE, PACKED),
            "broadcast": (NHWC, CHANNEL),
        }
        for label, pair in forms.items():
            yield f"{method}/{label}", one(method, {}, **dict(zip(names, pair, strict=True)))
    leaky = {"negative_slope": 0.1}
    yield "leaky_relu/wide", one("leaky_relu", leaky, input=WIDE)
    yield "leaky_relu_backward/wide", one("leaky_relu_backward", leaky, loss=WIDE, input=PACKED)
    yield (
        "relu/parameters",
        one("relu", {**leaky, "lower_clip": 0.0, "upper_clip": 6.0}, input=WIDE),
    )
    yield "gen_index/wide", one("gen_index", {"axis": 1}, input=WIDE)
    yield "swish/beta", one("swish", {"swish_beta": 2.0}, input=SWAPPED)
    for label, forms in {
        "wide_packed_swapped": (WIDE, PACKED, SWAPPED),
        "channels": (CHANNEL, NHWC, CHANNEL),
        "two_channels": (CHANNEL, CHANNEL, NCHW),
    }.items():
        named = dict(zip(("input0", "input1", "mask"), forms, strict=True))
        yield f"binary_select/{label}", one("binary_select", {}, **named)


def _add() -> Iterator[tuple[str, Any]]:
    """The layouts of a sum, by those of its operands."""
    forms = {
        "packed_wide": (PACKED, WIDE),
        "swapped_packed": (SWAPPED, PACKED),
        "nhwc_nchw": (NHWC, NCHW),
        "nchw_nhwc": (NCHW, NHWC),
        "channel_nhwc": (CHANNEL, NHWC),
        "outer": (([4, 1, 8], [8, 8, 1]), ([1, 16, 8], [128, 8, 1])),
        "outer_swapped": (([4, 1, 8], [8, 1, 1]), ([1, 16, 8], [128, 1, 16])),
        "row": (PACKED, [1, 1, 8]),
        "column": (PACKED, [4, 16, 1]),
        "one": (WIDE, [1, 1, 1]),
        "rank": (PACKED, [8]),
        "rank_first": ([16, 8], PACKED),
        "zero": (([4, 16, 8], [0, 8, 1]), PACKED),
        "zero_second": (PACKED, ([4, 16, 8], [0, 8, 1])),
        "no_fit": (PACKED, [4, 16, 7]),
        "ones": (([1, 1, 8], [8, 8, 1]), ([1, 1, 8], [1, 1, 1])),
    }
    for label, (a, b) in forms.items():
        yield f"add/{label}", one("add", {}, a=a, b=b)
        inner = [tensor("a", a), tensor("b", b), ["s", "add", {"a": "$a", "b": "$b"}],
                 ["y", "relu", {"input": "$s", "name": "last"}]]  # fmt: skip
        yield f"add_virtual/{label}", case(inner, "y")
    chain = [tensor("x", WIDE), ["y", "relu", {"input": "$x", "name": "n"}],
             ["z", "relu", {"input": "$y"}], ["w", "relu", {"input": "$z"}],
             ["v", "add", {"a": "$w", "b": "$y"}]]  # fmt: skip
    yield "names/counted", case(chain, "v")
    yield "names/set", case([*chain[:3], ["z", "set_name", ["mine"]]], "z")
    yield "types/virtual", case(chain, "y v", io="@BFLOAT16", intermediate="@HALF")
    yield "types/io_only", case(chain, "v", intermediate="-", compute="-")
    yield "types/set", case([*chain[:2], ["y", "set_data_type", ["@INT8"]], chain[2]], "z")
    yield "set/dims", case([*chain[:2], ["y", "set_dim", [[4, 16, 8]]]], "y")
    yield "set/strides", case([*chain[:2], ["y", "set_stride", [[1, 4, 64]]], chain[2]], "z")
    yield "set/broadcast_dims", case([*chain[:2], ["y", "set_dim", [[4, 16, 16]]]], "y")


def _products() -> Iterator[tuple[str, Any]]:
    a, b = ([2, 8, 16], [128, 16, 1]), ([2, 16, 32], [512, 32, 1])
    forms = {
        "packed": (a, b),
        "column_a": (([2, 8, 16], [128, 1, 8]), b),
        "column_b": (a, ([2, 16, 32], [512, 1, 16])),
        "wide": (([2, 8, 16], [1024, 64, 1]), b),
        "shared_b": (a, [1, 16, 32]),
        "shared_a": ([1, 8, 16], b),
        "bshd": (([2, 4, 8, 16], [512, 16, 64, 1]), ([2, 4, 16, 8], [512, 16, 1, 64])),
        "outer_batch": ([2, 1, 8, 16], [1, 4, 16, 8]),
        "rank_2": ([8, 16], [16, 4]),
        "ranks": ([2, 8, 16], [16, 4]),
        "no_fit": (a, [2, 8, 32]),
        "batches": (a, [3, 16, 32]),
        "grouped_batch": ([2, 6, 8, 16], [2, 3, 16, 8]),
    }
    for label, (left, right) in forms.items():
        yield f"matmul/{label}", one("matmul", {"name": "n"}, "y", A=left, B=right)
    yield "matmul/unnamed", one("matmul", {}, A=a, B=b)
    yield "matmul/padding", one("matmul", {"padding": 0.0}, A=a, B=b)
    steps = [tensor("a", a), tensor("b", b), ["y", "matmul", {"A": "$a", "B": "$b"}],
             ["y", "set_stride", [[256, 1, 8]]], ["z", "relu", {"input": "$y"}],
             ["t", "transpose", {"input": "$z", "permutation": [0, 2, 1]}]]  # fmt: skip
    yield "matmul/column_y", case(steps, "z t", intermediate="@HALF")
    token = {"token": [1, 24, 16], "weight": ([4, 16, 8], [128, 1, 16])}
    first = tensor("first_token_offset", [4, 1, 1], data_type="@INT32")
    made, given = operands(**token)
    given = {**given, "first_token_offset": "$first_token_offset"}
    mode = {"mode": "@moe_grouped_matmul_mode.NONE"}
    yield (
        "moe_grouped_matmul/none",
        case([*made, first, ["y", "moe_grouped_matmul", {**given, **mode, "name": "n"}]], "y"),
    )
    index = tensor("token_index", [1, 40, 1], data_type="@INT32")
    ks = tensor("token_ks", [1, 40, 1], data_type="@INT32")
    gather = {"mode": "@moe_grouped_matmul_mode.GATHER", "top_k": 2,
              "token_index": "$token_index", "token_ks": "$token_ks"}  # fmt: skip
    yield (
        "moe_grouped_matmul/gather",
        case([*made, first, index, ks, ["y", "moe_grouped_matmul", {**given, **gather}]], "y"),
    )
    steps = [tensor("doutput", [1, 24, 8]), tensor("token", [1, 24, 16]), first]
    given = {name: f"${name}" for name in ("doutput", "token", "first_token_offset")}
    yield (
        "moe_grouped_matmul_bwd/plain",
        case([*steps, ["y", "moe_grouped_matmul_bwd", given]], "y"),
    )


def _convolutions() -> Iterator[tuple[str, Any]]:
    each = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    forms = {"nhwc": (NHWC, KRSC), "nchw": (NCHW, KCRS), "nhwc_kcrs": (NHWC, KCRS)}
    for label, (x, w) in forms.items():
        yield f"conv_fprop/{label}", one("conv_fprop", {**each, "name": "n"}, image=x, weight=w)
    more = {
        "strides": {**each, "stride": [2, 3]},
        "dilation": {**each, "dilation": [1, 2]},
        "sides": {
            "pre_padding": [1, 0],
            "post_padding": [2, 1],
            "stride": [1, 1],
            "dilation": [1, 1],
        },
        "turned": {**each, "convolution_mode": "@convolution_mode.CONVOLUTION"},
        "no_padding": {"stride": [1, 1], "dilation": [1, 1]},
        "no_stride": {"padding": [1, 1], "dilation": [1, 1]},
        "nothing": {},
        "one_padding": {**each, "padding": [1]},
    }
    for label, keywords in more.items():
        yield f"conv_fprop/{label}", one("conv_fprop", keywords, image=NHWC, weight=KRSC)
    line = {"padding": [1], "stride": [1], "dilation": [1]}
    yield "conv_fprop/1d", one("conv_fprop", line, image=[2, 8, 9], weight=[16, 8, 3])
    cube = {"padding": [1, 0, 1], "stride": [1, 2, 1], "dilation": [1, 1, 1]}
    yield "conv_fprop/3d", one("conv_fprop", cube, image=[2, 8, 4, 5, 6], weight=[16, 8, 3, 3, 3])
    yield "conv_fprop/groups", one("conv_fprop", each, image=NHWC, weight=[16, 4, 3, 3])
    yield "conv_fprop/channels", one("conv_fprop", each, image=NHWC, weight=[16, 3, 3, 3])
    loss = ([2, 16, 4, 6], [384, 1, 96, 16])
    for method, names in (("conv_dgrad", ("loss", "filter")), ("conv_wgrad", ("image", "loss"))):
        pair = (loss, KRSC) if method == "conv_dgrad" else (NHWC, loss)
        given = dict(zip(names, pair, strict=True))
        dims = NHWC[0] if method == "conv_dgrad" else KRSC[0]
        plain = one(method, {**each, "name": "n"}, outputs="", **given)
        yield (
            f"{method}/no_dims",
            {**plain, "steps": [*plain["steps"], ["y", "set_output", [True]]]},
        )
        sized = [*plain["steps"], ["y", "set_output", [True]], ["y", "set_dim", [dims]]]
        yield f"{method}/dims", {**plain, "steps": sized}
    chain = [
        tensor("x", NCHW),
        tensor("w", KRSC),
        tensor("b", [1, 16, 1, 1]),
        ["y", "conv_fprop", {"image": "$x", "weight": "$w", **each, "name": "c"}],
        ["z", "bias", {"input": "$y", "bias": "$b"}],
        ["r", "relu", {"input": "$z"}],
    ]
    yield "conv_fprop/chain", case(chain, "r")
    yield "genstats/nhwc", one("genstats", {"name": "n"}, "s q", "s q", input=NHWC)
    yield "genstats/nchw", one("genstats", {}, "s q", "s q", input=NCHW)


def _reductions() -> Iterator[tuple[str, Any]]:
    modes = ("ADD", "MUL", "MIN", "MAX", "AMAX", "AVG", "NORM1", "NORM2", "MUL_NO_ZEROS")
    for mode in modes:
        made = one("reduction", {"mode": f"@reduction_mode.{mode}", "name": "n"}, input=NHWC)
        yield (
            f"reduction/{mode}",
            {**made, "steps": [*made["steps"], ["y", "set_dim", [[1, 8, 1, 1]]]]},
        )
    plain = one("reduction", {"mode": "@reduction_mode.ADD"}, input=NHWC)
    yield "reduction/no_dims", plain
    for label, dims in {"rows": [2, 1, 4, 6], "all": [1, 1, 1, 1], "part": [2, 8, 2, 6],
                        "rank": [2, 8]}.items():  # fmt: skip
        yield f"reduction/{label}", {**plain, "steps": [*plain["steps"], ["y", "set_dim", [dims]]]}
    plain = one("reduction", {"mode": "@reduction_mode.MAX"}, input=PACKED)
    for label, dims in {"last": [4, 16, 1], "middle": [4, 1, 8]}.items():
        yield (
            f"reduction/3d_{label}",
            {**plain, "steps": [*plain["steps"], ["y", "set_dim", [dims]]]},
        )
    steps = [tensor("x", WIDE), ["y", "reduction", {"input": "$x", "mode": "@reduction_mode.ADD"}],
             ["y", "set_dim", [[4, 16, 1]]], ["z", "sub", {"a": "$x", "b": "$y"}]]  # fmt: skip
    yield "reduction/inside", case(steps, "z")
    yield "reduction/2d", case(
        [tensor("x", [6, 8]), ["y", "reduction", {"input": "$x", "mode": "@reduction_mode.ADD"}],
         ["y", "set_dim", [[6, 1]]]], "y",
    )  # fmt: skip


def _views() -> Iterator[tuple[str, Any]]:
    for label, form in {"packed": PACKED, "wide": WIDE, "swapped": SWAPPED}.items():
        for permutation in ([0, 2, 1], [2, 0, 1]):
            text = "".join(map(str, permutation))
            given = {"permutation": permutation, "name": "n"}
            yield f"transpose/{label}_{text}", one("transpose", given, input=form)
        for tag, parts in {
            "rows": [
                ":2:4:",
                ":0:8:",
                "::",
            ],
            "steps": ["::", ":1:15:3", "::2"],
            "one": [":1:2:", "::", "::"],
        }.items():
            yield f"slice/{label}_{tag}", one("slice", {"slices": parts, "name": "n"}, input=form)
        yield f"concatenate/{label}", case(
            [tensor("x", form), tensor("z", form),
             ["y", "concatenate", {"inputs": ["$x", "$z"], "axis": 1, "name": "n"}]], "y",
        )  # fmt: skip
        plain = one("reshape", {"name": "n"}, input=form)
        yield f"reshape/{label}_no_dims", plain
        for tag, dims in {"flat": [64, 8], "4d": [4, 4, 4, 8], "3d": [8, 8, 8]}.items():
            sized = [*plain["steps"], ["y", "set_dim", [dims]]]
            yield f"reshape/{label}_{tag}", {**plain, "steps": sized}
    for label, permutation in {"short": [0, 1], "twice": [0, 1, 1], "far": [0, 1, 3]}.items():
        yield f"transpose/{label}", one("transpose", {"permutation": permutation}, input=PACKED)
    for label, parts in {
        "negative": ["::", ":1:-1:", "::"],
        "few": [":1:3:"],
        "empty": ["::", ":4:4:", "::"],
        "backwards": ["::", "::-1", "::"],
        "far": ["::", ":0:99:", "::"],
    }.items():
        yield f"slice/{label}", one("slice", {"slices": parts}, input=PACKED)
    logical = one("reshape", {"reshape_mode": "@reshape_mode.LOGICAL"}, input=SWAPPED)
    yield "reshape/logical", {**logical, "steps": [*logical["steps"], ["y", "set_dim", [[64, 8]]]]}
    sized = [*logical["steps"], ["y", "set_dim", [[64, 8]]], ["y", "set_stride", [[8, 1]]]]
    yield "reshape/logical_strides", {**logical, "steps": sized}
    three = [tensor("x", [4, 2, 8]), tensor("z", [4, 3, 8]), tensor("w", [4, 5, 8])]
    joined = ["y", "concatenate", {"inputs": ["$x", "$z", "$w"], "axis": 1}]
    yield "concatenate/three", case([*three, joined], "y")
    yield "concatenate/in_place", case(
        [tensor("x", ([4, 2, 8], [40, 8, 1])), tensor("z", ([4, 3, 8], [40, 8, 1])),
         ["y", "concatenate", {"inputs": ["$x", "$z"], "axis": 1, "in_place_index": 0}]], "y",
    )  # fmt: skip
    for method in ("transpose", "slice", "concatenate", "reshape"):
        given = {
            "transpose": {"input": "$v", "permutation": [1, 0, 2]},
            "slice": {"input": "$v", "slices": [":1:3:", "::", "::"]},
            "concatenate": {"inputs": ["$v", "$x"], "axis": 0},
            "reshape": {"input": "$v"},
        }[method]
        steps = [tensor("x", WIDE), ["v", "relu", {"input": "$x"}], ["w", method, given]]
        if method == "reshape":
            steps.append(["w", "set_dim", [[64, 8]]])
        after = ["y", "neg", {"input": "$w"}]
        yield f"{method}/inside", case([*steps, after], "y", intermediate="@HALF")
        yield f"{method}/inside_float", case([*steps, after], "y")


def _norms() -> Iterator[tuple[str, Any]]:
    row = ([1, 32, 1, 1], [32, 1, 32, 32])
    rows = {
        "rows": ([8, 32, 1, 1], [32, 1, 32, 32]), "wide_rows": ([8, 32, 1, 1], [64, 1, 64, 64]),
        "plain_rows": ([8, 32, 1, 1], [32, 1, 1, 1]),
    }  # fmt: skip
    tokens = {"tokens": [2, 6, 32], "swapped_tokens": ([2, 6, 32], [32, 64, 1])}
    epsilon = [
        "e",
        "tensor",
        {"dim": ONES[0], "stride": ONES[1], **FLOAT, "is_pass_by_value": True},
    ]
    phases = {"training": "TRAINING", "inference": "INFERENCE"}
    for method, results in {"layernorm": "y m v", "rmsnorm": "y v", "adalayernorm": "y m v",
                            "instancenorm": "y m v"}.items():  # fmt: skip
        forms = {**rows, **tokens} if method != "instancenorm" else {"nhwc": NHWC, "nchw": NCHW}
        for label, form in forms.items():
            is_tokens = label in tokens
            scale = [1, 1, 32] if is_tokens else row
            if method == "adalayernorm":
                scale = [2, 1, 32] if is_tokens else ([8, 32, 1, 1], [32, 1, 32, 32])
            scale = CHANNEL if method == "instancenorm" else scale
            for name, phase in phases.items():
                if name == "inference" and label not in ("rows", "nhwc"):
                    continue
                steps = [
                    tensor("x", form),
                    tensor("s", scale, **FLOAT),
                    tensor("b", scale, **FLOAT),
                    epsilon,
                ]
                given = {"norm_forward_phase": f"@norm_forward_phase.{phase}", "input": "$x",
                         "scale": "$s", "bias": "$b", "epsilon": "$e"}  # fmt: skip
                outputs = results if phase == "TRAINING" else "y"
                yield (
                    f"{method}/{label}_{name}",
                    case([*steps, [results, method, {**given, "name": "n"}]], outputs),
                )
    for method in (
        "layernorm_backward",
        "rmsnorm_backward",
        "adalayernorm_backward",
        "instancenorm_backward",
    ):
        x, scale, stat = ([8, 32, 1, 1], [32, 1, 32, 32]), row, ([8, 1, 1, 1], [1, 1, 1, 1])
        if method == "adalayernorm_backward":
            x, scale, stat = [2, 6, 32], [2, 1, 32], [2, 6, 1]
        if method == "instancenorm_backward":
            x, scale, stat = NHWC, CHANNEL, ([2, 8, 1, 1], [8, 1, 8, 8])
        pairs = {"same": (x, x)}
        if method != "adalayernorm_backward":
            pairs["wide"] = (x, (x[0], [2 * n for n in x[1]])) if method[0] != "i" else (x, NCHW)
        for label, (grad, image) in pairs.items():
            steps = [tensor("g", grad), tensor("x", image), tensor("s", scale, **FLOAT),
                     tensor("m", stat, **FLOAT), tensor("v", stat, **FLOAT)]  # fmt: skip
            given = {"grad": "$g", "input": "$x", "scale": "$s", "mean": "$m", "inv_variance": "$v"}
            if method == "rmsnorm_backward":
                given = {**given, "has_dbias": True}
                del given["mean"]
                del steps[3]
            yield (
                f"{method}/{label}",
                case([*steps, ["dx ds db", method, {**given, "name": "n"}]], "dx ds db"),
            )
    stats = {name: CHANNEL for name in ("scale", "bias", "in_running_mean", "in_running_var")}
    for label, form in {"nhwc": NHWC, "nchw": NCHW}.items():
        made = [tensor(n, f, **FLOAT) for n, f in stats.items()]
        given = {n: f"${n}" for n in stats}
        more = {"input": "$x", "epsilon": "$e", "momentum": "$e", "name": "n"}
        results = "y m v nm nv"
        yield (
            f"batchnorm/{label}",
            case(
                [tensor("x", form), *made, epsilon, [results, "batchnorm", {**given, **more}]],
                results,
            ),
        )
        named = ("mean", "inv_variance", "scale", "bias")
        made = [tensor(n, CHANNEL, **FLOAT) for n in named]
        given = {n: f"${n}" for n in named}
        yield (
            f"batchnorm_inference/{label}",
            case(
                [
                    tensor("x", form),
                    *made,
                    ["y", "batchnorm_inference", {"input": "$x", **given, "name": "n"}],
                ],
                "y",
            ),
        )
        named = ("scale", "mean", "inv_variance")
        given = {n: f"${n}" for n in named}
        yield (
            f"batchnorm_backward/{label}",
            case(
                [
                    tensor("g", NCHW),
                    tensor("x", form),
                    *made[:3],
                    [
                        "dx ds db",
                        "batchnorm_backward",
                        {"grad": "$g", "input": "$x", **given, "name": "n"},
                    ],
                ],
                "dx ds db",
            ),
        )


def _others() -> Iterator[tuple[str, Any]]:
    """Operations that only other architectures have, or that dnnc has none of yet."""
    rope = [tensor("x", ([2, 4, 16, 32], [2048, 32, 128, 1])), tensor("f", [1, 1, 16, 32], **FLOAT)]
    yield (
        "rope/bshd",
        case([*rope, ["y", "rope", {"input": "$x", "freqs": "$f", "name": "n"}]], "y"),
    )
    yield (
        "rope_backward/bshd",
        case([*rope, ["y", "rope_backward", {"dY": "$x", "freqs": "$f"}]], "y"),
    )
    x8 = tensor("x", [2, 64, 128], data_type="@FP8_E4M3")
    scale = tensor("s", [2, 64, 4], data_type="@FP8_E8M0")
    given = {"input": "$x", "descale": "$s", "block_size": [1, 32]}
    yield (
        "block_scale_dequantize/rows",
        case(
            [x8, scale, ["v", "block_scale_dequantize", given], ["y", "relu", {"input": "$v"}]], "y"
        ),
    )
    yield (
        "block_scale_quantize/rows",
        case(
            [
                tensor("x", [2, 64, 128]),
                ["y s", "block_scale_quantize", {"input": "$x", "block_size": 32, "axis": 2}],
                ["y", "set_data_type", ["@FP8_E4M3"]],
                ["s", "set_data_type", ["@FP8_E8M0"]],
            ],
            "y s",
        ),
    )


def _arguments() -> Iterator[tuple[str, Any]]:
    """Calls that are wrong whatever the tensors are."""
    x, y = tensor("x", PACKED), tensor("z", PACKED)
    for label, steps in {
        "unknown": [x, ["y", "relu", {"input": "$x", "slope": 1.0}]],
        "missing": [x, ["y", "add", {"a": "$x"}]],
        "nothing": [x, ["y", "relu", {}]],
        "method": [x, ["y", "relu6", {"input": "$x"}]],
        "uids": [tensor("x", PACKED, uid=7), tensor("z", PACKED, uid=7)],
        "lengths": [tensor("x", ([4, 16, 8], [8, 1])), ["y", "relu", {"input": "$x"}]],
        "no_dims": [tensor("x", []), ["y", "relu", {"input": "$x"}]],
        "zero_dim": [tensor("x", [4, 0, 8]), ["y", "relu", {"input": "$x"}]],
        "negative_dim": [tensor("x", ([4, -1, 8], [8, 8, 1])), ["y", "relu", {"input": "$x"}]],
        "virtual": [tensor("x", PACKED, is_virtual=True), ["y", "relu", {"input": "$x"}]],
        "no_output": [x, y, ["v", "add", {"a": "$x", "b": "$z"}], ["y", "relu", {"input": "$v"}]],
    }.items():
        made = "" if label in ("uids", "no_output") else "y"
        yield f"arguments/{label}", case(steps, made)


_GROUPS = (
    _pointwise,
    _add,
    _products,
    _convolutions,
    _reductions,
    _views,
    _norms,
    _others,
    _arguments,
)


def cases() -> dict[str, Any]:
    """Every case by name."""
    found = {name: made for group in _GROUPS for name, made in group()}
    return {**found, **dict(_wrong(found))}


# Cases of which each operand is left out, and has other dims, in turn.
_CHANGED = (
    "relu/wide", "add/wide_packed", "binary_select/channels", "relu_backward/wide_packed",
    "matmul/packed", "moe_grouped_matmul/none", "conv_fprop/nhwc", "conv_dgrad/dims",
    "conv_wgrad/dims", "genstats/nhwc", "reduction/ADD", "reshape/packed_flat",
    "transpose/packed_021", "slice/packed_rows", "layernorm/rows_training",
    "rmsnorm/rows_training", "adalayernorm/tokens_training", "instancenorm/nhwc_training",
    "layernorm_backward/same", "rmsnorm_backward/same", "adalayernorm_backward/same",
    "instancenorm_backward/same", "batchnorm/nhwc", "batchnorm_inference/nhwc",
    "batchnorm_backward/nhwc",
)  # fmt: skip


def _wrong(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Cases that change one value of another: see `steps.expand`."""
    for name in _CHANGED:
        steps = found[name]["steps"]
        (at,) = (i for i, step in enumerate(steps) if "$" in str(step[2]))
        for i, (tensor_name, method, given) in enumerate(steps[:at]):
            assert method == "tensor"
            keyword = next(k for k, v in steps[at][2].items() if v == f"${tensor_name}")
            dims = given["dim"]
            others = [n - 1 if n > 1 else 2 for n in dims]
            for label, other in {
                "shorter": [*dims[:-1], others[-1]],
                "narrower": [dims[0], others[1], *dims[2:]],
                "flat": dims[:-1],
            }.items():
                yield f"wrong/{name}/{keyword}_{label}", {"of": name, "change": [i, "dim", other]}
            yield f"wrong/{name}/{keyword}_absent", {"of": name, "change": [at, keyword, None]}
        for keyword, value in steps[at][2].items():
            if (isinstance(value, str) and value[:1] == "@") or isinstance(value, list):
                yield f"wrong/{name}/{keyword}_absent", {"of": name, "change": [at, keyword, None]}
