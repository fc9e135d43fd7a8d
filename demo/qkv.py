"""Queries, keys and values of a transformer's attention, by one product: y = x @ w + b.

dnnc compile demo/qkv.py --target sm_80,sm_90a
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384) -> dnnc.pygraph:
    """The graph: x [1, tokens, hidden], w [1, hidden, 3 hidden], b [1, 1, 3 hidden] -> y.

    A row of y has a token's query, key and value, `hidden` columns each.  dtype: of all four; sums
    and the bias are f32.  w lies as Linear layers store it, [3 hidden, hidden] in memory.
    """
    graph = dnnc.pygraph(
        f"qkv_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    columns = 3 * hidden
    x = graph.tensor([1, TOKENS, hidden], name="x")
    w = graph.tensor([1, hidden, columns], [hidden * columns, 1, hidden], name="w")
    b = graph.tensor([1, 1, columns], name="b")
    graph.bias(graph.matmul(x, w, name="matmul"), b, name="bias").set_output().set_name("y")
    return graph
