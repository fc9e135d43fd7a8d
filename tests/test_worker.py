"""The compile worker, where a caller does not behave."""

import os
import signal
import subprocess
import sys
import time

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
    command = [sys.executable, "-P", "-m", "dnnc", "compile", "graph.py", "-t", "sm_80"]
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


KEEPER = """\
import os, sys, time
import dnnc
from dnnc import worker

worker.start()
if not os.fork():  # it holds the worker's pipe open
    time.sleep(60)
print(worker._worker._process.pid, flush=True)
time.sleep(60)
"""


def test_a_worker_ends_with_its_parent():
    """Killed, with a fork of it left that holds the pipe open."""
    parent = subprocess.Popen(
        [sys.executable, "-c", KEEPER], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        child = int(parent.stdout.readline())
        parent.kill()
        until = time.monotonic() + 20
        while is_running(child):
            assert time.monotonic() < until, "the worker is still there"
            time.sleep(0.05)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()


def is_running(pid):
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_that_does_not_end_is_ended(monkeypatch):
    child = worker.Worker()
    child.start()
    child._is_asked = True
    process = child._process
    os.kill(process.pid, signal.SIGSTOP)
    wait = process.wait
    monkeypatch.setattr(process, "wait", lambda timeout=None: wait(timeout and 0.1))
    child.close()
    assert process.returncode == -signal.SIGKILL
