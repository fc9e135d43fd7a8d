"""Generated C calls the driver as the runtime does for the same plan."""

import ctypes
import dataclasses
import threading

import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.errors import DnncError
from dnnc.options import Options
from dnnc.runtime import load
from dnnc.runtime.loaded import choose_program
from tests.attention_plans import decode_plan, prefill_plan
from tests.engines.elementwise.test_peers import forward
from tests.engines.product.test_grouped_matmul import operands
from tests.engines.rows.test_grid import batchnorm
from tests.plan.plans import WHOLE

from .built import Built, kernel_sizes
from .recorded import Recorder

WORKSPACE = 0x7F00_0000_0000
STREAM = 77
H100 = {"capability": (9, 0), "sm_count": 132, "smem": 232448}
A100 = {"capability": (8, 0), "sm_count": 108, "smem": 166912}
LATER = {"capability": (12, 0), "sm_count": 170, "smem": 101376}


def address(place):
    return 0x1_0000_0000_0000 + (place << 40)


def compared(built, sizes, device, monkeypatch, numbers=None):
    """Runs a plan in C and in Python on stand-ins for a device; gives the lines of both."""
    plan, interface = built.plan, built.interface
    recorder = Recorder(**device)
    recorder.install(monkeypatch)
    recorder.sizes = kernel_sizes(plan)
    numbers = numbers or {}
    values, pack, peers = dict(numbers), {}, {}
    for argument in interface.arguments:
        if argument.symbol is not None:
            values[argument.name] = sizes[argument.symbol.name]
        elif argument.is_number:
            number = numbers.get(argument.name, 1.25 if argument.type in ("float", "double") else 3)
            values[argument.name] = pack[argument.tensor.uid] = number
        else:
            values[argument.name] = address(argument.place)
            if argument.rank < 0:
                pack[argument.tensor.uid] = address(argument.place)
            else:
                peers.setdefault(argument.rank, {})[argument.tensor.uid] = address(argument.place)
    executable = load(plan)
    executable.bind(pack, WORKSPACE, stream=STREAM, sizes=sizes, peers=peers)()
    built.device(**device)
    assert built.load() == "SUCCESS"
    assert built.workspace_size(sizes) == ("SUCCESS", executable.workspace_size(sizes))
    assert built.run(values, WORKSPACE, STREAM) == "SUCCESS"
    found = built.lines()
    assert built.unload() == "SUCCESS"
    assert built.library.fake_live_modules() == 0
    return found, recorder.lines


def verify(built, sizes, device, monkeypatch, numbers=None):
    found, wanted = compared(built, sizes, device, monkeypatch, numbers)
    assert found == wanted
    return found


@pytest.fixture(scope="module")
def build(tmp_path_factory, fake_object):
    def built(plan, name="made"):
        return Built(plan, tmp_path_factory.mktemp("c"), fake_object, name)

    return built


@pytest.fixture(scope="module")
def whole(build):
    return build(WHOLE, "whole")


# ---- a plan of all kinds of arguments


@pytest.mark.parametrize("m", [8, 64, 72, 128, 4096])
def test_every_kind_of_argument(whole, m, monkeypatch):
    found = verify(whole, {"M": m, "N": 2}, H100, monkeypatch)
    assert len(found) == (1 if m <= 64 else 2)
    if m > 64:
        assert found[0].startswith(f"memset {WORKSPACE + 256} 0 {4 * m} {STREAM}")
        assert found[1].startswith(f"launch main {-(-m // 128) * 132} 1 2 384 1 1 2 1 1 229440 1 1")
        assert "[tiled 9 2 " in found[1]
        assert "[im2col 6 4 " in found[1]


def test_other_devices_take_other_code(whole, monkeypatch):
    for device in (A100, {**A100, "capability": (8, 9)}, LATER):
        assert verify(whole, {"M": 8, "N": 1}, device, monkeypatch)[0].startswith("launch small 8 ")


def test_code_is_there_byte_for_byte(whole):
    blobs = {(9, 0): 0, (8, 0): 2, (8, 6): 2, (10, 0): 3}
    for capability, blob in blobs.items():
        whole.device(capability)
        assert whole.load() == "SUCCESS"
        data = WHOLE.blobs[blob] + (b"\0" if blob == 3 else b"")
        assert whole.image(0, len(data)) == data
        whole.unload()


def test_kernels_are_allowed_what_they_ask_for(whole):
    whole.device(**H100)
    assert whole.load() == "SUCCESS"
    names = list(kernel_sizes(WHOLE))
    allowed = whole.library.fake_allowed_smem, whole.library.fake_allowed_clusters
    main, small = names.index("main"), names.index("small")
    assert [of(main) for of in allowed] == [232448 - 16, 1]  # 16 bytes are its own
    assert [of(small) for of in allowed] == [0, 0]
    whole.unload()


def programs():
    """Targets of all kinds, exact ones and others, in an order that is no rank."""
    rows = [
        *(("sm_80", (8, 0), False), ("sm_90a", (9, 0), True), ("sm_86", (8, 6), False)),
        *(("sm_90", (9, 0), False), ("sm_100a", (10, 0), True), ("sm_120", (12, 0), False)),
    ]
    for number, (target, capability, exact) in enumerate(rows):
        module = dataclasses.replace(
            WHOLE.programs[1].modules[0],
            cubin=2 * number,
            ptx=2 * number + 1,
            ptx_runs_later=target != "sm_90a",
        )
        yield dataclasses.replace(
            WHOLE.programs[1], target=target, capability=capability, exact=exact, modules=(module,)
        )


@pytest.mark.parametrize("order", [1, -1])
def test_the_code_that_the_runtime_chooses(order, build):
    names = [f"{kind} {number}".encode() for number in range(6) for kind in ("cubin", "ptx")]
    chosen = tuple(programs())[::order]
    plan = dataclasses.replace(WHOLE, programs=chosen, blobs=tuple(names))
    built = build(plan, "choice")
    for major in (7, 8, 9, 10, 11, 12):
        for minor in (0, 3, 6, 9):
            built.device((major, minor))
            error = built.load()
            try:
                program, from_ptx = choose_program(plan, (major, minor))
            except DnncError:
                assert error == "NO_CODE"
                assert not built.handle
                continue
            module = program.modules[0]
            wanted = plan.blobs[module.ptx if from_ptx else module.cubin]
            assert error == "SUCCESS"
            assert built.image(0, len(wanted)) == wanted
            built.unload()
    assert built.library.fake_live_modules() == 0


# ---- compiled plans

M = dnnc.Dim("M", max=4096)


def new_graph(name, io="f16"):
    return dnnc.pygraph(
        name, io_data_type=io, intermediate_data_type="f32", compute_data_type="f32"
    )


def scaled():
    g = new_graph("scaled", "bf16")
    x = g.tensor([M, 6], [8, 1], name="x")
    alpha = g.tensor([1, 1], data_type="f32", is_pass_by_value=True, name="alpha")
    g.mul(x, alpha).set_output().set_name("y").set_stride([1, M * 2])
    return g


def added():
    """x + y / 2, where y is what the output held."""
    g = new_graph("added")
    x, prior = g.tensor([M, 40], name="x"), g.tensor([M, 40])
    prior.prior_of = 9
    g.add(x, g.mul(prior, 0.5)).set_output().set_uid(9).set_name("y")
    return g


def product(k=384, n=1536, dim=M):
    g = new_graph("ffn")
    x, w = g.tensor([1, dim, k], name="x"), g.tensor([1, k, n], name="w")
    g.gelu(g.bias(g.matmul(x, w), g.tensor([1, 1, n], name="b"))).set_output().set_name("y")
    return g


def twice():
    g = new_graph("twice")
    x, w = g.tensor([M, 64], name="x"), g.tensor([64, 64], name="w")
    g.matmul(g.matmul(x, w), w).set_output().set_name("y")
    return g


def grouped():
    g = new_graph("grouped")
    g.moe_grouped_matmul(*operands(g, 130, 4, 72, 72)).set_output()
    return g


def softmax():
    g = new_graph("softmax")
    g.softmax(g.tensor([4, M, 4096], name="x"), axis=-1).set_output()
    return g


CASES = {
    "scaled": (scaled, {"target": "sm_80"}, [1, 3, 4096], A100),
    "variants": (product, {"target": "sm_80,sm_90"}, [1, 16, 857, 4096], A100),
    "later": (product, {"target": "sm_80"}, [100], LATER),
    "hopper": (product, {"target": "sm_90a", "engine": "matmul_sm90"}, [1, 100, 4096], H100),
    "rows": (softmax, {"target": "sm_80"}, [1, 100], A100),
    "added": (added, {"target": "sm_80"}, [1, 3], A100),
    "split": (twice, {"target": "sm_80"}, [1, 130], A100),
    "grid": (lambda: batchnorm(8, 64, 7, 7), {"target": "sm_90a", "engine": "grid"}, [1], H100),
    "grouped": (grouped, {"target": "sm_90a", "engine": "matmul_sm90"}, [1], H100),
    "peers": (lambda: forward(2, 1), {"target": "sm_80"}, [1], A100),
}


@pytest.mark.rotating
@pytest.mark.parametrize("case", CASES)
def test_compiled_plans(case, build, monkeypatch):
    make, options, sizes, device = CASES[case]
    options = dict(options)
    target = options.pop("target")
    plan = compile_graph(make().graph.finalize(), target, Options(**options))
    built = build(plan)
    lines = []
    for size in sizes:
        lines += verify(built, {name: size for name in plan.dims}, device, monkeypatch)
    text = "\n".join(lines)
    wanted = {"hopper": "[tiled ", "grid": " 1 0 77 ", "peers": "peers"}
    assert wanted.get(case, "launch ") in text
    if case in ("variants", "split"):
        assert len(plan.programs[0].modules) > 1


def test_attention_by_tensor_maps(build, monkeypatch):
    plan = prefill_plan()
    built = build(plan)
    for rows, keys in ((1, 1), (131, 257), (4096, 4096)):
        sizes = {"B": 3, "Sq": rows, "Skv": keys}
        memset, launch = verify(built, sizes, H100, monkeypatch)
        assert memset == f"memset {WORKSPACE} 0 4 {STREAM}"
        for name, length, heads in (("q", rows, 4), ("k", keys, 2), ("v", keys, 2), ("o", rows, 4)):
            place = address(1 + plan.tensors.index(plan.tensor(name)))
            assert f"[tiled 9 4 {place} 64 {length} {heads} 3 128 " in launch


def test_attention_shared_among_blocks(build, monkeypatch):
    """Partial results are in the workspace, where the second kernel finds them."""
    plan = decode_plan()
    built = build(plan)
    for batch in (1, 64):
        lines = verify(built, {"B": batch}, A100, monkeypatch)
        kernels = [line.split()[1] for line in lines]
        assert kernels == ["fusion0_sdpa_sm80", "fusion0_sdpa_sm80_parts"]
        size = load(plan).workspace_size({"B": batch})
        first, second = (addresses_in(line, WORKSPACE, size) for line in lines)
        assert len(first) == 2, "results, and their rows' maxima and sums"
        assert first == second


def addresses_in(line, start, size):
    """The arguments of a launch, by value, that lie in some bytes of memory."""
    found = (int.from_bytes(bytes.fromhex(a), "little") for a in line.split()[15:] if len(a) == 16)
    return {value for value in found if start <= value < start + size}


@pytest.mark.parametrize("io", dtypes.ALL, ids=str)
def test_numbers_of_every_type(io, build, monkeypatch):
    """Numbers by value are rounded as the runtime rounds."""
    arg = dataclasses.replace(WHOLE.programs[0].variants[1].steps[1].launch.args[7], type=io.name)
    launch = dataclasses.replace(WHOLE.programs[1].variants[0].steps[0].launch, args=(arg,))
    step = dataclasses.replace(WHOLE.programs[1].variants[0].steps[0], launch=launch)
    variant = dataclasses.replace(WHOLE.programs[1].variants[0], steps=(step,))
    program = dataclasses.replace(WHOLE.programs[1], variants=(variant,))
    tensors = (*WHOLE.tensors[:2], dataclasses.replace(WHOLE.tensors[2], dtype=io.name))
    plan = dataclasses.replace(WHOLE, programs=(program,), tensors=tensors)
    built = build(plan, f"number_{io.name}")
    for number in NUMBERS[io.kind]:
        number = ctypes.c_float(number).value if io.is_float and io.bits < 64 else number
        verify(built, {"M": 8, "N": 1}, A100, monkeypatch, {"s": number})


FLOATS = (
    *(0.0, -0.0, 1.0, -2.5, 1 / 3, 0.1, 1e-3, 65504.0, 65519.9, 65520.0, 1e38, -1e38, 3.4e38),
    *(448.0, 464.0, 465.0, 57344.0, 61440.0, 2.0**-9, 2.0**-10, 1.5 * 2**-10, 2.0**-16, 2.0**-17),
    *(2.0**-24, 2.0**-25, 1.0001 * 2**-25, 2.0**-133, 2.0**-134, 1.5 * 2**-134, 1e-45, 1e-40),
    *(1.00390625, 1.01171875, 1.00048828125, 1.00146484375, 1.0625, 1.1875, 1.125, 1.375, 6e-8),
    *(float("inf"), float("-inf"), float("nan")),
)
NUMBERS = {"f": FLOATS, "i": (0, 1, -1, 100, -128), "u": (0, 1, 255), "b": (0, 1, 2)}


def test_threads_share_a_plan(whole):
    whole.device(**H100)
    assert whole.load() == "SUCCESS"
    errors = []

    def work(m):
        values = {"x": address(1), "y": address(2), "y_rank1": address(3), "M": m, "N": 1}
        errors.extend(whole.run(values, WORKSPACE, m) for _ in range(50))

    threads = [threading.Thread(target=work, args=(m,)) for m in (72, 128, 256, 512)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["SUCCESS"] * 200
    lines = whole.lines()
    for m in (72, 128, 256, 512):
        mine = [line for line in lines if f" {m}" in line.split("[")[0] and "memset" in line]
        assert len([line for line in mine if line.endswith(f" {m}")]) == 50
    assert len([line for line in lines if line.startswith("launch main")]) == 200
    whole.unload()
