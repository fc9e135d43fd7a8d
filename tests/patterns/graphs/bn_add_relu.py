"""BnAddRelu: batch norm in training, a residual, ReLU and its mask."""

from images import channel, image, new_graph, output


def normalised(g, **peers):
    numbers = [channel(g, n, "FLOAT") for n in ("scale", "bias", "old_mean", "old_var")]
    y, *statistics = g.batchnorm(image(g), *numbers, 1e-5, 0.1, **peers)
    for name, value in zip(("mean", "rstd", "next_mean", "next_var"), statistics, strict=True):
        output(value, name, "FLOAT")
    return y


def finish(g, y):
    y = output(g.relu(g.add(y, image(g, "z"))), "y")
    output(g.cmp_gt(y, g.tensor_scalar(0.0, "COMPILE_TIME_CONST")), "mask", "BOOLEAN")
    return g


def build():
    g = new_graph("bn_add_relu")
    return finish(g, normalised(g))
