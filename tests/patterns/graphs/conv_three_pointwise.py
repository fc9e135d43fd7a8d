"""Three pointwise operations after a convolution: scale, add, ReLU."""

from images import channel, convolved, image, new_graph, output


def build():
    g = new_graph("conv_three_pointwise")
    scaled = g.scale(convolved(g, image(g)), channel(g, "scale"))
    output(g.relu(g.add(scaled, image(g, "z"))), "y")
    return g
