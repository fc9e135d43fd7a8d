"""The layer norm after a transformer's feed-forward block: y = layer_norm(x).

dnnc compile demo/layer_norm.py --target sm_80,sm_90
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, epsilon: float = 1e-12) -> dnnc.pygraph:
    """The graph: x [1, tokens, hidden], scale, bias [1, 1, hidden] -> y.

    dtype: of all four; mean and variance, and what follows are f32.  epsilon: added to the
    variance; part of the kernel.  x has its residual already: ffn_out adds it.
    """
    graph = dnnc.pygraph(
        f"layer_norm_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, hidden], name="x")
    scale = graph.tensor([1, 1, hidden], name="scale")
    bias = graph.tensor([1, 1, hidden], name="bias")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _, _ = graph.layernorm(phase, x, scale, bias, graph.tensor_scalar(epsilon), name="norm")
    y.set_output().set_name("y")
    return graph
