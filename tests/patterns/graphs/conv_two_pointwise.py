"""Two pointwise operations after a convolution: bias, ReLU."""

from images import channel, convolved, image, new_graph, output


def build():
    g = new_graph("conv_two_pointwise")
    output(g.relu(g.bias(convolved(g, image(g)), channel(g, "bias"))), "y")
    return g
