"""Checks docs/backend.md: its example runs, its tables are those of the code."""

import re
from pathlib import Path

import numpy as np

import dnnc
from dnnc import backend as b
from dnnc.errors import STATUS_OF_CUDNN8
from dnnc.interpreter.plans import run_plan
from tests.support.compare import assert_close

PAGE = (Path(__file__).parents[2] / "docs" / "backend.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_makes_a_plan_that_is_right():
    names = {}
    exec(compile(CODE[0], "docs/backend.md", "exec"), names)
    assert names["count"] >= 1
    assert names["workspace_bytes"] == 0
    plan, graph = b.execution_plan(names["plan"]).plan, b.operation_graph(names["graph"])
    rng = np.random.default_rng(5)
    shapes = {0: [1, 64, 64], 1: [1, 64, 128], 2: [1, 1, 128]}
    inputs = {uid: rng.uniform(-1, 1, shape).astype(np.float16) for uid, shape in shapes.items()}
    exact = dnnc.reference(graph, inputs, exact_outputs=True)
    assert_close(run_plan(plan, inputs)[3], exact[3], dnnc.data_type.HALF, slack=2.0)


def test_the_second_half_takes_the_text_of_the_first():
    assert "JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text)" in CODE[1]
    compile(CODE[1], "docs/backend.md", "exec")


def test_the_statuses_of_8_are_those_of_the_code():
    table = PAGE[PAGE.index("| 8.x | 9.x |") :].split("\n\n")[0]
    rows = dict(re.findall(r"^\| (\w+) \| (\w+) \|$", table, re.MULTILINE))
    assert rows == {old: new.name for old, new in STATUS_OF_CUDNN8.items()}


def test_names_that_the_page_has_exist():
    for name in set(re.findall(r"CUDNN_[A-Z0-9_]*[A-Z0-9]\b", PAGE)):
        is_start = any(known.startswith(name) for known in dir(b))
        assert is_start or name == "CUDNN_STATUS_SUCCESS", name
    for name in re.findall(r"DNNC_\w+", PAGE):
        assert hasattr(b, name)


def test_the_knobs_of_our_own_are_all_named():
    ours = [kind.name for kind in b.cudnnBackendKnobType_t if kind.name.startswith("DNNC_")]
    assert all(name in PAGE for name in ours)
