"""The gradients of fused attention, from the stored probabilities."""

from heads import LENGTH, SCALE, SCORES, column, head, turned
from images import new_graph, output


def build():
    g = new_graph("mha_bprop")
    b, h, n, _ = SCORES
    s = g.tensor(SCORES, name="s").set_reordering_type("F16x16")
    d_o = head(g, "do")
    across = g.tensor([b, h, n, n], [h * n * n, n * n, 1, LENGTH], name="s_turned")
    across.set_reordering_type("F16x16")
    output(g.matmul(across, d_o), "dv")
    ds = g.matmul(d_o, turned(g, "v"))
    weighted = g.mul(ds, s)
    whole = g.mul(s, column(g, weighted, "ADD"))
    dp = g.mul(g.sub(weighted, whole), SCALE).set_data_type("HALF")
    output(g.matmul(dp, head(g, "k")), "dq")
    output(g.matmul(g.transpose(dp, [0, 1, 3, 2]), head(g, "q")), "dk")
    return g
