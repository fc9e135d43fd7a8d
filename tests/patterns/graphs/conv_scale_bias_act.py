"""ConvScaleBiasAct: integers of 8 bits, scales of each channel, bias, ReLU."""

from images import FILTER, channel, image, new_graph, output, tensor


def build():
    g = new_graph("conv_scale_bias_act", "INT8")
    x = image(g).set_reordering_type("INT8x32")
    w = tensor(g, FILTER, "w").set_reordering_type("INT8x32")
    y = g.conv_fprop(x, w, padding=[1, 1], compute_data_type="INT32", name="conv")
    y.set_data_type("INT32")
    scaled = g.mul(g.identity(y), channel(g, "alpha1", "FLOAT"))
    other = g.mul(image(g, "z"), channel(g, "alpha2", "FLOAT"))
    output(g.relu(g.bias(g.add(scaled, other), channel(g, "b1", "FLOAT"))), "y")
    return g
