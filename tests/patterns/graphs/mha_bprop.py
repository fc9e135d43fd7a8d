"""The gradients of fused attention, from the stored weights, whose sign says what was dropped."""

from heads import SCALE, SCORES, causal, column, head, transposed
from images import new_graph, output

KEPT = 1 / 0.9  # what dropout multiplied by


def build():
    g = new_graph("mha_bprop")
    s = g.tensor(SCORES, name="s").set_reordering_type("F16x16")
    d_o = head(g, "do")
    g5 = g.relu(g.mul(g.transpose(s, [0, 1, 3, 2]), KEPT)).set_data_type("HALF")
    output(g.matmul(g5, d_o), "dv")
    dp = g6(g, s, g.matmul(d_o, transposed(g, "v")))
    output(g.matmul(dp, head(g, "k")), "dq")
    g7 = g.transpose(dp, [0, 1, 3, 2])
    output(g.matmul(g7, head(g, "q")), "dk")
    return g


def g6(g, s, ds):
    """Backward through dropout, the softmax, the mask and the scale; stored."""
    p, kept = g.abs(s), g.cmp_gt(s, 0.0)
    ds = g.binary_select(g.mul(ds, KEPT), 0.0, kept)
    whole = column(g, g.mul(p, ds), "ADD")
    dp = g.mul(g.mul(p, g.sub(ds, whole)), SCALE)
    return output(causal(g, dp, 0.0), "dp", "HALF").set_reordering_type("F16x16")
