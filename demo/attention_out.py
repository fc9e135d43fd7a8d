"""The layer after a transformer's attention: y = layer_norm(x @ w + b + residual).

dnnc compile demo/attention_out.py --target sm_80,sm_90a
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, epsilon: float = 1e-12) -> dnnc.pygraph:
    """The graph: x, residual [1, tokens, hidden], w [1, hidden, hidden], b, scale, bias -> y.

    b, scale, bias: [1, 1, hidden].  dtype: of all seven; sums, mean and variance, and what follows
    are f32.  epsilon: added to the variance; part of the kernel.  w lies as a Linear layer stores
    it, transposed.
    """
    graph = dnnc.pygraph(
        f"attention_out_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, hidden], name="x")
    w = graph.tensor([1, hidden, hidden], [hidden * hidden, 1, hidden], name="w")
    residual = graph.tensor([1, TOKENS, hidden], name="residual")
    b, scale, bias = (graph.tensor([1, 1, hidden], name=name) for name in ("b", "scale", "bias"))
    biased = graph.bias(graph.matmul(x, w, name="matmul"), b, name="biased")
    added = graph.add(biased, residual, name="add")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _, _ = graph.layernorm(phase, added, scale, bias, graph.tensor_scalar(epsilon), name="norm")
    y.set_output().set_name("y")
    return graph
