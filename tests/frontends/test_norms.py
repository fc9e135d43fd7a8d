"""Calls of norms and softmax, as users of cudnn-frontend make them."""

import inspect

import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import DnncError, Status


def new_graph(io="HALF"):
    return dnnc.pygraph("norms", io_data_type=io, compute_data_type="FLOAT", target="sm_90")


# The parameters of cudnn-frontend's Python methods, in their order.
SIGNATURES = {
    "layernorm": "norm_forward_phase input scale bias epsilon",
    "layernorm_backward": "grad input scale mean inv_variance",
    "rmsnorm": "norm_forward_phase input scale bias epsilon",
    "rmsnorm_backward": "grad input scale inv_variance has_dbias",
    "adalayernorm": "norm_forward_phase input scale bias epsilon",
    "adalayernorm_backward": "grad input scale mean inv_variance",
    "instancenorm": "norm_forward_phase input scale bias epsilon",
    "instancenorm_backward": "grad input scale mean inv_variance",
    "batchnorm": "input scale bias in_running_mean in_running_var epsilon momentum peer_stats",
    "batchnorm_inference": "input mean inv_variance scale bias",
    "batchnorm_backward": "grad input scale mean inv_variance peer_stats",
    "genstats": "input",
}


@pytest.mark.parametrize("method", SIGNATURES)
def test_parameters_are_those_of_cudnn_frontend(method):
    names = list(inspect.signature(getattr(dnnc.pygraph, method)).parameters)
    wanted = ["self", *SIGNATURES[method].split(), "compute_data_type", "name"]
    assert names == wanted + ["peer_rank"] * ("peer_stats" in wanted)  # which is ours


@pytest.mark.parametrize("method", ["layernorm", "adalayernorm", "instancenorm"])
def test_an_inference_keeps_no_statistics(method):
    g = new_graph()
    x = g.tensor([4, 8, 16])
    scale = g.tensor([1, 8, 1] if method == "instancenorm" else [1, 1, 16])
    phase = dnnc.norm_forward_phase.INFERENCE
    y, mean, inv_variance = getattr(g, method)(phase, x, scale, scale, 1e-5)
    assert mean is None
    assert inv_variance is None
    assert y.get_dim() == [4, 8, 16]


def test_statistics_and_gradients_have_dims_and_types():
    """Outputs have the graph's type, statistics and gradients of scale and bias too."""
    g = new_graph()
    x, scale = g.tensor([4, 8, 16], [128, 1, 8]), g.tensor([1, 1, 16], data_type="BFLOAT16")
    y, inv_variance = g.rmsnorm("TRAINING", x, scale, epsilon=1e-5)
    dx, dscale, dbias = g.rmsnorm_backward(y, x, scale, inv_variance, has_dbias=False)
    for tensor in (y, inv_variance, dx, dscale):
        tensor.set_output()
    g.validate()
    assert dbias is None
    assert (y.get_stride(), dx.get_stride()) == ([128, 1, 8], [128, 1, 8])
    assert (inv_variance.get_dim(), inv_variance.get_data_type()) == ([4, 8, 1], dtypes.f16)
    assert inv_variance.get_stride() == [8, 1, 8]
    assert (dscale.get_dim(), dscale.get_data_type()) == ([1, 1, 16], dtypes.f16)
    assert dx.get_data_type() == dtypes.f16


def test_batch_norm_without_running_statistics():
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1])
    y, mean, _, *running = g.batchnorm(x, small, small, None, None, 1e-5, None, [])
    y.set_output()
    assert running == [None, None]
    assert mean.get_dim() == [1, 8, 1]
    g.validate()


def test_batch_norm_with_a_mean_but_no_variance_is_refused():
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1])
    g.batchnorm(x, small, small, small, None, 1e-5, 0.1)[0].set_output()
    with pytest.raises(DnncError, match=r"batchnorm \(C4\): 1 of 3 are not given"):
        g.validate()


def of_several_devices(method, peers, **options):
    """A graph of 8 channels with tensors of peers; peers: (dims, strides, type) of each."""
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1], data_type="FLOAT")
    tensors = [g.tensor(dims, strides, data_type=kind) for dims, strides, kind in peers]
    given = (x, small, small, small, small, 1e-5, 0.1)
    if method == "batchnorm_backward":
        given = (x, x, small, small, small)
    getattr(g, method)(*given, peer_stats=tensors, **options)[0].set_output()
    return g


PEER = ([2, 32, 1], None, "FLOAT")
REFUSED_PEERS = [
    ([PEER] * 2, None, "C7", "peer_rank=None; accepted: 0 to 1, which of the peers' tensors"),
    ([PEER] * 2, 2, "C7", "peer_rank=2; accepted: 0 to 1"),
    ([], 0, "C7", "peer_rank=0 without peer_stats"),
    ([PEER] * 3, 0, "C6", r"has dims \[2, 32, 1\]; accepted: \[3, 32, 1\]"),
    ([PEER] * 33, 0, "C6", "tensors of 33 devices; accepted: 1 to 32"),
    ([PEER, ([2, 32, 1], None, "HALF")], 0, "C6", "data type f16.*accepted: f32"),
    ([PEER, ([2, 32, 1], [1, 2, 1], "FLOAT")], 0, "C6", r"strides \[1, 2, 1\].*of stride 32"),
]


@pytest.mark.parametrize("method", ["batchnorm", "batchnorm_backward"])
@pytest.mark.parametrize(("peers", "rank", "constraint", "message"), REFUSED_PEERS)
def test_tensors_of_peers_that_do_not_fit_are_refused(method, peers, rank, constraint, message):
    with pytest.raises(DnncError, match=message) as caught:
        of_several_devices(method, peers, peer_rank=rank).validate()
    assert caught.value.where == f"{method} ({constraint})"


@pytest.mark.parametrize("method", ["batchnorm", "batchnorm_backward"])
def test_several_devices_compute_in_float(method):
    g = of_several_devices(method, [PEER] * 2, peer_rank=0, compute_data_type="DOUBLE")
    with pytest.raises(DnncError, match=r"DOUBLE, of several devices; accepted: FLOAT") as caught:
        g.validate()
    assert caught.value.status is Status.NOT_SUPPORTED_DATA_TYPE


def test_each_device_has_a_tensor_and_each_operation_has_its_own():
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1], data_type="FLOAT")
    one, two = (g.tensor([2, 32, 1], data_type="FLOAT") for _ in range(2))
    g.batchnorm_backward(x, x, small, small, small, [one, one], peer_rank=0)[0].set_output()
    with pytest.raises(DnncError, match=r"a tensor of two devices"):
        g.validate()
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1], data_type="FLOAT")
    one, two = (g.tensor([2, 32, 1], data_type="FLOAT") for _ in range(2))
    for _ in range(2):
        g.batchnorm_backward(x, x, small, small, small, [one, two], peer_rank=0)[0].set_output()
    with pytest.raises(DnncError, match=r"used 1 times beside; accepted: tensors of its own"):
        g.validate()


def test_what_is_missing_is_named():
    g = new_graph()
    x, small = g.tensor([4, 8, 16]), g.tensor([1, 8, 1])
    with pytest.raises(TypeError, match="missing a required argument: 'epsilon'"):
        g.rmsnorm("INFERENCE", x, small)
    with pytest.raises(DnncError, match="mean is not given; accepted: mean and inv_variance"):
        g.instancenorm_backward(x, x, small)


@pytest.mark.parametrize("axis", [-1, [2], (1, -1), 0])
def test_axes_of_softmax(axis):
    g = new_graph()
    x = g.tensor([4, 8, 16])
    y = g.softmax(x, axis, algorithm="LOG")
    g.softmax_backward(x, y, axis, "LOG").set_output()
    g.validate()
    axes = (axis,) if isinstance(axis, int) else axis
    assert [op.axis for op in g.graph.ops] == [tuple(axes)] * 2


@pytest.mark.parametrize("axis", [3, [], [0, 0], [1, -2]])
def test_axes_that_x_has_not_are_refused(axis):
    g = new_graph()
    g.softmax(g.tensor([4, 8, 16]), axis).set_output()
    with pytest.raises(DnncError, match=r"softmax \(C1\): axis=.*axes from -3 to 2, each once"):
        g.validate()


def test_one_tensor_in_place_of_a_list_is_an_error():
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f32")
    x, stats = g.tensor([2, 8, 4, 4]), g.tensor([2, 32, 1, 1], data_type="f32")
    one = g.tensor([1, 8, 1, 1], data_type="f32")
    with pytest.raises(DnncError, match="peer_stats is one tensor; accepted: a list of tensors"):
        g.batchnorm(x, one, one, one, one, 1e-3, 0.1, peer_stats=stats)
