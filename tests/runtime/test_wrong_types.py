"""Values of a wrong type at the runtime's doors: always a DnncError."""

import numpy as np
import pytest

from dnnc.errors import DnncError
from dnnc.runtime import load
from tests.plan.plans import WHOLE

from .fake_driver import Array, FakeDriver
from .test_cuda_graphs import without_peers

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
SIZES = {"M": 128, "N": 2}
PACK = {1: X, 2: Y}
ALONE = without_peers()  # which execute and calls run

NOTHING = [2.5, "x", b"x", [], object(), float("nan"), lambda: 0, [("a", 1)], np.zeros(3)]


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    FakeDriver().install(monkeypatch)


class Interface:
    """An array whose `__cuda_array_interface__` says what it is made with."""

    def __init__(self, **changes):
        right = {"shape": (128, 64), "typestr": "<V2", "data": (X, False), "strides": None}
        made = {**right, **changes}
        self.__cuda_array_interface__ = {k: v for k, v in made.items() if v is not Ellipsis}


class Raising:
    def __dlpack__(self, stream=None):
        raise BufferError("not to be exported")


class NoCapsule:
    def __dlpack__(self, stream=None):
        return 5


WRONG = {
    "pack": [None, 5, *NOTHING],
    "key": [None, 2.5, (), (1, 2), object(), 99, -1, True],
    "address": [
        *NOTHING, -1, 0, 1 << 64, 1 << 400, True, Raising(), NoCapsule(), Interface(data=...),
        Interface(data=("x", 1)), Interface(data=5), Interface(shape=5), Interface(shape=("a",)),
        Interface(typestr=7), Interface(typestr="nonsense"), Interface(strides=(1,)),
        Interface(strides=7), Interface(shape=...), {}, {"data": 5},
    ],
    "number": [
        *(v for v in NOTHING if not isinstance(v, float)), [1.0], {}, Array(X, [1], "<f4"),
        np.zeros(2), np.array(["x"]), np.array([object()]), np.array([1j]),
    ],
    "workspace": [*(v for v in NOTHING), -1, 0, 1 << 64, True, 1],
    "sizes": [5, *NOTHING, {"M": "x"}, {"M": 2.5}, {"M": None}, {"M": True}, {5: 5}, {"M": []}],
    "stream": [*NOTHING, -1, 1 << 64, True, {}, Array(X, [1], "<f4"), Raising()],
    "device": [*NOTHING, -1, 1 << 40, True, {}],
    "peers": [5, *NOTHING, {1: 5}, {1: {2: "x"}}, {1: {2: -1}}, {1: {2: None}}, {1: [0xA000]}],
}  # fmt: skip
CASES = [(what, i) for what, values in WRONG.items() for i in range(len(values))]


def arguments(what, value):
    pack, options = dict(PACK), {"workspace": WORKSPACE, "sizes": SIZES}
    if what == "pack":
        pack = value
    elif what == "key":
        pack[value] = X
    elif what == "address":
        pack[1] = value
    elif what == "number":
        pack[3] = value
    else:
        options[what] = value
    return pack, options


def is_refused(call):
    """Whether it is a DnncError; all that is left out is what a door takes."""
    try:
        call()
    except DnncError:
        return True
    return False


@pytest.mark.parametrize(("what", "place"), CASES)
def test_bind(what, place):
    pack, options = arguments(what, WRONG[what][place])
    peers = options.pop("peers", {1: {2: 0xA000}})
    refused = is_refused(lambda: load(WHOLE).bind(pack, peers=peers, **options))
    taken = what == "key" and WRONG[what][place] in (None, True)
    assert refused or taken


@pytest.mark.parametrize(("what", "place"), [c for c in CASES if c[0] not in ("device", "peers")])
def test_execute(what, place):
    """Twice, so that what is remembered of calls meets it too."""
    pack, options = arguments(what, WRONG[what][place])
    plan = load(ALONE)
    taken = what == "key" and WRONG[what][place] in (None, True)
    for _ in range(2):
        assert is_refused(lambda: plan.execute(pack, **options)) != taken


CALL = {"outputs": Y, "workspace": None, "sizes": {"M": 64, "N": 1}}


@pytest.mark.parametrize(
    ("what", "place"), [c for c in CASES if c[0] in ("address", "number", "sizes", "stream")]
)
def test_call(what, place):
    """A wrong value is refused as an input, as an output and by name, each time."""
    value, plan = WRONG[what][place], load(WHOLE)
    calls = {
        "address": [lambda: plan(value, **CALL), lambda: plan(X, **{**CALL, "outputs": value})],
        "number": [lambda: plan(X, s=value, **CALL)],
    }
    for call in calls.get(what, [lambda: plan(X, **{**CALL, what: value})]) * 2:
        assert is_refused(call)


@pytest.mark.parametrize("value", WRONG["workspace"], ids=lambda v: f"{v!a:.12}")
def test_a_calls_workspace(value):
    """One that is needed: a plan without any looks at none."""
    plan = load(ALONE)
    plan(X, outputs=Y, workspace=WORKSPACE, sizes=SIZES)
    assert is_refused(lambda: plan(X, outputs=Y, workspace=value, sizes=SIZES))


ENTRY = {"sizes": SIZES, "device": 0, "peers": {1: {2: 0xA000}}}


@pytest.mark.parametrize(
    ("what", "place"), [c for c in CASES if c[0] in ("sizes", "device", "peers")]
)
def test_entry(what, place):
    value = WRONG[what][place]
    assert is_refused(lambda: load(WHOLE).entry(**{**ENTRY, what: value}))


def test_execute_after_a_call_that_is_remembered():
    plan = load(WHOLE)
    small = {"workspace": None, "sizes": {"M": 64, "N": 1}}
    plan.execute(PACK, **small)
    for what in ("pack", "address", "sizes", "stream"):
        for value in WRONG[what]:
            pack, options = arguments(what, value)
            assert is_refused(lambda p=pack, o=options: plan.execute(p, **{**small, **o}))
    plan.execute(PACK, **small)


@pytest.mark.parametrize("value", WRONG["stream"], ids=lambda v: f"{v!a:.12}")
def test_set_stream(value):
    bound = load(WHOLE).bind(PACK, workspace=WORKSPACE, sizes=SIZES, peers={1: {2: 0xA000}})
    with pytest.raises(DnncError):
        bound.set_stream(value)


@pytest.mark.parametrize("value", WRONG["sizes"], ids=lambda v: f"{v!a:.12}")
def test_workspace_size(value):
    with pytest.raises(DnncError):
        load(WHOLE).workspace_size(value)


def test_numbers_of_numpy_are_taken():
    load(WHOLE).bind(
        PACK, workspace=WORKSPACE, sizes={"M": np.int64(128), "N": np.int32(2)}, device=np.int64(0),
        stream=np.uint64(7), peers={1: {2: 0xA000}},
    )  # fmt: skip
