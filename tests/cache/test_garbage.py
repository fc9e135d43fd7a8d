"""Entries that are whole and hold something else: they are made again, and nothing waits."""

import os

import pytest

import dnnc
from dnnc import keys
from dnnc.cache import files, plans
from dnnc.cache.disk import DiskStore
from dnnc.compiler import compile_graph
from dnnc.options import DEFAULTS
from dnnc.plan import format
from dnnc.store import MemoryStore
from dnnc.target import of


def graph(n=64):
    g = dnnc.pygraph("sum", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.relu(g.tensor([4, n])).set_output()
    return g.graph.finalize()


@pytest.fixture
def store(tmp_path):
    return DiskStore(tmp_path, 1 << 20)


KEY = "plan-0123"


def test_a_pipe_in_the_place_of_an_entry_is_not_waited_for(store):
    path = store._path(KEY)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert store.get(KEY) is None
    store.put(KEY, b"data")
    assert store.get(KEY) == b"data"


def test_a_folder_in_the_place_of_an_entry(store):
    path = store._path(KEY)
    path.mkdir(parents=True)
    assert store.get(KEY) is None
    store.put(KEY, b"data")
    assert store.get(KEY) == b"data"


def test_verify_reads_no_pipe(store):
    path = store._path(KEY)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert [found.path for found in store.verify()] == [path]


def test_an_entry_larger_than_the_cache_is_none(store):
    path = store._path(KEY)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert store.get(KEY) is None


def kept(store, made):
    def make():
        made.append(True)
        plan = compile_graph(graph(), "sm_80", store=MemoryStore())
        return format.to_bytes(plan), plan

    return plans.kept_or_made(graph(), [of("sm_80")], DEFAULTS, store, make)


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"DNNCPLAN" + b"\xff" * 100, "another"])
def test_a_plan_that_is_none_is_made_again(store, garbage):
    if garbage == "another":
        garbage = format.to_bytes(compile_graph(graph(32), "sm_80"))
    key = plans.entry_key(keys.plan_key(graph().canonical_text(), ["sm_80"], DEFAULTS))
    store.put(key, garbage)
    made = []
    plan = kept(store, made)
    assert [t.dims for t in plan.tensors] == [("4", "64")] * 2
    assert kept(store, made) == plan
    assert len(made) == 1


@pytest.mark.parametrize("named", [b"\xff\xfe", b"plan-../../x", b"nonsense", b"ptx-12", b""])
def test_an_index_that_names_no_plan(store, named):
    store.put("file-12", named)
    assert files.find(store, "file-12") is None


def test_an_index_that_names_another_plan(store):
    other = compile_graph(graph(32), "sm_80")
    store.put("plan-ab12", format.to_bytes(other))
    store.put("file-12", b"plan-ab12")
    assert files.find(store, "file-12") is None
    files.keep(store, "file-12", other.key)
    store.put(plans.entry_key(other.key), format.to_bytes(other))
    assert files.find(store, "file-12") == format.to_bytes(other)


class Garbage(MemoryStore):
    """A store in which each entry of a kind holds something else at first."""

    def __init__(self, kind, data):
        super().__init__()
        self.kind, self.data, self.given = kind, data, set()

    def get(self, key):
        if key.startswith(self.kind) and key not in self.given:
            self.given.add(key)
            return self.data
        return super().get(key)


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
@pytest.mark.parametrize(
    "data",
    [
        b"", b"hello", b"\xff" * 64, (1 << 62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}ELF", (4).to_bytes(8, "little") + b"[[]]\x7fELF",
        b"\n.target sm_80\n",
    ],
)  # fmt: skip
def test_code_that_is_none_is_made_again(kind, data):
    right = compile_graph(graph(), "sm_80", store=MemoryStore())
    assert compile_graph(graph(), "sm_80", store=Garbage(kind, data)) == right
