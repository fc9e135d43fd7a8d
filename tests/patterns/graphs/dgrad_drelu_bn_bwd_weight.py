"""DgradDreluBNBwdWeight: a convolution's gradient, ReLU's, and the batch norm's of its weights."""

from images import IMAGE, channel, image, new_graph, output, tensor


def build():
    g = new_graph("dgrad_drelu_bn_bwd_weight")
    w = tensor(g, [32, 32, 3, 3], "w")
    dx = g.conv_dgrad(image(g, "dy"), w, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    dx.set_dim(IMAGE)
    mean, rstd, scale, bias = (
        channel(g, n, "FLOAT") for n in ("mean_bn", "invstd_bn", "scale_bn", "bias_bn")
    )
    x = image(g, "x_bn")
    normalised = g.mul(g.sub(x, mean), rstd)
    dy = g.relu_backward(dx, g.bias(g.scale(normalised, scale), bias))
    names = ("dscale", "dbias", "a", "b", "c")
    for value, name in zip(g.dbn_weight(dy, x, mean, rstd, scale), names, strict=True):
        output(value, name, "FLOAT")
    return g
