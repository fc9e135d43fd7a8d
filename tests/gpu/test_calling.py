"""Calls with arrays and entries on a device: new addresses, streams, captures, threads."""

import concurrent.futures
import ctypes
import runpy
from pathlib import Path

import pytest

import dnnc
from dnnc.compiler import compile_graph
from dnnc.errors import DnncError
from dnnc.runtime import driver
from tests.plan.plans import IM2COL, TILED
from tests.support import device

torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ffn.py"


@pytest.fixture(scope="module")
def plan():
    """y = gelu(x @ w + b) for any number of tokens; with tensor maps on Hopper."""
    is_hopper = driver.device().capability == (9, 0)
    graph = runpy.run_path(str(EXAMPLE))["build"]().graph.finalize()
    return dnnc.load(compile_graph(graph, "sm_90a" if is_hopper else device.target()))


@pytest.fixture(scope="module")
def linear():
    return torch.nn.Linear(384, 1536, dtype=torch.float16, device="cuda")


def inputs(linear, tokens=100):
    x = torch.randn(1, tokens, 384, dtype=torch.float16, device="cuda")
    return x, linear.weight.detach().t()[None], linear.bias.detach()[None, None]


def assert_right(y, x, linear):
    torch.cuda.synchronize()
    exact = torch.nn.functional.gelu(linear.double()(x.double()))
    linear.half()
    torch.testing.assert_close(y.double(), exact, rtol=1e-2, atol=2e-3)


# ---- calls


def test_calls_of_many_sizes_and_addresses(plan, linear):
    kept = []
    for tokens in (100, 7, 100, 1000, 100):
        x, w, b = inputs(linear, tokens)
        kept.append((plan(x, w, b), x))
        assert kept[-1][0].shape == (1, tokens, 1536)
    for y, x in kept:
        assert_right(y, x, linear)


def test_a_call_runs_on_torchs_current_stream(plan, linear):
    """A call runs after the work before it on its stream, and before the work after it."""
    x, w, b = inputs(linear)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for options in ({}, {"stream": stream}, {"stream": stream.cuda_stream}):
        with torch.cuda.stream(stream):
            slow = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                slow = slow @ slow
            mine = x + 0 * slow[0, 0].nan_to_num(0, 0, 0).half()
            y = plan(mine, w, b, **options).clone()
        stream.synchronize()
        assert_right(y, x, linear)


def test_memory_of_another_stream_belongs_to_it(plan, linear):
    x, w, b = inputs(linear)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    y = plan(x, w, b, stream=stream)
    stream.synchronize()
    assert_right(y, x, linear)
    assert torch.cuda.current_stream() != stream


def test_a_call_is_captured(plan, linear):
    x, w, b = inputs(linear)
    plan(x, w, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = plan(x, w, b)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert_right(y, x, linear)


def test_gradients_are_refused(plan, linear):
    x, w, _ = inputs(linear)
    with pytest.raises(DnncError, match="requires a gradient"):
        plan(x, w, linear.bias[None, None])
    with torch.no_grad():
        y = plan(x, w, linear.bias[None, None])
    assert_right(y, x, linear)


def test_threads_call_one_plan(plan, linear):
    given = [inputs(linear, 50 + i) for i in range(8)]
    torch.cuda.synchronize()

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                y = plan(*given[i])
            torch.cuda.current_stream().synchronize()
        return y

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    for y, (x, *_) in zip(found, given, strict=True):
        assert_right(y, x, linear)


def test_cupy_allocates_its_own(plan, linear):
    cupy = pytest.importorskip("cupy")
    x, w, b = inputs(linear)
    y = plan(*map(cupy.from_dlpack, (x, w, b)))
    assert isinstance(y, cupy.ndarray)
    assert_right(torch.from_dlpack(y), x, linear)


def test_jax_allocates_its_own(plan, linear):
    jax = pytest.importorskip("jax")
    own = torch.cuda.current_device()
    jax.devices()
    torch.cuda.set_device(own)  # JAX opens every device, and leaves the last one current
    x, w, b = inputs(linear)
    torch.cuda.synchronize()
    y = plan(jax.dlpack.from_dlpack(x), w, jax.dlpack.from_dlpack(b))
    assert isinstance(y, jax.Array)
    assert_right(torch.from_dlpack(y), x, linear)


# ---- entries


def test_an_entry_gives_what_execute_gives(plan, linear):
    """At addresses that are new, of which some moved, and at those of before."""
    entry = plan.entry({"tokens": 100})
    sets = [(*inputs(linear), torch.empty(1, 100, 1536, device="cuda").half()) for _ in range(3)]
    sets.append((sets[0][0], *sets[1][1:3], sets[2][3]))
    for i in (0, 1, 2, 3, 0, 0, 3):
        x, w, b, y = sets[i]
        wanted = torch.full_like(y, float("nan"))
        plan.execute({"x": x, "w": w, "b": b, "y": wanted})
        y.fill_(float("nan"))
        entry(tuple(tensor.data_ptr() for tensor in sets[i]))
        torch.cuda.synchronize()
        assert torch.equal(y, wanted)
        assert_right(y, x, linear)


def test_an_entry_is_captured_at_several_addresses(plan, linear):
    """Arguments that are written in place are copied by each launch that was captured."""
    entry = plan.entry({"tokens": 100})
    sets = [(*inputs(linear), torch.empty(1, 100, 1536, device="cuda").half()) for _ in range(3)]
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for each in sets:
            entry(tuple(tensor.data_ptr() for tensor in each), 0, stream)
    graph.replay()
    for x, _, _, y in sets:
        assert_right(y, x, linear)


def test_threads_share_an_entry(plan, linear):
    entry = plan.entry({"tokens": 100})
    sets = [(*inputs(linear), torch.empty(1, 100, 1536, device="cuda").half()) for _ in range(8)]
    torch.cuda.synchronize()

    def work(i):
        stream = torch.cuda.Stream()
        for _ in range(200):
            entry(tuple(tensor.data_ptr() for tensor in sets[i]), 0, stream)
        stream.synchronize()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for x, _, _, y in sets:
        assert_right(y, x, linear)


def test_a_thread_without_a_context(plan, linear):
    entry = plan.entry({"tokens": 100})
    x, w, b = inputs(linear)
    y = torch.empty(1, 100, 1536, device="cuda").half()
    torch.cuda.synchronize()
    addresses = tuple(tensor.data_ptr() for tensor in (x, w, b, y))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            pool.submit(entry, addresses).result()
    assert_right(y, x, linear)


@pytest.mark.sm90
@pytest.mark.parametrize("recipe", [TILED, IM2COL], ids=lambda recipe: recipe.mode)
def test_a_map_that_was_moved_is_one_encoded_anew(recipe):
    encode = driver.tensor_map_encoder(recipe)
    sizes = {
        "tiled": ((64, 128), (128,)), "im2col": ((64, 56, 56, 2), (128, 7168, 401408)),
    }[recipe.mode]  # fmt: skip
    data = torch.zeros(1 << 20, device="cuda")
    before, after = (encode(data.data_ptr() + shift, *sizes) for shift in (0, 4096))
    memory = ctypes.create_string_buffer(256)
    address = ctypes.addressof(memory) + -ctypes.addressof(memory) % 128
    ctypes.memmove(address, before, 128)
    (result,) = driver.map_mover()(driver.tensor_map_in(address), data.data_ptr() + 4096)
    assert not result
    assert before != ctypes.string_at(address, 128) == after


# ---- streams


def test_streams_of_libraries(plan, linear):
    x, w, b = inputs(linear)
    y = torch.empty(1, 100, 1536, device="cuda").half()
    pack = {"x": x, "w": w, "b": b, "y": y}
    stream = torch.cuda.Stream()

    class Protocol:
        def __cuda_stream__(self):
            return 0, stream.cuda_stream

    torch.cuda.synchronize()
    for given in (stream, Protocol(), stream.cuda_stream, torch.cuda.default_stream(), None):
        y.fill_(float("nan"))
        torch.cuda.synchronize()
        plan.execute(pack, stream=given)
        plan.bind(pack, stream=given)()
        assert_right(y, x, linear)
