"""The layer norm after a transformer's attention: y = layer_norm(x + residual).

dnnc compile demo/add_norm.py --target sm_80,sm_90
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, epsilon: float = 1e-12) -> dnnc.pygraph:
    """The graph: x, residual [1, tokens, hidden], scale, bias [1, 1, hidden] -> y.

    dtype: of all five; the sum, mean and variance, and what follows are f32.  epsilon: added to
    the variance; part of the kernel.
    """
    graph = dnnc.pygraph(
        f"add_norm_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    x = graph.tensor([1, TOKENS, hidden], name="x")
    residual = graph.tensor([1, TOKENS, hidden], name="residual")
    scale = graph.tensor([1, 1, hidden], name="scale")
    bias = graph.tensor([1, 1, hidden], name="bias")
    added = graph.add(x, residual, name="add")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _, _ = graph.layernorm(phase, added, scale, bias, graph.tensor_scalar(epsilon), name="norm")
    y.set_output().set_name("y")
    return graph
