"""ConvBNfprop: scale, bias and ReLU, a convolution, and the sums of each channel."""

from images import channel, convolved, image, new_graph, output


def build():
    g = new_graph("conv_bn_fprop")
    before = g.relu(g.bias(g.scale(image(g), channel(g, "s1")), channel(g, "b1")))
    y = output(convolved(g, before), "y")
    for value, name in zip(g.genstats(y), ("sum", "sum_of_squares"), strict=True):
        output(value, name, "FLOAT")
    return g
