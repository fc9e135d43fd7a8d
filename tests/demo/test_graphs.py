"""The demo's graphs: they compute the model's feed-forward block; cases survive their file."""

import numpy as np
import pytest

from demo import cases, ffn_in, ffn_out, graphs, runs
from demo.model import Encoder, exact_feed_forward, gelu
from demo.numerics import UNIT, bits_of, judge, values_of

SENTENCES = ["A man plays the violin.", "Stock prices fell sharply on Monday."]


@pytest.fixture(scope="module")
def blocks():
    return Encoder().feed_forwards(SENTENCES)


def error(y, exact):
    return np.linalg.norm(y - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("dtype", graphs.DTYPES)
def test_the_graphs_compute_the_models_feed_forward(blocks, dtype):
    """Inputs, weights and the tensor in between are rounded: a few units, not more."""
    run = graphs.feed_forward(graphs.run_reference, dtype)
    for block in blocks:
        y_in = graphs.run_reference(graphs.name_of("ffn_in", dtype), graphs.inputs_in(block, dtype))
        inner = gelu(block.x @ block.w1 + block.b1)
        assert error(values_of(y_in, dtype)[0], inner) < 2 * UNIT[dtype]
        assert error(run(block), exact_feed_forward(block)) < 2 * UNIT[dtype]


def test_sentences_keep_their_similarity(blocks):
    encoder = Encoder()
    exact = encoder.embed(SENTENCES)
    for dtype in graphs.DTYPES:
        found = encoder.embed(SENTENCES, graphs.feed_forward(graphs.run_reference, dtype))
        assert error(found, exact) < 8 * UNIT[dtype]


@pytest.mark.parametrize("builder", [ffn_in.build, ffn_out.build])
def test_a_graph_for_the_command_line(builder):
    """All arguments have defaults; weights lie as a Linear layer stores them."""
    graph = builder().graph
    graph.finalize()
    w = graph.tensor("w")
    assert [str(stride) for stride in w.layout[1:]] == ["1", str(w.shape[1])]
    assert {str(t.shape[1]) for t in (graph.tensor("x"), graph.tensor("y"))} == {"tokens"}
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


def test_cases_survive_their_file(blocks, tmp_path):
    (case, other) = runs.cases_of(blocks[:1], "bf16")
    cases.write(tmp_path / cases.FILE, [case, other])
    read = cases.read(tmp_path / cases.FILE)
    assert [(c.graph, c.layer, c.dtype) for c in read] == [
        ("ffn_in_bf16", 0, "bf16"),
        ("ffn_out_bf16", 0, "bf16"),
    ]
    for mine, found in zip((case, other), read, strict=True):
        assert mine.inputs.keys() == found.inputs.keys()
        np.testing.assert_array_equal(mine.exact, found.exact)
        for name, bits in mine.inputs.items():
            np.testing.assert_array_equal(bits, found.inputs[name])
        assert found.judge(bits_of(found.exact, "bf16")).is_good
        cropped = found.cropped(3)
        assert cropped.tokens == 3
        assert cropped.judge(bits_of(cropped.exact, "bf16")).is_good
        assert not cropped.judge(bits_of(cropped.exact * 1.02, "bf16")).is_good
