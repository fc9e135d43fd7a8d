"""The plan file: round trips, bundles, and everything that can be wrong with it."""

import dataclasses
import json
import os
import struct
import threading
from hashlib import sha256

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.errors import DnncError, Status
from dnnc.plan import codec, format
from dnnc.plan.arguments import pack_number
from dnnc.plan.plan import (
    Arg,
    FusionRecord,
    Launch,
    Memset,
    Plan,
    ProductBound,
    Program,
    Step,
    Variant,
)

from .plans import WHOLE


def renamed(name):
    return dataclasses.replace(WHOLE, name=name)


def test_every_part_makes_the_round_trip():
    assert format.read(format.to_bytes(WHOLE)) == WHOLE


def test_the_same_plan_gives_the_same_bytes():
    assert format.to_bytes(WHOLE) == format.to_bytes(format.read(format.to_bytes(WHOLE)))


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "p.dnnplan"
    format.write(path, WHOLE)
    before = path.read_bytes()
    with pytest.raises(DnncError):
        format.write(path, [WHOLE, WHOLE])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["p.dnnplan"]
    assert format.read(path) == WHOLE


def test_links_are_followed_and_devices_are_written_into(tmp_path):
    real, link = tmp_path / "real.dnnplan", tmp_path / "link.dnnplan"
    real.write_bytes(b"old")
    link.symlink_to(real)
    format.write(link, WHOLE)
    assert link.is_symlink()
    assert format.read(real).name == "whole"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=pipe.read_bytes)
    reader.start()
    format.write(pipe, WHOLE)
    reader.join()
    assert pipe.is_fifo()


@pytest.mark.parametrize("path", ["missing/p.dnnplan", "."])
def test_what_can_not_be_written_is_an_error(tmp_path, path):
    with pytest.raises(DnncError, match="can't be written"):
        format.write(tmp_path / path, WHOLE)
    assert not list(tmp_path.iterdir())


def test_arguments_of_other_types_are_refused():
    with pytest.raises(DnncError, match="a Plan; accepted: a path, then a plan"):
        format.write(WHOLE, "p.dnnplan")
    for source in (5, None):
        with pytest.raises(DnncError, match="accepted: a path, or bytes"):
            format.read(source)


def test_files_have_the_permissions_that_new_files_have(tmp_path):
    (tmp_path / "ordinary").touch()
    format.write(tmp_path / "a.dnnplan", WHOLE)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_bundle_shares_blobs_and_reads_one_plan_at_a_time(tmp_path):
    path = tmp_path / "b.dnnplan"
    format.write(path, [renamed("a"), renamed("b")])
    alone = len(format.to_bytes(WHOLE))
    assert path.stat().st_size < 2 * alone
    bundle = format.Bundle(path)
    assert bundle.names == ("a", "b")
    assert bundle.plan("b") == renamed("b")
    with pytest.raises(DnncError, match="one of a, b"):
        bundle.plan("c")
    with pytest.raises(DnncError, match="2 plans, and no name; accepted: one of a, b"):
        bundle.plan()


def test_a_bundle_reads_no_section_that_it_is_not_asked_for(tmp_path):
    data = bytearray(format.to_bytes([renamed("a"), dataclasses.replace(renamed("b"), key="9")]))
    data[-1] ^= 1  # the last section is the manifest of b
    assert format.Bundle(bytes(data)).plan("a") == renamed("a")
    with pytest.raises(DnncError, match="SHA-256"):
        format.Bundle(bytes(data)).plan("b")
    with pytest.raises(DnncError, match="SHA-256"):
        format.Bundle(bytes(data)).verify()


@pytest.mark.parametrize("keep", [0, 7, 8, 30, 55, 57, 200, -1])
def test_truncated_files_are_refused(keep):
    data = format.to_bytes(WHOLE)
    with pytest.raises(DnncError, match="truncated, altered or no plan") as caught:
        format.read(data[:keep])
    assert caught.value.status is Status.BAD_PARAM


def test_appended_bytes_are_refused():
    with pytest.raises(DnncError, match="altered"):
        format.read(format.to_bytes(WHOLE) + b"x")


def test_every_altered_byte_is_noticed():
    data = format.to_bytes(WHOLE)
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 0x20
        with pytest.raises(DnncError):
            format.read(bytes(altered))


def test_a_later_version_is_named():
    data = bytearray(format.to_bytes(WHOLE))
    data[8:12] = struct.pack("<I", 2)
    with pytest.raises(DnncError) as caught:
        format.read(bytes(data))
    assert caught.value.status is Status.SERIALIZATION_VERSION_MISMATCH
    assert "version 2" in caught.value.what


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DnncError, match=r"missing\.dnnplan"):
        format.read(tmp_path / "missing.dnnplan")


# ---- records


def test_unknown_optional_fields_are_ignored_and_required_ones_refused():
    data = codec.encode(WHOLE)
    data["colour"] = "blue"
    assert codec.decode(Plan, json.loads(json.dumps(data))).name == "whole"
    data["required"] = ["colour"]
    with pytest.raises(DnncError) as caught:
        codec.decode(Plan, data)
    assert caught.value.status is Status.SERIALIZATION_VERSION_MISMATCH
    assert "colour" in caught.value.what


def test_required_fields_inside_are_refused_too():
    data = codec.encode(WHOLE.programs[0])
    data["variants"][0]["steps"][0]["launch"]["required"] = ["priority"]
    with pytest.raises(DnncError, match="priority"):
        codec.decode(Program, data)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"grid": ["1", "1"]}, "grid"),
        ({"grid": [1, "1", "1"]}, "grid[0]"),
        ({"kernel": 3}, "kernel"),
        ({"block": "256"}, "block"),
        ({"cooperative": 1}, "cooperative"),
        ({"args": [{"kind": "pointer", "uid": "x"}]}, "args[0].uid"),
        ({"args": [7]}, "args[0]"),
    ],
)
def test_wrong_types_are_named_with_their_place(change, where):
    launch = WHOLE.programs[1].variants[0].steps[0].launch
    data = {**codec.encode(launch), **change}
    with pytest.raises(DnncError) as caught:
        codec.decode(Launch, data)
    assert caught.value.where == f"plan.{where}"


def broken_launch(**changes):
    program = WHOLE.programs[1]
    launch = dataclasses.replace(program.variants[0].steps[0].launch, **changes)
    variant = Variant("1", "0", (Step(launch=launch),))
    return dataclasses.replace(WHOLE, programs=(dataclasses.replace(program, variants=(variant,)),))


def broken_module(**changes):
    program = WHOLE.programs[1]
    module = dataclasses.replace(program.modules[0], **changes)
    return dataclasses.replace(
        WHOLE, programs=(dataclasses.replace(program, modules=(module, *program.modules[1:])),)
    )


def broken_memset(**changes):
    program = WHOLE.programs[1]
    memset = Memset(**{"uid": -1, "offset": "0", "value": 0, "bytes": "4", **changes})
    variant = Variant("1", "4", (Step(memset=memset),))
    return dataclasses.replace(WHOLE, programs=(dataclasses.replace(program, variants=(variant,)),))


def broken_program(**changes):
    program = WHOLE.programs[1]
    return dataclasses.replace(WHOLE, programs=(dataclasses.replace(program, **changes),))


FUSION = FusionRecord(("add",), "pointwise", 0, {}, module=5)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (broken_program(kernels=WHOLE.programs[1].kernels * 2), "two kernels of one name"),
        (broken_program(fusions=(FUSION,)), "a fusion of module 5; accepted: 1 modules"),
        (broken_launch(kernel="nobody"), "a launch of kernel nobody; accepted: small"),
        (broken_launch(grid=("M +", "1", "1")), "M +"),
        (broken_launch(grid=("Q", "1", "1")), "Q"),
        (broken_launch(block=(0, 1, 1)), "block"),
        (broken_launch(args=(Arg("pointer", uid=9),)), "tensor 9; accepted: 1, 2, 3"),
        (broken_launch(args=(Arg("magic"),)), "kind 'magic'"),
        (broken_launch(args=(Arg.scalar("M", "f16"),)), "type 'f16'"),
        (broken_launch(args=(Arg("tensor_map"),)), "without its recipe"),
        (dataclasses.replace(WHOLE, blobs=WHOLE.blobs[:2]), "blob 2; accepted: 0 to 1"),
        (dataclasses.replace(WHOLE, tensors=WHOLE.tensors[:1] * 2), "the same uid"),
        (broken_launch(args=(Arg.by_value(1, "f32"),)), "tensor 1 passed by value"),
        (broken_launch(args=(Arg("bytes", data="0xyz"),)), "hexadecimal"),
        (broken_module(cubin=-1), "a module without code"),
        (broken_module(ptx=-1, ptx_runs_later=True), "a module without code"),
        (broken_memset(value=256), "a memset to 256"),
        (dataclasses.replace(WHOLE, symbols=WHOLE.symbols * 2), "the same name"),
        (dataclasses.replace(WHOLE, may_alias=((1, 99),)), "tensor 99"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], role="workspace"), *WHOLE.tensors[1:])),
         "role 'workspace'"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], reordering="F17x17"), *WHOLE.tensors[1:])),
         "tensor 1: reordering 'F17x17'; accepted: NONE, F16x16"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], reordering="F16x16"), *WHOLE.tensors[1:])),
         "tensor 1: 2 dims in F16x16; accepted: 8"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], dtype="f17"), *WHOLE.tensors[1:])), "f17"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], dtype="FAST_FLOAT_FOR_FP8"),
            *WHOLE.tensors[1:])), "FAST_FLOAT_FOR_FP8 is a compute type"),
        (dataclasses.replace(WHOLE, tensors=(
            dataclasses.replace(WHOLE.tensors[0], prior=7), *WHOLE.tensors[1:])),
         "tensor 1: prior 7; accepted: of an output, a uid that none has"),
        (dataclasses.replace(WHOLE, tensors=(
            WHOLE.tensors[0], dataclasses.replace(WHOLE.tensors[1], prior=1), WHOLE.tensors[2])),
         "tensor 2: prior 1"),
    ],
)  # fmt: skip
def test_what_refers_to_nothing_is_refused(plan, what):
    data = format.to_bytes(plan)
    with pytest.raises(DnncError) as caught:
        format.read(data)
    assert what in str(caught.value)
    assert caught.value.status.category is Status.BAD_PARAM
    assert caught.value.where == "plan"


def test_bounds_of_products_are_a_field_that_no_reader_may_skip():
    plan = dataclasses.replace(WHOLE, bounds=(ProductBound("M*N", 4096),))
    data = codec.encode(plan)
    assert data["required"] == ["bounds"]
    assert "required" not in codec.encode(WHOLE)
    again = format.read(format.to_bytes(plan))
    assert again == plan
    assert again.expression("ceildiv(M*N, 8)").bounds() == (1, 512)


@pytest.mark.parametrize("product", ["M*K", "M", "M+N", "-M*N", "M*(N"])
def test_bounds_of_anything_but_products_of_symbols_are_refused(product):
    plan = dataclasses.replace(WHOLE, bounds=(ProductBound(product, 4096),))
    with pytest.raises(DnncError) as caught:
        format.read(format.to_bytes(plan))
    assert caught.value.status is Status.BAD_PARAM


@pytest.mark.parametrize("required", [5, [{}], "name", [7]])
def test_required_fields_are_names(required):
    with pytest.raises(DnncError, match="required"):
        codec.decode(Plan, {**codec.encode(WHOLE), "required": required})


@pytest.mark.parametrize("index", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_an_index_that_is_no_json_is_refused(index):
    header = struct.pack("<8sIIQ32s", format.MAGIC, 1, 0, len(index), sha256(index).digest())
    with pytest.raises(DnncError, match="the index is not JSON"):
        format.read(header + index)


def with_index(plans, change):
    """The file of plans, whose index was changed by who knows how to hash it."""
    data = format.to_bytes(plans)
    length = int.from_bytes(data[16:24], "little")
    index = json.loads(data[56 : 56 + length])
    change(index)
    text = json.dumps(index).encode()
    head = struct.pack("<8sIIQ32s", format.MAGIC, 1, 0, len(text), sha256(text).digest())
    return head + text + data[56 + length :]


def test_a_plan_goes_by_the_name_that_the_index_gives():
    data = with_index(WHOLE, lambda index: index["plans"][0].update(name="other"))
    with pytest.raises(DnncError, match="plan 'whole' under 'other'"):
        format.read(data)


@pytest.mark.parametrize("place", ["index", "entry", "section"])
def test_an_index_may_ask_for_a_newer_reader(place):
    def change(index):
        entry = index["plans"][1]
        records = {"index": index, "entry": entry, "section": entry["blobs"][0]}
        records[place].update(colour="blue", required=["colour"])

    plans = [renamed("a"), renamed("b")]
    with pytest.raises(DnncError, match=r"needs colour.*a newer dnnc") as caught:
        format.Bundle(with_index(plans, change))
    assert caught.value.status is Status.SERIALIZATION_VERSION_MISMATCH
    optional = with_index(plans, lambda index: index["plans"][1].update(colour="blue"))
    assert format.Bundle(optional).plan("b") == renamed("b")


@pytest.mark.parametrize(
    ("value", "dtype", "stored"),
    [
        (300, "i8", 127), (-300, "i8", -128), (2.7, "i8", 3), (2.5, "i32", 2), (1 << 80, "i64",
        2**63 - 1), (-5, "ui8", 0), (float("nan"), "i32", 0), (1e6, "f8E4M3FN", 448.0),
        (1 + 2**-8 + 2**-40, "bf16", 1 + 2**-7), (70000, "f16", float("inf")), (3, "i1", True),
    ],
)  # fmt: skip
def test_by_value_numbers_are_rounded_as_tensors_are(value, dtype, stored):
    row = dtypes.of(dtype)
    assert np.frombuffer(pack_number(value, dtype), row.numpy)[0] == stored


def test_missing_fields_are_named():
    with pytest.raises(DnncError, match="no guard"):
        codec.decode(Variant, {"workspace_bytes": "0", "steps": []})


def test_expressions_of_a_plan_know_its_symbols():
    assert WHOLE.expression("M*64 + N").evaluate({"M": 8, "N": 3}) == 515
    assert WHOLE.guard("M <= 64").holds({"M": 64})
    with pytest.raises(DnncError, match="unexpected 'Q'"):
        WHOLE.expression("Q")
