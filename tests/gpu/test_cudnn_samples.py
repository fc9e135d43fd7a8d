"""Samples of cudnn-frontend run unchanged on `cudnn`, if it is installed, and on `dnnc.cudnn`."""

import importlib

import pytest

import dnnc.cudnn
from tests.gpu.cudnn_samples import SAMPLES, new, row_major

torch = pytest.importorskip("torch")

MODULES = ("cudnn", "dnnc.cudnn")


def module_of(name):
    """The module; skips where it, or the library under it, is not installed."""
    if name == "dnnc.cudnn":
        return dnnc.cudnn
    found = pytest.importorskip(name)
    try:
        found.backend_version()
    except Exception as error:
        pytest.skip(f"no cuDNN: {error}")
    return found


@pytest.fixture(params=MODULES)
def m(request):
    return module_of(request.param)


@pytest.fixture
def handle(m):
    made = m.create_handle()
    m.set_stream(handle=made, stream=torch.cuda.current_stream().cuda_stream)
    yield made
    m.destroy_handle(made)


def planned(m, graph):
    """The graph with its plans; skips where this version of cuDNN, not dnnc, has none."""
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([m.heur_mode.A, m.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
    except m.cudnnGraphNotSupportedError as error:
        if m is dnnc.cudnn:
            raise
        pytest.skip(f"cuDNN {m.backend_version_string()}: {error}")
    return graph


def workspace_of(graph):
    return torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)


def assert_close(given, wanted, sample):
    torch.testing.assert_close(
        given.float(), wanted.float().reshape(given.shape), rtol=sample.rtol, atol=sample.atol
    )


def run(m, handle, sample):
    """Outputs by name, after they were compared with torch."""
    torch.manual_seed(0)
    buffers = sample.buffers()
    expected = sample.expected(buffers)
    graph, tensors = sample.build(m, handle=handle)
    planned(m, graph)
    graph.execute({tensors[n]: b for n, b in buffers.items()}, workspace_of(graph), handle=handle)
    torch.cuda.synchronize()
    for name, wanted in expected.items():
        assert_close(buffers[name], wanted, sample)
    return {name: buffers[name].clone() for name in expected}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_gives_what_torch_gives(m, handle, name):
    run(m, handle, SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_both_modules_give_the_same(name):
    outputs = []
    for module in map(module_of, MODULES):
        handle = module.create_handle()
        module.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        outputs.append(run(module, handle, SAMPLES[name]))
    theirs, ours = outputs
    assert theirs.keys() == ours.keys()
    for output, wanted in theirs.items():
        assert_close(ours[output], wanted, SAMPLES[name])


def relu(m, rows, **options):
    """relu(x + b) of [rows, 64], keyed by uids 1, 2, 3."""
    g = new(m, "FLOAT", **options)
    x = g.tensor(dim=[1, rows, 64], stride=row_major([1, rows, 64]), uid=1, name="x")
    b = g.tensor(dim=[1, 1, 64], stride=[64, 64, 1], uid=2, name="b")
    y = g.relu(g.add(a=x, b=b, name="add"), name="act").set_output(True)
    y.set_uid(3)
    return g


def buffers_of(rows):
    x, b = torch.randn(1, rows, 64, device="cuda"), torch.randn(1, 1, 64, device="cuda")
    return {1: x, 2: b, 3: torch.full_like(x, torch.nan)}


def check(pack):
    torch.cuda.synchronize()
    torch.testing.assert_close(pack[3], (pack[1] + pack[2]).relu())


def test_graphs_that_differ_in_sizes_share_a_kernel_cache(m, handle):
    cache = m.create_kernel_cache()
    for rows in (16, 32, 48):
        g = relu(m, rows, handle=handle, kernel_cache=cache, is_dynamic_shape_enabled=True)
        planned(m, g)
        pack = buffers_of(rows)
        g.execute(pack, workspace_of(g), handle=handle)
        check(pack)


OVERRIDES_SINCE = 92100  # cuDNN 9.21; an earlier one builds the plan and fails at execution


def test_sizes_are_overridden_at_execution(m, handle):
    if m is not dnnc.cudnn and m.backend_version() < OVERRIDES_SINCE:
        pytest.skip(f"cuDNN {m.backend_version_string()} overrides no shapes; 9.21 does")
    g = planned(m, relu(m, 64, handle=handle, is_override_shape_enabled=True))
    for rows in (64, 24):
        shape = [1, rows, 64]
        override = ([1, 2, 3], [shape, [1, 1, 64], shape],
                    [row_major(shape), [64, 64, 1], row_major(shape)])  # fmt: skip
        pack = buffers_of(rows)
        bytes_ = g.get_workspace_size(handle, *override)
        space = torch.empty(max(1, bytes_), device="cuda", dtype=torch.uint8)
        g.execute(pack, space, handle, *override)
        check(pack)


def test_an_execution_is_captured_and_replayed(m, handle):
    g = planned(m, relu(m, 32, handle=handle))
    pack, space = buffers_of(32), workspace_of(g)
    stream = torch.cuda.Stream()
    m.set_stream(handle=handle, stream=stream.cuda_stream)
    with torch.cuda.stream(stream):
        g.execute(pack, space, handle=handle)  # loads what is loaded once
    stream.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        g.execute(pack, space, handle=handle)
    pack[1].copy_(torch.randn_like(pack[1]))
    pack[3].fill_(torch.nan)
    torch.cuda.synchronize()
    captured.replay()
    check(pack)


def test_a_plan_for_a_device_by_its_properties_runs_elsewhere(m, handle):
    text = m.create_device_properties(0).serialize()
    text = bytes(text).decode() if isinstance(text, list | bytes) else text
    g = planned(m, relu(m, 32, device_property=m.create_device_properties(text)))
    data = g.serialize()
    restored = m.pygraph(handle=handle)
    restored.deserialize(handle, data)
    pack = buffers_of(32)
    restored.execute(pack, workspace_of(restored), handle=handle)
    check(pack)


def test_plans_are_tried_by_their_index(m, handle):
    g = relu(m, 32, handle=handle)
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans([m.heur_mode.A])
    g.check_support()
    for index in range(min(3, g.get_execution_plan_count())):
        g.build_plan_at_index(index)
        bytes_ = max(1, g.get_workspace_size_plan_at_index(index))
        space = torch.empty(bytes_, device="cuda", dtype=torch.uint8)
        pack = buffers_of(32)
        g.execute_plan_at_index(pack, space, index, handle=handle)
        check(pack)


def test_a_graph_is_a_function_of_arrays(m, handle):
    x, b = torch.randn(1, 32, 64, device="cuda"), torch.randn(1, 1, 64, device="cuda")
    kinds = m.data_type
    with m.Graph(
        io_data_type=kinds.FLOAT, intermediate_data_type=kinds.FLOAT,
        compute_data_type=kinds.FLOAT, handle=handle,
    ) as g:  # fmt: skip
        y = g.relu(input=g.add(a=x, b=b, name="add"), name="act")
        y.set_output(True).set_data_type(kinds.FLOAT)
    g.set_io_tuples(["add::a", "add::b"], ["act::OUT_0"])
    m.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    torch.testing.assert_close(g(x, b, handle=handle), (x + b).relu())


def test_a_function_is_built_once(m, handle):
    @m.jit(heur_modes=[m.heur_mode.A, m.heur_mode.FALLBACK])
    @m.graph_cache(key_fn=lambda handle, rows: rows)
    def sums(handle, rows):
        g = relu(m, rows, handle=handle)
        return g, [g.find_tensor(uid) for uid in (1, 2, 3)]

    g, uids = sums(handle, 32)
    assert uids == [1, 2, 3]
    assert sums(handle, 32)[0] is g
    pack = buffers_of(32)
    g.execute(pack, workspace_of(g), handle=handle)
    check(pack)


def test_experimental_operations_of_torch(m):
    ops = importlib.import_module(f"{m.__name__}.experimental.ops")
    x = torch.randn(4, 32, 256, device="cuda", dtype=torch.float16)
    w = torch.randn(256, device="cuda", dtype=torch.float16)
    normed = torch.nn.functional.rms_norm(x.float(), (256,), w.float(), 1e-5)
    torch.testing.assert_close(ops.rms_norm(x, w).float(), normed, rtol=1e-2, atol=1e-2)
    layer = torch.nn.functional.layer_norm(x.float(), (256,), w.float(), w.float(), 1e-5)
    torch.testing.assert_close(ops.layer_norm(x, (256,), w, w).float(), layer, rtol=1e-2, atol=2e-2)
