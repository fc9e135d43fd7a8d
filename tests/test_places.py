"""Where a user's program made tensors and operations: errors say it, nothing else has it."""

import inspect

import pytest

import dnnc
from dnnc import places, target
from dnnc.dialect import json_form
from dnnc.plan import format


def here():
    """The number of the line that calls this."""
    return inspect.currentframe().f_back.f_lineno


def graph(name="g", **settings):
    return dnnc.pygraph(name, io_data_type="HALF", compute_data_type="FLOAT", **settings)


def line_of(error):
    """The line of this file that an error names."""
    found = error.value.made_at
    assert found.file == __file__
    assert str(error.value).split(": ")[1] == f"test_places.py:{found.line}"
    return found.line


def test_tensors_and_operations_know_their_line():
    g = graph()
    x, line = g.tensor([4, 6]), here()
    y = g.relu(
        g.exp(x),
    )
    assert x.made_at == places.Place(__file__, line)
    assert y.made_at == g.graph.producers[y].made_at == places.Place(__file__, line + 1)
    (exp, relu) = g.graph.ops
    assert exp.made_at.line in (line + 1, line + 2)  # the call's, as Python counts it
    assert str(relu.made_at) == f"test_places.py:{line + 1}"


def by_hand(name, scale):
    g = graph(name)
    x = g.tensor([4, 6], name="x")

    g.mul(x, scale).set_output()
    return g.graph.finalize()


def by_another_hand(name, scale):
    g = graph(name)
    g.mul(g.tensor([4, 6], name="x"), scale).set_output()
    return g.graph.finalize()


def test_neither_equality_nor_keys_nor_json_have_it():
    one, two = by_hand("g", 2.0), by_another_hand("g", 2.0)
    assert one.ops[0].made_at != two.ops[0].made_at
    assert (one, hash(one), one.key()) == (two, hash(two), two.key())
    assert "test_places" not in one.canonical_text()
    assert json_form.from_json(json_form.to_json(one)).ops[0].made_at is None


def test_neither_plans_nor_texts_of_stages_have_it():
    from dnnc import compiler
    from dnnc.dialect import dnn

    one, two = by_hand("g", 3.0), by_another_hand("g", 3.0)
    files = [format.to_bytes(compiler.compile_graph(g, "sm_80")) for g in (one, two)]
    assert files[0] == files[1]
    assert b"test_places" not in files[0]
    texts = []
    for each in (one, two):
        with dnn.context():
            work = compiler.start(each, target.of("sm_80"))
            texts.append([compiler.advance(work, stage).text() for stage in ("graph", "ptx")])
    assert texts[0] == texts[1]


# ---- errors


def test_errors_that_come_when_the_graph_is_checked():
    g = graph()
    x = g.tensor([4, 6], uid=1)
    w, line = g.tensor([4, 6], uid=1), here()
    g.add(x, w).set_output()
    with pytest.raises(dnnc.DnncError, match="uid 1 is also that of") as error:
        g.validate()
    assert line_of(error) == line


def test_of_a_result_that_does_not_fit():
    g = graph()
    y, line = g.relu(g.tensor([4, 6])), here()
    y.set_output().set_dim([3, 3])
    with pytest.raises(dnnc.DnncError, match="Y has dims") as error:
        g.validate()
    assert line_of(error) == line


def test_of_vectors_and_of_another_order():
    g = graph()
    dims, strides = [1, 1, 4, 4], [16, 16, 4, 1]
    x, line = g.tensor(dims, strides, "INT8", vector_count=32, vector_dimension=9), here()
    g.identity(x).set_output()
    with pytest.raises(dnnc.DnncError, match="vectors along dimension 9") as error:
        g.validate()
    assert line_of(error) == line
    g = graph()
    s, line = g.tensor([1, 2, 30, 48], reordering_type="F16x16"), here()
    g.identity(s).set_output()
    with pytest.raises(dnnc.DnncError, match="multiples of 16") as error:
        g.validate()
    assert line_of(error) == line


def test_of_packed_sequences():
    g = graph()
    q, k, v = (g.tensor([1, 2, 64, 64], name=name) for name in "qkv")
    ragged = g.tensor([2, 1, 1, 1], data_type="INT32")
    lengths = [g.tensor([1, 1, 1, 1], data_type="INT32") for _ in range(2)]
    q.set_ragged_offset(ragged)
    both = {"use_padding_mask": True, "seq_len_q": lengths[0], "seq_len_kv": lengths[1]}
    o, line = g.sdpa(q, k, v, generate_stats=False, **both)[0], here()
    o.set_output().set_stride([8192, 1, 128, 2])
    ops = {op.op_name: op.made_at for op in g.graph.ops}
    assert ops["sdpa"].line == line
    assert ops["ragged_load"] == q.made_at


def test_of_what_attention_stands_for_with_a_score_mod():
    g = graph(intermediate_data_type="FLOAT")
    q, k, v = (g.tensor([1, 2, 64, 64], name=name) for name in "qkv")
    places_of_mod = []

    def score_mod(graph, scores):
        places_of_mod.append(here() + 1)
        return graph.tanh(scores)

    g.sdpa(q, k, v, generate_stats=False, score_mod=score_mod)[0].set_output()
    line = here() - 1
    lines = [op.made_at.line for op in g.graph.ops]
    assert set(lines) == {line, *places_of_mod}
    assert lines.count(places_of_mod[0]) == 1


def test_steps_of_a_composite_operation_have_its_line():
    g = graph(intermediate_data_type="FLOAT")
    y, line = g.softmax(g.tensor([4, 64])), here()
    y.set_output()
    live = g.graph.finalize().live_ops
    assert len(live) > 3
    assert {op.made_at.line for op in live} == {line}


# ---- of what no engine takes, long after


def refused(name):
    """A graph that no engine takes, and the line of the operation."""
    g = graph(name, target="sm_90a")
    y, line = g.cmp_gt(g.relu(g.tensor([4, 6])), 0.0, name="sign"), here()
    y.set_output().set_data_type("BOOLEAN").set_stride([7, 1])
    return g, line


@pytest.mark.parametrize("in_process", [False, True])
def test_the_line_comes_through_the_worker(in_process):
    g, line = refused("refused")
    with pytest.raises(dnnc.cudnnGraphNotSupportedError) as error:
        dnnc.compile(g, in_process=in_process, cache=False)
    assert line_of(error) == line
    assert "takes pointwise:cmp_gt 'sign': pointwise, the nearest," in str(error.value)
    assert str(error.value).endswith("\nhint: the error's `details` list the rest")
    assert "  matmul_sm80: operations: no matmul; accepted: " in error.value.details


def test_planning_names_it_too():
    g, line = refused("planned")
    with pytest.raises(dnnc.cudnnGraphNotSupportedError) as error:
        g.create_execution_plans()
    assert line_of(error) == line


def test_an_engine_that_is_asked_for_names_it_too():
    g, line = refused("asked")
    with pytest.raises(
        dnnc.cudnnGraphNotSupportedError, match="engine transpose: boolean"
    ) as error:
        dnnc.compile(g, engine="transpose", in_process=True, cache=False)
    assert line_of(error) == line


def test_a_copy_takes_the_places_of_its_original():
    one = by_hand("g", 2.0)
    other = json_form.from_json(json_form.to_json(one)).set_places(one.places())
    assert [op.made_at for op in other.ops] == [op.made_at for op in one.ops]
    assert [t.made_at for t in other.tensors] == [t.made_at for t in one.tensors]


# ---- frames


def test_code_that_is_in_no_file():
    space = {"places": places}
    exec(compile("\n\nfound = places.current_place()", "<cell 3>", "exec"), space)
    assert str(space["found"]) == "<cell 3>:3"


def test_the_line_that_an_exception_went_through():
    """Functions that `dataclass` made for the package's classes are the package's."""

    def caller():
        return dnnc.Dim("n", min=-1, max=1)

    line = caller.__code__.co_firstlineno + 1
    with pytest.raises(dnnc.DnncError) as error:
        caller()
    assert places.place_of_raise(error.value.__traceback__) == places.Place(__file__, line)


@pytest.mark.parametrize(
    "data", [None, [], ["a"], ["a", "b", 0], [1, 2, 3], ["a", True, 0], ["a", 1], "abc", {}]
)
def test_data_that_is_no_place(data):
    assert places.place_of_data(data) is None
