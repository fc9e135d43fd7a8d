"""ConvBNwgrad: scale, bias and ReLU before the gradient of a convolution's filter."""

from images import FILTER, channel, image, new_graph, output


def build():
    g = new_graph("conv_bn_wgrad")
    x = g.relu(g.bias(g.scale(image(g), channel(g, "s1")), channel(g, "b1")))
    dw = g.conv_wgrad(x, image(g, "dy"), padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    output(dw.set_dim(FILTER), "dw")
    return g
