"""DReluForkDBn: ReLU's gradient by its mask, kept, and the gradients of the batch norm."""

from images import channel, image, new_graph, output


def finish(g, **peers):
    dz = output(g.mul(image(g, "dy"), image(g, "mask", "BOOLEAN")), "dz")
    numbers = [channel(g, n, "FLOAT") for n in ("scale", "mean", "rstd")]
    dx, dscale, dbias = g.batchnorm_backward(dz, image(g), *numbers, **peers)
    output(dx, "dx")
    output(dscale, "dscale", "FLOAT")
    output(dbias, "dbias", "FLOAT")
    return g


def build():
    return finish(new_graph("drelu_fork_dbn"))
