"""Graphs of vectorized tensors, and the arrays of their elements: what several tests use."""

import dnnc


def new_graph(**options):
    defaults = {
        "io_data_type": "i8", "intermediate_data_type": "f32", "compute_data_type": "f32",
    }  # fmt: skip
    return dnnc.pygraph("vectors", **{**defaults, **options})


def vectorized(g, dims, count, axis=1, **options):
    """An input of dims that count elements, packed as vectors."""
    own = [*dims]
    own[axis] //= count
    return g.tensor(own, vector_count=count, vector_dimension=axis, **options)


def stored(elements, count):
    """[N, C, ...] as [N, C / count, count, ...]."""
    n, c, *rest = elements.shape
    return elements.reshape(n, c // count, count, *rest)


def layer(count, x=(2, 64, 5, 6), w=(64, 64, 3, 3), y_count=None, **options):
    """A 3x3 layer of bytes: sums of i32, scale, bias, ReLU; y_count: of Y's vectors."""
    g = new_graph(**options)
    image, filter_ = vectorized(g, x, count, name="x"), vectorized(g, w, count, name="w")
    scale, bias = (g.tensor([1, w[0], 1, 1], data_type="f32", name=n) for n in ("scale", "bias"))
    ones = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}
    sums = g.conv_fprop(image, filter_, **ones, compute_data_type="i32").set_data_type("i32")
    y = g.relu(g.add(g.mul(sums, scale), bias)).set_output().set_name("y").set_data_type("i8")
    y.set_vector_count_and_dimension(count if y_count is None else y_count, 1)
    return g
