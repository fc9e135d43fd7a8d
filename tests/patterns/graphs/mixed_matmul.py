"""A matmul of an operand of 8 bits, converted on the way by an identity."""

from images import new_graph, output


def build():
    g = new_graph("mixed_matmul")
    a = g.tensor([1, 128, 256], data_type="INT8", name="a")
    b = g.tensor([1, 256, 64], name="b")
    output(g.matmul(g.identity(a).set_data_type("HALF"), b), "c")
    return g
