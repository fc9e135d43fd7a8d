"""Flash attention whose keys lie in pages."""

from heads import BATCH, DIMS, HEADS, LENGTH, SCALE, SIZE, head, softmax, transposed
from images import new_graph, output


def build():
    g = new_graph("flash_paged")
    container = g.tensor([16, HEADS, 32, SIZE], name="container")
    table = g.tensor([BATCH, 1, LENGTH // 32, 1], data_type="INT32", name="table")
    lengths = g.tensor([BATCH, 1, 1, 1], data_type="INT32", name="lengths")
    v = g.paged_cache_load(container, lengths, table).set_dim(DIMS)
    probabilities, _ = softmax(g, g.mul(g.matmul(head(g, "q"), transposed(g, "k")), SCALE))
    output(g.matmul(probabilities.set_data_type("HALF"), v), "o")
    return g
