"""The gradients of flash attention, with the probabilities computed again."""

from heads import BATCH, HEADS, LENGTH, SCALE, causal, column, head, transposed
from images import new_graph, output


def build():
    g = new_graph("flash_bprop")
    q, d_o = head(g, "q"), head(g, "do")
    stats = g.tensor([BATCH, HEADS, LENGTH, 1], data_type="FLOAT", name="stats")
    scores = causal(g, g.mul(g.matmul(q, transposed(g, "k_transposed")), SCALE))
    p = g.exp(g.sub(scores, stats))
    output(g.matmul(g.transpose(g.identity(p).set_data_type("HALF"), [0, 1, 3, 2]), d_o), "dv")
    dp = g.matmul(d_o, transposed(g, "v_transposed"))
    delta = column(g, g.mul(d_o, head(g, "o")), "ADD")
    ds = g.mul(g.mul(p, g.sub(dp, delta)), SCALE).set_data_type("HALF")
    output(g.matmul(ds, head(g, "k")), "dq")
    output(g.matmul(g.transpose(ds, [0, 1, 3, 2]), q), "dk")
    return g
