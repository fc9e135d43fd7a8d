"""Kernels of fusions that graphs share: made once, and the same wherever they come from."""

from dataclasses import replace

import pytest

import dnnc
from dnnc.cache.disk import DiskStore
from dnnc.cli.summary import placed_fusions
from dnnc.codegen import nvptx
from dnnc.compiler import compile_graph
from dnnc.options import Options
from dnnc.plan import format
from dnnc.plan.plan import FusionRecord
from dnnc.store import MemoryStore
from tests.plan.plans import WHOLE


def sequence(*modes):
    """A graph of pointwise operations, each of which is a fusion."""
    g = dnnc.pygraph("sequence", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    value = g.tensor([3, 16])
    for mode in modes:
        value = getattr(g, mode)(value)
    value.set_output()
    return g.graph.finalize()


def compiled(modes, store):
    partition = "|".join(map(str, range(len(modes))))
    return compile_graph(sequence(*modes), "sm_80", Options(partition=partition), store=store)


@pytest.fixture
def made(monkeypatch):
    """The modules that are lowered to PTX, and those that are assembled."""
    calls = {"to_ptx": [], "assemble": []}

    def counted(call, seen):
        def function(*args):
            seen.append(args[0])
            return call(*args)

        return function

    for name, seen in calls.items():
        monkeypatch.setattr(nvptx, name, counted(getattr(nvptx, name), seen))
    return calls


def counts(made):
    """(modules lowered, modules assembled) since the last time."""
    found = [len(seen) for seen in made.values()]
    for seen in made.values():
        seen.clear()
    return found


LONGER = ("exp", "tanh", "exp", "relu", "tanh", "exp")


def test_a_fusion_of_another_graph_is_not_compiled_again(made, tmp_path):
    def disk():
        return DiskStore(tmp_path, 1 << 20)

    compiled(("tanh", "exp"), disk())
    assert counts(made) == [2, 2]
    plan = compiled(LONGER, disk())
    assert counts(made) == [1, 1]
    assert [fusion.module for fusion in plan.programs[0].fusions] == [0, 1, 0, 2, 1, 0]
    anew = compiled(LONGER, MemoryStore())
    assert counts(made) == [3, 3]
    assert format.to_bytes(anew) == format.to_bytes(plan)


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_an_entry_that_is_another_fusions_is_made_again(kind, made):
    store, other = MemoryStore(), MemoryStore()
    right = compiled(("tanh",), store)
    compiled(("exp",), other)
    (key,) = (key for key in store._kept if key.startswith(kind))
    (theirs,) = (data for k, data in other._kept.items() if k.startswith(kind))
    store.put(key, theirs)
    counts(made)
    assert compiled(("tanh",), store) == right
    assert counts(made) == ([1, 0] if kind == "ptx" else [0, 1])
    assert compiled(("tanh",), store) == right
    assert counts(made) == [0, 0]


def test_what_a_plan_of_several_modules_says_of_its_fusions():
    program = compiled(LONGER, MemoryStore()).programs[0]
    assert [(k.name, k.entry) for k in program.kernels] == [
        (f"fusion{place}_pointwise", "fusion0_pointwise") for place in (0, 1, 3)
    ]
    assert [place for _, place, _ in placed_fusions(program)] == list(range(6))
    launched = [step.launch.kernel for step in program.variants[0].steps]
    assert launched == [f"fusion{place}_pointwise" for place in (0, 1, 0, 3, 1, 0)]
    assert program.config_of(program.variants[0]) == 0
    assert program.fusions_of(0) == list(program.fusions)


def test_a_plan_of_an_earlier_version_has_a_module_for_each_config():
    """Its kernels have one name each, and its fusions no config."""
    program = WHOLE.programs[1]
    old = FusionRecord((), "rows", 1, {}, module=1)
    kernels = tuple(replace(kernel, module=i) for i, kernel in enumerate(program.kernels))
    program = replace(program, modules=program.modules * 2, kernels=kernels, fusions=(old,))
    read = format.read(format.to_bytes(replace(WHOLE, programs=(program,)))).programs[0]
    assert [kernel.entry for kernel in read.kernels] == [kernel.name for kernel in kernels]
    places = {k.name: k.module for k in kernels}
    for variant in read.variants:
        first = next(step.launch.kernel for step in variant.steps if step.launch)
        assert read.config_of(variant) == places[first]
    assert read.fusions_of(1) == [old]
