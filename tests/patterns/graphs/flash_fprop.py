"""Flash attention: scale, bias, causal mask, softmax with its statistics, dropout."""

from heads import SCALE, SCORES, causal, dropped, head, softmax, transposed
from images import new_graph, output


def build():
    g = new_graph("flash_fprop")
    scores = g.mul(g.matmul(head(g, "q"), transposed(g, "k")), SCALE)
    biased = g.add(scores, g.tensor([1, *SCORES[1:]], name="bias"))
    probabilities, stats = softmax(g, causal(g, biased))
    output(stats, "stats", "FLOAT")
    output(g.matmul(dropped(g, probabilities).set_data_type("HALF"), head(g, "v")), "o")
    return g
