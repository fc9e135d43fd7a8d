"""Generated functions refuse wrong arguments with the right error; nothing is launched then."""

import ctypes
import dataclasses

import pytest

from dnnc.errors import DnncError, Status
from dnnc.plan.plan import (
    Arg,
    Launch,
    Memset,
    ProductBound,
    Step,
    Symbol,
    TensorMap,
    TensorRecord,
    Variant,
)
from dnnc.runtime import load
from tests.plan.plans import WHOLE

from .built import Built, kernel_sizes
from .recorded import Recorder
from .test_calls import H100, WORKSPACE, address

GOOD = {"x": address(1), "y": address(2), "y_rank1": address(3), "s": 0.5, "M": 128, "N": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, fake_object):
    return Built(WHOLE, tmp_path_factory.mktemp("c"), fake_object, "whole")


@pytest.fixture
def loaded(whole):
    whole.device(**H100)
    assert whole.load() == "SUCCESS"
    yield whole
    whole.library.fake_failure(b"", 0, 0)
    whole.library.fake_context(0x1000)
    whole.unload()
    assert whole.library.fake_live_modules() == 0


def status_of_python(values, workspace, plan=WHOLE):
    """The runtime's error of the same arguments."""
    sizes = {name: values[name] for name in plan.dims}
    pack = {tensor.uid: values[tensor.name] for tensor in plan.tensors}
    peers = {1: {2: values["y_rank1"]}} if "y_rank1" in values else None
    with pytest.raises(DnncError) as caught:
        load(plan).bind(pack, workspace or None, sizes=sizes, peers=peers)
    return caught.value.status


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"M": 0}, "SIZE_M"),
        ({"M": 4104}, "SIZE_M"),
        ({"M": 12}, "SIZE_M"),
        ({"M": -8}, "SIZE_M"),
        ({"N": 65}, "SIZE_N"),
        ({"x": 0}, "NULL_X"),
        ({"x": address(1) + 8}, "MISALIGNED_X"),
        ({"y": address(2) + 16}, "MISALIGNED_Y"),
        ({"y": address(1) + 32}, "OVERLAP_Y"),
        ({"y": address(1) - 128 * 128 + 32}, "OVERLAP_Y"),
        ({"workspace": 0}, "NULL_WORKSPACE"),
        ({"workspace": WORKSPACE + 128}, "MISALIGNED_WORKSPACE"),
        ({"workspace": address(2) + 256}, "OVERLAP_WORKSPACE"),
        ({"workspace": address(1) - 256}, "OVERLAP_WORKSPACE"),
    ],
    ids=str,
)
def test_arguments(change, error, loaded, monkeypatch):
    values = {**GOOD, **change}
    workspace = values.pop("workspace", WORKSPACE)
    assert loaded.run(values, workspace) == error
    assert loaded.lines() == []
    recorder = Recorder(**H100)
    recorder.install(monkeypatch)
    recorder.sizes = kernel_sizes(WHOLE)
    status = status_of_python(values, workspace)
    (row,) = [row for row in loaded.interface.errors if row.name == error]
    if not error.startswith("NULL_WORKSPACE"):  # one name, whether it is 0 or left out
        assert row.value % 10000 == status


def test_a_product_of_sizes(tmp_path, fake_object, monkeypatch):
    plan = dataclasses.replace(WHOLE, bounds=(ProductBound("M*N", 256),))
    made = Built(plan, tmp_path, fake_object, "products")
    made.device(**H100)
    assert made.load() == "SUCCESS"
    assert made.run(GOOD, WORKSPACE) == "SUCCESS"
    values = {**GOOD, "M": 8, "N": 33}
    assert made.run(values, WORKSPACE) == "PRODUCT_N"
    recorder = Recorder(**H100)
    recorder.install(monkeypatch)
    recorder.sizes = kernel_sizes(plan)
    status = status_of_python(values, WORKSPACE, plan)
    (row,) = [row for row in made.interface.errors if row.name == "PRODUCT_N"]
    assert (row.value % 10_000, row.text) == (status, "a product of sizes is not M*N <= 256")


def test_a_buffer_of_another_device(loaded):
    assert loaded.run({**GOOD, "y_rank1": 0}, WORKSPACE) == "NULL_Y_RANK1"


def test_buffers_that_may_be_one(loaded):
    assert loaded.run({**GOOD, "y": GOOD["x"]}, WORKSPACE) == "SUCCESS"
    assert loaded.run({**GOOD, "y": GOOD["x"] + 128 * 128}, WORKSPACE) == "SUCCESS"
    assert loaded.run({**GOOD, "workspace": 0, "M": 64}, 0) == "SUCCESS"


def test_what_is_null(loaded):
    run, load_, size = (loaded.function(name) for name in ("run", "load", "workspace_size"))
    found = ctypes.c_size_t(5)
    args = loaded.args(GOOD)
    eight = ctypes.c_int64(8)
    results = [
        load_(None),
        run(None, ctypes.byref(args), WORKSPACE, 0),
        run(loaded.handle, None, WORKSPACE, 0),
        size(None, eight, eight, ctypes.byref(found)),
        size(loaded.handle, eight, eight, None),
    ]
    assert [loaded.name(result) for result in results] == ["NO_ARGUMENT"] * 5
    assert found.value == 5
    assert loaded.name(loaded.function("unload")(None)) == "SUCCESS"


def test_sizes_of_a_workspace(loaded):
    assert loaded.workspace_size({"M": 7, "N": 1})[0] == "SIZE_M"
    assert loaded.workspace_size({"M": 4096, "N": 1}) == ("SUCCESS", 4096 * 256 + 401408 + 512)


def test_another_context(loaded):
    loaded.library.fake_context(0x2000)
    assert loaded.run(GOOD, WORKSPACE) == "WRONG_CONTEXT"
    loaded.library.fake_context(0)
    assert loaded.run(GOOD, WORKSPACE) == "WRONG_CONTEXT"
    assert loaded.lines() == []


def test_no_code(whole):
    whole.device((9, 1))
    assert whole.load() == "SUCCESS"  # PTX of sm_80
    whole.unload()
    whole.device((7, 5))
    assert whole.load() == "NO_CODE"
    assert not whole.handle


@pytest.mark.parametrize("change", ["fewer", "more", "larger", "smaller", "unknown"])
def test_parameters_that_are_not_the_arguments(change, whole):
    """A kernel takes as many as the launch gives, none larger, as the runtime in Python checks."""
    whole.device()
    ((kernel, given), *others) = kernel_sizes(WHOLE).items()
    sizes = {
        "fewer": given[:-1], "more": [*given, 4], "larger": [*given[:-1], 256],
        "smaller": [1, *given[1:]], "unknown": given,
    }[change]  # fmt: skip
    whole.library.fake_device(9, 0, 132, 232448)  # forgets the kernels
    for name, found in [(kernel, sizes), *others]:
        count = -1 if change == "unknown" else len(found)
        array = (ctypes.c_int * len(found))(*found)
        whole.library.fake_kernel(name.encode(), 0, count, array)
    wanted = "SUCCESS" if change in ("smaller", "unknown") else "ARGUMENTS"
    assert whole.load() == wanted
    if whole.handle:
        whole.unload()
    assert whole.library.fake_live_modules() == 0


@pytest.mark.parametrize(
    "function",
    ["cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetAttribute", "cuModuleLoadData",
     "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute"],
)  # fmt: skip
def test_failures_while_loading(function, whole):
    """The driver's error is passed on, and nothing stays loaded."""
    for calls in range(8):
        whole.device(**H100)
        whole.library.fake_failure(function.encode(), calls, 209)
        error = whole.load()
        if error == "SUCCESS":
            whole.unload()
        else:
            assert error == 209
            assert not whole.handle
        assert whole.library.fake_live_modules() == 0
        if not calls:
            assert error == 209


@pytest.mark.parametrize(
    ("function", "done"),
    [("cuTensorMapEncodeTiled", 0), ("cuTensorMapEncodeIm2col", 0), ("cuMemsetD8Async", 0),
     ("cuLaunchKernelEx", 1)],
)  # fmt: skip
def test_failures_while_running(function, done, loaded):
    loaded.library.fake_failure(function.encode(), 0, 719)
    assert loaded.run(GOOD, WORKSPACE) == 719
    assert len(loaded.lines()) == done


def test_what_errors_say(loaded):
    texts = {row.name: loaded.error_string(row.value).decode() for row in loaded.interface.errors}
    assert texts["SUCCESS"] == "success"
    assert texts["SIZE_M"] == "M is not 1 to 4096, a multiple of 8"
    assert texts["MISALIGNED_Y"] == "y is not a multiple of 32 bytes"
    assert texts["NO_CODE"] == "no code for this device; there is code for sm_90a, sm_80"
    assert len(set(texts.values())) == len(texts)
    assert loaded.error_string(719) == b"unspecified launch failure"
    assert loaded.error_string(1000) == b"an error that no function of this plan returns"
    assert loaded.error_string(12345678).startswith(b"an error that no")


# ---- what follows from sizes


M = Symbol("M", 0, 1 << 62, 1)


def plan_of(*variants, symbol=M, dims=("8",), strides=("1",)):
    tensors = tuple(
        TensorRecord(uid, name, dims, strides, "f32", role)
        for uid, name, role in ((1, "x", "input"), (2, "y", "output"))
    )
    program = dataclasses.replace(WHOLE.programs[1], variants=variants)
    return dataclasses.replace(
        WHOLE, name="made", symbols=(symbol,), tensors=tensors, programs=(program,), may_alias=()
    )


def launched(guard="1", workspace="0", grid=("1", "1", "1"), args=(), smem="0"):
    launch = Launch("small", grid, (32, 1, 1), tuple(args), dynamic_smem_bytes=smem)
    return Variant(guard, workspace, (Step(launch=launch),))


@pytest.fixture
def made(tmp_path, fake_object):
    def build(plan):
        built = Built(plan, tmp_path, fake_object)
        built.device((8, 0), 108, 166912)
        assert built.load() == "SUCCESS"
        return built

    return build


CASES = {
    "no variant": (plan_of(launched("M < 5"), launched("M > 8")), 7, "UNSUPPORTED_SIZES"),
    "scalar": (plan_of(launched(args=[Arg.scalar("M", "i32")])), 1 << 31, "UNSUPPORTED_SIZES"),
    "negative": (plan_of(launched(args=[Arg.scalar("-M", "i32")])), 2**31 + 1, "UNSUPPORTED_SIZES"),
    "grid x": (plan_of(launched(grid=("M", "1", "1"))), 1 << 31, "GRID"),
    "grid y": (plan_of(launched(grid=("1", "M", "1"))), 1 << 16, "GRID"),
    "grid z": (plan_of(launched(grid=("1", "1", "M"))), 1 << 16, "GRID"),
    "memory": (plan_of(launched(smem="M")), 166913, "SHARED_MEMORY"),
    "overflow": (plan_of(launched(workspace="M*M")), 1 << 32, "UNSUPPORTED_SIZES"),
    "division": (plan_of(launched(args=[Arg.scalar("9 // M", "i64")])), 0, "UNSUPPORTED_SIZES"),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_that_lead_nowhere(case, made, monkeypatch):
    plan, size, error = CASES[case]
    built = made(plan)
    values = {"x": address(1), "y": address(2), "M": size}
    assert built.run(values, WORKSPACE) == error
    assert built.lines() == []
    built.unload()
    if case == "overflow":  # Python's numbers have no end
        return
    Recorder((8, 0), 108, 166912).install(monkeypatch)
    (row,) = [row for row in built.interface.errors if row.name == error]
    status = status_of_python(values, WORKSPACE, plan)
    assert row.value == status or case == "division"


@pytest.mark.parametrize(
    ("case", "size"),
    [("scalar", 2**31 - 1), ("negative", 2**31), ("grid y", 65535), ("grid x", 2**31 - 1),
     ("memory", 166912), ("division", 1)],
)  # fmt: skip
def test_the_largest_that_still_go(case, size, made):
    built = made(CASES[case][0])
    assert built.run({"x": address(1), "y": address(2), "M": size}) == "SUCCESS"
    assert len(built.lines()) == 1
    built.unload()


def test_a_grid_of_nothing_asks_for_nothing(made):
    """Neither its arguments nor its shared memory are looked at; empty tensors may be at 0."""
    variant = launched(grid=("M", "1", "1"), args=[Arg.scalar("9 // M", "i64")], smem=str(1 << 30))
    symbol = Symbol("M", 0, 4096, 1)
    plan = plan_of(variant, dims=("8", "M"), strides=("4096", "1"), symbol=symbol)
    built = made(plan)
    assert built.run({"x": 0, "y": 0, "M": 0}) == "SUCCESS"
    assert built.lines() == []
    assert built.run({"x": 0, "y": address(2), "M": 1}) == "SHARED_MEMORY"
    built.unload()


def memset(uid, offset, count, workspace="0"):
    return "1", workspace, (Step(memset=Memset(uid, offset, count)),)


def passed(arg, workspace="0"):
    variant = launched(workspace=workspace, args=[arg])
    return "1", workspace, variant.steps


def mapped(**changes):
    recipe = TensorMap(
        mode="tiled", uid=1, offset="0", dtype="f32", dims=("4", "2"), strides=("16",),
        element_strides=(1, 1), box=(4, 2),
    )  # fmt: skip
    return passed(Arg("tensor_map", tensor_map=dataclasses.replace(recipe, **changes)))


# Tensors are of 32 bytes; (variant, what C says).  M is the variant's place.
OUTSIDE = [
    (memset(2, "0", "32"), "SUCCESS"),
    (memset(2, "M", "32"), "UNSUPPORTED_SIZES"),
    (memset(2, "0 - M", "8"), "UNSUPPORTED_SIZES"),
    (memset(-1, "M", "256", "256"), "UNSUPPORTED_SIZES"),
    (memset(-1, "M", "252", "256"), "SUCCESS"),
    (passed(Arg.pointer(1, "M*8")), "UNSUPPORTED_SIZES"),
    (passed(Arg.pointer(1, "M*5")), "SUCCESS"),
    (passed(Arg.pointer(1, "0 - M")), "UNSUPPORTED_SIZES"),
    (passed(Arg("workspace", offset="M*256"), "256"), "UNSUPPORTED_SIZES"),
    (passed(Arg.pointer(1), "0 - M"), "UNSUPPORTED_SIZES"),
    (mapped(), "SUCCESS"),
    (mapped(dims=("4", "M")), "UNSUPPORTED_SIZES"),
    (mapped(dims=("4", "M - 10")), "SUCCESS"),
    (mapped(offset="M"), "UNSUPPORTED_SIZES"),
    (mapped(dims=("4", "M - 14")), "SUCCESS"),
]


def test_what_leaves_its_place_is_not_launched(made, monkeypatch):
    variants = [
        Variant(f"M == {place}", variant[1], variant[2])
        for place, (variant, _) in enumerate(OUTSIDE)
    ]
    plain = launched(args=[Arg.pointer(1)]).steps[0].launch
    clustered = dataclasses.replace(plain, cluster=(2, 1, 1))
    wrong = dataclasses.replace(clustered, grid=("M", "1", "1"))
    variants.append(Variant("1", "0", (Step(launch=wrong),)))
    plan = plan_of(*variants, symbol=Symbol("M", 0, 4096, 1))
    built = made(plan)
    recorder = Recorder((8, 0), 108, 166912)
    recorder.install(monkeypatch)
    recorder.sizes = kernel_sizes(plan)
    for place, error in [*enumerate(row[1] for row in OUTSIDE), (101, "GRID"), (102, "SUCCESS")]:
        values = {"x": address(1), "y": address(2), "M": place}
        assert built.run(values, WORKSPACE) == error, place
        assert bool(built.lines()) is (error == "SUCCESS"), place
        if error != "SUCCESS":
            status = status_of_python(values, WORKSPACE, plan).category
            assert status in (Status.BAD_PARAM, Status.NOT_SUPPORTED)
    built.unload()
