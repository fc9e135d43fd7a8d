"""The first half of a transformer's feed-forward block: y = gelu(x @ w + b).

dnnc compile demo/ffn_in.py --target sm_80,sm_90a
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, inner: int = 1536) -> dnnc.pygraph:
    """The graph: x [1, tokens, hidden], w [1, hidden, inner], b [1, 1, inner] -> y.

    dtype: of all four; sums, the bias and GELU are f32.  w lies as a Linear layer stores it,
    [inner, hidden] in memory.
    """
    graph = dnnc.pygraph(
        f"ffn_in_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, hidden], name="x")
    w = graph.tensor([1, hidden, inner], [hidden * inner, 1, hidden], name="w")
    b = graph.tensor([1, 1, inner], name="b")
    product = graph.matmul(x, w, name="matmul")
    biased = graph.bias(product, b, name="bias")
    graph.gelu(biased, name="gelu").set_output().set_name("y")
    return graph
