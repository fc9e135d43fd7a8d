"""The demo's graphs: they compute the model's steps; batches survive their file."""

from types import SimpleNamespace

import numpy as np
import pytest

import dnnc
from demo import attention_out, carried, ffn_in, ffn_out, graphs, qkv
from demo.carried import Carried
from demo.checks import judge_step, judge_vectors
from demo.model import Encoder, exact, exact_vectors
from demo.numerics import UNIT, bits_of, judge, values_of
from demo.steps import VECTORS, logical, rows_of

SENTENCES = ["A man plays the violin.", "Stock prices fell sharply on Monday."]


@pytest.fixture(scope="module")
def batch():
    return Encoder().batch(SENTENCES)


@pytest.fixture(scope="module")
def vectors(batch):
    return exact_vectors(batch)


class Uncompiled:
    """The parts of a plan that say how its tensors lie."""

    def __init__(self, name):
        self.graph = graphs.build(name)
        made = self.graph.graph.finalize()
        roles = {"input": made.inputs, "output": made.outputs}
        self.tensors = [
            SimpleNamespace(name=t.name, role=role, dims=t.shape, strides=t.layout,
                            is_by_value=t.is_by_value)
            for role, tensors in roles.items()
            for t in tensors
        ]  # fmt: skip

    def expression(self, expression):
        return expression


def stepwise(batch):
    """Each step, its inputs and what its graph's reference makes of them, in bits."""
    plans = {name: Uncompiled(name) for name in
             (graphs.name_of(graph, batch.dtype) for graph in graphs.BUILDERS)}  # fmt: skip
    seen = []

    def compute(step, inputs):
        plan = plans[graphs.name_of(step.graph, batch.dtype)]
        given = logical(plan, inputs, batch.sizes)
        numbers = {name: values_of(bits, batch.dtype) for name, bits in given.items()}
        (y,) = dnnc.reference(plan.graph, numbers, exact_outputs=True).values()
        y = rows_of(plan, bits_of(y, batch.dtype), batch.sizes[step.rows], batch.sizes)
        seen.append((step, inputs, y))
        return y

    batch.walk(compute)
    return seen


@pytest.fixture(scope="module", params=graphs.DTYPES)
def rounded(batch, request):
    """(a batch of bits, what the graphs' references make of it)."""
    found = batch.rounded(request.param)
    return found, stepwise(found)


def test_the_graphs_compute_the_models_steps(rounded):
    batch, seen = rounded
    for step, inputs, y in seen:
        verdict = judge_step(step.graph, y, inputs, batch.dtype)
        assert verdict.is_good, (step.y, verdict)
        assert verdict.bound < 3 * UNIT[batch.dtype]
    assert {step.graph for step, _, _ in seen} == set(graphs.BUILDERS)


def test_what_is_off_is_seen(rounded):
    """A few units in all, and one element that nothing wrote, of every graph."""
    batch, seen = rounded
    for step, inputs, y in seen[:6] + seen[-1:]:
        off = bits_of(values_of(y, batch.dtype) * (1 + 8 * UNIT[batch.dtype]), batch.dtype)
        assert not judge_step(step.graph, off, inputs, batch.dtype).is_good
        gone = y.copy()
        gone[-1, -1] = 0xFFFF
        assert not judge_step(step.graph, gone, inputs, batch.dtype).is_good


def test_sentences_keep_their_vectors(rounded, vectors):
    batch, seen = rounded
    step, _, y = seen[-1]
    assert step.y == VECTORS
    assert judge_vectors(y, vectors, len(batch.steps), batch.dtype).is_good
    other = judge_vectors(y[::-1], vectors, len(batch.steps), batch.dtype)
    assert not other.is_good


@pytest.mark.parametrize("builder", [qkv.build, attention_out.build, ffn_in.build, ffn_out.build])
def test_a_graph_for_the_command_line(builder):
    """All arguments have defaults; weights lie as a Linear layer stores them."""
    graph = builder().graph
    graph.finalize()
    w = graph.tensor("w")
    assert [str(stride) for stride in w.layout[1:]] == ["1", str(w.shape[1])]
    assert {str(t.shape[1]) for t in (graph.tensor("x"), graph.tensor("y"))} == {"tokens"}
    assert [t.name for t in graph.outputs] == ["y"]


@pytest.mark.parametrize("name", graphs.BUILDERS)
def test_sizes_are_symbols(name):
    graph = graphs.build(f"{name}_f16").graph
    graph.finalize()
    (y,) = graph.outputs
    symbols = [str(size) for size in y.shape if size.constant is None]
    assert symbols == (["sentences"] if name == "pool" else ["tokens"])
    assert y.name == "y"


def test_attention_reads_what_qkv_writes():
    """Rows of queries, keys and values are three apart, heads lie beside each other."""
    graph = graphs.build("attention_f16").graph
    graph.finalize()
    for name in "qkv":
        assert [str(stride) for stride in graph.tensor(name).layout[1:]] == ["32", "1152", "1"]
    assert [str(stride) for stride in graph.tensor("y").layout[1:]] == ["32", "384", "1"]


def test_bits_and_values():
    numbers = np.array([0.0, -1.5, 3.14159, 1e-7, 65504.0])
    assert values_of(bits_of(numbers, "f16"), "f16").tolist() == [
        0.0, -1.5, 3.140625, 2.0**-23, 65504.0,
    ]  # fmt: skip
    assert bits_of(np.array([1.0, -2.0, 3.14159]), "bf16").tolist() == [0x3F80, 0xC000, 0x4049]
    assert values_of(np.array([0x4049], np.uint16), "bf16").tolist() == [3.140625]
    numbers = np.array([0, 3], np.int32)
    assert values_of(numbers, "bf16") is numbers


def test_judge_refuses_what_is_off():
    exact = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert judge(exact, exact, 1e-3).is_good
    assert not judge(exact * 1.01, exact, 1e-3).is_good
    one_off = exact.copy()
    one_off[0, 1] += 0.02  # little in all, much in its row
    assert judge(one_off, exact, 5e-3).error < 5e-3
    assert judge(one_off, exact, 1e-3).is_good is False
    one_off[0, 1] = np.nan
    assert not judge(one_off, exact, 1e-3).is_good


def test_batches_survive_their_file(batch, vectors, tmp_path):
    mine = [batch.rounded(dtype) for dtype in graphs.DTYPES]
    carried.write(tmp_path / carried.FILE, [Carried(one, vectors) for one in mine])
    read = carried.read(tmp_path / carried.FILE)
    assert [one.batch.dtype for one in read] == list(graphs.DTYPES)
    for one, found in zip(mine, read, strict=True):
        np.testing.assert_array_equal(found.exact, vectors)
        assert found.batch.sizes == one.sizes
        _same(found.batch.values, one.values)
        for step, copy in zip(one.steps, found.batch.steps, strict=True):
            places = ("graph", "layer", "y", "rows", "reads")
            assert [getattr(copy, n) for n in places] == [getattr(step, n) for n in places]
            _same(copy.parameters, step.parameters)


def _same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_exact_knows_every_graph():
    with pytest.raises(AssertionError, match="unknown"):
        exact("unknown", {})
