"""The runtime on a device: streams, captured graphs, buffers of other libraries, refusals."""

import concurrent.futures
import gc
import subprocess
import sys
import weakref

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.errors import Status
from dnnc.options import Options
from dnnc.plan import format
from dnnc.runtime import driver, seen
from tests.support import device

torch = pytest.importorskip("torch")
cuda = pytest.importorskip("cuda.bindings.driver")

M = dnnc.Dim("M", max=1 << 20)


def scaled_sum(target=None, name="scaled_sum"):
    """y = (x + z) * s; one kernel."""
    g = dnnc.pygraph(name, io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    x, z = g.tensor([M, 64], name="x"), g.tensor([M, 64], name="z")
    s = g.tensor_scalar(2.0, "RUNTIME_PARAM").set_name("s")
    g.mul(g.add(x, z), s).set_output().set_name("y")
    return compile_graph(g.graph.finalize(), target or device.target())


@pytest.fixture(scope="module")
def plan():
    return dnnc.load(scaled_sum())


def tensors(m=300):
    x, z = (torch.randn(m, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    return {"x": x, "z": z, "y": torch.full_like(x, float("nan"))}


def assert_right(pack, s=2.0):
    torch.cuda.synchronize()
    exact = (pack["x"].double() + pack["z"].double()) * s
    torch.testing.assert_close(pack["y"].double(), exact, rtol=2e-3, atol=2e-3)


def test_bound_plans_launch_again_with_new_contents(plan):
    pack = tensors()
    bound = plan.bind(pack)
    for _ in range(3):
        pack["x"].normal_()
        pack["y"].fill_(float("nan"))
        bound()
        assert_right(pack)


def test_numbers_are_bound_by_value(plan):
    pack = tensors()
    plan.execute({**pack, "s": -0.5})
    assert_right(pack, -0.5)


def test_many_sizes_of_one_plan(plan):
    for m in (1, 2, 3, 31, 1000, 65537):
        pack = tensors(m)
        plan.execute(pack)
        assert_right(pack)


def test_streams_keep_their_order(plan):
    """Work that follows on the stream sees the result; another stream is not waited for."""
    side = torch.cuda.Stream()
    pack = tensors(100_000)
    plan.execute(pack, stream=side.cuda_stream)  # loads the module, which may take its time
    pack["y"].fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        plan.execute(pack, stream=side.cuda_stream)
        copy = pack["y"].clone()
    assert not side.query(), "execute waited for the stream"
    side.synchronize()
    assert_right({**pack, "y": copy})


def test_cuda_graphs_capture_and_replay(plan):
    pack = tensors()
    stream = torch.cuda.Stream()
    bound = plan.bind(pack, stream=stream.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        bound()
        bound()
    torch.cuda.synchronize()
    assert bool(pack["y"].isnan().all()), "capturing launched"
    for _ in range(3):
        pack["x"].normal_()
        pack["y"].fill_(float("nan"))
        graph.replay()
        assert_right(pack)


def test_plans_of_several_steps_with_workspace_are_captured():
    g = dnnc.pygraph("softmax", io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    x = g.tensor([M, 256], name="x")
    shifted = g.exp(g.sub(x, g.reduction(x, "max").set_dim([M, 1])))
    total = g.reduction(shifted, "add").set_dim([M, 1])
    g.div(shifted, total).set_output().set_name("y")
    several = Options(partition="0|1 2 3 4")
    plan = dnnc.load(compile_graph(g.graph.finalize(), device.target(), several))
    data = torch.randn(77, 256, device="cuda", dtype=torch.float16)
    pack = {"x": data, "y": torch.full_like(data, float("nan"))}
    needed = plan.workspace_size({"M": 77})
    assert needed > 0
    workspace = torch.empty(needed, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    bound = plan.bind(pack, workspace, stream=stream.cuda_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        bound()
    for _ in range(2):
        data.normal_()
        graph.replay()
        torch.cuda.synchronize()
        exact = torch.softmax(data.double(), -1)
        torch.testing.assert_close(pack["y"].double(), exact, rtol=4e-3, atol=1e-5)


def test_cupy_dlpack_and_addresses(plan):
    cupy = pytest.importorskip("cupy")
    pack = tensors()
    as_cupy = {name: cupy.from_dlpack(value) for name, value in pack.items()}
    plan.execute(as_cupy)
    assert_right(pack)

    class OnlyDlpack:
        def __init__(self, value):
            self.__dlpack__ = value.__dlpack__

    pack["y"].fill_(float("nan"))
    plan.execute({name: OnlyDlpack(value) for name, value in pack.items()})
    assert_right(pack)
    pack["y"].fill_(float("nan"))
    plan.execute({name: value.data_ptr() for name, value in pack.items()}, sizes={"M": 300})
    assert_right(pack)


def in_threads(work, count):
    """Runs work(i) in as many threads; what one raises is raised here."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, i) for i in range(count)]:
            done.result()


def test_threads_share_a_plan(plan):
    packs = [tensors(50 + i) for i in range(8)]
    torch.cuda.synchronize()
    in_threads(lambda i: plan.execute(packs[i]), 8)
    for pack in packs:
        assert_right(pack)


def test_threads_with_streams_sizes_and_forms_of_their_own():
    """A plan that nothing was loaded of: eight threads at once, each with its buffers."""
    plan = dnnc.load(scaled_sum())
    packs = [[tensors(100 * i + 7 * j + 1) for j in range(12)] for i in range(8)]
    streams = [torch.cuda.Stream() for _ in range(8)]
    torch.cuda.synchronize()

    def work(i):
        for j, pack in enumerate(packs[i] * 3):
            given = pack if j % 3 else {key: array.data_ptr() for key, array in pack.items()}
            sizes = None if j % 3 else {"M": pack["x"].shape[0]}
            plan.execute(given, stream=streams[(i + j) % 8].cuda_stream, sizes=sizes)

    in_threads(work, 8)
    for pack in [pack for some in packs for pack in some]:
        assert_right(pack)


def test_threads_of_several_devices():
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip("one device")
    plan = dnnc.load(scaled_sum())
    packs = []
    for i in range(8):
        with torch.cuda.device(i % count):
            packs.append(tensors(64 + i))
    for ordinal in range(count):
        torch.cuda.synchronize(ordinal)
    in_threads(lambda i: [plan.execute(packs[i]) for _ in range(20)], 8)
    assert torch.cuda.current_device() == 0
    for i, pack in enumerate(packs):
        with torch.cuda.device(i % count):
            assert_right(pack)


def test_another_device_is_not_made_the_current_one(plan):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    with torch.cuda.device(1):
        pack = tensors()
    torch.cuda.synchronize(1)
    for _ in range(2):
        plan.execute(pack)
        assert torch.cuda.current_device() == 0
    torch.cuda.synchronize(1)
    assert_right(pack)


def test_an_entry_launches_whatever_context_is_current(plan):
    """With none, and with another of the same device: the driver refuses a kernel there."""
    pack = tensors()
    torch.cuda.synchronize()
    entry = plan.entry({"M": 300})
    addresses = tuple(pack[tensor.name].data_ptr() for tensor in entry.tensors)
    own = cuda.cuCtxGetCurrent()[1]
    result, other = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0)[1])
    assert not result
    cuda.cuCtxPopCurrent()  # it lies on the thread's own, which setting none would bring back
    try:
        for context in (own, cuda.CUcontext(0), other):
            pack["y"].zero_()
            torch.cuda.synchronize()
            cuda.cuCtxSetCurrent(context)
            assert int(cuda.cuCtxGetCurrent()[1]) == int(context)
            for _ in range(2):
                entry(addresses, 0, 0)
                assert int(cuda.cuCtxGetCurrent()[1]) == int(context)
            cuda.cuCtxSetCurrent(own)
            torch.cuda.synchronize()
            assert_right(pack)
    finally:
        cuda.cuCtxDestroy(other)
        cuda.cuCtxSetCurrent(own)


def test_tensors_that_changed_in_place_are_checked_again(plan):
    """Addresses stay, so that it is torch's own check that notices."""
    assert seen._torch_guards() is not None, "calls with tensors take twice as long"
    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    pack = {"x": x, "z": torch.randn_like(x), "y": torch.full_like(x, float("nan"))}
    for _ in range(2):
        plan.execute(pack)
    assert_right(pack)
    x.t_()
    refused(plan, pack, Status.BAD_PARAM, "strides")
    x.t_()
    x.data = x.data.view(torch.bfloat16)
    refused(plan, pack, Status.BAD_PARAM, "data type bf16")
    x.data = x.data.view(torch.float16)
    x.resize_(32, 64)
    refused(plan, pack, Status.BAD_PARAM_SHAPE_MISMATCH, "dims")
    plan.execute({key: array[:32] for key, array in pack.items()})
    plan.execute({"x": x, "z": pack["z"][:32], "y": pack["y"][:32]})
    torch.cuda.synchronize()
    exact = (x.double() + pack["z"][:32].double()) * 2
    torch.testing.assert_close(pack["y"][:32].double(), exact, rtol=2e-3, atol=2e-3)


def test_what_was_seen_does_not_outlive_tensors(plan):
    pack = tensors(4321)
    plan.execute(pack)
    torch.cuda.synchronize()
    dead = [weakref.ref(value) for value in pack.values()]
    del pack
    gc.collect()
    assert [ref() for ref in dead] == [None] * 3


def test_ptx_of_an_earlier_architecture_is_compiled_on_loading():
    major, _ = driver.device().capability
    if major < 9:
        pytest.skip("the cubin of sm_80 itself runs here")
    pack = tensors()
    dnnc.load(scaled_sum("sm_80")).execute(pack)
    assert_right(pack)


def test_one_pointwise_operation_may_write_in_place():
    g = dnnc.pygraph(io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32)
    g.relu(g.tensor([M, 64], name="x")).set_output().set_name("y")
    plan = dnnc.load(compile_graph(g.graph.finalize(), device.target()))
    x = torch.randn(99, 64, device="cuda", dtype=torch.float16)
    wanted = torch.relu(x)
    plan.execute({"x": x, "y": x})
    torch.cuda.synchronize()
    assert torch.equal(x, wanted)


# ---- refusals: nothing is launched, and the context stays usable


def refused(plan, pack, status, match, **options):
    before = pack["y"].clone() if isinstance(pack.get("y"), torch.Tensor) else None
    with pytest.raises(dnnc.DnncError, match=match) as caught:
        plan.execute(pack, **options)
    assert caught.value.status is status
    torch.cuda.synchronize()
    if before is not None:
        assert torch.equal(before.view(torch.int16), pack["y"].view(torch.int16))


def test_what_does_not_fit_is_refused(plan):
    good = tensors()
    x = good["x"]
    host = torch.zeros(300, 64, dtype=torch.float16)
    missing = {k: v for k, v in good.items() if k != "z"}
    refused(plan, missing, Status.BAD_PARAM, "missing")
    refused(plan, {**good, "x": x.bfloat16()}, Status.BAD_PARAM, "data type bf16")
    refused(plan, {**good, "z": x[:200]}, Status.BAD_PARAM_SHAPE_MISMATCH, "dims")
    refused(plan, {**good, "x": x.t().contiguous().t()}, Status.BAD_PARAM, "strides")
    shifted = torch.empty(300 * 64 + 8, dtype=torch.float16, device="cuda")[1:19201]
    refused(plan, {**good, "x": shifted.view(300, 64)}, Status.BAD_PARAM_MISALIGNED_POINTER,
            "multiple of 16")  # fmt: skip
    refused(plan, {**good, "x": host}, Status.BAD_PARAM, "cpu")
    refused(plan, {**good, "x": host.data_ptr()}, Status.BAD_PARAM, "no memory of a CUDA device",
            sizes={"M": 300})  # fmt: skip
    refused(plan, {**good, "y": x}, Status.BAD_PARAM, "overlaps")
    plan.execute(good)
    assert_right(good)


def test_a_plan_for_another_architecture_is_refused():
    other = "sm_100a" if driver.device().capability != (10, 0) else "sm_90a"
    plan = dnnc.load(scaled_sum(other))
    refused(plan, tensors(), Status.NOT_SUPPORTED_ARCH_MISMATCH, other)


def test_buffers_of_another_device(plan):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    good = tensors()
    refused(plan, {**good, "z": good["z"].to("cuda:1")}, Status.BAD_PARAM, "on device 1")


def test_a_file_runs_in_a_process_that_loads_no_compiler(tmp_path):
    path = tmp_path / "scaled_sum.dnnplan"
    format.write(path, scaled_sum())
    code = (
        "import sys, numpy, torch, dnnc\n"
        f"plan = dnnc.load({str(path)!r})\n"
        "x, z = (torch.randn(70, 64, device='cuda', dtype=torch.float16) for _ in range(2))\n"
        "y = torch.full_like(x, float('nan'))\n"
        "plan.execute({'x': x, 'z': z, 'y': y})\n"
        "torch.testing.assert_close(y, (x + z) * 2, rtol=4e-3, atol=4e-3)\n"
        "loaded = [name for name in sys.modules if 'mlir' in name or name == 'dnnc.compiler']\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_pygraph_lives_its_life():
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    x = torch.randn(2, 40, 64, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(1, 64, 48, device="cuda", dtype=torch.bfloat16)
    y = torch.full((2, 40, 48), float("nan"), device="cuda", dtype=torch.bfloat16)
    tx, tw = g.tensor_like(x), g.tensor_like(w)
    ty = g.relu(g.matmul(tx, tw)).set_output()
    g.validate()
    g.build_operation_graph()
    g.create_execution_plans()
    g.check_support()
    g.build_plans()
    handle = dnnc.create_handle()
    stream = torch.cuda.Stream()
    dnnc.set_stream(handle, stream.cuda_stream)
    workspace = torch.empty(max(1, g.get_workspace_size()), device="cuda", dtype=torch.uint8)
    torch.cuda.synchronize()
    g.execute({tx: x, tw: w, ty: y}, workspace, handle=handle)
    stream.synchronize()
    exact = torch.relu(x.double() @ w.double())
    error = float((y.double() - exact).norm() / exact.norm())
    assert error < 2 * 2.0**-8
