"""The second half of a transformer's feed-forward block: y = x @ w + b + residual.

dnnc compile demo/ffn_out.py --target sm_80,sm_90
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, inner: int = 1536) -> dnnc.pygraph:
    """The graph: x [1, tokens, inner], w [1, inner, hidden], b [1, 1, hidden], residual -> y.

    residual, y: [1, tokens, hidden].  dtype: of all five; sums, bias and residual are added in
    f32.  w lies as a Linear layer stores it, [hidden, inner] in memory.
    """
    graph = dnnc.pygraph(
        f"ffn_out_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, inner], name="x")
    w = graph.tensor([1, inner, hidden], [inner * hidden, 1, inner], name="w")
    b = graph.tensor([1, 1, hidden], name="b")
    residual = graph.tensor([1, TOKENS, hidden], name="residual")
    product = graph.matmul(x, w, name="matmul")
    biased = graph.bias(product, b, name="bias")
    graph.add(biased, residual, name="add").set_output().set_name("y")
    return graph
