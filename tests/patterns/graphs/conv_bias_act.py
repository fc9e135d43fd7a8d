"""ConvBiasAct: a convolution by a number, another image by a number, bias, ReLU."""

from images import channel, convolved, image, new_graph, output


def build():
    g = new_graph("conv_bias_act")
    numbers = [
        g.tensor([1, 1, 1, 1], data_type="FLOAT", is_pass_by_value=True, name=n)
        for n in ("alpha1", "alpha2")
    ]
    scaled = g.mul(convolved(g, image(g)), numbers[0])
    added = g.add(scaled, g.mul(image(g, "z"), numbers[1]))
    output(g.relu(g.bias(added, channel(g, "bias"))), "y")
    return g
