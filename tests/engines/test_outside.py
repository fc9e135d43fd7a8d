"""An engine from outside the package: registered, ranked, listed, compiled and run as the others.

`OneElement` is all that one takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import dnnc
from dnnc import Status, cudnn, worker
from dnnc.backend import enums
from dnnc.choosing import heuristics, info
from dnnc.codegen import ops
from dnnc.codegen.output import Output
from dnnc.codegen.region import Region
from dnnc.codegen.walk.loops import Loops, coordinates_of
from dnnc.codegen.walk.region_walk import Walk
from dnnc.dialect.fusion import Fusion
from dnnc.engines import (
    ENGINES,
    Engine,
    Knob,
    Knobs,
    Prediction,
    Reason,
    all_engines,
    engine_named,
    register,
    registered,
)
from dnnc.expr import ceildiv
from dnnc.knobs import KNOBS
from dnnc.target import Target, of
from dnnc.tuning.candidates import candidates, compiled

from ..cli.commands import dnnc as command
from ..support.checked import check

pytestmark = pytest.mark.assembled  # plans, which go through files


@dataclass(frozen=True)
class Threads:
    """The tiling of `OneElement`."""

    threads: int


@dataclass(frozen=True)
class OneElement(Engine):
    """Pointwise operations of one output, an element a thread.  seconds: what it predicts."""

    name: str = "one_element"
    index: int = 1000
    families: tuple[str, ...] = ("pointwise",)
    support: tuple[str, ...] = ("pointwise operations of one output of any layout",)
    tiling = Threads
    seconds: float = 1e-9

    all_knobs: ClassVar[tuple[Knob, ...]] = (Knob("BLOCK_SIZE", (128, 256), "threads of a block"),)

    def supports(self, fusion: Fusion, target: Target) -> tuple[Reason, ...]:
        strange = [op for op in fusion.ops if op.role != "pointwise"]
        if not strange and len(fusion.outputs) == 1 and fusion.outputs[0].type.kind != "b":
            return ()
        what = ", ".join(op.label for op in strange) or "other outputs"
        supported = "pointwise operations, one output of whole bytes"
        return (Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, "operations", what, supported),)

    def candidates(self, fusion: Fusion, target: Target) -> Sequence[Knobs]:
        return [{"BLOCK_SIZE": 128}]

    def predict(self, fusion: Fusion, knobs: Knobs, target: Target) -> Prediction:
        return Prediction(self.seconds, "memory")

    def tile_of(self, fusion: Fusion, knobs: Knobs, target: Target) -> Threads:
        return Threads(knobs["BLOCK_SIZE"])

    def emit(self, region: Region, knobs: Knobs, tile: Threads, output: Output) -> None:
        ((value, tensor),) = region.outputs
        loops = Loops(tensor.shape, (tuple(range(tensor.rank)),))
        kernel = output.kernel("", tile.threads)
        with kernel.body():
            number = ops.add(loops.first_of(ops.block_id(), kernel.threads), ops.thread_id())
            walk = Walk(kernel, region.leaves(kernel), region.symbols)
            ((_, target),) = region.targets(kernel)
            with ops.if_(ops.less(number, kernel.size(loops.fragments))):
                at = coordinates_of(tensor.rank, loops.coordinates(kernel, number))
                target.store(at, walk.value(value, at, 1))
        output.launch(kernel, (ceildiv(loops.fragments, kernel.threads), 1, 1))


OURS, SLOW = OneElement(), OneElement(seconds=1.0)


def graph():
    g = dnnc.pygraph("outside", io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    x, bias = g.tensor([6, dnnc.Dim("M", max=64), 40], name="x"), g.tensor([1, 1, 40], name="bias")
    g.relu(g.add(x, bias)).set_output().set_name("y")
    return g


def engines_of(plan):
    return [fusion.engine for fusion in plan.programs[0].fusions]


def test_it_is_chosen_where_it_predicts_less_and_runs_right(monkeypatch):
    monkeypatch.setattr(worker.Worker, "_started", None)  # which knows the package's engines alone
    finalized = graph().graph.finalize()
    with registered(OURS):
        config = heuristics.best_config(finalized, of("sm_80"))
        assert config.choice_text == "one_element:BLOCK_SIZE=128"
        assert config.name == "eng1000_BLOCK_SIZE=128"
        plan = dnnc.compile(graph(), "sm_80")
        assert engines_of(plan) == ["one_element"]
        assert b"fusion0_one_element" in plan.blobs[-1]
        check(graph(), {"M": 7}, plan=plan)
        every = candidates(finalized, of("sm_80"), most=2)
        assert [engines_of(made) for made in compiled(finalized, of("sm_80"), every)] == [
            ["one_element"], ["pointwise"],
        ]  # fmt: skip
    with registered(SLOW):
        assert heuristics.best_config(finalized, of("sm_80")).choices[0].engine.index == 1
        check(graph(), {"M": 7}, engine="one_element", knobs={"BLOCK_SIZE": 256}, target="sm_80")


def test_without_it_nothing_changes(cache):
    before = dnnc.compile(graph(), "sm_80", in_process=True)
    with registered(OURS):
        inside = dnnc.compile(graph(), "sm_80", in_process=True)
    after = dnnc.compile(graph(), "sm_80", in_process=True)
    assert (engines_of(before), engines_of(inside)) == (["pointwise"], ["one_element"])
    assert after == before
    assert before.key != inside.key
    assert all_engines() == ENGINES
    with pytest.raises(dnnc.DnncError, match="engine 'one_element'"):
        engine_named("one_element")


def test_ties_go_to_the_package_and_the_fallback_is_last():
    with registered(OURS, replace(OURS, name="other", index=1001)):
        assert [engine.index for engine in all_engines()[-3:]] == [1000, 1001, 2]
        assert info.engine_at(1001).name == "other"
        assert info.engine_count() == 1002
    finalized = graph().graph.finalize()
    own = heuristics.best_config(finalized, of("sm_80"))
    for seconds, index in ((own.seconds, 1), (own.seconds * 0.99, 1000)):
        with registered(replace(OURS, seconds=seconds)):
            config = heuristics.best_config(finalized, of("sm_80"))
        assert config.choices[0].engine.index == index


def test_the_commands_list_it(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.Worker, "_started", None)
    path = tmp_path / "graph.json"
    path.write_text(graph().graph.finalize().canonical_text())
    with registered(OURS):
        said = command("engines", str(path), "-t", "sm_80", "--explain")
        made = command("compile", str(path), "-t", "sm_80", "-o", str(tmp_path / "x.dnnplan"))
    assert "one_element (1000)" in said.stdout
    assert "threads of a block" in said.stdout
    assert "one_element" in made.stdout
    assert "one_element" not in command("engines", str(path), "-t", "sm_80", "--all").stdout


class Forgetful(Engine):
    """An engine that does not say what it is for."""

    name, index = "forgetful", 1001
    supports, candidates, predict = OneElement.supports, OneElement.candidates, OneElement.predict
    tile_of, emit = OneElement.tile_of, OneElement.emit


@pytest.mark.parametrize(
    ("engine", "what"),
    [
        (OneElement, "class"),
        (object(), "object"),
        (Forgetful(), "no families"),
        (replace(OURS, index=19), "index 19"),
        (replace(OURS, index=10_000), "index 10000"),
        (replace(OURS, name="two words"), "name 'two words'"),
        (replace(OURS, name="rows"), "beside rows"),
        (replace(OURS, name="other"), "beside one_element"),
        (replace(OURS, index=1001), "beside one_element"),
    ],
)
def test_what_is_no_engine(engine, what):
    with registered(OURS), pytest.raises(dnnc.DnncError, match=what) as caught:
        register(engine)
    assert caught.value.status is Status.BAD_PARAM
    assert all_engines() == ENGINES


def test_knobs_have_names_that_front_ends_know(monkeypatch):
    monkeypatch.setattr(OneElement, "all_knobs", (Knob("MINE", (1,), "a knob"),))
    with pytest.raises(dnnc.DnncError, match="knob MINE") as caught:
        register(OURS)
    assert "TILE_M" in caught.value.supported
    known = {name.split("KNOB_TYPE_")[1] for name in enums.cudnnBackendKnobType_t.__members__}
    assert set(KNOBS) <= known & {*dnnc.knob_type.__members__} & {*cudnn.knob_type.__members__}
