"""Engine peers in the interpreter: one device at a time, which finds that the others have come."""

import functools

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.engines import ENGINES, engine_named
from dnnc.errors import Status
from dnnc.interpreter.failure import InterpreterError
from dnnc.interpreter.launch import launch
from dnnc.target import of
from tests.dialect.norm_examples import peer_reduction
from tests.support import machine
from tests.support.checked import check, random_inputs


def new_graph(io=dtypes.f32, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_80",
    }
    return dnnc.pygraph("peers", **{**defaults, **options})


def channels_last(dims):
    _, c, h, w = dims
    return [h * w * c, 1, w * c, c]


def forward(devices, rank, dims=(3, 8, 2, 3), io=dtypes.f32, is_running=True, fused=False):
    """A batch norm over devices; fused: with a residual and relu after it."""
    g = new_graph(io)
    x = g.tensor(list(dims), channels_last(dims), name="x")
    scale, bias = channel_tensors(g, dims, "scale", "bias")
    mean, variance = channel_tensors(g, dims, "mean", "variance")
    old = (mean, variance) if is_running else (None, None)
    peers = peers_of(g, devices, dims)
    made = g.batchnorm(
        x, scale, bias, *old, 1e-3, 0.1 if is_running else None, peers, peer_rank=rank
    )
    y, *others = made
    if fused:
        residual = g.tensor(list(dims), channels_last(dims), name="residual")
        y = g.relu(g.add(y, residual))
    y.set_output().set_data_type(io)
    for tensor in others:
        if tensor is not None:
            tensor.set_output()
    return g


def backward(devices, rank, dims=(3, 8, 2, 3), io=dtypes.f32, fused=False):
    """The gradients of a batch norm over devices; fused: relu's before them."""
    g = new_graph(io)
    dy, x = (g.tensor(list(dims), channels_last(dims), name=name) for name in ("dy", "x"))
    scale, mean, inv_variance = channel_tensors(g, dims, "scale", "mean", "inv_variance")
    if fused:
        dy = g.relu_backward(dy, g.tensor(list(dims), channels_last(dims), name="y"))
    peers = peers_of(g, devices, dims)
    for tensor in g.batchnorm_backward(dy, x, scale, mean, inv_variance, peers, peer_rank=rank):
        tensor.set_output()
    return g


def channel_tensors(g, dims, *names):
    return [g.tensor([1, dims[1], 1, 1], data_type=dtypes.f32, name=name) for name in names]


def peers_of(g, devices, dims):
    shape = [devices, 4 * dims[1], *[1] * (len(dims) - 2)]
    return [g.tensor(shape, data_type=dtypes.f32, name=f"peer{i}") for i in range(devices)]


BUILDERS = {"forward": forward, "backward": backward}
RANKS = [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2), *((8, rank) for rank in range(8))]


# ---- against the reference


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("devices", "rank"), RANKS)
@pytest.mark.parametrize("name", BUILDERS)
def test_every_device(name, devices, rank):
    # Sums of both signs: what cancels is not relative to the result.
    plan = check(BUILDERS[name](devices, rank), slack=8.0, allowance=2e-5)
    assert [f.engine for f in plan.programs[0].fusions].count("peers") == 1


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("io", [dtypes.f16, dtypes.bf16], ids=str)
def test_fused_with_what_is_around(name, io):
    check(BUILDERS[name](2, 1, io=io, fused=True), slack=8.0, allowance=2e-5)


@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["moments", "gradients"])
@pytest.mark.parametrize(
    ("dims", "devices", "rank"),
    [((1, 1), 2, 1), ((1, 300, 1), 3, 0), ((1, 5, 1, 1), 32, 31), ((1, 256, 1), 1, 0)],
    ids=str,
)
def test_the_operation_alone(mode, dims, devices, rank):
    check(peer_reduction(dims, devices, rank, mode)(), slack=4.0, engine="peers")


@pytest.mark.in_turn
def test_sizes_that_are_symbols():
    n, c = dnnc.Dim("N", max=64), dnnc.Dim("C", max=512, multiple_of=2)
    for build in (forward, backward):
        for sizes in ({"N": 3, "C": 6}, {"N": 2, "C": 258}):
            check(build(2, 1, (n, c, 2, 3)), sizes, slack=8.0, allowance=2e-5)


def test_more_channels_than_are_counted_in_31_bits_are_refused():
    many = dnnc.Dim("D", max=1 << 28)
    fusion = fusion_of(peer_reduction((1, many, 1))())
    (reason,) = engine_named("peers").supports(fusion, of("sm_80"))
    assert (reason.status, reason.clause) == (Status.NOT_SUPPORTED_SHAPE, "size")


# ---- what is left in the others' memory


@pytest.mark.parametrize(("devices", "rank"), [(2, 0), (3, 2), (8, 5)])
def test_a_device_leaves_its_row_and_raises_every_flag(devices, rank):
    channels = 300
    graph = peer_reduction((1, channels, 1), devices, rank)().graph.finalize()
    inputs = random_inputs(graph, {})
    plan = compile_graph(graph, machine.current().target)
    found = machine.current().run(plan, inputs)
    (op,) = graph.ops
    for tensor in op.peers:
        wanted = np.asarray(inputs[tensor.uid], np.float32).reshape(devices, 4, channels).copy()
        wanted[rank, 0] = np.ravel(inputs[op.a.uid])
        wanted[rank, 1] = np.ravel(inputs[op.b.uid])
        wanted[0, 2, 0] = np.float32(inputs[tensor.uid][0, 2 * channels, 0]) + 1
        np.testing.assert_array_equal(found[tensor.uid].reshape(wanted.shape), wanted)


def test_a_device_waits_for_all_others(monkeypatch):
    if machine.current() is not machine.INTERPRETER:
        pytest.skip("a device would wait forever")
    short = functools.partial(launch, step_limit=20_000)
    monkeypatch.setattr("dnnc.interpreter.plans.launch", short)
    graph = peer_reduction((1, 4, 1), 3, 1)().graph.finalize()
    inputs = random_inputs(graph, {})
    own = graph.ops[0].peers[1]
    plan = compile_graph(graph, machine.current().target)
    inputs[own.uid][0, 8] = 1  # of two others
    with pytest.raises(InterpreterError, match="livelock"):
        machine.current().run(plan, inputs)


# ---- all devices of one batch norm, one after the other

IMAGES = ("x", "dy", "y", "residual")


def all_devices(plans, given, devices, channels):
    """Each device's results, [name or uid -> array]: run once for its row, then with all rows.

    given: the inputs of each device, by name, without its tensors of peers.
    """
    buffers = np.zeros((devices, devices, 4 * channels), np.float32)
    buffers[:, 0, 2 * channels] = devices - 1

    def run(rank):
        peers = {f"peer{i}": buffers[i].reshape(devices, -1, 1, 1) for i in range(devices)}
        return machine.current().run(plans[rank], {**given[rank], **peers})

    for rank in range(devices):
        found = run(rank)
        for i in range(devices):
            row = found[plans[rank].tensor(f"peer{i}").uid].reshape(devices, -1)[rank]
            buffers[i, rank, : 2 * channels] = row[: 2 * channels]
    return [run(rank) for rank in range(devices)]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("name", BUILDERS)
def test_devices_together_are_one_that_has_all_images(name, fused, devices):
    dims, build = (3, 8, 2, 3), BUILDERS[name]
    whole = build(1, 0, (dims[0] * devices, *dims[1:]), fused=fused).graph.finalize()
    inputs = random_inputs(whole, {})
    wanted = reference(whole, inputs, exact_outputs=True)
    given = [{} for _ in range(devices)]
    for tensor in whole.inputs:
        value = inputs[tensor.uid]
        is_split = tensor.name in IMAGES
        parts = np.split(value, devices) if is_split else [value] * devices
        if not tensor.name.startswith("peer"):
            for pack, part in zip(given, parts, strict=True):
                pack[tensor.name] = part
    graphs = [build(devices, rank, dims, fused=fused).graph.finalize() for rank in range(devices)]
    plans = [compile_graph(graph, machine.current().target) for graph in graphs]
    found = all_devices(plans, given, devices, dims[1])
    for place, tensor in enumerate(whole.outputs):
        got = [found[rank][graphs[rank].outputs[place].uid] for rank in range(devices)]
        got = [np.concatenate(got)] if tensor.shape[0].constant != 1 else got
        for one in got:
            np.testing.assert_array_equal(one.view(np.int32), got[0].view(np.int32))
        np.testing.assert_allclose(got[0], wanted[tensor.uid], rtol=2e-5, atol=2e-5)


# ---- who takes what


def fusion_of(g, count=None):
    graph = g.graph.finalize()
    return partition(graph, [graph.live_ops[:count]])[0]


@pytest.mark.rotating
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("devices", [1, 2, 32])
def test_other_engines_refuse_it_with_their_pattern(engine, devices):
    alone = fusion_of(peer_reduction((1, 6, 1), devices)())
    assert alone.roles[alone.ops[0]] == "anchor"
    reasons = engine.supports(alone, of("sm_90a"))
    assert (not reasons) == (engine.name == "peers")
    for graph in (forward(devices, 0), backward(devices, 0), forward(devices, 0, fused=True)):
        found = engine.supports(fusion_of(graph), of("sm_90a"))
        assert found
        assert found[0].status is Status.NOT_SUPPORTED_GRAPH_PATTERN
        assert found[0].what
        assert found[0].supported


def test_peers_takes_nothing_else():
    g = new_graph()
    g.relu(g.tensor([4, 4])).set_output()
    (reason,) = engine_named("peers").supports(fusion_of(g), of("sm_80"))
    assert reason.status is Status.NOT_SUPPORTED_GRAPH_PATTERN
    g = peer_reduction()()
    c = g.graph.ops[0].c
    g.relu(c).set_output()
    (reason,) = engine_named("peers").supports(fusion_of(g), of("sm_80"))
    assert "relu_fwd beside peer_reduction:moments" in reason.what


@pytest.mark.rotating
@pytest.mark.parametrize("dims", [(3, 8, 2, 3), (32, 256, 56, 56), (256, 1024, 14, 14)], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
def test_fusions(dims, fused):
    """The device's own statistics, the exchange, the other results of channels, the images."""
    for build, most in ((forward, 5), (backward, 5)):
        graph = build(2, 0, dims, dtypes.f16, fused=fused).graph.finalize()
        config = heuristics.best_config(graph, of("sm_90"))
        names = [choice.engine.name for choice in config.choices]
        assert len(names) <= most
        assert names.count("peers") == 1
        after = names[names.index("peers") + 1 :]
        assert after == ["pointwise"] * len(after)


def test_images_are_read_again_rather_than_stored():
    """Nothing of the images' size goes from one fusion to another; sums run along memory's rate."""
    for build in (forward, backward):
        graph = build(2, 0, (32, 256, 56, 56), dtypes.f16, fused=True).graph.finalize()
        config = heuristics.best_config(graph, of("sm_90"))
        passed_on = [t for c in config.choices for t in c.fusion.outputs if t.is_virtual]
        assert {t.shape[0].constant for t in passed_on} == {1}
        assert "rows" not in [choice.engine.name for choice in config.choices]


def test_roles_of_more_operands_than_letters():
    g = peer_reduction((1, 6, 1), 32)()
    a, peers = g.graph.ops[0].a, g.graph.ops[0].peers
    graph = g.graph.finalize()
    fusion = partition(graph, [graph.live_ops])[0]
    assert len(fusion.anchor.operands) == 34
    assert (a, peers[31]) == (fusion.anchor.operands[0], fusion.anchor.operands[33])
    assert set(fusion.roles.values()) == {"anchor"}


def test_without_peers_nothing_changes():
    """No tensor of peers, the same steps."""
    g = new_graph()
    x, small = g.tensor([4, 8, 3]), g.tensor([1, 8, 1])
    for tensor in g.batchnorm(x, small, small, None, None, 1e-3, peer_stats=[])[:3]:
        tensor.set_output()
    graph = g.graph.finalize()
    assert "peer_" not in graph.canonical_text()
    assert {op.role for op in graph.live_ops} == {"pointwise", "reduction"}
