"""Tables made from a results file."""

from __future__ import annotations

import math

import pytest

from benchmarks import results

META = {
    "device": "GPU", "multiprocessors": 1, "driver": "1", "cuda": "13", "torch": "2",
    "dnnc": "0", "date": "2026-01-01",
}  # fmt: skip


def row(ours, theirs, unit="TFLOP/s", bytes_=4e8):
    def column(seconds):
        return {"seconds": [seconds] * 3, "rate": bytes_ / seconds / 1e9}

    columns = {"dnnc": column(ours), "cudnn": {"error": "no plan"}, "torch": column(theirs)}
    return {"unit": unit, "flops": 1e12, "bytes": bytes_, "columns": columns}


DATA = {
    "kind": "kernels",
    "metadata": META,
    "rows": {
        "pointwise/bf16/add/1x1": row(1e-4, 2e-4, "GB/s"),
        "matmul/bf16/none/8x8x8": row(2e-3, 1e-3),
        "matmul/bf16/none/8x8x8/kn": row(1e-3, 2e-3),
        "matmul/bf16/none/1x8x8": row(2e-4, 2e-4, "GB/s"),
        "matmul/bf16/none/1x4x4": row(2e-4, 2e-4, "GB/s", 1e6),
    },
}


def test_tables_are_by_family_and_unit():
    text = results.markdown(DATA)
    headings = [line for line in text.splitlines() if line.startswith("###")]
    assert headings == ["### pointwise (GB/s)", "### matmul (TFLOP/s)", "### matmul (GB/s)"]


def test_mean_and_interval_of_groups():
    text = results.markdown(DATA)
    assert "Geometric mean of the ratios: 1.000 (95%: 1.000 to 1.000; 2 rows)." in text
    assert "- bf16/none: 0.500 (95%: 0.500 to 0.500; 1 rows)" in text
    assert "- bf16/none/kn: 2.000 (95%: 2.000 to 2.000; 1 rows)" in text


def test_share_of_copy_bandwidth_is_of_large_rows():
    assert results.copy_bandwidth(DATA["rows"]) == pytest.approx(4000.0)
    lines = results.markdown(DATA).splitlines()
    (large,) = (line for line in lines if line.startswith("| bf16/none/1x8x8 "))
    (little,) = (line for line in lines if line.startswith("| bf16/none/1x4x4 "))
    assert large.endswith("| 1.00 | 0.50 |")
    assert little.endswith("| 1.00 |  |")


def test_share_of_the_dense_rate():
    """The ratio stands in rows that name a dense case which was timed."""
    packed = {**row(2e-3, 1e-3), "dense": "attention/bf16/causal/1x1x8-d8"}
    lost = {**row(2e-3, 1e-3), "dense": "attention/bf16/causal/1x1x9-d8"}
    rows = {"packed/bf16/causal/8x1-d8/mean2": packed, "packed/bf16/causal/9x1-d8/mean2": lost,
            packed["dense"]: row(1e-3, 1e-3)}  # fmt: skip
    lines = results.markdown({**DATA, "rows": rows}).splitlines()
    heading, other = (line for line in lines if line.startswith("| case "))
    assert heading.endswith("| ours / best peer | ours / dense |")
    assert other.endswith("| ours / best peer |")
    found, alone = (line for line in lines if "mean2 |" in line)
    assert found.endswith(") | 0.50 | 0.50 |")
    assert alone.endswith(") | 0.50 |  |")


def test_match_chooses_rows():
    text = results.markdown(DATA, "8x8x8$")
    assert "8x8x8 " in text
    assert "/kn" not in text


def test_interval_holds_the_mean():
    rows = [[1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02], [0.8, 0.82, 0.79, 0.8, 0.81, 0.8, 0.8]]
    low, high = results.interval(rows)
    assert low <= math.sqrt(1.0 * 0.8) <= high
    assert high - low < 0.1


def test_line_tells_the_ratio():
    assert results.line("case", DATA["rows"]["matmul/bf16/none/8x8x8"]).endswith("ratio 0.500")


@pytest.mark.parametrize("mode", ["cool", "hot"])
def test_rates_of_another_mode_stand_beside(mode):
    of_both = row(1e-4, 2e-4)
    of_both["columns"]["dnnc"][f"{mode}_rate"] = 3000.0
    of_both["columns"]["torch"][f"{mode}_rate"] = 2000.0
    rows = {"matmul/bf16/none/8x8x8": of_both, "matmul/bf16/none/4x4x4": row(1e-4, 2e-4)}
    lines = results.markdown({**DATA, "rows": rows}).splitlines()
    (heading,) = (line for line in lines if line.startswith("| case "))
    assert heading.endswith(f"| ours / best peer | {mode}: ours | {mode}: ours / best peer |")
    assert any(line.endswith("| 2.00 | 3000 | 1.50 |") for line in lines)
    assert any(line.endswith("| 2.00 |  |  |") for line in lines)


def test_there_are_no_columns_of_another_mode_without_such_rates():
    assert "hot: ours" not in results.markdown(DATA)
    assert "cool: ours" not in results.markdown(DATA)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("matmul/bf16/bias_gelu/4096x4096x4096", "bf16/bias_gelu"),
        ("attention/bf16/causal/4x32x4096-d128/gqa4/q1", "bf16/causal/gqa4/q1"),
        ("attention_fp8_backward/full/4x16x4096-d128", "full"),
    ],
)
def test_a_group_of_cases_has_no_sizes(name, group):
    other = f"{name.partition('/')[0]}/fp16/none/8x8x8"
    rows = {found: row(1e-3, 2e-3) for found in (name, other)}
    assert f"- {group}:" in results.markdown({**DATA, "rows": rows})
