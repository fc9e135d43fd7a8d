"""The tables of ResNet-50's results, without torch."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import resnet50_table
from examples.resnet50.network import NETWORKS, Conv, Network, bytes_of

TINY = Network(size=32, width=64, blocks=(1,), classes=8)
META = {
    "device": "GPU", "multiprocessors": 1, "driver": "1", "cuda": "13", "torch": "2",
    "dnnc": "0", "date": "2026-01-01",
}  # fmt: skip


def row(unit="GB/s", bytes_=0.0, **seconds):
    columns = {
        name: {"seconds": [value] * 3, "rate": 1.0}
        if isinstance(value, float)
        else {"error": value}
        for name, value in seconds.items()
    }
    return {"unit": unit, "flops": 1.0, "bytes": bytes_, "columns": columns}


def data(**whole):
    rows = {
        "pointwise/bf16/add/1x1": row(bytes_=4e8, dnnc=1.0, torch=1.0),
        "matmul/fp16/none/1x1": row("TFLOP/s", dnnc=1.0),
    }
    rows["pointwise/bf16/add/1x1"]["columns"]["torch"]["rate"] = 2000.0
    rows["matmul/fp16/none/1x1"]["columns"]["dnnc"]["rate"] = 500.0
    for op in TINY.operations:
        peers = {"cudnn": 4e-5, "cudnn_best": 3e-5} if isinstance(op, Conv) else {"torch": 3e-5}
        kind = type(op).__name__.lower()
        rows[f"resnet50/fp16/{kind}/4:{op.id}"] = row(dnnc=2e-5, **peers)
    if whole:
        rows["resnet50/fp16/forward/4x32x32x3"] = row(**whole)
    return {"kind": "resnet50", "metadata": META, "rows": rows}


def test_operations_and_their_sum():
    lines = resnet50_table.markdown(data(), TINY).splitlines()
    layers = len(TINY.layers)
    op = TINY.layers[2].op
    least = 1e6 * bytes_of(op, 4) / 2e12
    assert "### 4 images" in lines
    assert f"| {op.id} | 1 | 20.0 | 40.0 | 30.0 |  | 1.50 | {least:.1f} |" in lines
    whole = next(line for line in lines if line.startswith("| all layers"))
    sums = f"| all layers | {layers} | {20 * layers:.1f} | best of each: {30 * layers:.1f} |"
    assert whole.startswith(sums)
    assert whole.split("|")[-3].strip() == "1.50"


def test_a_sum_of_which_a_part_is_missing_is_none():
    found = data()
    del found["rows"][f"resnet50/fp16/linear/4:{TINY.layers[-1].op.id}"]["columns"]["torch"]
    lines = resnet50_table.markdown(found, TINY).splitlines()
    whole = next(line for line in lines if line.startswith("| all layers"))
    assert whole.split("|")[4].strip() == "best of each:"
    assert whole.split("|")[-3].strip() == ""


def test_whole_passes():
    text = resnet50_table.markdown(
        data(dnnc=1e-3, cudnn_best=1.2e-3, torch=2e-3, torch_compile="no sign of life for 120 s"),
        TINY,
    )
    lines = text.splitlines()
    assert "| dnnc | 1000.0 | 4000 |  |" in lines
    assert "| the same as a CUDA graph | 2000.0 | 2000 | 2.00 |" in lines
    assert any("no sign of life for 120 s" in line for line in lines)
    assert "Best peer / dnnc: 1.200 (95%: 1.200 to 1.200; 1 rows)." in lines
    floor = sum(count * resnet50_table.floor(op, 4, (500.0, 2000.0))
                for op, count in TINY.operations.items())  # fmt: skip
    assert f"Floor of all layers: {1e6 * floor:.1f} us, {floor / 1e-3:.2f} of dnnc's time." in lines


def test_without_references_there_are_no_floors():
    found = data(dnnc=1e-3)
    found["rows"].pop("pointwise/bf16/add/1x1")
    text = resnet50_table.markdown(found, TINY)
    assert "Floor" not in text


def test_the_command_line():
    given = command.parser().parse_args(["resnet50", "--batch", "8", "--batch", "16"])
    assert given.batch == [8, 16]
    assert given.columns == "dnnc,cudnn,torch,torch_fused,torch_compile"
    assert NETWORKS["resnet50"].classes == 1000
    with pytest.raises(SystemExit):
        command.parser().parse_args(["resnet50", "--batch", "all"])


def test_training_steps():
    trained = {"dnnc": 0.01, "torch": 0.02, "torch_compile": "OutOfMemoryError"}
    rows = {"resnet50/fp16/train/64x224x224x3": row("TFLOP/s", **trained)}
    said = resnet50_table.markdown({"metadata": META, "rows": rows})
    assert "### Training, 64 images" in said
    assert "| dnnc, as one CUDA graph | 10000.0 | 6400 |  |" in said
    assert "| 20000.0 | 3200 | 2.00 |" in said
    assert "| the same by torch.compile | OutOfMemoryError | | |" in said
