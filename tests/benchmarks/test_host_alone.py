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
    assert len(rows) == 8
    times = {name: row["host_us"] for name, row in rows.items()}
    assert all(time > 0 for time in times.values())
    # What is computed once is not computed again: a tenth, with room for a busy machine.
    *_, symbol, overrides = times.values()
    assert times[host_table.ADDRESSES] < min(symbol, overrides) / 3
    assert times[host_table.NEW_ADDRESSES] < times[host_table.FIRST_ADDRESSES] / 3
    assert "| dnnc: bound plan |" in host_table.markdown(results.data)
    assert "new size" in capsys.readouterr().out
