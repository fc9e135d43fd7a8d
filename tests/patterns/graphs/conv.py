"""A single operation: a convolution."""

from images import convolved, image, new_graph, output


def build():
    g = new_graph("conv")
    output(convolved(g, image(g)), "y")
    return g
