"""Executing by address: what may be bound, what is refused, and outputs in the place of inputs."""

import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import dnnc
import dnnc.cudnn as cudnn
from dnnc.cudnn.arrays import described, memory_of
from dnnc.cudnn.packs import ROWS, AddressedPlan
from tests.cli.commands import dnnc as command
from tests.cudnn.graphs import D, new, output
from tests.runtime.fake_driver import Array, FakeDriver, FakeTorchTensor
from tests.support.checked import check

X, Z, Y = 0x10000, 0x20000, 0x30000
BYTES = 8 * 64 * 4
PLACES = (X, Z, Y, X + 4096, X + 1024)


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def sums(**options):
    """y = x * s + z of [8, 64] FLOAT, s a number that packs may give."""
    g = new(io_data_type=D.FLOAT, target="sm_90", **options)
    x, z = (g.tensor([8, 64], uid=uid, name=name) for uid, name in ((1, "x"), (2, "z")))
    s = g.tensor_scalar(2.0, cudnn.scalar_type.RUNTIME_PARAM).set_uid(4).set_name("s")
    g.tensor([5], uid=9, name="unused")
    output(g.add(g.mul(x, s), z)).set_uid(3).set_name("y")
    return g


@pytest.fixture(scope="module")
def data():
    g = sums()
    g.build()
    return g.serialize(as_bytes=True)


@pytest.fixture
def built(data, fake):
    """The graph, on a device that no other test has used."""
    g = cudnn.pygraph()
    g.deserialize(data)
    return g


def addresses(fake):
    """The addresses that the last launch was given, of those that tests use."""
    words = [struct.unpack("<Q", a)[0] for a in fake.launches[-1].args if len(a) == 8]
    return [word for word in words if word in PLACES]


@pytest.fixture
def launched(built, fake):
    """Executes the graph; gives the addresses that its kernel was given."""
    (program,) = built._own.plan.plan.programs
    (step,) = program.variants[0].steps
    widths = [8 if arg.kind == "pointer" else 4 for arg in step.launch.args]
    fake.argument_bytes = {step.launch.kernel: widths}

    def run(pack, *args, **options):
        before = len(fake.launches)
        built.execute(pack, *args, **options)
        assert len(fake.launches) == before + 1
        return addresses(fake)

    return run


def torch_like(address, shape, dtype="torch.float32", strides=(64, 1)):
    return FakeTorchTensor(address, shape, strides, dtype)


# What may be bound to x: only where it is counts.
BOUND = {
    "an address": X,
    "its form": Array(X, (8, 64), "<f4"),
    "fewer dims": Array(X, (512,), "<f4"),
    "more dims": Array(X, (1, 8, 1, 64), "<f4"),
    "a larger buffer": Array(X, (4096,), "<f4"),
    "another type": Array(X, (2048,), "|u1"),
    "booleans": Array(X, (2048,), "|b1"),
    "other strides": Array(X, (64, 8), "<f4", (4, 256)),
    "a tensor of torch": torch_like(X, (8, 64)),
    "booleans of torch": torch_like(X, (8, 64), "torch.bool"),
}


@pytest.mark.parametrize("form", BOUND)
def test_only_the_address_of_a_buffer_counts(launched, form):
    assert sorted(launched({1: BOUND[form], 2: Z, 3: Y})) == [X, Z, Y]


def test_keys_are_tensors_uids_or_names(built, launched):
    x, y = built.find_tensor("x"), built.find_tensor(3)
    assert sorted(launched({x: X, "z": Z, y: Y, None: 0x5000})) == [X, Z, Y]
    assert sorted(launched([Y, X, Z], tensor_uids=[3, 1, 2])) == [X, Z, Y]
    pack = {1: X, 2: Z, 3: Y, 9: 0x7000, 77: 0x7000, "s": np.float32(3.0)}
    assert sorted(launched(pack)) == [X, Z, Y]


@pytest.mark.parametrize(
    ("pack", "options", "said"),
    [
        ({1: X, 3: Y}, {}, "tensor 'z' .uid 2.: missing"),
        ({1: X, 2: Array(Z, (511,), "<f4"), 3: Y}, {}, "2044 bytes; accepted: 2048 bytes"),
        ({1: X, 2: Z + 4, 3: Y}, {}, "multiple of 16"),
        ({1: X, 2: Z, 3: Y, "w": 1}, {}, "the name 'w'"),
        ({1: X, 2: Z, 3: Y, 1.5: 1}, {}, "a float as a key"),
        ({1: X, 2: np.zeros((8, 64), np.float32), 3: Y}, {}, "a NumPy array in host memory"),
        ({1: X, 2: torch_like(Z, (8, 64)), 3: torch_like(0, (8, 64))}, {}, "address 0"),
        ([X, Z], {"tensor_uids": [1, 2, 3]}, "2 buffers for 3 tensor_uids"),
        ([X, Z, Y], {"tensor_uids": [1, 2, 2]}, "each uid once"),
        ([X, Z, Y], {}, "a list"),
        ({1: X, 2: Z, 3: Y, 4: 7}, {}, "an int is an address of the host"),
    ],
)
def test_what_can_not_be_bound_is_a_value_error(built, fake, pack, options, said):
    with pytest.raises(ValueError, match=said):
        built.execute(pack, **options)
    assert not fake.launches


def test_memory_of_the_host_is_refused(built, fake):
    with pytest.raises(ValueError, match="a tensor on"):
        built.execute({1: FakeTorchTensor(X, (8, 64), (64, 1), "torch.float32", "cpu"), 2: Z, 3: Y})


def test_outputs_have_places_of_their_own(fake):
    g = new(io_data_type=D.FLOAT, target="sm_90")
    x = g.tensor([8, 64], uid=1)
    y, z = output(g.relu(x)), output(g.exp(x))
    with pytest.raises(ValueError, match="its buffer overlaps that of"):
        g.execute({x: X, y: Y, z: Y + 1024})
    fake.memory_of[Z] = 1
    with pytest.raises(ValueError, match="a buffer on device 1; accepted: device 0"):
        g.execute({x: X, y: Y, z: Z})
    fake.memory_of[Z] = None
    with pytest.raises(ValueError, match="no memory of a CUDA device"):
        g.execute({x: X, y: Y, z: Z})
    assert not fake.launches


def test_a_number_may_be_where_an_int_says(launched, fake):
    host = np.array([1.5], np.float32)
    for bound in (host.ctypes.data, 1.5, host):
        launched({1: X, 2: Z, 3: Y, 4: bound})
        assert struct.pack("<f", 1.5) in fake.launches[-1].args


def test_an_output_may_lie_on_an_input(launched, fake):
    """Kernels that could overwrite an input ahead of time are given a copy of it."""
    assert launched({1: X, 2: Z, 3: X + 4096}) == [X, Z, X + 4096]
    assert not fake.copies
    for place in (X, X + 1024):
        assert launched({1: X, 2: Z, 3: place}, None) == [Z, place]
        target, source, count, stream = fake.copies[-1]
        assert (source, count, stream) == (X, BYTES, 0)
        assert struct.pack("<Q", target) in fake.launches[-1].args
        assert fake.freed[-1] == (target, 0)
    assert len(fake.allocated) == len(fake.copies) == len(fake.freed) == 2


def test_an_output_may_lie_on_an_input_where_the_plan_says_so(fake):
    g = new(io_data_type=D.FLOAT, target="sm_90")
    y = output(g.relu(g.tensor([8, 64], uid=1)))
    g.execute({1: X, y: X})
    assert len(fake.launches) == 1
    assert not fake.copies
    g.execute({1: X, y: X + 1024})
    assert len(fake.copies) == 1


class Sized(FakeTorchTensor):
    """A tensor that says how many bytes it has."""

    @property
    def nbytes(self):
        return 4 * math.prod(self.shape)

    def element_size(self):
        return 4

    def storage_offset(self):
        return 0

    def untyped_storage(self):
        return SimpleNamespace(nbytes=lambda: self.nbytes)


Sized.__module__ = "torch"


def test_a_call_like_an_earlier_one_is_told_by_its_buffers(launched):
    def pack(rows=8):
        places = {1: X, 2: Z, 3: Y}
        return {uid: Sized(a, (rows, 64), (64, 1), "torch.float32") for uid, a in places.items()}

    for number in (1.0, 2.0):
        assert sorted(launched({**pack(), 4: number})) == [X, Z, Y]
    assert sorted(launched({**pack(), 3: X + 4096})) == [X, X + 4096, Z]
    with pytest.raises(ValueError, match="1024 bytes; accepted: 2048"):
        launched({**pack(), 2: pack(4)[2]})
    with pytest.raises(ValueError, match="missing"):
        launched({1: X, 2: Z})


def test_launches_are_on_the_stream_of_the_handle(launched, fake):
    handle = cudnn.create_handle()
    cudnn.set_stream(handle, 55)
    launched({1: X, 2: Z, 3: Y}, None, handle)
    assert fake.launches[-1].stream == 55
    launched({1: X, 2: Z, 3: X + 1024}, handle=handle)
    assert fake.copies[-1][-1] == fake.freed[-1][-1] == fake.allocated[-1][-1] == 55
    with pytest.raises(TypeError, match="no handle"):
        launched({1: X, 2: Z, 3: Y}, handle=55)


def test_a_workspace_of_no_bytes_may_be_anything(launched):
    for workspace in (None, 0, torch_like(0, (0,), "torch.uint8", (1,)), 0x90000):
        launched({1: X, 2: Z, 3: Y}, workspace)


def test_a_plan_is_executed_by_its_index(built, launched, fake):
    built.execute_plan_at_index({1: X, 2: Z, 3: Y}, None, 0)
    assert fake.launches
    with pytest.raises(IndexError):
        built.execute_plan_at_index({1: X, 2: Z, 3: Y}, None, 10_000)


# ---- other sizes

OTHER = {
    "override_uids": [1, 2, 3],
    "override_shapes": [[4, 64]] * 3,
    "override_strides": [[64, 1]] * 3,
}


def test_sizes_are_overridden_where_a_graph_says_so(fake):
    g = sums(is_override_shape_enabled=True)
    g.execute({1: X, 2: Z, 3: Y})
    half = Array(X, (256,), "<f4")
    with pytest.raises(ValueError, match="1024 bytes; accepted: 2048 bytes"):
        g.execute({1: half, 2: Z, 3: Y})
    for _ in range(2):
        g.execute({1: half, 2: Z, 3: Y}, **OTHER)
    assert len(g._overridden) == 1
    assert g.get_workspace_size(None, *OTHER.values()) == 0
    own = {"override_shapes": [[8, 64]] * 3}
    g.execute({1: X, 2: Z, 3: Y}, **{**OTHER, **own})
    assert len(g._overridden) == 1
    assert len(fake.launches) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (OTHER, "is_override_shape_enabled"),
        ({**OTHER, "override_strides": None}, "0 override_strides of 3"),
        ({**OTHER, "override_uids": [1, 2, 70]}, "uid 70"),
        ({**OTHER, "override_strides": [[64]] * 3}, "strides"),
    ],
)
def test_other_sizes_that_can_not_be_are_refused(built, fake, options, said):
    with pytest.raises(ValueError, match=said):
        built.execute({1: X, 2: Z, 3: Y}, **options)


def test_rows_of_packed_sequences_are_as_many_as_buffers_hold(fake):
    rows = dnnc.Dim(f"{ROWS}1", max=32)
    g = dnnc.pygraph(io_data_type="f32", target="sm_90")
    x = g.tensor([1, 2, rows, 4], [rows * 8, 4, 8, 1], uid=1)
    g.relu(x).set_output().set_uid(2).set_stride([rows * 8, 4, 8, 1])
    g.build()
    plan = AddressedPlan(g.plan)
    for held, wanted in ((8 * 5, 5), (8 * 5 + 7, 5), (8 * 64, 32), (8 * 4 + 4, 4)):
        given = plan.apart({1: Array(X, (held,), "<f4"), 2: Y})
        assert given.sizes == {f"{ROWS}1": wanted}
        assert given.bytes[1] == wanted * 8 * 4
    assert plan.apart({1: X, 2: Y}).sizes == {f"{ROWS}1": 32}
    fake.ranges[Y] = 9 * 8 * 4 + 1
    assert plan.apart({1: X, 2: Y}).sizes == {f"{ROWS}1": 9}
    with pytest.raises(ValueError, match="a buffer of 16 bytes"):
        plan.apart({1: Array(X, (4,), "<f4"), 2: Y})


def packed_attention():
    """Attention of two sequences of at most 64 rows, packed, and the names of its tensors."""
    g = new()
    q, k, v = (g.tensor([2, 2, 64, 32], [4096, 32, 64, 1], name=name) for name in "qkv")
    lengths = [g.tensor([2, 1, 1, 1], data_type=D.INT32, name=name) for name in ("nq", "nk")]
    begins = g.tensor([3, 1, 1, 1], data_type=D.INT64, name="begins")
    for tensor in (q, k, v):
        tensor.set_ragged_offset(begins)
    o, _ = g.sdpa(
        q, k, v, use_padding_mask=True, seq_len_q=lengths[0], seq_len_kv=lengths[1],
        generate_stats=False,
    )  # fmt: skip
    output(o).set_dim([2, 2, 64, 32]).set_stride([4096, 32, 64, 1]).set_ragged_offset(begins)
    return g, o


def test_packed_tensors_keep_the_dims_they_were_declared_with():
    g, o = packed_attention()
    g.validate()
    assert (o.get_dim(), o.get_stride()) == ([2, 2, 64, 32], [4096, 32, 64, 1])
    assert g.find_tensor("q").get_dim() == [2, 2, 64, 32]
    assert set(g._own.graph.symbols) == {f"{ROWS}{g.find_tensor(name).uid}" for name in "qk"}


def test_lengths_may_be_of_64_bits():
    g = new(target="sm_80")
    rng = np.random.default_rng(0)
    inputs, operands = {}, []
    for _ in "qkv":
        operands.append(g.tensor([2, 1, 24, 16]))
        inputs[operands[-1].uid] = rng.uniform(-2, 2, (2, 1, 24, 16)).astype(np.float16)
    lengths = g.tensor([2, 1, 1, 1], data_type=D.INT64)
    inputs[lengths.uid] = np.array([5, 24]).reshape(2, 1, 1, 1)
    o, _ = g.sdpa(
        *operands, generate_stats=False, use_padding_mask=True, seq_len_q=lengths,
        seq_len_kv=lengths,
    )  # fmt: skip
    output(o)
    g.validate()
    check(g._own, inputs=inputs, target="sm_80")


# ---- bytes

BLOBS = {
    "bytes": lambda g: g.serialize(as_bytes=True),
    "list": lambda g: g.serialize(),
    "memoryview": lambda g: memoryview(g.serialize(as_bytes=True)),
}


@pytest.mark.parametrize("form", BLOBS)
def test_a_graph_is_executed_from_its_bytes(built, fake, form):
    g = cudnn.pygraph()
    g.deserialize(BLOBS[form](built))
    assert g.get_execution_plan_count() == 1
    assert g.find_tensor("x").get_dim() == [8, 64]
    g.execute({1: X, "z": Z, g.query_tensor_attributes_of_uid(3): Y}, None)
    assert len(fake.launches) == 1
    assert g.serialize() == built.serialize()
    assert dnnc.load(g.serialize(as_bytes=True)).plan.name == "test_graph"


def test_a_handle_and_keywords_go_with_the_bytes(built, fake):
    handle, data = cudnn.create_handle(), built.serialize()
    calls = (
        ((handle, data), {}),
        ((handle, data, True), {}),
        ((handle,), {"pyobj": data, "enforce_precompiled": True}),
        ((), {"handle_": handle, "pyobj": data}),
    )
    for args, kwargs in calls:
        g = cudnn.pygraph()
        g.deserialize(*args, **kwargs)
        assert g._handle is handle
    with pytest.raises(TypeError, match="data, or a handle"):
        cudnn.pygraph().deserialize(3.5)
    with pytest.raises(RuntimeError, match="deserialize into a graph"):
        sums().deserialize(data)


def test_the_json_of_a_graph_is_planned_as_any_other(built, fake):
    g = cudnn.pygraph(target="sm_90")
    g.deserialize(repr(built))
    assert g.get_execution_plan_count() == 0
    g.build()
    g.execute({1: X, 2: Z, 3: Y})
    assert g.key() == built.key()
    assert fake.launches


def test_functions_and_commands_of_dnnc_take_a_graph(tmp_path):
    g = sums()
    x, z = (np.full((8, 64), value, np.float32) for value in (1.0, 3.0))
    (y,) = dnnc.reference(g, {"x": x, 2: z}).values()
    assert (y == 5.0).all()
    assert dnnc.compile(g).programs[0].target == "sm_90"
    file = tmp_path / "g.py"
    file.write_text(
        "import dnnc.cudnn as cudnn\n\n\ndef build():\n"
        "    g = cudnn.pygraph('g', cudnn.data_type.HALF)\n"
        "    g.relu(g.tensor([8, 64]), name='r').set_output(True)\n"
        "    return g\n"
    )
    result = command("compile", str(file), "--target", "sm_90", "--emit", "graph")
    assert result.exit_code == 0, result.output
    assert '"r::OUT_0"' in result.output


# ---- arrays


def test_arrays_describe_themselves():
    tensor = FakeTorchTensor(X, (2, 3), (1, 2), "torch.bfloat16")
    assert described(tensor)[:4] == ([2, 3], [1, 2], D.BFLOAT16, False)
    assert described(Array(X, (2, 3), "<f2"))[:4] == ([2, 3], [3, 1], D.HALF, False)
    assert described(np.zeros((2, 3), np.int8))[:4] == ([2, 3], [3, 1], D.INT8, True)
    assert described(np.int64(7) * np.ones((1,), np.int64)).value == 7


def test_memory_is_as_large_as_an_array_reaches():
    assert memory_of(Array(X, (4, 8), "<f4"), "x") == (X, 128)
    assert memory_of(Array(X, (4, 8), "<f4", (64, 4)), "x") == (X, 3 * 64 + 32)
    assert memory_of(Array(X, (0, 8), "<f4"), "x") == (X, 0)
    assert memory_of(X, "x") == (X, None)


class Stored(FakeTorchTensor):
    """A part of a larger storage of torch."""

    def storage_offset(self):
        return 16

    def element_size(self):
        return 4

    def untyped_storage(self):
        return self

    def nbytes(self):
        return 1000


Stored.__module__ = "torch"


def test_memory_of_torch_goes_to_the_end_of_its_storage():
    assert memory_of(Stored(X, (2,), (1,), "torch.float32"), "x") == (X, 1000 - 64)
