"""dBNApply: the gradient of a batch norm's input, dx = A dy + B x + C."""

from images import channel, image, new_graph, output


def build():
    g = new_graph("dbn_apply")
    a, b, c = (channel(g, n, "FLOAT") for n in "abc")
    both = g.add(g.mul(image(g, "dy"), a), g.mul(image(g, "x"), b))
    output(g.add(both, c), "dx")
    return g
