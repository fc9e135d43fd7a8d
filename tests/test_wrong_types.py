"""Values of a wrong type at the doors of the package: always a DnncError."""

import inspect

import numpy as np
import pytest

import dnnc
from dnnc.errors import DnncError

WRONG = [
    None, 5, -1, 2.5, "x", b"x", [], {}, (), object(), True, 1 << 70, 10**400, float("nan"), ["a"],
    {"a": 1}, {1: 2}, lambda: 0, "\ud800",
]  # fmt: skip


def graph():
    g = dnnc.pygraph("g", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([dnnc.Dim("n", max=64), 16], name="x")
    g.relu(x).set_output().set_name("y")
    return g


def raised(call, value):
    """What a call of a value raises, if anything."""
    try:
        call(value)
    except Exception as error:
        return error
    return None


def is_told(error):
    return error is None or isinstance(error, DnncError)


@pytest.mark.parametrize("value", WRONG, ids=lambda v: f"{v!a:.12}")
@pytest.mark.parametrize(
    "name",
    ["target", "engine", "knobs", "modes", "variants", "tuning", "errata", "device", "driver"],
)
def test_compile(name, value):
    """No plan is made: there is no such engine."""
    if name == "engine" and value is None:
        return  # any engine
    options = {"target": "sm_80", "engine": "nobody", "in_process": True, "cache": False}
    with pytest.raises(DnncError):
        dnnc.compile(graph(), **{**options, name: value})


@pytest.mark.parametrize("value", WRONG, ids=lambda v: f"{v!a:.12}")
def test_what_is_no_graph_and_no_plan(value):
    for call in (
        lambda v: dnnc.compile(v, "sm_80", engine="nobody"),
        lambda v: dnnc.reference(v, {}),
        dnnc.load, dnnc.read_plan, dnnc.load_bundle,
        lambda v: dnnc.write_plan("/nonexistent/folder/plan", v),
        lambda v: dnnc.write_c("/nonexistent/folder/plan", v),
    ):  # fmt: skip
        assert isinstance(raised(call, value), DnncError)


REFERENCES = {
    "inputs": lambda v: dnnc.reference(graph(), v),
    "key": lambda v: dnnc.reference(graph(), {v: np.zeros((4, 16))}),
    "value": lambda v: dnnc.reference(graph(), {"x": v}, sizes={"n": 4}),
    "sizes": lambda v: dnnc.reference(graph(), {"x": np.zeros((4, 16))}, sizes=v),
    "size": lambda v: dnnc.reference(graph(), {"x": np.zeros((4, 16))}, sizes={"n": v}),
    "elements": lambda v: dnnc.reference(graph(), {"x": np.full((4, 16), v, dtype=object)}),
}


@pytest.mark.parametrize("value", WRONG, ids=lambda v: f"{v!a:.12}")
@pytest.mark.parametrize("what", REFERENCES)
def test_reference(what, value):
    if what == "key" and isinstance(value, list | dict | np.ndarray):
        return  # no key of a dictionary
    if what == "elements" and not isinstance(value, int | float | str | bytes):
        return  # no element of such an array
    assert is_told(raised(REFERENCES[what], value))


@pytest.mark.parametrize("kind", ["complex64", "U1", "S1", "M8[s]"])
def test_reference_of_arrays_of_other_kinds(kind):
    with pytest.raises(DnncError):
        dnnc.reference(graph(), {"x": np.zeros((4, 16)).astype(kind)})


def methods():
    """(method, parameter) of everything that adds an operation or a tensor."""
    for name in dir(dnnc.pygraph):
        method = getattr(dnnc.pygraph, name)
        if name.startswith("_") or not inspect.isfunction(method) or name == "deserialize":
            continue
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            if parameter.kind is not parameter.VAR_KEYWORD:
                yield name, parameter.name


def called(name, parameter, value):
    g = graph()
    x = g.tensor([8, 16])
    taken = [p for p in inspect.signature(getattr(g, name)).parameters.values()]
    given = {p.name: x for p in taken if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    made = getattr(g, name)(**{**given, parameter: value})
    for tensor in made if isinstance(made, list | tuple) else [made]:
        if hasattr(tensor, "set_output"):
            tensor.set_output()
    g.validate()


METHODS = list(methods())


@pytest.mark.parametrize("name", sorted({name for name, _ in METHODS}))
def test_methods_of_a_graph(name):
    for method, parameter in METHODS:
        if method == name:
            for value in WRONG:
                error = raised(lambda v, p=parameter: called(name, p, v), value)
                assert is_told(error), f"{parameter}={value!a:.30}: {error!r}"


SETTERS = sorted(n for n in dir(type(graph().tensor([1]))) if n.startswith("set_"))


@pytest.mark.parametrize("name", SETTERS)
def test_setters_of_a_tensor(name):
    def call(value):
        g = graph()
        x = g.tensor([8, 16])
        y = g.relu(x)
        twice = name == "set_vector_count_and_dimension"
        getattr(x, name)(*[value] * (1 + twice))
        g.neg(y).set_output()
        g.validate()

    for value in WRONG:
        error = raised(call, value)
        assert is_told(error), f"{value!a:.30}: {error!r}"
