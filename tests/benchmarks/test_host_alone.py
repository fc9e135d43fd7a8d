"""Host times without a device: the C driver that does nothing, and what runs on it."""

import shutil

import pytest

from benchmarks import host_alone, host_table
from benchmarks.results import Results


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_python_runs_on_a_driver_that_does_nothing(tmp_path, capsys):
    results = Results(tmp_path / "host.json", "host", host_alone.metadata())
    host_alone.run_host_alone(results, rounds=5)
    rows = results.rows
    assert list(rows)[:3] == [host_table.BARE, host_table.BOUND, host_table.ADDRESSES]
    assert len(rows) == 5
    times = [row["host_us"] for row in rows.values()]
    assert all(time > 0 for time in times)
    # What is computed once is not computed again: a tenth, with room for a busy machine.
    assert times[2] < times[3] / 3
    assert times[2] < times[4] / 3
    assert "| dnnc: bound plan |" in host_table.markdown(results.data)
    assert "new size" in capsys.readouterr().out
