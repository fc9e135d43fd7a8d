"""Binding and launching, against a stand-in for the driver."""

import dataclasses
import struct

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.errors import DnncError, Status
from dnnc.plan import format
from dnnc.plan.plan import ProductBound, TensorRecord
from dnnc.runtime import driver, load
from dnnc.runtime.buffers import buffer_of, signature_of, verify_buffer
from dnnc.runtime.loaded import choose_program
from dnnc.runtime.sized import SizedTensor
from tests.plan.plans import WHOLE

from .fake_driver import Array, FakeDriver, FakeTorchTensor

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
SIZES = {"M": 128, "N": 2}
VARIANTS = WHOLE.programs[0].variants


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def bfloat16(address, m, **options):
    return FakeTorchTensor(address, (m, 64), (64, 1), "torch.bfloat16", **options)


def bind(plan=WHOLE, pack=None, workspace=WORKSPACE, sizes=SIZES, **options):
    pack = {1: X, 2: Y} if pack is None else pack
    peers = {1: {2: 0xA000}}
    return load(plan).bind(pack, workspace, sizes=sizes, peers=peers, **options)


def test_sizes_keep_to_the_bounds_of_their_products(fake):
    plan = dataclasses.replace(WHOLE, bounds=(ProductBound("M*N", 512),))
    bind(plan)
    with pytest.raises(DnncError) as caught:
        bind(plan, sizes={"M": 136, "N": 4})
    assert caught.value.status is Status.BAD_PARAM_OUT_OF_BOUND
    assert caught.value.what == "M*N = 544 (M = 136, N = 4)"
    assert caught.value.supported == "M*N <= 512"
    with pytest.raises(DnncError, match="M\\*N"):
        load(plan).workspace_size({"M": 136, "N": 4})


def test_workspaces_are_of_products_within_their_bounds(fake):
    """Without sizes: as large as sizes within the bound may need, no more than each at its max."""
    variants = [dataclasses.replace(v, workspace_bytes="M*N*4 + sm_count") for v in VARIANTS]
    programs = (dataclasses.replace(WHOLE.programs[0], variants=tuple(variants)),)
    free = dataclasses.replace(WHOLE, programs=programs)
    bounded = dataclasses.replace(free, bounds=(ProductBound("M*N", 512),))
    own = load(bounded).workspace_size({"M": 512, "N": 1})
    assert load(bounded).workspace_size() == own
    assert load(free).workspace_size() - own == (4096 * 64 - 512) * 4


def test_steps_run_in_order_with_their_arguments(fake):
    bound = bind(stream=77)
    bound()
    assert fake.memsets == [(WORKSPACE + 256, 0, 512, 77)]
    (launch,) = fake.launches
    assert (launch.kernel, launch.smem) == ("main", 229440)
    assert (launch.grid, launch.block, launch.cluster) == ((132, 1, 2), (384, 1, 1), (2, 1, 1))
    assert (launch.cooperative, launch.programmatic, launch.stream) == (True, True, 77)
    assert all(address % 128 == 0 for address in launch.addresses[:2])  # tensor maps
    assert all(address % 16 == 0 for address in launch.addresses)
    values = launch.args
    assert struct.unpack("<Q", values[2])[0] == Y + 256
    assert struct.unpack("<Q", values[3])[0] == WORKSPACE + 256
    assert struct.unpack("<Q", values[4])[0] == 0xA000
    assert struct.unpack("<i", values[5])[0] == 128 * 64
    assert struct.unpack("<q", values[6])[0] == 1 << 31
    assert struct.unpack("<f", values[7])[0] == 0.5
    assert values[8] == b"\x00\xff\x10"
    assert fake.tensor_maps == [
        ("tiled", X, [64, 128], [128]),
        ("im2col", WORKSPACE + 128 * 128, [64, 56, 56, 2], [128, 7168, 401408]),
    ]


def test_calling_again_only_launches_again(fake):
    bound = bind()
    fake.calls.clear()
    bound()
    bound()
    assert len(fake.launches) == 2
    assert fake.launches[0] == fake.launches[1]
    assert fake.calls == {"cuCtxGetCurrent": 2, "cuMemsetD8Async": 2, "cuLaunchKernelEx": 2}


def test_the_stream_can_be_changed(fake):
    bound = bind(stream=1)
    bound.set_stream(2)
    bound()
    assert fake.launches[0].stream == 2
    assert fake.memsets[0].stream == 2


def test_guards_choose_the_variant(fake):
    bind(sizes={"M": 64, "N": 1}, workspace=None)()
    assert fake.launches[0].kernel == "small"


def test_sizes_come_from_the_buffers(fake):
    pack = {"x": bfloat16(X, 64), "y": bfloat16(Y, 64), "s": 0.25}
    load(WHOLE).bind(pack, sizes={"N": 1})()
    assert fake.launches[0].grid == (64, 1, 1)


def test_modules_load_once_a_device_and_lazily(fake):
    plan = load(WHOLE)
    assert not fake.modules
    for _ in range(3):
        plan.bind({1: X, 2: Y}, sizes={"M": 8, "N": 1})()
    assert fake.modules == [b"cubin of sm_90a"]


def test_by_value_tensors_take_numbers(fake):
    for value in (2, 2.0, np.float32(2), np.array([2.0])):
        bound = bind(pack={1: X, 2: Y, 3: value})
        bound()
        assert struct.unpack("<f", fake.launches[-1].args[7])[0] == 2.0
    with pytest.raises(ValueError, match="a number or a host array of one"):
        bind(pack={1: X, 2: Y, 3: Array(X, [1], "<f4")})


def test_host_scalars_that_change_bind_anew():
    """A number may change where it stands, and -0 is not 0."""
    number = FakeTorchTensor(0, (1,), (1,), "torch.float32", device="cpu")
    number.numel, number.item = lambda: 1, lambda: number.now
    array = np.zeros(1, np.float32)
    seen = []
    for value, give in ((2.0, number), (5.0, number), (0.0, array), (-0.0, array), (3.0, array)):
        number.now, array[0] = value, value
        seen.append(signature_of(give))
    assert len(set(seen)) == 5
    number.now = 2.0
    assert signature_of(number) == seen[0]


# ---- what is refused; nothing is launched then


def refused(fake, match, status=None, **options):
    with pytest.raises(DnncError, match=match) as caught:
        bind(**options)
    assert not fake.launches
    if status is not None:
        assert caught.value.status is status
    return caught.value


def test_missing_unknown_and_repeated_tensors(fake):
    refused(fake, "missing from the variant pack", pack={1: X})
    refused(fake, "9 is no tensor of the plan", pack={1: X, 2: Y, 9: X})
    refused(fake, "twice", pack={1: X, "x": X, 2: Y})


def test_a_name_of_several_tensors_is_none_of_a_key(fake):
    tensors = tuple(
        dataclasses.replace(t, name="x") if t.uid in (1, 2) else t for t in WHOLE.tensors
    )
    twins = dataclasses.replace(WHOLE, tensors=tensors)
    found = refused(fake, "2 tensors of the plan are called 'x'", plan=twins, pack={"x": X, 2: Y})
    assert "a uid: 1 x, 2 x" in found.supported


def test_wrong_buffers(fake):
    other = FakeTorchTensor(X, (128, 64), (64, 1), "torch.float16")
    refused(fake, "data type f16; accepted: bf16", pack={1: other, 2: Y})
    narrow = FakeTorchTensor(X, (128, 32), (32, 1), "torch.bfloat16")
    refused(fake, "dims \\[128, 32\\]", Status.BAD_PARAM_SHAPE_MISMATCH, pack={1: narrow, 2: Y})
    transposed = FakeTorchTensor(X, (128, 64), (1, 128), "torch.bfloat16")
    refused(fake, "strides \\[1, 128\\]", pack={1: transposed, 2: Y})
    far = bfloat16(X, 128, index=1)
    refused(fake, "a buffer on device 1", pack={1: far, 2: Y}, device=0)
    refused(fake, "a tensor on", pack={1: bfloat16(X, 128, device="cpu"), 2: Y})
    refused(fake, "a list", pack={1: [1, 2], 2: Y})
    refused(fake, "a NumPy array in host memory", pack={1: np.zeros((128, 64)), 2: Y})
    refused(fake, "address 0", Status.BAD_PARAM_NULL_POINTER, pack={1: 0, 2: Y})


TILES = {  # [3, 2, 32, 64] in the order F16x16, and the same read across
    "plain": ((6, 2, 2, 8, 4, 2, 4, 2), (2048, 1024, 4, 32, 256, 2, 8, 1), (32, 64), (64, 1)),
    "across": ((6, 4, 2, 4, 2, 2, 2, 8), (2048, 256, 2, 8, 1, 1024, 4, 32), (64, 32), (1, 64)),
}


def tiled(name, dims, strides, dtype="torch.float16"):
    """Verifies a buffer of a tensor in the order F16x16."""
    record = TensorRecord(4, "s", (), (), "f16", "output", reordering="F16x16")
    tensor = SizedTensor(record, "s", dtypes.f16, *TILES[name][:2], 6 * 2048 * 2)
    verify_buffer(tensor, buffer_of(FakeTorchTensor(X, dims, strides, dtype), "s"), 0)


@pytest.mark.parametrize("name", TILES)
def test_matrices_in_tiles_are_bound_as_what_they_were_declared(name):
    dims, strides, (m, n), inner = TILES[name]
    tiled(name, dims, strides)
    tiled(name, (3, 2, m, n), (4096, 2048, *inner))
    tiled(name, (6, m, n), (2048, *inner))


REFUSED_OF_TILES = {
    "transposed": ((3, 2, 32, 64), (4096, 2048, 1, 32), "strides"),
    "gaps": ((3, 2, 32, 64), (8192, 4096, 64, 1), "strides"),
    "rows and columns": ((3, 2, 64, 32), (4096, 2048, 32, 1), r"accepted: \[3, 2, 32, 64\]"),
    "other batch": ((2, 2, 32, 64), (4096, 2048, 64, 1), r"accepted: \[6, 32, 64\]"),
    "flat": ((12288,), (1,), r"accepted: \[6, 32, 64\]"),
    "tiles of other strides": (
        (6, 2, 2, 8, 4, 2, 4, 2), (2048, 1024, 512, 64, 16, 8, 2, 1), "strides"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_OF_TILES)
def test_other_buffers_of_tiles_are_refused(name):
    dims, strides, said = REFUSED_OF_TILES[name]
    with pytest.raises(DnncError, match=said):
        tiled("plain", dims, strides)
    with pytest.raises(DnncError, match="bf16; accepted: f16"):
        tiled("plain", (3, 2, 32, 64), (4096, 2048, 64, 1), "torch.bfloat16")


def test_misaligned_buffers(fake):
    error = refused(
        fake, "multiple of 32 bytes", Status.BAD_PARAM_MISALIGNED_POINTER, pack={1: X, 2: Y + 16}
    )
    assert "tensor 'y' (uid 2)" in str(error)


def test_sizes_that_the_symbols_do_not_allow(fake):
    refused(fake, "M = 12", Status.BAD_PARAM_SHAPE_MISMATCH, sizes={"M": 12, "N": 1})
    refused(fake, "M = 8192", sizes={"M": 8192, "N": 1})
    refused(fake, "the size N follows from no buffer", sizes={"M": 8})


def test_overlapping_buffers(fake):
    refused(fake, "overlaps", pack={1: X, 2: X + 128})
    bind(pack={1: X, 2: X})()
    apart = dataclasses.replace(WHOLE, may_alias=())
    with pytest.raises(DnncError, match="in place only for a graph of one pointwise operation"):
        bind(apart, pack={1: X, 2: X})


def exchanging():
    """The plan, with x a tensor of peers."""
    x, *others = WHOLE.tensors
    return dataclasses.replace(WHOLE, tensors=(dataclasses.replace(x, is_peer=True), *others))


def test_a_tensor_of_peers_may_be_on_another_device(fake):
    near = bfloat16(Y, 128)
    bind(exchanging(), pack={1: bfloat16(X, 128, index=1), 2: near})()
    bind(exchanging(), pack={1: X, 2: near})()
    # The device of the others, whatever comes first.
    assert [launch.device for launch in fake.launches] == [0, 0]
    fake.memory_of = {X: 3}
    bind(exchanging(), pack={1: X, 2: Y})()
    with pytest.raises(DnncError, match="a buffer on device 1"):
        bind(exchanging(), pack={1: X, 2: bfloat16(Y, 128, index=1)}, device=0)
    fake.memory_of = {X: None}
    with pytest.raises(DnncError, match="is no memory of a CUDA device"):
        bind(exchanging(), pack={1: X, 2: Y})


def test_a_tensor_of_peers_overlaps_nothing(fake):
    inputs = tuple(dataclasses.replace(t, role="input") for t in exchanging().tensors)
    plan = dataclasses.replace(exchanging(), tensors=inputs, may_alias=())
    with pytest.raises(DnncError, match="its buffer overlaps that of tensor 'y'"):
        bind(plan, pack={1: X, 2: X + 128})


def test_workspace(fake):
    refused(fake, "none is given; accepted: 836096 bytes", workspace=None)
    refused(fake, "multiple of 256", Status.BAD_PARAM_MISALIGNED_POINTER, workspace=WORKSPACE + 16)
    small = Array(WORKSPACE, [100], "|u1")
    refused(fake, "100 bytes", Status.BAD_PARAM_SIZE_INSUFFICIENT, workspace=small)
    assert load(WHOLE).workspace_size({"M": 128, "N": 1}) == 128 * 256 + 401408 + 512
    assert load(WHOLE).workspace_size() == 4096 * 256 + 64 * 401408 + 512


def test_workspace_that_overlaps_a_tensor(fake):
    refused(fake, "overlaps tensor 'x'", Status.BAD_PARAM, workspace=X)


def test_addresses_of_the_host_or_of_another_device(fake):
    fake.memory_of = {X: None}
    refused(fake, "0x10000 is no memory of a CUDA device", Status.BAD_PARAM)
    fake.memory_of = {Y: 3}
    refused(fake, "a buffer on device 3", Status.BAD_PARAM)
    fake.memory_of = {WORKSPACE: 3}
    refused(fake, "memory of device 3", Status.BAD_PARAM)


def test_no_peers(fake):
    with pytest.raises(DnncError, match="rank 1"):
        load(WHOLE).bind({1: X, 2: Y}, WORKSPACE, sizes=SIZES)


def with_smem(static, dynamic):
    """WHOLE, of one launch."""
    program = WHOLE.programs[0]
    step = program.variants[1].steps[1]
    launch = dataclasses.replace(step.launch, dynamic_smem_bytes=str(dynamic))
    steps = (dataclasses.replace(step, launch=launch),)
    variant = dataclasses.replace(program.variants[1], steps=steps)
    kernels = tuple(dataclasses.replace(k, static_smem_bytes=static) for k in program.kernels)
    programs = (dataclasses.replace(program, variants=(variant,), kernels=kernels),)
    return dataclasses.replace(WHOLE, programs=programs)


@pytest.mark.parametrize(("static", "dynamic"), [(0, 100_001), (2000, 99_000)])
def test_too_much_shared_memory(fake, static, dynamic):
    fake.max_dynamic_smem_bytes = 100_000
    status = Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT
    refused(fake, f"{static + dynamic} bytes", status, plan=with_smem(static, dynamic))


@pytest.mark.parametrize(("static", "dynamic"), [(1024, 48 * 1024), (1024, 50_000), (0, 48 * 1024)])
def test_static_shared_memory_counts_among_what_is_had_without_asking(fake, static, dynamic):
    fake.static_smem = {"main": static}
    bind(plan=with_smem(static, dynamic))()
    assert [launch.smem for launch in fake.launches] == [dynamic]


@pytest.mark.parametrize(
    ("capability", "target", "from_ptx"),
    [((9, 0), "sm_90a", False), ((8, 0), "sm_80", False), ((8, 9), "sm_80", False),
     ((10, 0), "sm_80", True)],
)  # fmt: skip
def test_program_for_a_capability(capability, target, from_ptx):
    program, needs_compilation = choose_program(WHOLE, capability)
    assert (program.target, needs_compilation) == (target, from_ptx)


def test_a_plan_for_another_architecture():
    with pytest.raises(DnncError, match=r"no code for compute capability 7\.5") as caught:
        choose_program(WHOLE, (7, 5))
    assert caught.value.status is Status.NOT_SUPPORTED_ARCH_MISMATCH
    assert caught.value.supported == "sm_90a, sm_80"


def test_ptx_is_what_a_later_device_loads(monkeypatch):
    fake = FakeDriver(capability=(10, 0))
    fake.install(monkeypatch)
    load(WHOLE).bind({1: X, 2: Y}, sizes={"M": 8, "N": 1})()
    assert fake.modules == [b"ptx of sm_80\0"]


def test_loading_from_a_file(tmp_path, fake):
    path = tmp_path / "whole.dnnplan"
    format.write(path, WHOLE)
    assert load(path).plan == WHOLE
    assert load(str(path)).plan == load(path.read_bytes()).plan


def test_without_a_driver_every_call_says_so():
    if driver.is_available():
        pytest.skip("there is a driver")
    with pytest.raises(RuntimeError, match="no CUDA driver") as caught:
        load(WHOLE).bind({1: X, 2: Y}, sizes=SIZES)
    assert caught.value.status is Status.NOT_INITIALIZED


def test_sizes_that_are_none_of_the_plan_are_refused():
    plan = load(WHOLE)
    with pytest.raises(DnncError, match="no size is called 'm'; accepted: M"):
        plan.workspace_size({"m": 128})
    with pytest.raises(DnncError, match="no size is called 'm'; accepted: M"):
        plan.sizes({}, {"M": 128, "m": 128})
    with pytest.raises(DnncError, match="M = 5000; accepted: "):
        plan.workspace_size({"M": 5000})
