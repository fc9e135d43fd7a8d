"""The layer norm of a transformer's embeddings: y = layer_norm(words + places).

dnnc compile demo/embeddings.py --target sm_80,sm_90a
"""

import dnnc

TOKENS = dnnc.Dim("tokens", min=1, max=65536)


def build(dtype: str = "f16", hidden: int = 384, epsilon: float = 1e-12) -> dnnc.pygraph:
    """The graph: words, places [1, tokens, hidden], scale, bias [1, 1, hidden] -> y.

    dtype: of all five; the sum, mean and variance, and what follows are f32.  epsilon: added to
    the variance; part of the kernel.
    """
    graph = dnnc.pygraph(
        f"embeddings_{dtype}",
        io_data_type=dtype,
        intermediate_data_type=dnnc.data_type.FLOAT,
        compute_data_type=dnnc.data_type.FLOAT,
    )
    words = graph.tensor([1, TOKENS, hidden], name="words")
    places = graph.tensor([1, TOKENS, hidden], name="places")
    scale = graph.tensor([1, 1, hidden], name="scale")
    bias = graph.tensor([1, 1, hidden], name="bias")
    added = graph.add(words, places, name="add")
    phase = dnnc.norm_forward_phase.INFERENCE
    y, _, _ = graph.layernorm(phase, added, scale, bias, graph.tensor_scalar(epsilon), name="norm")
    y.set_output().set_name("y")
    return graph
