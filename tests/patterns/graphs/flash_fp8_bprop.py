"""The gradient of the queries of flash attention in fp8; those of keys and values are alike."""

from flash_fp8_fprop import number
from heads import BATCH, HEADS, LENGTH, SCALE, column, head, transposed
from images import new_graph, output


def build():
    g = new_graph("flash_fp8_bprop", "FP8_E4M3")
    d_o = head(g, "do", "FP8_E5M2")
    stats = g.tensor([BATCH, HEADS, LENGTH, 1], data_type="FLOAT", name="stats")
    scores = g.mul(g.matmul(head(g, "q"), transposed(g, "k_transposed")), number(g, "descale_qk"))
    p = g.exp(g.sub(g.mul(scores, SCALE), stats))
    dp = g.mul(g.matmul(d_o, transposed(g, "v_transposed")), number(g, "descale_dov"))
    delta = column(g, g.mul(d_o, head(g, "o")), "ADD")
    ds = g.mul(p, g.sub(dp, delta))
    output(g.reduction(ds, "amax").set_dim([1, 1, 1, 1]), "amax_dp", "FLOAT")
    scaled = g.mul(ds, number(g, "scale_dp")).set_data_type("FP8_E5M2")
    dq = g.mul(g.matmul(scaled, head(g, "k")), number(g, "descale_dp"))
    output(dq, "dq", "FP8_E5M2")
    return g
