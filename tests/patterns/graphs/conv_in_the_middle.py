"""Pointwise operations before a convolution, whose result goes into the second one after it."""

from images import channel, convolved, image, new_graph, output


def build():
    g = new_graph("conv_in_the_middle")
    before = g.relu(g.bias(g.scale(image(g), channel(g, "scale")), channel(g, "bias")))
    other = g.sigmoid(image(g, "z"))
    output(g.mul(other, convolved(g, before)), "y")
    return g
