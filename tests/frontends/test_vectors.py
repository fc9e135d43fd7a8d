"""Vectorized tensors of a pygraph: setters, getters, dims while it is built, plans by uid."""

import json

import numpy as np
import pytest

import dnnc
from dnnc.dialect.json_form import from_json
from dnnc.errors import DnncError
from dnnc.interpreter.plans import run_plan
from dnnc.plan import format
from tests.vectors import layer, new_graph, stored, vectorized


def test_what_was_set_can_be_asked_for():
    g = new_graph()
    x = g.tensor([2, 3, 5, 7])
    assert (x.get_vector_count(), x.get_vector_dimension()) == (1, -1)
    assert x.set_vector_count_and_dimension(32, 1) is x
    assert (x.get_vector_count(), x.get_vector_dimension()) == (32, 1)
    y = g.tensor_like(x)
    assert (y.get_vector_count(), y.get_vector_dimension()) == (32, 1)
    assert (y.get_dim(), y.get_stride()) == (x.get_dim(), x.get_stride())
    x.set_vector_count_and_dimension(1, -1)
    assert not x.is_vectorized


def test_dims_of_results_are_there_at_once():
    g = layer(32)
    sums = g.graph.ops[0].results[0]
    (y,) = (op.y for op in g.graph.ops if op.title == "pointwise:relu_fwd")
    assert sums.get_dim() == [2, 64, 5, 6]
    assert (y.get_dim(), y.get_stride()) == ([2, 2, 5, 6], [60, 30, 6, 1])
    y.set_vector_count_and_dimension(4, 1)
    assert y.get_dim() == [2, 16, 5, 6]
    y.set_vector_count_and_dimension(1, -1)
    assert (y.get_dim(), y.get_stride()) == ([2, 64, 5, 6], [1920, 1, 384, 64])


def test_a_vector_of_all_channels_takes_no_reshape():
    g = new_graph()
    y = g.relu(vectorized(g, [2, 32, 3, 3], 32)).set_output()
    y.set_vector_count_and_dimension(32, 1)
    g.build_operation_graph()
    assert [op.title for op in g.graph.ops] == ["pointwise:relu_fwd"]
    assert (y.get_dim(), y.get_stride()) == ([2, 32, 3, 3], [288, 1, 96, 32])


def test_the_text_of_an_open_graph_is_that_of_the_finished_one():
    g = layer(32)
    shown = json.loads(repr(g))
    assert g.graph.ops[0].x.get_dim() == [2, 2, 5, 6]  # as before
    g.build_operation_graph()
    assert shown == json.loads(repr(g))
    assert from_json(shown) == g.graph


def test_the_text_of_what_can_not_be_finished_has_its_vectors():
    g = new_graph()
    g.relu(vectorized(g, [2, 8, 3, 3], 4, name="x"))
    (x,) = (t for t in json.loads(repr(g))["tensors"] if t.get("name") == "x")
    assert (x["vector_count"], x["vector_dim"], x["dims"]) == (4, 1, [2, 2, 3, 3])


@pytest.mark.parametrize(("count", "dimension"), [(7, 1), (4, 4)])
def test_what_is_none_is_refused_when_the_graph_is_finished(count, dimension):
    g = new_graph()
    y = g.relu(g.tensor([2, 8, 3, 3]).set_vector_count_and_dimension(count, dimension))
    y.set_output()
    with pytest.raises(DnncError, match="vector"):
        g.validate()


@pytest.mark.parametrize(
    ("count", "dimension", "named"), [("4", 1, "count"), (4, None, "dimension")]
)
def test_what_is_no_integer_is_refused_at_once(count, dimension, named):
    x = new_graph().tensor([2, 8, 3, 3])
    with pytest.raises(DnncError, match=f"{named}: .*accepted: an integer"):
        x.set_vector_count_and_dimension(count, dimension)


def test_plans_know_the_uid_and_come_back_from_files():
    g = new_graph(target="sm_80")
    x = vectorized(g, [1, 8, 3, 5], 4, uid=21, name="x")
    g.relu(x).set_output().set_uid(5).set_vector_count_and_dimension(4, 1)
    g.build()
    plan = format.read(g.serialize())
    array = stored(np.random.default_rng(0).integers(-9, 9, (1, 8, 3, 5)), 4)
    assert np.array_equal(run_plan(plan, {21: array})[5], np.maximum(array, 0))
    again = dnnc.pygraph()
    again.deserialize(g.serialize())
    assert again.query_tensor_attributes_of_uid(21).get_dim() == [1, 2, 4, 3, 5]


def test_packed_sequences_have_no_vectors():
    g = new_graph(io_data_type="f16")
    offset, lengths = (g.tensor([n, 1, 1, 1], data_type="i32") for n in (3, 2))
    q, k, v = (g.tensor([2, 4, 8, 64]) for _ in range(3))
    q.set_ragged_offset(offset).set_vector_count_and_dimension(4, 3)
    both = {"seq_len_q": lengths, "seq_len_kv": lengths, "use_padding_mask": True}
    o, _ = g.sdpa(q, k, v, generate_stats=False, attn_scale=1.0, **both)
    o.set_output()
    with pytest.raises(DnncError, match="packed sequences of elements"):
        g.validate()
