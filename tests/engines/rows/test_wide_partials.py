"""Partials of reductions at the exit whose places take more than 31 bits: 33 x 8192 x 8192.

The last cluster alone is run, in the interpreter, with a small buffer in place of the workspace: it
says where the first partial was to be stored.
"""

import re
import sys

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.errors import DnncError
from dnnc.interpreter import plans
from dnnc.interpreter.failure import InterpreterError
from dnnc.options import Options

ROWS = COLUMNS = 8192
DEPTH = 8
OUTSIDE = re.compile(r"address (0x[0-9a-f]+) is outside 'workspace' \((0x[0-9a-f]+)")


def sum_of_products(batch, rows=ROWS, columns=COLUMNS):
    """The weight gradient's form: products of a batch, added up."""
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    a = g.tensor([batch, rows, DEPTH], name="a")
    b = g.tensor([batch, DEPTH, columns], [DEPTH * columns, 1, DEPTH], name="b")
    found = g.reduction(g.matmul(a, b), "add").set_dim([1, rows, columns])
    found.set_output().set_data_type(dtypes.f32)
    return g.graph.finalize()


def first_place(graph, plan, monkeypatch):
    """Bytes from the workspace's start to where the last cluster stores first."""
    (program,) = plan.programs
    knobs = program.fusions[0].knobs
    batch = graph.inputs[0].shape[0].constant
    tiles = batch * (ROWS // knobs["TILE_M"]) * (COLUMNS // knobs["TILE_N"])
    size = program.variants[0].steps[0].launch.cluster[0]
    last = list(range(tiles - size, tiles))
    run = plans.launch

    def place(self, record, value):
        bytes_ = 2 * batch * DEPTH * ROWS if record.name in ("a", "b") else 4096
        self.addresses[record.uid] = self.memory.allocate(bytes_, record.name or str(record.uid))
        if record.name in ("a", "b"):
            self.memory.upload(self.addresses[record.uid], np.zeros(bytes_, np.uint8))

    def workspace(self, bytes_):
        self.workspace = self.memory.allocate(4096, "workspace")

    def cluster(module, kernel, *, grid, **more):
        return run(module, kernel, grid=(tiles, 1, 1), **more)

    monkeypatch.setattr(plans._Machine, "_place", place)
    monkeypatch.setattr(plans._Machine, "allocate_workspace", workspace)
    # The module, whose name in the package is its function's.
    launch = sys.modules[run.__module__]
    monkeypatch.setattr(launch, "_batches", lambda *given: [last])
    monkeypatch.setattr(plans, "launch", cluster)
    with pytest.raises(InterpreterError) as error:
        plans.run_plan(plan, {tensor.uid: np.ones(1) for tensor in graph.inputs})
    found = OUTSIDE.search(str(error.value))
    assert found, error.value
    return int(found[1], 16) - int(found[2], 16)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("batch", [31, 33, pytest.param(64, marks=pytest.mark.slow)])
def test_places_of_partials(batch, monkeypatch):
    graph = sum_of_products(batch)
    plan = compile_graph(graph, "sm_90a", Options(engine="matmul_sm90"))
    place = first_place(graph, plan, monkeypatch)
    part = ROWS * COLUMNS * 4
    assert (batch - 1) * part <= place < batch * part


@pytest.mark.parametrize(("engine", "target"), [("matmul_sm90", "sm_90a")])
def test_results_that_are_too_large_are_refused(engine, target):
    graph = sum_of_products(2, 65536, 32768)
    with pytest.raises(DnncError, match=r"2147483648 elements.*fewer than 2147483392"):
        compile_graph(graph, target, Options(engine=engine))


@pytest.mark.parametrize("batch", [100_000, 8_389_632])
def test_runs_fit_a_grid(batch):
    """A block along y has a run of partials; there are 65535 at most."""
    g = dnnc.pygraph(io_data_type=dtypes.bf16, intermediate_data_type=dtypes.f32)
    a = g.tensor([batch, 8, 8])
    total = g.reduction(g.matmul(a, g.tensor([batch, 8, 8])), "add").set_dim([1, 8, 8])
    total.set_output().set_data_type(dtypes.f32)
    plan = compile_graph(g.graph.finalize(), "sm_90a", Options(engine="matmul_sm90"))
    steps = plan.programs[0].variants[0].steps
    folds = [step.launch for step in steps if "fold" in step.launch.kernel]
    assert len(folds) == 1
    assert int(folds[0].grid[1]) <= 65535
