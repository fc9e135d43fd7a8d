"""The cases as operation graphs, for every library with cudnn-frontend's pygraph: dnnc, cuDNN."""

from __future__ import annotations

from typing import Any

from .cases import AXES, Case

_TYPES = {"bf16": "BFLOAT16", "fp16": "HALF", "fp32": "FLOAT", "tf32": "FLOAT", "int8": "INT8"}


class Graph:
    """A graph under construction.

    library: dnnc or cudnn.  graph: its pygraph.  tensors: by buffer's name.
    """

    def __init__(self, library: Any, graph: Any):
        self.library, self.graph = library, graph
        self.tensors: dict[str, Any] = {}

    def type(self, name: str) -> Any:
        return getattr(self.library.data_type, name)

    def input(self, name: str, dims: list[int], strides: list[int], dtype: str) -> Any:
        made = self.graph.tensor(
            name=name, dim=dims, stride=strides, data_type=self.type(_TYPES[dtype])
        )
        self.tensors[name] = made
        return made

    def output(self, name: str, tensor: Any, dims: list[int], dtype: str) -> None:
        strides, running = [0] * len(dims), 1
        for axis in reversed(range(len(dims))):
            strides[axis] = running
            running *= dims[axis]
        tensor.set_output(True).set_data_type(self.type(dtype)).set_dim(dims).set_stride(strides)
        self.tensors[name] = tensor


def build(library: Any, graph: Any, case: Case) -> Graph:
    """Adds a case's operations to a pygraph."""
    made = Graph(library, graph)
    {"matmul": _matmul, "bias_gelu": _bias_gelu, "add": _add, "squares": _squares}[case.kind](
        made, case
    )
    return made


def options(library: Any) -> dict[str, Any]:
    """What a pygraph is made with."""
    kind = library.data_type
    return {
        "io_data_type": kind.BFLOAT16,
        "intermediate_data_type": kind.FLOAT,
        "compute_data_type": kind.FLOAT,
    }


def _matmul(made: Graph, case: Case) -> None:
    g, p = made.graph, case.p
    batch, m, n, k, dtype = p["batch"], p["m"], p["n"], p["k"], p["dtype"]
    a = made.input("a", [batch, m, k], [m * k, k, 1], dtype)
    w = made.input("w", [batch, k, n], [n * k, 1, k], dtype)
    sums = made.type("INT32" if dtype == "int8" else "FLOAT")
    c = g.matmul(A=a, B=w, compute_data_type=sums)
    if p["epilogue"] != "none":
        bias = made.input("bias", [1, 1, n], [n, n, 1], dtype)
        c = g.bias(input=c, bias=bias)
        c = g.relu(input=c) if p["epilogue"] == "bias_relu" else g.gelu_approx_tanh(input=c)
    made.output("c", c, [batch, m, n], "INT32" if dtype == "int8" else _TYPES[dtype])


def _bias_gelu(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x = made.input("x", [1, rows, columns], [rows * columns, columns, 1], "bf16")
    b = made.input("b", [1, 1, columns], [columns, columns, 1], "bf16")
    y = g.gelu_approx_tanh(input=g.bias(input=x, bias=b))
    made.output("y", y, [1, rows, columns], "BFLOAT16")


def _add(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x, z = (
        made.input(name, [1, rows, columns], [rows * columns, columns, 1], "bf16")
        for name in ("x", "z")
    )
    made.output("y", g.add(a=x, b=z), [1, rows, columns], "BFLOAT16")


def _squares(made: Graph, case: Case) -> None:
    g, rows, columns = made.graph, case.p["rows"], case.p["columns"]
    x = made.input("x", [1, rows, columns], [rows * columns, columns, 1], "bf16")
    over = AXES[case.p["axes"]]
    dims = [1, *(1 if axis in over else n for axis, n in enumerate((rows, columns)))]
    total = g.reduction(input=g.mul(a=x, b=x), mode=made.library.reduction_mode.ADD)
    made.output("y", total, dims, "FLOAT")
