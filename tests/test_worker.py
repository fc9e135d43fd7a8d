"""The compile worker, where a caller does not behave."""

import subprocess
import sys

import pytest

import dnnc
from dnnc import worker
from dnnc.dialect import json_form


def graph(name, n):
    g = dnnc.pygraph(name, io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([3, n])).set_output()
    return g.graph.finalize()


def test_an_interrupted_request_leaves_no_answer_for_the_next():
    def interrupt(stage, seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.compile_graph(graph("one", 5), "sm_80", report=interrupt)
    two = graph("two", 7)
    for _ in range(2):
        assert json_form.from_json(worker.compile_graph(two, "sm_80").graph) == two


def test_files_of_the_current_folder_are_not_imported(tmp_path):
    (tmp_path / "inspect.py").write_text("raise SystemExit('imported')")
    (tmp_path / "graph.py").write_text(
        "import dnnc\n\ndef build():\n"
        "    g = dnnc.pygraph('g', io_data_type='FLOAT', intermediate_data_type='FLOAT')\n"
        "    g.exp(g.tensor([3, 11])).set_output()\n    return g\n"
    )
    command = [sys.executable, "-P", "-m", "dnnc.cli", "compile", "graph.py", "-t", "sm_80"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "graph.dnnplan").exists()


def test_what_the_child_logs_is_logged_here(caplog):
    with caplog.at_level("INFO", logger="dnnc"):
        worker.compile_graph(graph("logged", 9), "sm_80", cache=False)
    assert any(r.name == "dnnc.compiler" and "pointwise" in r.getMessage() for r in caplog.records)


def test_a_worker_of_the_callers_own(monkeypatch):
    """This process's worker is not asked."""
    monkeypatch.setattr(worker, "_worker", None)
    child = worker.Worker()
    try:
        plan = worker.compile_graph(graph("own", 13), "sm_80", cache=False, child=child)
    finally:
        child.close()
    assert plan.name == "own"
