"""Images for the graphs beside it: channels last, as the guide has them."""

import dnnc

IMAGE = [8, 32, 16, 16]
CHANNEL = [1, 32, 1, 1]
FILTER = [32, 32, 3, 3]


def new_graph(name, io="HALF"):
    return dnnc.pygraph(
        name, io_data_type=io, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )


def packed(dims):
    """Strides with the second axis fastest."""
    _, c, h, w = dims
    return [c * h * w, 1, w * c, c]


def tensor(g, dims, name, data_type=None):
    return g.tensor(dims, packed(dims), data_type=data_type, name=name)


def image(g, name="x", data_type=None):
    return tensor(g, IMAGE, name, data_type)


def channel(g, name, data_type=None):
    return tensor(g, CHANNEL, name, data_type)


def convolved(g, x, name="conv"):
    return g.conv_fprop(x, tensor(g, FILTER, "w"), padding=[1, 1], name=name)


def output(value, name, data_type=None):
    value.set_output().set_name(name)
    return value.set_data_type(data_type) if data_type else value
