"""The cases as operation graphs, for every library with cudnn-frontend's pygraph: dnnc, cuDNN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dnnc

from ..cases.case import Case
from . import attention as attention_graphs
from . import causal_conv1d as causal_conv1d_graphs
from . import conv as conv_graphs
from . import fused as fused_graphs
from . import memory as memory_graphs
from . import packed as packed_graphs
from . import paged as paged_graphs
from . import parts as parts_graphs
from . import resnet50 as resnet50_graphs
from . import rope as rope_graphs
from . import row as row_graphs

_TYPES = {
    "bf16": "BFLOAT16",
    "fp16": "HALF",
    "fp32": "FLOAT",
    "tf32": "FLOAT",
    "int8": "INT8",
    "int32": "INT32",
    "uint8": "UINT8",
    "e4m3": "FP8_E4M3",
    "e5m2": "FP8_E5M2",
}


class Graph:
    """A graph under construction.

    library: dnnc or cudnn.  graph: its pygraph.  tensors: by buffer's name.  numbers: what is
    passed by value: (number, rank, name of its type).
    """

    def __init__(self, library: Any, graph: Any):
        self.library, self.graph = library, graph
        self.tensors: dict[str, Any] = {}
        self.numbers: dict[Any, tuple[float, int, str]] = {}

    def type(self, name: str) -> Any:
        return getattr(self.library.data_type, name)

    def sums(self, name: str) -> Any:
        """The compute type of a product; f32 where the library has no narrower one."""
        return self.type(name if hasattr(self.library.data_type, name) else "FLOAT")

    def sums_type(self, name: str) -> Any:
        """The type of such a product, before an epilogue."""
        return self.type("INT32" if name == "INT32" else "FLOAT")

    def input(self, name: str, dims: list[int], strides: list[int], dtype: str) -> Any:
        made = self.graph.tensor(
            name=name, dim=dims, stride=strides, data_type=self.type(_TYPES[dtype])
        )
        self.tensors[name] = made
        return made

    def number(self, value: float, rank: int, dtype: str = "fp32") -> Any:
        """A constant; cuDNN's norms take only those that are passed by value."""
        if self.library is dnnc:
            return self.graph.tensor_scalar(value, dnnc.scalar_type.COMPILE_TIME_CONST)
        ones = [1] * rank
        made = self.graph.tensor(
            dim=ones, stride=ones, is_pass_by_value=True, data_type=self.type(_TYPES[dtype])
        )
        self.numbers[made] = (value, rank, dtype)
        return made

    def output(self, name: str, tensor: Any, dims: list[int], dtype: str) -> None:
        strides, running = [0] * len(dims), 1
        for axis in reversed(range(len(dims))):
            strides[axis] = running
            running *= dims[axis]
        tensor.set_output(True).set_data_type(self.type(_TYPES[dtype])).set_dim(dims).set_stride(
            strides
        )
        self.tensors[name] = tensor


def build(library: Any, graph: Any, case: Case) -> Graph:
    """Adds a case's operations to a pygraph."""
    made = Graph(library, graph)
    builders = fused_graphs.BUILDERS | row_graphs.BUILDERS | memory_graphs.BUILDERS
    builders |= conv_graphs.BUILDERS | resnet50_graphs.BUILDERS | attention_graphs.BUILDERS
    builders |= packed_graphs.BUILDERS | paged_graphs.BUILDERS | causal_conv1d_graphs.BUILDERS
    builders |= parts_graphs.BUILDERS | rope_graphs.BUILDERS
    if case.kind in builders:
        builders[case.kind](made, case.p)
        return made
    {"matmul": _matmul, "bias_gelu": _bias_gelu, "add": _add, "squares": _squares}[case.kind](
        made, case
    )
    return made


def options(library: Any) -> dict[str, Any]:
    """Arguments of pygraph: its data types."""
    kind = library.data_type
    return {
        "io_data_type": kind.BFLOAT16,
        "intermediate_data_type": kind.FLOAT,
        "compute_data_type": kind.FLOAT,
    }


def _matmul(made: Graph, case: Case) -> None:
    g, p = made.graph, case.p
    batch, m, n, k = p["batch"], p["m"], p["n"], p["k"]
    along_a, along_b = p["layout"]
    a_strides = [m * k, k, 1] if along_a == "k" else [m * k, 1, m]
    w_strides = [n * k, 1, k] if along_b == "k" else [n * k, n, 1]
    a = made.input("a", [batch, m, k], a_strides, p["a_type"])
    w = made.input("w", [batch, k, n], w_strides, p["w_type"])
    multiplied = made.type(_TYPES[p["a_type"]])
    if p["prologue"] == "scale_a":
        a = _scaled(made, a, [1, 1, k], p["scale_type"]).set_data_type(multiplied)
    elif p["prologue"]:
        w = _scaled(made, w, [1, 1, n], p["scale_type"]).set_data_type(multiplied)
    c = g.matmul(A=a, B=w, compute_data_type=made.sums(p["sums"]))
    if p["epilogue"] != "none":
        c = _epilogue(made, p, c.set_data_type(made.sums_type(p["sums"])))
    made.output("c", c, [batch, m, n], p["c_type"])


def _epilogue(made: Graph, p: Mapping[str, Any], c: Any) -> Any:
    g, n, epilogue = made.graph, p["n"], p["epilogue"]
    if epilogue == "descale":
        return _scaled(made, c, [1, 1, 1], p["scale_type"])
    if epilogue.startswith("scale"):
        c = _scaled(made, c, [1, 1, n], p["scale_type"])
    if epilogue == "scale_residual_silu":
        dims = [p["batch"], p["m"], n]
        r = made.input("r", dims, [p["m"] * n, n, 1], p["c_type"])
        return g.swish(input=g.add(a=c, b=r))
    if epilogue.startswith("bias"):
        c = g.bias(input=c, bias=made.input("bias", [1, 1, n], [n, n, 1], p["scale_type"]))
        name = {"bias_relu": "relu", "bias_gelu": "gelu_approx_tanh", "bias_gelu_erf": "gelu"}
        return getattr(g, name[epilogue])(input=c)
    return c


def _scaled(made: Graph, x: Any, dims: list[int], dtype: str) -> Any:
    """x times the buffer "scale"."""
    scale = made.input("scale", dims, [dims[-1], dims[-1], 1], dtype)
    return made.graph.mul(a=x, b=scale, compute_data_type=made.type("FLOAT"))


def _bias_gelu(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x = made.input("x", [1, rows, columns], [rows * columns, columns, 1], "bf16")
    b = made.input("b", [1, 1, columns], [columns, columns, 1], "bf16")
    y = g.gelu_approx_tanh(input=g.bias(input=x, bias=b))
    made.output("y", y, [1, rows, columns], "bf16")


def _add(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x, z = (
        made.input(name, [1, rows, columns], [rows * columns, columns, 1], "bf16")
        for name in ("x", "z")
    )
    made.output("y", g.add(a=x, b=z), [1, rows, columns], "bf16")


def _squares(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x = made.input("x", [1, rows, columns], [rows * columns, columns, 1], "bf16")
    over = case.p["axes"]
    dims = [1, *(1 if axis in over else n for axis, n in enumerate((rows, columns)))]
    total = g.reduction(input=g.mul(a=x, b=x), mode=made.library.reduction_mode.ADD)
    made.output("y", total, dims, "fp32")
