"""Plan files with right checksums and drawn contents; hostile ones, each kind by itself."""

import dataclasses
import json
import resource
import struct
import time
from hashlib import sha256

import numpy as np
import pytest

import dnnc
from dnnc.dtypes import f32
from dnnc.errors import DnncError, Status
from dnnc.interpreter.plans import run_plan
from dnnc.plan import bounds, codec, format
from dnnc.plan.plan import Arg, Memset, Step
from tests import random_plans
from tests.runtime.fake_driver import FakeDriver
from tests.support import seeds

from .plans import SMALL, TILED, WHOLE

COUNT = 40


@pytest.fixture(scope="module")
def files():
    return [format.to_bytes(WHOLE), *random_plans.compiled_plans()]


def tried(files, first, count):
    with random_plans.trial() as made:
        for seed in range(first, first + count):
            try:
                random_plans.attempt(made, files[seed % len(files)], seed)
            except Exception as error:
                raise AssertionError(f"python -m tests.random_plans {seed} 1") from error
    return made.outcomes


def test_some_random_plans(files):
    """Others each time, the same again by DNNC_TEST_SEED."""
    outcomes = tried(files, seeds.BASE, COUNT)
    assert min(outcomes["read", "done"], outcomes["read", "refused"]) > COUNT // 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_plans(files, part):
    tried(files, 10_000 + 1000 * part, 1000)


# ---- hostile files, each kind by itself


def with_manifest(change, blobs=WHOLE.blobs, plan=WHOLE):
    """The file of a plan whose records were changed, checksums right."""
    manifest = codec.encode(plan)
    manifest = json.loads(json.dumps(manifest))
    change(manifest)
    return packed([("whole", json.dumps(manifest).encode(), blobs)])


def packed(plans, change_index=lambda index: None):
    """A file of (name, manifest, blobs) each."""
    payload, entries = bytearray(), []

    def put(data):
        payload.extend(data)
        place = {"offset": len(payload) - len(data), "length": len(data)}
        return {**place, "sha256": sha256(data).hexdigest()}

    for name, manifest, blobs in plans:
        entries.append({"name": name, "manifest": put(manifest), "blobs": [*map(put, blobs)]})
    index = {"plans": entries}
    change_index(index)
    text = json.dumps(index).encode()
    head = struct.pack("<8sIIQ32s", format.MAGIC, 1, 0, len(text), sha256(text).digest())
    return head + text + bytes(payload)


def manifest_of(plan=WHOLE):
    return json.dumps(codec.encode(plan)).encode()


def refused_soon(data, said, seconds=0.5):
    """The error of a file, which is there soon and takes little memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DnncError, match=said) as caught:
        format.read(data)
    assert time.process_time() - began < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert len(str(caught.value)) < 1000


def deep(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


FIELDS = {
    "an integer of 400 digits": (
        lambda m: m["tensors"][0].update(uid=10**400), r"\[0\].uid: an integer of 1329 bits"),
    "a float of 400 digits": (
        lambda m: m["tensors"][2].update(value=10**400), "value: an integer of 1329 bits"),
    "a range of 400 digits": (
        lambda m: m["symbols"][0].update(max=10**400), "max: an integer of 1329 bits"),
    "half a character": (
        lambda m: m["tensors"][0].update(name="\ud800"), "characters, not halves of them"),
    "half a character of a key": (
        lambda m: m.update(tools={"\ud800": "1"}), "characters, not halves of them"),
    "a chain of divisions": (
        lambda m: m["tensors"][0].update(dims=["M" + "//3" * 1300, "64"]), "over 32 calls"),
    "products of sums": (
        lambda m: m["tensors"][0].update(dims=["*".join(["(M+N+1)"] * 500), "64"]), "too many"),
    "a deep graph": (lambda m: m.update(graph={"x": deep(500)}), "64 deep at most"),
    "a list where an object belongs": (lambda m: m.update(graph=deep(500)), "graph: a list"),
    "200,000 steps": (
        lambda m: m["programs"][1]["variants"][0].update(
            steps=[{"memset": {"uid": -1, "offset": "0", "bytes": "4"}}] * 200_000),
        "200000 items; accepted: at most 16384"),
    "no programs": (lambda m: m.update(programs=[]), "no programs"),
    "a kernel's name": (
        lambda m: m["programs"][1]["kernels"][0].update(name="gr\xf6\xdfe"), "identifier of PTX"),
}  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize(("change", "said"), FIELDS.values(), ids=FIELDS)
def test_a_hostile_field_is_refused_soon(change, said):
    data = with_manifest(change)
    refused_soon(data, said, 2.0 if len(data) > 1 << 20 else 0.5)


def test_a_section_that_is_listed_often_is_in_memory_once():
    data = packed([("whole", manifest_of(), [bytes(4 << 20), *WHOLE.blobs])],
                  lambda index: index["plans"][0].update(
                      blobs=[*index["plans"][0]["blobs"][:1]] * 400
                      + index["plans"][0]["blobs"]))  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan = format.read(data)
    assert len(plan.blobs) == 405
    assert len({id(blob) for blob in plan.blobs}) == 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_sections_that_overlap_are_refused():
    def overlap(index):
        blobs = index["plans"][0]["blobs"]
        blobs += [{**blobs[0], "length": blobs[0]["length"] - place} for place in range(1, 9)]

    data = packed([("whole", manifest_of(), WHOLE.blobs)], overlap)
    refused_soon(data, "sections that do not overlap")


def test_sections_of_no_place_are_refused():
    for change in ({"offset": -5}, {"length": -1}, {"offset": 1 << 62}, {"length": 1 << 62}):
        data = packed(
            [("whole", manifest_of(), WHOLE.blobs)],
            lambda index, change=change: index["plans"][0]["blobs"][0].update(change),
        )
        refused_soon(data, "truncated, altered or no plan")


def test_plans_of_one_name_are_refused():
    data = packed([("whole", manifest_of(), WHOLE.blobs)] * 2)
    refused_soon(data, "plans of the same name")


# ---- what sizes decide


X, Y, WORKSPACE = 1 << 40, 2 << 40, 3 << 40
SIZES = {"M": 128, "N": 1}


def with_step(step, workspace="1024", role=None, **changes):
    """WHOLE for sm_80 with one step."""
    program = WHOLE.programs[1]
    variant = dataclasses.replace(program.variants[0], steps=(step,), workspace_bytes=workspace)
    program = dataclasses.replace(program, variants=(variant,))
    return dataclasses.replace(WHOLE, programs=(program,), **changes)


def small(**changes):
    return Step(launch=dataclasses.replace(SMALL, **changes))


def memset(uid=2, offset="0", bytes="4"):
    return Step(memset=Memset(uid, offset, bytes))


def mapped(**changes):
    return small(args=(Arg("tensor_map", tensor_map=dataclasses.replace(TILED, **changes)),))


# Tensors x and y are bf16 [M, 64]: 16384 bytes at M = 128.
OUTSIDE = {
    "a memset past its tensor": (with_step(memset(bytes="M*128 + 1")), "16385 bytes at 0"),
    "a memset behind its tensor": (with_step(memset(offset="M*128", bytes="1")), "at 16384"),
    "a memset before its tensor": (with_step(memset(offset="0 - 4")), "at -4 of tensor 2"),
    "a memset of bytes below 0": (with_step(memset(bytes="0 - 4")), "memset of -4 bytes"),
    "a memset past the workspace": (with_step(memset(-1, "1024 - 3")), "at 1021 of the workspace"),
    "a workspace below 0": (with_step(small(), "0 - M"), "workspace: -128 bytes"),
    "a workspace of 65 bits": (with_step(small(), "M*9223372036854775807"), "workspace: "),
    "a pointer past its tensor": (with_step(small(args=(Arg.pointer(2, "M*128 + 1"),))), "16385"),
    "a pointer before its tensor": (with_step(small(args=(Arg.pointer(1, "0-1"),))), "to -1 of"),
    "a pointer past 64 bits": (
        with_step(small(args=(Arg.pointer(1, "M*9223372036854775807"),))), "a pointer to"),
    "a pointer past the workspace": (
        with_step(small(args=(Arg("workspace", offset="1025"),))), "1025 of the workspace"),
    "a peer's pointer past its tensor": (
        with_step(small(args=(Arg("peer", uid=2, offset="M*128 + 1", rank=1),))), "16385"),
    "a map of too many rows": (with_step(mapped(dims=("64", "M*4"))), "a map of 65536 bytes"),
    "a map of too long rows": (with_step(mapped(strides=("M*64",))), "a map of "),
    "a map a row before": (with_step(mapped(offset="0 - 128")), "at -128 of tensor 1"),
    "a map before, with the rows twice": (
        with_step(mapped(
            dims=("64", "16", "M + 16"), strides=("128", "128"), element_strides=(1, 1, 1),
            box=(64, 16, 1), offset="0 - 16*128")),
        "at -2048 of tensor 1"),
    "a map of dims below 0": (
        with_step(mapped(dims=("64", "0 - M"))), "numbers of 64 bits from 0 up"),
    "a map past 64 bits": (
        with_step(mapped(dims=("64", "M*9223372036854775807"))), "a map of .* bytes"),
    "a grid below 0": (with_step(small(grid=("0 - M", "1", "1"))), r"grid \(-128, 1, 1\)"),
    "a grid of 32 bits": (with_step(small(grid=("M*16777216", "1", "1"))), "below 2"),
    "a grid of parts of clusters": (with_step(small(cluster=(3, 1, 1))), "whole clusters"),
    "shared memory below 0": (with_step(small(dynamic_smem_bytes="0 - M")), "-128 bytes of shared"),
    "shared memory past the device": (
        with_step(small(dynamic_smem_bytes="M*4194304")), "536870912 bytes of shared memory"),
    "an argument past 64 bits": (
        with_step(small(args=(Arg.scalar("M*9223372036854775807", "i64"),))), "does not fit i64"),
    "dims below 0": (
        with_step(small(), tensors=(
            dataclasses.replace(WHOLE.tensors[0], dims=("M - 200", "64")), *WHOLE.tensors[1:])),
        r"dims \[-72, 64\]"),
    "strides below 0": (
        with_step(small(), tensors=(
            dataclasses.replace(WHOLE.tensors[0], strides=("0 - 64", "1")), *WHOLE.tensors[1:])),
        r"strides \[-64, 1\]"),
    "a tensor of 65 bits": (
        with_step(small(), tensors=(
            dataclasses.replace(WHOLE.tensors[0], strides=("M*4611686018427387904", "1")),
            *WHOLE.tensors[1:])),
        "tensor 1: .* bytes"),
}  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver(capability=(8, 0), argument_bytes={})
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize(("plan", "said"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_leaves_its_place_is_never_launched(fake, plan, said):
    plan = format.read(format.to_bytes(plan))
    with pytest.raises(DnncError, match=said) as caught:
        dnnc.load(plan).bind({1: X, 2: Y}, WORKSPACE, sizes=SIZES, peers={1: {2: X}})
    assert caught.value.status.category in (Status.BAD_PARAM, Status.NOT_SUPPORTED)
    assert not fake.launches + fake.memsets + fake.tensor_maps


@pytest.mark.parametrize(("plan", "said"), OUTSIDE.values(), ids=OUTSIDE)
def test_the_interpreter_refuses_them_too(plan, said):
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry small() { ret; }\n"
    plan = dataclasses.replace(plan, blobs=(*WHOLE.blobs[:3], ptx.encode()))
    with pytest.raises(DnncError) as caught:
        run_plan(plan, {1: np.ones((128, 64))}, sizes=SIZES)
    refusals = (Status.BAD_PARAM, Status.NOT_SUPPORTED)
    assert caught.value.status.category in refusals or said == "536870912 bytes of shared memory"


@pytest.mark.parametrize("taken", [(), (8,), (8, 8, 8), (4, 8)])
def test_arguments_that_the_code_does_not_take(fake, taken):
    """The driver reads as many as the code takes, whatever the plan says."""
    plan = with_step(small(args=(Arg.pointer(1), Arg.scalar("M", "i32"))))
    fake.parameters = {"small": taken}
    with pytest.raises(DnncError, match=r"arguments of \[8, 4\] bytes; accepted: parameters of"):
        dnnc.load(plan).bind({1: X, 2: Y}, WORKSPACE, sizes=SIZES)
    fake.parameters = {"small": (8, 4)}
    dnnc.load(plan).bind({1: X, 2: Y}, WORKSPACE, sizes=SIZES)()


def test_inputs_of_other_shapes():
    ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry small() { ret; }\n"
    plan = dataclasses.replace(with_step(small(args=())), blobs=(*WHOLE.blobs[:3], ptx))
    with pytest.raises(DnncError, match=r"'x' \(uid 1\): dims \[3\]; accepted: \[128, 64\]"):
        run_plan(plan, {1: np.ones(3)}, sizes=SIZES)
    with pytest.raises(DnncError, match="2 values for tensor 's'; accepted: a number"):
        run_plan(plan, {1: np.ones((128, 64)), 3: [1, 2]}, sizes=SIZES)


INSIDE = {
    "a memset to the end": with_step(memset(offset="M*128 - 4")),
    "a memset of nothing anywhere": with_step(memset(offset="M*9999", bytes="M - 128")),
    "a pointer to the end": with_step(small(args=(Arg.pointer(2, "M*128"),))),
    "a map to the end": with_step(mapped(dims=("64", "M - 1"), offset="128")),
    "a map of nothing": with_step(mapped(dims=("64", "M - 128"))),
    "a grid of nothing": with_step(small(grid=("M - 128", "0 - M", "1"))),
}


@pytest.mark.parametrize("plan", INSIDE.values(), ids=INSIDE)
def test_what_is_at_the_edge_is_launched(fake, plan):
    plan = format.read(format.to_bytes(plan))
    dnnc.load(plan).bind({1: X, 2: Y}, WORKSPACE, sizes=SIZES)()


REFERENCES = {
    "a memset of an input": (with_step(memset(1)), "a memset of tensor 1, an input"),
    "a memset of a number": (with_step(memset(3)), "the address of tensor 3"),
    "a pointer to a number": (with_step(small(args=(Arg.pointer(3),))), "the address of tensor 3"),
    "a pointer to nothing": (with_step(small(args=(Arg.pointer(-1),))), "tensor -1"),
    "a map of a number": (with_step(mapped(uid=3)), "the address of tensor 3"),
    "a map of a mode": (with_step(mapped(mode="round")), "mode 'round'"),
    "a map of a type": (with_step(mapped(dtype="i1")), "a tensor map of i1"),
    "a map of a swizzle": (with_step(mapped(swizzle="7B")), "swizzle '7B'"),
    "a map of six dims": (with_step(mapped(dims=("1",) * 6)), "a tensor map of 6 dims"),
    "a map of few strides": (with_step(mapped(strides=())), "0 strides; accepted: 1 of them"),
    "a map of few boxes": (with_step(mapped(box=(1,))), "1 box; accepted: 2 of them"),
    "a map of boxes below 0": (with_step(mapped(box=(-1, 1))), "extents that no box has"),
    "a block of many threads": (with_step(small(block=(33, 1, 1))), "accepted: 32 threads"),
    "a block that is deep": (with_step(small(block=(1, 1, 65))), "64 along z"),
    "a large cluster": (with_step(small(cluster=(17, 1, 1))), "accepted: 16 blocks"),
    "many arguments": (with_step(small(args=(Arg("bytes", data="00" * 40000),))), "40000 bytes"),
    "an alignment": (
        dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], alignment=1 << 40), *WHOLE.tensors[1:])),
        "alignment 1099511627776"),
    "a uid below 0": (
        dataclasses.replace(WHOLE, tensors=(
            *WHOLE.tensors, dataclasses.replace(WHOLE.tensors[0], uid=-1))), "a uid from 0 up"),
    "an output that is a number": (
        dataclasses.replace(WHOLE, tensors=(*WHOLE.tensors[:2], dataclasses.replace(
            WHOLE.tensors[2], role="output"))), "an output that is a number"),
    "another name of a type": (
        dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], dtype="HALF"), *WHOLE.tensors[1:])),
        "data type HALF; accepted: f16"),
    "a rank": (with_step(small(args=(Arg("peer", uid=2, rank=-1),))), "of rank -1"),
}  # fmt: skip


@pytest.mark.parametrize(("plan", "said"), REFERENCES.values(), ids=REFERENCES)
def test_what_no_sizes_decide_is_refused_at_reading(plan, said):
    with pytest.raises(DnncError, match=said) as caught:
        format.read(format.to_bytes(plan))
    assert caught.value.status.category is Status.BAD_PARAM
    assert caught.value.where == "plan"


def test_many_tensors_are_read_in_time_about_linear():
    """10,000 of them, each passed to a kernel."""
    tensors = tuple(
        dataclasses.replace(WHOLE.tensors[0], uid=uid, name=f"t{uid}") for uid in range(4, 10_000)
    )
    args = tuple(Arg.pointer(uid) for uid in range(4, 4000))
    plan = with_step(small(args=args), tensors=(*WHOLE.tensors, *tensors))
    data = format.to_bytes(plan)
    began = time.process_time()
    executable = dnnc.load(data)
    assert executable.plan.tensor("t17").uid == 17
    assert time.process_time() - began < 3


def test_maps_count_bytes_as_the_driver_does():
    assert bounds.element_bytes(TILED) == 2
    assert bounds.element_bytes(dataclasses.replace(TILED, dtype="tf32")) == 4
    record = dataclasses.replace(WHOLE.tensors[0], dtype="f32")
    assert bounds.tensor_bytes(record, f32, (3, 4), (8, 1)) == 4 * (2 * 8 + 4)
    assert bounds.tensor_bytes(record, f32, (3, 0), (8, 1)) == 0
    assert bounds.tensor_bytes(record, f32, (), ()) == 4
