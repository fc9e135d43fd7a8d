"""Calls of a plan with arrays: which it takes, and what their library allocates."""

import dataclasses
import struct
import sys

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.errors import DnncError, Status
from dnnc.plan.plan import (
    Arg,
    Kernel,
    Launch,
    Module,
    Plan,
    Program,
    Step,
    Symbol,
    TensorRecord,
    Variant,
)
from dnnc.runtime import load
from tests.plan.plans import WHOLE

from .fake_driver import OK, Array, FakeDriver, FakeTorchTensor
from .fake_libraries import CURRENT, OTHER, CuPyArray, FakeCuPy, FakeJax, FakeTorch

X, W, Y = 0x10000, 0x200000, 0x800000


def record(uid, name, role, dims=("M", "64"), strides=("64", "1"), dtype="f16", **options):
    return TensorRecord(uid, name, dims, strides, dtype, role, **options)


def plan_of(*tensors, workspace="0", name="p"):
    """One kernel that takes the buffers and numbers of tensors in their order, which its name
    tells."""
    args = tuple(
        Arg.by_value(t.uid, t.dtype) if t.is_by_value else Arg.pointer(t.uid) for t in tensors
    )
    kernel = "".join("n" if t.is_by_value else "p" for t in tensors)
    launch = Launch(kernel, ("M", "1", "1"), (32, 1, 1), args)
    program = Program(
        "sm_90a", (9, 0), True, (Module(0),), (Kernel(kernel, 0, 32),),
        (Variant("1", workspace, (Step(launch=launch),)),),
    )  # fmt: skip
    return Plan(name, {}, (Symbol("M", 1, 4096, 1),), tensors, (program,), blobs=(b"cubin",))


# The order of calls is that of uids, not this one.
SUM = plan_of(
    record(2, "x", "input"), record(1, "w", "input"), record(9, "y", "output"),
    record(3, "s", "input", ("1",), ("1",), "f32", is_by_value=True, value=2.0),
)  # fmt: skip


class ByName(dict):
    """Sizes of the arguments of a kernel of `plan_of`."""

    def get(self, name, default=()):
        return tuple(8 if letter == "p" else 4 for letter in name)


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver(argument_bytes=ByName())
    made.install(monkeypatch)
    return made


@pytest.fixture
def torch(fake, monkeypatch):
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def tensor(address, m=5, dtype="torch.float16", **options):
    return FakeTorchTensor(address, (m, 64), (64, 1), dtype, **options)


def addresses(launch):
    return [struct.unpack("<Q", value)[0] for value in launch.args if len(value) == 8]


def test_inputs_are_in_the_order_of_uids(torch, fake):
    plan = load(SUM)
    assert [t.name for t in plan.inputs] == ["w", "x", "s"]
    assert [t.name for t in plan.outputs] == ["y"]
    x, w = tensor(X), tensor(W)
    calls = {
        "by position": lambda: plan(w, x),
        "by name": lambda: plan(x=x, w=w),
        "by both": lambda: plan(w, x=x),
    }
    for name, call in calls.items():
        y = call()
        assert addresses(fake.launches[-1]) == [X, W, y.data_ptr()], name


def test_uids_are_given_in_the_order_of_declaration():
    """Whatever the order in which operations use the tensors."""
    g = dnnc.pygraph("declared", io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    tensors = {name: g.tensor([4, 64], name=name) for name in ("b", "unused", "w", "x")}
    product = g.mul(tensors["x"], tensors["w"])
    g.add(product, tensors["b"]).set_output().set_name("sum")
    g.relu(product).set_output().set_name("product")
    g.build_operation_graph()
    by_uid = [
        [t.name for t in sorted(each, key=lambda t: t.uid)]
        for each in (g.graph.inputs, g.graph.outputs)
    ]
    assert by_uid == [["b", "w", "x"], ["sum", "product"]]
    assert [t.name for t in g.graph.inputs] == ["x", "w", "b"]


def test_an_output_has_the_graphs_dims_and_strides(torch, fake):
    """On the inputs' device, and on the stream on which their library works."""
    transposed = plan_of(
        record(1, "x", "input"), record(2, "y", "output", ("M", "3"), ("1", "M"), "bf16")
    )
    for m in (5, 7):
        y = load(transposed)(tensor(X, m, index=1))
        assert (y.shape, y.stride(), y.dtype) == ((m, 3), (1, m), "torch.bfloat16")
        assert (y.device.index, y.allocated_on) == (1, CURRENT)
        assert (fake.launches[-1].device, fake.launches[-1].stream) == (1, CURRENT)


def test_several_outputs_are_a_named_tuple(torch, fake):
    outputs = (record(2, "mean", "output"), record(3, "n::Y", "output"), record(4, "", "output"))
    found = load(plan_of(record(1, "x", "input"), *outputs))(tensor(X))
    assert found._fields == ("mean", "_1", "_2")
    assert found.mean is found[0]
    assert addresses(fake.launches[-1])[1:] == [each.data_ptr() for each in found]


def test_numbers_that_have_a_default_are_given_by_name(torch, fake):
    plan = load(SUM)
    for options, wanted in (({}, 2.0), ({"s": 3.0}, 3.0), ({"s": np.float32(4)}, 4.0)):
        plan(tensor(W), tensor(X), **options)
        assert struct.unpack("<f", fake.launches[-1].args[3])[0] == wanted
    needed = dataclasses.replace(SUM.tensors[3], value=None, uid=0)
    plan = load(plan_of(*SUM.tensors[:3], needed))
    plan(5.0, tensor(W), tensor(X))
    assert struct.unpack("<f", fake.launches[-1].args[3])[0] == 5.0


REFUSED = {
    "too many": (lambda p, t: p(t, t, t), "3 arrays; accepted: 2, in this order: w, x"),
    "too few": (lambda p, t: p(t), r"no array for tensor 'x' \(uid 2\); accepted: 2, in this"),
    "none": (lambda p, t: p(None, t), "no array for tensor 'w'"),
    "twice": (lambda p, t: p(t, t, w=t), "tensor 'w' .* twice"),
    "unknown": (lambda p, t: p(t, t, q=t), "'q' is no tensor of the plan"),
    "output": (lambda p, t: p(t, t, y=t), "output 'y' among the inputs; accepted: outputs="),
    "outputs": (lambda p, t: p(t, t, outputs=[t, t]), "outputs=2 arrays; accepted: 1, .* 'y'"),
    "an input": (lambda p, t: p(t, t, outputs={"x": t}), "tensor 'x' .* among the outputs"),
    "no output": (lambda p, t: p(t, t, outputs={"q": t}), "'q' is no tensor of the plan"),
    "of the host": (
        lambda p, t: p(np.zeros((5, 64)), t),
        "a NumPy array in host memory; accepted: memory of",
    ),
    "of two sizes": (lambda p, t: p(t, tensor(X, 6)), r"dims \[5, 64\]"),
    "a stream": (lambda p, t: p(t, t, stream="now"), "stream: a str 'now'; accepted"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(torch, fake, name):
    call, said = REFUSED[name]
    plan = load(SUM)
    for _ in range(2):
        with pytest.raises(DnncError, match=said):
            call(plan, tensor(W))
    assert not fake.launches


def test_calls_alike_are_checked_once(torch, fake):
    """A later call with other addresses calls the driver for the launch alone."""
    plan = load(SUM)
    plan(tensor(W), tensor(X))
    fake.calls.clear()
    for i in range(1, 4):
        y = plan(tensor(W + 16 * i), tensor(X + 16 * i), stream=i)
        assert addresses(fake.launches[-1]) == [X + 16 * i, W + 16 * i, y.data_ptr()]
        assert fake.launches[-1].stream == i
    assert fake.calls == {"cuLaunchKernelEx": 3}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (tensor(X + 8), "a multiple of 16 bytes"),
        (tensor(X, dtype="torch.bfloat16"), "data type bf16; accepted: f16"),
        (FakeTorchTensor(X, (5, 64), (128, 1), "torch.float16"), r"strides \[128, 1\]"),
        (FakeTorchTensor(X, (64, 5), (5, 1), "torch.float16"), r"dims"),
        (tensor(X, index=1), "a buffer on device"),
        (tensor(X, device="cpu"), "a tensor on .* in host memory"),
    ],
    ids=["alignment", "type", "strides", "dims", "device", "host"],
)
def test_a_call_that_is_not_alike_is_checked(torch, fake, changed, said):
    plan = load(SUM)
    for _ in range(2):
        plan(tensor(W), tensor(X))
        with pytest.raises(DnncError, match=said):
            plan(tensor(W), changed)
    assert len(fake.launches) == 2


def test_calls_of_one_kind_differ_in_what_is_given(torch, fake):
    """Outputs, workspace and numbers of the caller, and a call that leaves them out, take turns."""
    plan = load(dataclasses.replace(plan_of(*SUM.tensors, workspace="M*512")))
    w, x = tensor(W), tensor(X)
    for _ in range(2):
        for options in ({}, {"s": 3.0}, {"outputs": tensor(Y)}, {"workspace": 0x4000000}):
            count = len(torch.made)
            y = plan(w, x, **options)
            assert addresses(fake.launches[-1]) == [X, W, y.data_ptr()]
            number = struct.unpack("<f", fake.launches[-1].args[3])[0]
            assert number == options.get("s", 2.0)
            assert len(torch.made) - count == 2 - len(options.keys() & {"outputs", "workspace"})
    with pytest.raises(DnncError, match="its buffer overlaps that of tensor 'x'"):
        plan(w, x, outputs=x)


def test_shapes_that_were_seen_are_looked_up(torch, fake):
    """Other sizes at other addresses, and back; dims of one call are none of another's."""
    plan = load(SUM)
    for m in (5, 7, 5, 7):
        assert plan(tensor(W, m), tensor(X, m)).shape == (m, 64)
        assert fake.launches[-1].grid == (m, 1, 1)


@pytest.mark.parametrize("form", ["one", "list", "mapping"])
def test_outputs_of_the_caller(torch, fake, form):
    y = tensor(Y)
    given = {"one": y, "list": [y], "mapping": {"y": y}}[form]
    assert load(SUM)(tensor(W), tensor(X), outputs=given) is y
    assert addresses(fake.launches[-1]) == [X, W, Y]
    assert not torch.made


def test_some_outputs_of_the_caller(torch, fake):
    plan = load(
        plan_of(record(1, "x", "input"), record(2, "a", "output"), record(3, "b", "output"))
    )
    b = tensor(Y)
    for given in ({"b": b}, [None, b], {3: b, "a": None}):
        found = plan(tensor(X), outputs=given)
        assert (found.b, found.a) == (b, torch.made[-1])
        assert addresses(fake.launches[-1]) == [X, found.a.data_ptr(), Y]


def test_another_stream(torch, fake):
    """Allocated memory belongs to the stream that it is used on."""
    plan = load(plan_of(record(1, "x", "input"), record(2, "y", "output"), workspace="M*512"))
    for stream, handle in ((OTHER, OTHER), (None, 0), (CURRENT, CURRENT), ("current", CURRENT)):
        y = plan(tensor(X), stream=stream)
        y_made, workspace = torch.made[-2:]
        assert y is y_made
        assert (workspace.shape, workspace.dtype) == ((5 * 512,), "torch.uint8")
        assert (y.allocated_on, workspace.allocated_on) == (handle, handle)
        assert fake.launches[-1].stream == handle
        assert torch.memory.on == CURRENT
    plan(tensor(X), workspace=0x4000000)
    assert torch.made[-1].shape == (5, 64)


def test_a_tensor_that_requires_a_gradient(torch, fake):
    x = tensor(X)
    x.requires_grad = True
    with pytest.raises(DnncError, match=r"requires a gradient.*accepted: tensor\.detach"):
        load(SUM)(tensor(W), x)
    torch.has_gradients = False  # under torch.no_grad()
    load(SUM)(tensor(W), x)


def test_packed_booleans_are_bytes(torch, fake):
    y = load(plan_of(record(1, "x", "input"), record(2, "y", "output", dtype="i1")))(tensor(X))
    assert (y.shape, y.dtype) == ((5 * 64 // 8,), "torch.uint8")


def test_what_an_output_holds_before_has_to_be_given(torch, fake):
    plan = load(plan_of(record(1, "x", "input"), record(2, "y", "output", prior=7)))
    with pytest.raises(DnncError, match=r"read before it is written; accepted: outputs=\{'y'"):
        plan(tensor(X))
    y = tensor(Y)
    assert plan(tensor(X), outputs=y) is y


def test_sizes_that_no_input_shows(torch, fake):
    flat = plan_of(record(1, "x", "input", ("64",), ("1",)), record(2, "y", "output"))
    x = FakeTorchTensor(X, (64,), (1,), "torch.float16")
    with pytest.raises(DnncError, match="the size M follows from no buffer"):
        load(flat)(x)
    assert load(flat)(x, sizes={"M": 3}).shape == (3, 64)
    assert load(flat)(x, outputs=tensor(Y, 4)).shape == (4, 64)


def test_addresses_allocate_nothing(fake):
    plan = load(SUM)
    with pytest.raises(DnncError, match=r"nothing allocates tensor 'y'.*accepted: outputs="):
        plan(W, X, sizes={"M": 5})
    assert plan(W, X, sizes={"M": 5}, outputs=Y) == Y
    assert (addresses(fake.launches[-1]), fake.launches[-1].stream) == ([X, W, Y], 0)
    plan = load(plan_of(record(1, "x", "input"), record(2, "y", "output"), workspace="M*512"))
    with pytest.raises(DnncError, match=r"nothing allocates workspace.*\.\.\., of 2560 bytes"):
        plan(X, outputs=Y, sizes={"M": 5})
    array = Array(X, (5, 64), "<f2")  # of a library that allocates nothing here
    with pytest.raises(DnncError, match="no input is an array of PyTorch, CuPy or JAX"):
        plan(array)


def test_no_memory_is_an_error_of_the_library(torch, fake):
    def fail(*_, **__):
        raise MemoryError("CUDA out of memory")

    torch.empty_strided = fail
    with pytest.raises(
        DnncError, match=r"torch can't allocate f16 \[5, 64\]: MemoryError"
    ) as caught:
        load(SUM)(tensor(W), tensor(X))
    assert caught.value.status is Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED


def test_cupy(fake, monkeypatch):
    cupy = FakeCuPy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    transposed = plan_of(record(1, "x", "input"), record(2, "y", "output", ("M", "3"), ("1", "M")))
    x = CuPyArray(X, (5, 64), "<f2")
    for stream, handle in (("current", CURRENT), (OTHER, OTHER), (None, 0)):
        y = load(transposed)(x, stream=stream)
        interface = y.__cuda_array_interface__
        assert (interface["shape"], interface["strides"]) == ((5, 3), (2, 10))
        assert (y.allocated_on, y.on_device, y.bytes) == (handle, 0, 30)
        assert fake.launches[-1].stream == handle
    assert cupy.device is None


def test_jax(fake, monkeypatch):
    """It shows no stream: inputs are waited for, and the device before the call returns."""
    jax = FakeJax()
    monkeypatch.setitem(sys.modules, "jax", jax)
    waited = []
    fake._cuStreamSynchronize = lambda stream: (waited.append(stream), OK)[1:]
    y = load(plan_of(record(1, "x", "input"), record(2, "y", "output")))(jax.array((5, 64), "<f2"))
    assert y.__cuda_array_interface__["shape"] == (5, 64)
    assert (jax.waits, waited) == (2, [0])
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    assert load(SUM)(tensor(W), jax.array((5, 64), "<f2")).allocated_on == CURRENT
    assert (jax.waits, waited) == (3, [0, CURRENT])
    transposed = plan_of(record(1, "x", "input"), record(2, "y", "output", ("M", "3"), ("1", "M")))
    with pytest.raises(DnncError, match=r"strides \[1, 5\]; accepted: row-major in JAX"):
        load(transposed)(jax.array((5, 64), "<f2"))


def test_a_graph_is_called_as_its_plan(torch, fake):
    g = dnnc.pygraph("sum", io_data_type="f16", intermediate_data_type="f32", target="sm_90a")
    m = dnnc.Dim("m", max=64)
    x, z = g.tensor([m, 64], name="x"), g.tensor([m, 64], name="z")
    g.relu(g.add(x, z)).set_output().set_name("y")
    fake.argument_bytes = {"fusion0_pointwise": (8,) * 4}  # a size first
    y = g(tensor(X), z=tensor(W))
    assert (y.shape, y.dtype) == ((5, 64), "torch.float16")
    assert addresses(fake.launches[-1])[1:] == [X, W, y.data_ptr()]
    g.handle = dnnc.create_handle()
    dnnc.set_stream(g.handle, OTHER)
    for options, stream in (({}, OTHER), ({"stream": 5}, 5)):
        g(tensor(X), tensor(W), **options)
        assert fake.launches[-1].stream == stream


@pytest.mark.parametrize("dtype", [row for row in dtypes.ALL if row.kind != "b"], ids=str)
def test_torch_has_our_types_by_numpys_names(dtype, torch, fake):
    torch_name = f"torch.{dtype.numpy_name}"
    setattr(torch, dtype.numpy_name, torch_name)
    plan = load(plan_of(record(1, "x", "input"), record(2, "y", "output", dtype=dtype.name)))
    assert plan(tensor(X)).dtype == torch_name


def test_plans_with_peers_say_what_they_need(torch, fake):
    x = FakeTorchTensor(X, (128, 64), (64, 1), "torch.bfloat16")
    with pytest.raises(DnncError, match="no buffers of rank 1"):
        load(WHOLE)(x, sizes={"N": 2})
