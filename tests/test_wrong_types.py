"""Values of a wrong type at the doors of the package: always a DnncError."""

import inspect

import numpy as np
import pytest

import dnnc
import dnnc.tuning
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
    """The error that a call of a value raises, if anything."""
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
    [
        "target",
        "engine",
        "knobs",
        "modes",
        "variants",
        "tuning",
        "errata",
        "device",
        "driver",
        "in_process",
        "cache",
    ],
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


# ---- every door, by what its annotations say

FITTING = {
    "bool": [True],
    "int": [5, -1, 1 << 70, 10**400],
    "float": [5, -1, 2.5, 1 << 70, 10**400, float("nan")],
    "str": ["x", "\ud800"],
    "Sequence[int]": [[], ()],
    "Sequence[str]": [[], (), ["a"]],
    "Sequence[Any]": [[], (), ["a"]],
    "None": [None],
}

# What every microsecond counts in checks when it sees something new; streams are of many types.
BY_HAND = {"pygraph.execute", "pygraph.execute_plan_at_index", "dnnc.set_stream"}


def doors():
    """Name -> function, (instance to call it on)."""
    found = {f"dnnc.{name}": (getattr(dnnc, name), ()) for name in dnnc._LAZY}
    found |= {f"tuning.{n}": (getattr(dnnc.tuning, n), ()) for n in dnnc.tuning._LAZY}
    g = graph()
    for instance in (g, g.tensor([1])):
        kind = type(instance)
        own = [c for c in kind.__mro__ if c.__module__.startswith("dnnc.frontends.")]
        for name in {name for c in own for name in vars(c) if not name.startswith("_")}:
            found[f"{kind.__name__}.{name}"] = (getattr(kind, name), (instance,))
    found["pygraph"] = (dnnc.pygraph.__init__, (None,))
    found["OperationGraph"] = (dnnc.OperationGraph.__init__, (None,))
    return {n: f for n, f in sorted(found.items()) if inspect.isfunction(f[0]) and n not in BY_HAND}


DOORS = doors()


@pytest.mark.parametrize("door", DOORS)
def test_a_door_refuses_what_its_annotations_exclude(door):
    """The error names the parameter; other arguments need not be there."""
    function, instance = DOORS[door]
    for parameter in inspect.signature(function).parameters.values():
        members = str(parameter.annotation).split(" | ")
        if not all(member in FITTING for member in members):
            continue
        fitting = [repr(value) for member in members for value in FITTING[member]]
        for value in WRONG:
            if repr(value) not in fitting:
                error = raised(lambda v, n=parameter.name: function(*instance, **{n: v}), value)
                said = f"{parameter.name}={value!a:.30}: {error!r:.200}"
                assert isinstance(error, DnncError), said
                assert error.where == parameter.name, said
                assert error.supported, said


def test_doors_that_have_options_are_among_them():
    assert {"dnnc.compile", "dnnc.autotune", "dnnc.reference", "dnnc.load"} <= set(DOORS)
    assert {"pygraph", "pygraph.tensor", "pygraph.sdpa", "pygraph.relu"} <= set(DOORS)
    assert {"GraphTensor.set_output", "tuning.time_candidates"} <= set(DOORS)


@pytest.mark.parametrize("bound", ["min", "max", "multiple_of"])
def test_bounds_of_a_symbol_are_integers(bound):
    for value in WRONG:
        if repr(value) not in map(repr, FITTING["int"]):
            error = raised(lambda v: dnnc.Dim("n", **{"max": 64, bound: v}), value)
            assert isinstance(error, DnncError)
            assert bound in error.where


def test_dims_that_no_tensor_has_are_refused_where_it_is_made():
    g = graph()
    for dim in ([-1], [0, 4], [1 << 70], [1 << 31], [1] * 9):
        with pytest.raises(DnncError, match=r"'w'.*(dim|rank) ") as caught:
            g.tensor(dim, name="w")
        assert "'w'" in caught.value.where
    with pytest.raises(DnncError, match=r"'w'.*stride"):
        g.tensor([4, 4], [-4, 1], name="w")


@pytest.mark.parametrize("name", ["override_uids", "override_shapes", "override_strides"])
def test_overrides(name, planned):
    for value in WRONG:
        if value is None:
            continue
        given = {"override_uids": [3], name: value}
        error = raised(lambda v, given=given: planned.execute({}, **given), value)
        assert isinstance(error, DnncError), f"{name}={value!a:.30}: {error!r:.200}"


@pytest.fixture(scope="module")
def planned():
    g = dnnc.pygraph(target="sm_80", io_data_type="f16")
    g.relu(g.tensor([dnnc.Dim("n", max=64), 16], uid=3)).set_output()
    g.build()
    return g


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


@pytest.mark.rotating
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
