"""y = gelu(x @ w + b): half of a transformer's feed-forward block, as one kernel."""

import dnnc


def build():
    tokens = dnnc.Dim("tokens", max=65536)
    g = dnnc.pygraph("ffn", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([1, tokens, 384], name="x")
    w = g.tensor([1, 384, 1536], [384 * 1536, 1, 384], name="w")  # as torch.nn.Linear keeps it
    b = g.tensor([1, 1, 1536], name="b")
    g.gelu(g.bias(g.matmul(x, w), b)).set_output().set_name("y")
    return g
