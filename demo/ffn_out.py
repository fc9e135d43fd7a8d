"""The second half of a transformer's feed-forward block: y = layer_norm(x @ w + b + residual).

dnnc compile demo/ffn_out.py --target sm_80,sm_90a
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(
    dtype: str = "f16", hidden: int = 384, inner: int = 1536, epsilon: float = 1e-12
) -> dnnc.pygraph:
    """The graph: x [1, tokens, inner], w [1, inner, hidden], residual, b, scale, bias -> y.

    residual, y: [1, tokens, hidden].  b, scale, bias: [1, 1, hidden].  dtype: of all seven; sums,
    mean and variance, and what follows are f32.  epsilon: added to the variance; part of the
    kernel.  w lies as a Linear layer stores it, [hidden, inner] in memory.
    """
    graph = dnnc.pygraph(
        f"ffn_out_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, inner], name="x")
    w = graph.tensor([1, inner, hidden], [inner * hidden, 1, inner], name="w")
    residual = graph.tensor([1, TOKENS, hidden], name="residual")
    b, scale, bias = (graph.tensor([1, 1, hidden], name=name) for name in ("b", "scale", "bias"))
    biased = graph.bias(graph.matmul(x, w, name="matmul"), b, name="biased")
    added = graph.add(biased, residual, name="add")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _, _ = graph.layernorm(phase, added, scale, bias, graph.tensor_scalar(epsilon), name="norm")
    y.set_output().set_name("y")
    return graph
