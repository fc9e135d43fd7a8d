"""Two pointwise operations before a matmul, on its first operand."""

from images import new_graph, output


def build():
    g = new_graph("matmul_after_pointwise")
    a, b = g.tensor([2, 128, 64], name="a"), g.tensor([2, 64, 256], name="b")
    scaled = g.mul(a, g.tensor([1, 1, 64], name="scale"))
    output(g.matmul(g.relu(scaled).set_data_type("HALF"), b), "c")
    return g
