"""The demo's graphs: they compute the model's parts; cases survive their file."""

import numpy as np
import pytest

from demo import cases, ffn_in, ffn_out, graphs, runs
from demo.model import EMBEDDINGS, Encoder, FeedForward, LayerNorm, Softmax, exact, gelu
from demo.numerics import UNIT, bits_of, judge, values_of

SENTENCES = ["A man plays the violin.", "Stock prices fell sharply on Monday."]


@pytest.fixture(scope="module")
def parts():
    return Encoder().parts(SENTENCES)


def error(y, exact):
    return np.linalg.norm(y - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", graphs.DTYPES)
@pytest.mark.parametrize("kind", [Softmax, LayerNorm, FeedForward])
def test_the_graphs_compute_the_models_parts(parts, kind, dtype):
    """Inputs, weights and the tensor in between are rounded: a few units, not more."""
    compute = graphs.computed_by(graphs.run_reference, dtype)
    mine = [part for part in parts if isinstance(part, kind)]
    assert len(mine) == {Softmax: 12, LayerNorm: 13, FeedForward: 6}[kind]
    for part in mine:
        y = compute(part)
        assert y.shape == part.x.shape
        assert error(y, exact(part)) < 2 * UNIT[dtype]


@pytest.mark.parametrize("dtype", graphs.DTYPES)
def test_ffn_in_computes_the_inner_tensor(parts, dtype):
    part = next(part for part in parts if isinstance(part, FeedForward))
    inputs = graphs.inputs_of("ffn_in", part, None, dtype)
    y = graphs.run_reference(graphs.name_of("ffn_in", dtype), inputs)
    assert error(values_of(y, dtype)[0], gelu(part.x @ part.w1 + part.b1)) < 2 * UNIT[dtype]


def test_graphs_of_parts(parts):
    """The embeddings' norm adds a residual; a layer has all five graphs."""
    assert [graphs.graphs_of(p) for p in parts if p.layer == EMBEDDINGS] == [("add_norm",)]
    found = [graph for p in runs.shown_of(parts) if p.layer == 2 for graph in graphs.graphs_of(p)]
    assert found == list(graphs.BUILDERS)


def test_sentences_keep_their_similarity():
    encoder = Encoder()
    vectors = encoder.embed(SENTENCES)
    for dtype in graphs.DTYPES:
        found = encoder.embed(SENTENCES, graphs.computed_by(graphs.run_reference, dtype))
        assert error(found, vectors) < 8 * UNIT[dtype]


@pytest.mark.parametrize("builder", [ffn_in.build, ffn_out.build])
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
    symbols = ["queries", "keys"] if name == "softmax" else ["tokens"]
    for tensor in (graph.tensor("x"), graph.tensor("y")):
        assert [str(size) for size in tensor.shape if size.constant is None] == symbols
    assert [t.name for t in graph.outputs] == ["y"]


def test_bits_and_values():
    numbers = np.array([0.0, -1.5, 3.14159, 1e-7, 65504.0])
    assert values_of(bits_of(numbers, "f16"), "f16").tolist() == [
        0.0, -1.5, 3.140625, 2.0**-23, 65504.0,
    ]  # fmt: skip
    assert bits_of(np.array([1.0, -2.0, 3.14159]), "bf16").tolist() == [0x3F80, 0xC000, 0x4049]
    assert values_of(np.array([0x4049], np.uint16), "bf16").tolist() == [3.140625]


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


def test_cases_survive_their_file(parts, tmp_path):
    found = [case for case in runs.cases_of(runs.shown_of(parts), "bf16") if case.layer == 0]
    cases.write(tmp_path / cases.FILE, found)
    read = cases.read(tmp_path / cases.FILE)
    assert [(c.kind, c.layer, c.dtype) for c in read] == [
        (graph, 0, "bf16") for graph in graphs.BUILDERS
    ]
    for mine, copy in zip(found, read, strict=True):
        assert mine.inputs.keys() == copy.inputs.keys()
        np.testing.assert_array_equal(mine.exact, copy.exact)
        for name, bits in mine.inputs.items():
            np.testing.assert_array_equal(bits, copy.inputs[name])


@pytest.mark.parametrize("dtype", graphs.DTYPES)
def test_cases_judge_outputs(parts, dtype):
    """The rounded output is good, also of a crop, and one that is a few units off is not."""
    for case in runs.cases_of(runs.shown_of(parts)[:4], dtype):
        for mine in (case, case.cropped(3)):
            verdict = mine.judge(bits_of(mine.exact, dtype))
            assert verdict.is_good
            assert verdict.bound < 1.25 * UNIT[dtype]
            assert not mine.judge(bits_of(mine.exact * (1 + 5 * UNIT[dtype]), dtype)).is_good
        assert mine.tokens == 3
        assert mine.exact.shape[-1] == case.exact.shape[-1]  # all keys


def test_rounding_errors(parts):
    """Against the model, and for every graph of every layer."""
    shown = runs.shown_of(parts)
    results = runs.model_results(shown)
    found = runs.cases_of(shown, "f16")
    assert {(case.kind, case.layer) for case in found} == results.keys()
    assert all(0 < runs.rounding_error(case, results) < 2 * UNIT["f16"] for case in found)
