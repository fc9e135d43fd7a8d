"""A convolution of an image of 8 bits, converted on the way by an identity."""

from images import convolved, image, new_graph, output


def build():
    g = new_graph("mixed_conv")
    x = g.identity(image(g, data_type="INT8")).set_data_type("HALF")
    output(convolved(g, x), "y")
    return g
