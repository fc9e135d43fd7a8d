"""CUDA graphs on a device: nodes added directly, updates, and captures of first calls."""

import contextlib

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.errors import Status
from dnnc.options import Options
from dnnc.runtime import driver
from tests import attention_graphs
from tests.attention_plans import decode_plan, prefill_plan
from tests.support import device
from tests.support.compare import assert_close
from tests.support.documents import examples

torch = pytest.importorskip("torch")

M = dnnc.Dim("M", max=1 << 16)


class Graph:
    """A CUgraph, and what was instantiated from it."""

    def __init__(self):
        self.handle = driver._call("cuGraphCreate", 0)
        self.executable = None

    def instantiate(self):
        self.executable = driver._call("cuGraphInstantiate", self.handle, 0)

    def launch(self):
        stream = torch.cuda.current_stream()
        driver._call("cuGraphLaunch", self.executable, stream.cuda_stream)
        stream.synchronize()

    def close(self):
        if self.executable is not None:
            driver._call("cuGraphExecDestroy", self.executable)
        driver._call("cuGraphDestroy", self.handle)


@contextlib.contextmanager
def new_graph():
    torch.zeros(1, device="cuda")  # makes the primary context current
    graph = Graph()
    try:
        yield graph
    finally:
        graph.close()


def pointwise():
    """y = (x + z) * s, of M rows."""
    g = dnnc.pygraph("scaled_sum", io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    x, z = g.tensor([M, 64], name="x"), g.tensor([M, 64], name="z")
    s = g.tensor_scalar(2.0, "RUNTIME_PARAM").set_name("s")
    g.mul(g.add(x, z), s).set_output().set_name("y")
    return dnnc.load(compile_graph(g.graph.finalize(), device.target()))


def scaled(m=300):
    x, z = (torch.randn(m, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    return {"x": x, "z": z, "y": torch.full_like(x, float("nan"))}


def assert_scaled(pack, s=2.0):
    exact = (pack["x"].double() + pack["z"].double()) * s
    torch.testing.assert_close(pack["y"].double(), exact, rtol=2e-3, atol=2e-3)


def softmax():
    """Two launches, the first of which writes the workspace."""
    g = dnnc.pygraph("softmax", io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    x = g.tensor([M, 256], name="x")
    shifted = g.exp(g.sub(x, g.reduction(x, "max").set_dim([M, 1])))
    total = g.reduction(shifted, "add").set_dim([M, 1])
    g.div(shifted, total).set_output().set_name("y")
    several = Options(partition="0|1 2 3 4")
    return dnnc.load(compile_graph(g.graph.finalize(), device.target(), several))


def by_largest():
    """y = x / the largest magnitude: a memset, and a cooperative launch."""
    g = dnnc.pygraph("by_largest", io_data_type=dtypes.f32)
    x = g.tensor([512, 1024], name="x")
    g.div(x, g.reduction(x, "amax").set_dim([1, 1])).set_output().set_name("y")
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="grid"))
    memset, step = plan.programs[0].variants[0].steps
    assert memset.memset is not None
    assert step.launch.cooperative
    return dnnc.load(plan)


def clustered():
    """A product whose blocks share loads in clusters of two."""
    g = dnnc.pygraph("product", io_data_type=dtypes.bf16, compute_data_type=dtypes.f32)
    a, b = g.tensor([1, 512, 256], name="a"), g.tensor([1, 256, 512], name="b")
    g.matmul(a, b).set_output().set_name("y")
    knobs = (("TILE_M", 128), ("TILE_N", 128), ("TILE_CGA_M", 2), ("TILE_CGA_N", 1))
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="matmul_sm90", knobs=knobs))
    assert plan.programs[0].variants[0].steps[0].launch.cluster != (1, 1, 1)
    return dnnc.load(plan)


def workspace_of(plan, **sizes):
    return torch.empty(max(1, plan.workspace_size(sizes)), dtype=torch.uint8, device="cuda")


def test_nodes_run_and_take_new_pointers():
    plan, one, other = pointwise(), scaled(), scaled()
    with new_graph() as graph:
        (node,) = plan.populate_cuda_graph(one, None, graph.handle)
        graph.instantiate()
        graph.launch()
        assert_scaled(one)
        plan.update_cuda_graph({**other, "s": -0.5}, None, graph.handle, nodes=[node],
                               executable=graph.executable)  # fmt: skip
        one["y"].fill_(float("nan"))
        graph.launch()
        assert_scaled(other, -0.5)
        assert bool(one["y"].isnan().all())


def test_an_updated_graph_is_instantiated_anew():
    plan, one, other = pointwise(), scaled(), scaled(1000)
    with new_graph() as graph:
        plan.populate_cuda_graph(one, None, graph.handle)
        plan.update_cuda_graph(other, None, graph.handle)  # another size, too
        graph.instantiate()
        graph.launch()
        assert_scaled(other)
        assert bool(one["y"].isnan().all())


def test_an_executable_takes_another_size():
    plan, one, other = pointwise(), scaled(2000), scaled(77)
    with new_graph() as graph:
        plan.populate_cuda_graph(one, None, graph.handle)
        graph.instantiate()
        plan.update_cuda_graph(other, None, graph.handle, executable=graph.executable)
        graph.launch()
        assert_scaled(other)


def test_steps_wait_for_each_other():
    plan = softmax()
    data = torch.randn(777, 256, device="cuda", dtype=torch.float16)
    pack = {"x": data, "y": torch.full_like(data, float("nan"))}
    workspace = workspace_of(plan, M=777)
    with new_graph() as graph:
        assert len(plan.populate_cuda_graph(pack, workspace, graph.handle)) == 2
        graph.instantiate()
        for _ in range(3):
            data.normal_()
            torch.cuda.synchronize()
            graph.launch()
            exact = torch.softmax(data.double(), -1)
            torch.testing.assert_close(pack["y"].double(), exact, rtol=4e-3, atol=1e-5)


def test_plans_follow_each_other_in_one_graph():
    plan, first = pointwise(), scaled()
    second = {"x": first["y"], "z": first["x"], "y": torch.full_like(first["x"], float("nan"))}
    with new_graph() as graph:
        before = plan.populate_cuda_graph(first, None, graph.handle)
        plan.populate_cuda_graph(second, None, graph.handle, dependencies=before)
        graph.instantiate()
        for _ in range(3):
            first["x"].normal_()
            torch.cuda.synchronize()
            graph.launch()
            assert_scaled(first)
            assert_scaled(second)


@pytest.mark.sm90
def test_memsets_and_cooperative_launches():
    plan = by_largest()
    x = torch.randn(512, 1024, device="cuda")
    pack = {"x": x, "y": torch.full_like(x, float("nan"))}
    workspace = workspace_of(plan)
    other = {"x": torch.randn_like(x), "y": torch.full_like(x, float("nan"))}
    with new_graph() as graph:
        plan.populate_cuda_graph(pack, workspace, graph.handle)
        graph.instantiate()
        for _ in range(3):
            x.normal_()
            torch.cuda.synchronize()
            graph.launch()
            torch.testing.assert_close(pack["y"], x / x.abs().max())
        plan.update_cuda_graph(other, workspace_of(plan), graph.handle,
                               executable=graph.executable)  # fmt: skip
        graph.launch()
        torch.testing.assert_close(other["y"], other["x"] / other["x"].abs().max())


@pytest.mark.sm90
def test_clusters_and_tensor_maps():
    plan = clustered()

    def product():
        a = torch.randn(1, 512, 256, device="cuda").bfloat16()
        b = torch.randn(1, 256, 512, device="cuda").bfloat16()
        y = torch.full((1, 512, 512), float("nan"), device="cuda").bfloat16()
        return {"a": a, "b": b, "y": y}

    one, other = product(), product()
    with new_graph() as graph:
        plan.populate_cuda_graph(one, None, graph.handle)
        graph.instantiate()
        graph.launch()
        plan.update_cuda_graph(other, None, graph.handle, executable=graph.executable)
        graph.launch()
    for pack in (one, other):
        exact = pack["a"].double() @ pack["b"].double()
        assert float((pack["y"].double() - exact).norm() / exact.norm()) < 2.0**-8


def prefilled(batch, rows, keys):
    """Tensors of `prefill_plan`: on the device, the outputs full of NaN."""
    q = torch.randn(batch, 4, rows, 64, device="cuda").bfloat16()
    k, v = (torch.randn(batch, 2, keys, 64, device="cuda").bfloat16() for _ in range(2))
    stats = torch.full((batch, 4, rows, 1), float("nan"), device="cuda")
    return {"q": q, "k": k, "v": v, "o": torch.full_like(q, float("nan")), "stats": stats}


def assert_prefilled(pack):
    q, k, v = (pack[name].double() for name in "qkv")
    scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) / 8
    rows, keys = scores.shape[2:]
    seen = torch.ones(rows, keys, dtype=torch.bool, device="cuda").tril()
    scores = scores.masked_fill(~seen, float("-inf"))
    o = scores.softmax(-1) @ v.repeat_interleave(2, 1)
    assert float((pack["o"].double() - o).norm() / o.norm()) < 2.0**-7
    torch.testing.assert_close(
        pack["stats"].double(), scores.logsumexp(-1, True), rtol=0, atol=1e-3
    )


@pytest.mark.sm90
def test_attention_by_tensor_maps():
    """Other buffers, sizes and workspace for the same nodes; tiles are counted from 0 each time."""
    plan = dnnc.load(prefill_plan())
    one, other = prefilled(1, 300, 300), prefilled(3, 1000, 1100)
    small, large = ({"B": b, "Sq": r, "Skv": k} for b, r, k in ((1, 300, 300), (3, 1000, 1100)))
    with new_graph() as graph:
        workspace = workspace_of(plan, **small)
        plan.populate_cuda_graph(one, workspace, graph.handle)
        graph.instantiate()
        for _ in range(3):
            one["q"].normal_()
            torch.cuda.synchronize()
            graph.launch()
            assert_prefilled(one)
        for name in ("o", "stats"):
            one[name].fill_(float("nan"))
        again = workspace_of(plan, **large)
        plan.update_cuda_graph(other, again, graph.handle, executable=graph.executable)
        for _ in range(2):
            graph.launch()
            assert_prefilled(other)
        assert bool(one["o"].isnan().all())


def decoded(batch, lengths):
    """(tensors, exact results by name) of `decode_plan` over caches of these lengths."""
    g, _ = attention_graphs.paged(batch=batch, queries=1, heads=8, block=16)
    graph = g.graph.finalize()
    given = attention_graphs.paged_inputs(g, batch * 4 + 5, lengths, 16, [1] * batch)
    pack = {t.name: torch.from_numpy(given[t.uid]).cuda() for t in graph.inputs}
    for name in ("queries", "lengths", "k_table", "v_table"):
        pack[name] = pack[name].to(torch.int32)
    pack["o"] = torch.full_like(pack["q"], float("nan"))
    pack["stats"] = torch.full((batch, 8, 1, 1), float("nan"), device="cuda")
    exact = reference(graph, given, exact_outputs=True)
    return pack, {t.name: (exact[t.uid], t.type) for t in graph.outputs}


def test_attention_shared_among_blocks():
    """A step of decoding: the same nodes for other sequences, then for another batch."""
    plan = dnnc.load(decode_plan(device.target()))
    steps = [decoded(2, (33, 64)), decoded(2, (0, 17)), decoded(5, (1, 64, 16, 40, 63))]
    with new_graph() as graph:
        for at, (pack, exact) in enumerate(steps):
            workspace = workspace_of(plan, B=len(pack["q"]))
            if at == 0:
                plan.populate_cuda_graph(pack, workspace, graph.handle)
                graph.instantiate()
            else:
                plan.update_cuda_graph(pack, workspace, graph.handle, executable=graph.executable)
            for _ in range(2):
                graph.launch()
                for name, (values, dtype) in exact.items():
                    found = pack[name].cpu().numpy()
                    assert_close(found, values, dtype, slack=4.0, allowance=1e-5)


def test_graphs_of_other_plans_are_refused():
    plan, pack = pointwise(), scaled()
    with new_graph() as graph:
        plan.populate_cuda_graph(pack, None, graph.handle)
        for other, given in ((pointwise(), pack), (softmax(), None)):
            if given is None:
                data = torch.randn(77, 256, device="cuda", dtype=torch.float16)
                given = {"x": data, "y": torch.empty_like(data)}
            with pytest.raises(dnnc.DnncError) as caught:
                other.update_cuda_graph(given, workspace_of(other), graph.handle)
            assert caught.value.status is Status.BAD_PARAM_CUDA_GRAPH_MISMATCH
        graph.instantiate()
        graph.launch()
        assert_scaled(pack)


@pytest.mark.parametrize("way", ["execute", "bind"])
def test_the_first_call_of_a_plan_may_be_captured(way):
    """Code is loaded and arguments laid out while the stream is captured, in the default mode."""
    pack = scaled()
    plan = pointwise()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        if way == "execute":
            plan.execute(pack, stream=stream.cuda_stream)
        else:
            plan.bind(pack, stream=stream.cuda_stream)()
    torch.cuda.synchronize()
    assert bool(pack["y"].isnan().all()), "capturing launched"
    for _ in range(2):
        pack["x"].normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert_scaled(pack)


def test_pygraphs_have_both_under_their_names():
    g = dnnc.pygraph("sum", io_data_type=dtypes.f32)
    x, z = g.tensor([64, 64], name="x"), g.tensor([64, 64], name="z")
    y = g.add(x, z).set_output()
    g.build()
    handle = dnnc.create_handle()
    arrays = [torch.randn(64, 64, device="cuda") for _ in range(2)]
    out = torch.full((64, 64), float("nan"), device="cuda")
    with new_graph() as graph:
        pack = {x: arrays[0], z: arrays[1], y: out}
        g.populate_cuda_graph(handle, pack, None, int(graph.handle))
        graph.instantiate()
        graph.launch()
        assert torch.equal(out, arrays[0] + arrays[1])
        g.update_cuda_graph(handle, {x: out, z: out, y: arrays[0]}, None, int(graph.handle),
                            executable=graph.executable)  # fmt: skip
        graph.launch()
        assert torch.equal(arrays[0], out + out)


def test_the_example_of_the_document():
    (code,) = examples("execution.md")
    exec(compile(code, "docs/execution.md", "exec"), {})
