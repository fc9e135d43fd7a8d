"""`python -m benchmarks profile` reads ncu's tables."""

import pytest

from benchmarks import profile

TABLE = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed"
"","","ns","%"
"0","spin_kernel(long)","2,000","0.1"
"1","fusion0","1,234,000","87.5"
"2","fusion0_columns","3,100","12"
"3","at::spin_kernel(long)","2,000","0.1"
"4","gemm","99","n/a"
"""


def test_kernels_between_markers_are_one_call():
    calls = profile.by_call(profile.kernels_of(TABLE))
    assert [[kernel["name"] for kernel in call] for call in calls] == [
        ["fusion0", "fusion0_columns"],
        ["gemm"],
    ]
    first = calls[0][0]
    assert first["ns"] == 1_234_000
    assert first["dram_pct"] == 87.5
    assert calls[1][0]["dram_pct"] == "n/a"


def test_what_is_no_table_is_an_error_that_shows_it():
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        profile.kernels_of("==ERROR== ERR_NVGPUCTRPERM")


def test_summary_has_a_line_a_kernel():
    (call, _) = profile.by_call(profile.kernels_of(TABLE))
    call[0]["stall_wait"], call[0]["stall_barrier"] = 1.0, 2.5
    rows = profile.summary({"memory/x dnnc": {"kernels": call}}).splitlines()
    assert len(rows) == 4
    assert rows[2] == "| memory/x dnnc | 1234.0 | 0 | 88% |  |  |  |  |  | barrier 2.5, wait 1.0 |"
