"""`Graph`, `graph` and `jit`: graphs as functions."""

import pytest

import dnnc.cudnn as cudnn
from dnnc.cudnn import wrapper
from tests.cudnn.graphs import D
from tests.runtime.fake_driver import FakeDriver, FakeTorchTensor

X, W, Y = 0x10000, 0x20000, 0x30000
TYPES = {"io_data_type": D.FLOAT, "intermediate_data_type": D.FLOAT, "target": "sm_90"}


def array(address):
    return FakeTorchTensor(address, (8, 64), (64, 1), "torch.float32")


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


@pytest.fixture
def allocated(monkeypatch):
    """Outputs that are allocated: those of tensors, at addresses from Y on."""
    made = []

    def empty_like(tensor):
        made.append((tensor, array(Y + len(made) * 0x10000)))
        return made[-1][1]

    monkeypatch.setattr(wrapper, "_empty_like", empty_like)
    return made


@pytest.fixture
def handle():
    return cudnn.create_handle()


@pytest.fixture
def built(handle, fake):
    """s = x + w, y = relu(s), both outputs."""
    x, w = array(X), array(W)
    with cudnn.Graph(handle=handle, **TYPES) as g:
        s = g.add(x, b=w, name="sum")
        s.set_output(True)
        g.relu(s, name="act").set_output(True)
    g.arrays = (x, w)
    return g


def test_a_call_gives_new_outputs_in_order(built, fake, allocated):
    built.set_io_tuples(["sum::a", "sum::b"], ["act::OUT_0", "sum::OUT_0"])
    made = built(array(X), array(W))
    assert [tensor.name for tensor, _ in allocated] == ["act::OUT_0", "sum::OUT_0"]
    assert made == [given for _, given in allocated]
    assert len(fake.launches) == 1


@pytest.mark.parametrize("key", ["sum::0", "array", "uid", "tensor", "tensor_0"])
def test_inputs_are_told_by_names_arrays_tensors_or_uids(built, key):
    x = built._ports.inputs["sum::a"]
    given = {"array": built.arrays[0], "uid": x.uid, "tensor": x}.get(key, key)
    built.set_io_tuples([given, "sum::b"], ["act::OUT_0", "sum::OUT_0"])
    assert built._order[0][0] is x


def test_a_dictionary_is_given_its_outputs(built, fake, allocated):
    given = {"sum::a": array(X), built._ports.inputs["sum::b"].uid: array(W)}
    assert built(given) is given
    assert set(given) >= {"act::OUT_0", "sum::OUT_0"}
    assert len(fake.launches) == 1
    with pytest.raises(RuntimeError, match="no array for sum::"):
        built({"sum::a": array(X)})


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        (["sum::a"], ["act::OUT_0", "sum::OUT_0"], "input sum::b is not among"),
        (["sum::a", "sum::b"], ["act::OUT_0"], "output sum::OUT_0 is not among"),
        (["sum::a", "sum::a"], ["act::OUT_0", "sum::OUT_0"], "twice"),
        (["sum::a", "sum::c"], ["act::OUT_0"], "input 1 is 'sum::c'"),
        ("sum::a", ["act::OUT_0"], "inputs is a str"),
    ],
)
def test_inputs_and_outputs_that_can_not_be_are_refused(built, inputs, outputs, said):
    with pytest.raises(ValueError, match=said):
        built.set_io_tuples(inputs, outputs)


def test_calls_out_of_order_are_refused(built, fake):
    with pytest.raises(ValueError, match="set_io_tuples"):
        built(array(X), array(W))
    with pytest.raises(RuntimeError, match=r"validate\(\) of a Graph"):
        built.validate()
    with pytest.raises(RuntimeError, match="not entered"):
        cudnn.Graph().relu(array(X))
    with cudnn.Graph(**TYPES) as g:
        y = g.relu(array(X), name="n")
        with pytest.raises(ValueError, match="second node 'n'"):
            g.relu(y, name="n")
        with pytest.raises(RuntimeError, match="not built"):
            g(array(X))
        y.set_output(True)
    with pytest.raises(RuntimeError, match="without a handle"):
        g({"n::input": array(X), "n::OUT_0": array(Y)})


def test_inputs_and_outputs_may_be_named_ahead(handle, fake, allocated):
    x = array(X)
    options = {"inputs": [x], "outputs": ["relu.0::OUT_0"], "heuristics": [cudnn.heur_mode.A]}
    with cudnn.Graph(handle=handle, **options, **TYPES) as g:
        g.relu(x).set_output(True)
    assert g(array(W)) is allocated[0][1]


def test_an_error_inside_leaves_no_graph():
    g = cudnn.Graph(**TYPES)
    with pytest.raises(KeyError), g:
        raise KeyError("inside")
    with pytest.raises(RuntimeError, match="not entered"):
        g.relu(array(X))


def test_tensors_of_callers_are_inputs_too(handle, fake, allocated):
    with cudnn.Graph(handle=handle, **TYPES) as g:
        x = g.tensor(dim=[8, 64], name="x")
        g.relu(x, name="n").set_output(True)
    g.set_io_tuples([x], ["n::OUT_0"])
    g(array(X))
    assert len(fake.launches) == 1
    assert g.get_workspace_size() == 0


def test_outputs_need_torch(built, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(wrapper.importlib, "import_module", absent)
    built.set_io_tuples(["sum::a", "sum::b"], ["act::OUT_0", "sum::OUT_0"])
    with pytest.raises(RuntimeError, match="torch is not installed"):
        built(array(X), array(W))


def test_jit_builds_what_a_function_gives(handle, fake):
    @cudnn.jit(heur_modes=[cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    @cudnn.graph_cache(key_fn=lambda handle, rows: rows)
    def relu(handle, rows):
        with cudnn.graph(handle, name="r", io_data_type=D.FLOAT, target="sm_90") as (g, tensors):
            x = g.tensor([rows, 64], name="x")
            y = g.relu(x).set_output(True)
            return g, [*tensors, x, y]

    g, uids = relu(handle, 8)
    assert relu(handle, 8) == (g, uids)
    assert g.get_execution_plan_count() > 0
    g.execute(dict(zip(uids, (X, Y), strict=True)))
    assert len(fake.launches) == 1
