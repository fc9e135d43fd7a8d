"""Flash attention in fp8: what each tensor was scaled by is undone, and the maxima are kept."""

from heads import SCALE, head, softmax, transposed
from images import new_graph, output


def number(g, name):
    return g.tensor([1, 1, 1, 1], data_type="FLOAT", name=name)


def build():
    g = new_graph("flash_fp8_fprop", "FP8_E4M3")
    products = g.matmul(head(g, "q"), transposed(g, "k"))
    scores = g.mul(g.mul(products, number(g, "descale_q")), number(g, "descale_k"))
    p, stats = softmax(g, g.mul(scores, SCALE))
    output(stats, "stats", "FLOAT")
    output(g.reduction(p, "amax").set_dim([1, 1, 1, 1]), "amax_s", "FLOAT")
    s = g.mul(p, number(g, "scale_s")).set_data_type("FP8_E4M3")
    sums = g.matmul(s, head(g, "v"))
    o = g.mul(g.mul(sums, number(g, "descale_s")), number(g, "descale_v"))
    output(g.reduction(o, "amax").set_dim([1, 1, 1, 1]), "amax_o", "FLOAT")
    output(g.mul(o, number(g, "scale_o")), "o")
    return g
