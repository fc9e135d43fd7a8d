"""Compiling in a process that also holds another compiler, loaded before or after ours."""

import importlib.util
import subprocess
import sys

import pytest

# What each says of compiling in the process, once both are loaded.
NEIGHBOURS = {
    "numba_cuda_mlir.cuda": "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    "llvmlite.binding": "compiled",
    "numba": "compiled",
    "torch": "compiled",
    "triton": "compiled",
    "jax": "compiled",
}

CODE = """
import importlib, sys
import dnnc

def graph(n):
    g = dnnc.pygraph(io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([3, n])).set_output()
    return g

name, order = sys.argv[1:]
if order == "after":
    dnnc.compile(graph(5), "sm_80", in_process=True)
importlib.import_module(name)
try:
    dnnc.compile(graph(6), "sm_80", in_process=True)
    print("compiled")
except dnnc.DnncError as error:
    assert "in_process=False" in error.supported
    print(error.status.name)
    dnnc.compile(graph(7), "sm_80")
"""


INSTALLED = [name for name in NEIGHBOURS if importlib.util.find_spec(name.split(".")[0])]


@pytest.mark.rotating
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", INSTALLED)
def test_both_in_one_process(name, order):
    command = [sys.executable, "-c", CODE, name, order]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [NEIGHBOURS[name]]
