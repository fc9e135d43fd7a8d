"""Example graphs of norms, of their parts and gradients, and of softmax."""

from dnnc import dtypes
from tests.dialect.example_parts import finish, new_graph


def layernorm_training():
    g = new_graph()
    x, scale, bias = g.tensor([5, 8]), g.tensor([1, 8]), g.tensor([1, 8])
    epsilon = g.tensor_scalar(1e-5)
    results = g.layernorm("TRAINING", x, scale, bias, epsilon, name="ln")
    return finish(g, *results)


def layernorm_inference():
    g = new_graph()
    x, scale = g.tensor([5, 2, 8]), g.tensor([1, 2, 8])
    epsilon = g.tensor_scalar(1e-5, "RUNTIME_PARAM")
    y, _, _ = g.layernorm("INFERENCE", x, scale, None, epsilon)
    return finish(g, y)


def norm(method, x, scale, phase="TRAINING", bias=True, io=dtypes.f32, strides=None, **kinds):
    """A graph of a norm with a phase; scale, bias and epsilon of FLOAT."""

    def build():
        g = new_graph(io_data_type=io)
        small = [g.tensor(list(scale), data_type=dtypes.f32) for _ in range(1 + bias)]
        epsilon = g.tensor_scalar(1e-3, "RUNTIME_PARAM" if bias else "COMPILE_TIME_CONST")
        image = g.tensor(list(x), strides)
        given = {"bias": small[1]} if bias else {}
        made = getattr(g, method)(
            phase, input=image, scale=small[0], epsilon=epsilon, name="norm", **given, **kinds
        )
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def norm_backward(method, x, scale, statistics, io=dtypes.f32, strides=None, **kinds):
    """A graph of a norm's gradients; scale and statistics of FLOAT."""

    def build():
        g = new_graph(io_data_type=io)
        dy, image = g.tensor(list(x)), g.tensor(list(x), strides)
        count = 1 if method == "rmsnorm_backward" else 2
        small = [g.tensor(list(d), data_type=dtypes.f32) for d in (scale, *[statistics] * count)]
        made = getattr(g, method)(dy, image, *small, name="grad", **kinds)
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def peers_of(g, channels, devices, rank=3, dims=None):
    """A tensor of each device, to exchange statistics of channels through."""
    dims = dims or [devices, 4 * channels, *[1] * (rank - 2)]
    return [g.tensor(list(dims), data_type=dtypes.f32) for _ in range(devices)]


def peer_reduction(dims=(1, 6, 1), devices=2, rank=0, mode="moments", peer_dims=None, **options):
    def build():
        g = new_graph()
        a, b = g.tensor(list(dims)), g.tensor(list(dims))
        peers = peers_of(g, dims[1], devices, len(dims), peer_dims)
        return finish(g, *g.peer_reduction(a, b, peers, mode, rank, name="all", **options))

    return build


def batchnorm(x, is_running=True, momentum=0.1, strides=None, devices=0, rank=None, peer_dims=None):
    """devices: how many have a part of the statistics, by tensors of peer_dims; 0: this one."""

    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        scale, bias, mean, variance = (g.tensor(channels) for _ in range(4))
        old = (mean, variance) if is_running else (None, None)
        factor = g.tensor_scalar(momentum, "RUNTIME_PARAM") if is_running else None
        epsilon = g.tensor_scalar(1e-3)
        peers = peers_of(g, x[1], devices, len(x), peer_dims)
        image = g.tensor(list(x), strides)
        made = g.batchnorm(
            image, scale, bias, *old, epsilon, factor, peer_stats=peers, peer_rank=rank
        )
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def batchnorm_backward(x, devices, rank, strides=None, io=dtypes.f32, peer_dims=None):
    """A graph of the gradients of a batch norm over several devices."""

    def build():
        g = new_graph(io_data_type=io)
        channels = [1, x[1], *[1] * (len(x) - 2)]
        dy, image = g.tensor(list(x), strides), g.tensor(list(x), strides)
        small = [g.tensor(channels, data_type=dtypes.f32) for _ in range(3)]
        peers = peers_of(g, x[1], devices, len(x), peer_dims)
        return finish(g, *g.batchnorm_backward(dy, image, *small, peer_stats=peers, peer_rank=rank))

    return build


def batchnorm_inference(x, strides=None):
    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        small = [g.tensor(channels) for _ in range(4)]
        return finish(g, g.batchnorm_inference(g.tensor(list(x), strides), *small))

    return build


def genstats(x, strides=None, io=dtypes.f32):
    def build():
        g = new_graph(io_data_type=io)
        return finish(g, *g.genstats(g.tensor(list(x), strides), name="stats"))

    return build


def bn_finalize(dims=(1, 6, 1, 1), is_running=True):
    def build():
        g = new_graph()
        total, squares, scale, bias, mean, variance = (g.tensor(list(dims)) for _ in range(6))
        count = g.tensor_scalar(32, "RUNTIME_PARAM", dtypes.i64) if is_running else 32.0
        old = (mean, variance, 0.25) if is_running else ()
        made = g.bn_finalize(total, squares, scale, bias, 1e-3, count, *old)
        return finish(g, *(tensor for tensor in made if tensor is not None))

    return build


def dbn_weight(x, strides=None):
    def build():
        g = new_graph()
        channels = [1, x[1], *[1] * (len(x) - 2)]
        small = [g.tensor(channels) for _ in range(3)]
        return finish(g, *g.dbn_weight(g.tensor(list(x)), g.tensor(list(x), strides), *small))

    return build


def softmax(x, axis=-1, algorithm="ACCURATE", io=dtypes.f32, strides=None):
    def build():
        g = new_graph(io_data_type=io)
        return finish(g, g.softmax(g.tensor(list(x), strides), axis, algorithm))

    return build


def softmax_backward(x, axis=-1, algorithm="ACCURATE", io=dtypes.f32):
    def build():
        g = new_graph(io_data_type=io)
        dy, y = g.tensor(list(x)), g.tensor(list(x))
        return finish(g, g.softmax_backward(dy, y, axis, algorithm))

    return build
