"""Fused attention: scale, causal mask, softmax, dropout; what goes backward is stored."""

from heads import SCALE, causal, dropped, head, softmax, transposed
from images import new_graph, output


def build(reordering="NONE"):
    g = new_graph("mha_fprop")
    scores = g.matmul(head(g, "q"), g.mul(transposed(g, "k"), SCALE).set_data_type("HALF"))
    probabilities, _ = softmax(g, causal(g, scores))
    s = output(dropped(g, probabilities), "s", "HALF").set_reordering_type(reordering)
    output(g.matmul(s, head(g, "v")), "o")
    return g
