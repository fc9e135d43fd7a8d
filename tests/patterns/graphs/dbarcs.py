"""DBARCS: two images, each scaled and biased, added; ReLU, a 1x1 convolution, sums of channels."""

from images import channel, image, new_graph, output, tensor


def build():
    g = new_graph("dbarcs")
    scaled = g.bias(g.scale(image(g), channel(g, "scale")), channel(g, "bias"))
    dual = g.scale(image(g, "dual_x"), channel(g, "dual_scale"))
    both = g.add(scaled, g.bias(dual, channel(g, "dual_bias")))
    x = output(g.relu(both), "relu_y")
    y = output(g.conv_fprop(x, tensor(g, [32, 32, 1, 1], "w"), name="conv"), "y")
    for value, name in zip(g.genstats(y), ("sum", "sum_of_squares"), strict=True):
        output(value, name, "FLOAT")
    return g
