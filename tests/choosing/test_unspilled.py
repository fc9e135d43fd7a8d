"""Kernels that spill registers: what is compiled again, by all who compile."""

from dataclasses import replace

import pytest

import dnnc
from dnnc import compiler
from dnnc.backend import compiled
from dnnc.backend import engines as backend_engines
from dnnc.choosing import heuristics, spills
from dnnc.choosing.choice_text import choice_text
from dnnc.choosing.inputs import inputs_of
from dnnc.choosing.unspilled import Door, unspilled
from dnnc.dialect import dnn
from dnnc.dialect.fusion import partition
from dnnc.dialect.fusion_graph import graph_of
from dnnc.dialect.fusion_key import key_of
from dnnc.options import Options
from dnnc.plan.plan import FusionRecord, Kernel, Plan, Program
from dnnc.target import of
from tests import long_graphs

TARGET = of("sm_90a")


class Compiled:
    """A door whose kernels spill as it is told: choices of a fusion, by their texts."""

    def __init__(self, spilling, fusion):
        self.spilling, self.key = spilling, len(fusion.ops)
        self.wholes, self.alone, self.searches = [], [], 0
        self.door = Door(TARGET, self.whole, self.part, self.others)

    def plan(self, config):
        kernels, records, modules = [], [], {}
        for place, choice in enumerate(config.choices):
            name, is_new = choice.engine.name, key_of(choice.fusion) not in modules
            module = modules.setdefault(key_of(choice.fusion), len(modules))
            about = (choice.engine.index, choice.knobs)
            records.append(FusionRecord((), name, *about, module=module, config=0))
            spills_ = choice.text in self.spilling and len(choice.fusion.ops) == self.key
            if is_new:  # equal fusions share kernels
                kernels.append(
                    Kernel(f"fusion{place}_{name}", module, 128, spill_store_bytes=8 * spills_)
                )
        program = Program("sm_90a", (9, 0), True, (), tuple(kernels), (), tuple(records))
        return Plan("plan", {}, (), (), (program,))

    def whole(self, config, inputs):
        self.wholes.append(config)
        return self.plan(config)

    def part(self, graph, config):
        self.alone.append(len(graph.live_ops))
        return self.plan(config)

    def others(self, inputs):
        self.searches += 1
        return []


@pytest.fixture(scope="module")
def layers():
    """(config of two layers, choices of a product that both have, best first)"""
    config = heuristics.best_config(long_graphs.layers(2).graph.finalize(), TARGET)
    keys = [key_of(choice.fusion) for choice in config.choices]
    fusions = [choice.fusion for choice in config.choices]
    product = next(f for f in fusions if keys.count(key_of(f)) > 1 and f.with_role("anchor"))
    return config, heuristics.choices(product, TARGET)


def next_after(ranked, texts):
    return next(c for c in ranked if not spills.is_like(c.engine, c.knobs, texts))


def test_a_spill_changes_its_own_fusions_only(layers):
    config, ranked = layers
    second = next_after(ranked, [ranked[0].text])
    door = Compiled({ranked[0].text, second.text}, ranked[0].fusion)
    found, plan = unspilled(config, inputs_of(), door.door)
    assert spills.spilled_bytes(plan) == 0
    third = next_after(ranked, [ranked[0].text, second.text])
    for before, after in zip(config.choices, found.choices, strict=True):
        is_equal = key_of(before.fusion) == key_of(ranked[0].fusion)
        assert after.fusion is before.fusion
        assert after.text == (third.text if is_equal else before.text)
    # What is tried is the one fusion; the graph is compiled twice, and not split anew.
    assert door.alone == [len(ranked[0].fusion.ops)] * 2
    assert len(door.wholes) == 2
    assert door.searches == 0


def test_a_fusion_without_another_choice_splits_the_graph_anew(layers):
    config, ranked = layers
    door = Compiled({choice.text for choice in ranked}, ranked[0].fusion)
    found, _ = unspilled(config, inputs_of(), door.door)
    assert found is config
    assert (len(door.wholes), door.searches) == (1, 1)


def test_choices_that_a_filter_bars_are_not_taken(layers):
    config, ranked = layers
    second = next_after(ranked, [ranked[0].text])
    door = Compiled({ranked[0].text}, ranked[0].fusion)
    filtered = replace(door.door, is_allowed=lambda c: second.text not in c.choice_text.split("|"))
    found, plan = unspilled(config, inputs_of(), filtered)
    assert spills.spilled_bytes(plan) == 0
    changed = {c.text for c, b in zip(found.choices, config.choices, strict=True) if c is not b}
    assert changed.isdisjoint({ranked[0].text, second.text})
    assert changed


def test_a_config_that_is_not_to_be_had_is_none(layers):
    config, ranked = layers
    door = Compiled(set(), ranked[0].fusion).door
    door = Door(TARGET, lambda config, inputs: None, door.alone, door.others)
    assert unspilled(config, inputs_of(), door) is None


def codes_of(graph, options):
    with dnn.context():
        work = compiler.start(graph, of("sm_80"))
        return compiler.advance(work, "ptx", options).codes


def test_a_fusion_alone_has_the_same_code():
    g = dnnc.pygraph("split", io_data_type="f16", intermediate_data_type="f32")
    x = g.tensor([1, 32, 64], name="x")
    product = g.matmul(x, g.tensor([1, 64, 32], name="w")).set_data_type("f16")
    y = g.relu(g.add(product, g.tensor([1, 1, 32], name="b"))).set_name("y").set_output()
    g.mul(y, 2.0).set_output()
    graph = g.graph.finalize()
    fusions = partition(graph, [graph.live_ops[:3], graph.live_ops[3:]])
    choices = [heuristics.choices(fusion, of("sm_80"))[0] for fusion in fusions]
    config = heuristics.EngineConfig(tuple(choices))
    codes = codes_of(graph, config.options(graph))
    for place, choice in enumerate(choices):
        alone = graph_of(choice.fusion)
        assert [t.uid for t in alone.outputs] == [t.uid for t in choice.fusion.outputs]
        options = Options(
            partition=" ".join(map(str, range(len(choice.fusion.ops)))), choices=choice.text
        )
        assert codes_of(alone, options) == [codes[place]]


def sums():
    g = dnnc.pygraph("sums", io_data_type="f16", intermediate_data_type="f32", target="sm_80")
    g.relu(g.add(g.tensor([8192, 8192]), g.tensor([8192, 8192]))).set_output()
    return g


def by_compiler():
    return compiler.compile_graph(sums().graph, "sm_80")


def by_pygraph():
    g = sums()
    g.build(["A", "FALLBACK"])
    return g._plans.selected().plan


def by_descriptors():
    chosen = backend_engines.default_config(
        sums().graph.finalize(), of("sm_80"), backend_engines.CHOSEN
    )
    return compiled.plan_of(chosen)


@pytest.mark.parametrize("compile_", [by_compiler, by_pygraph, by_descriptors])
def test_every_door_has_the_one_policy(compile_, monkeypatch):
    graph = sums().graph.finalize()
    (first,) = next(heuristics.configs(graph, of("sm_80"))).choices

    def texts(plan):
        return tuple(choice_text(f.engine, f.knobs) for f in plan.programs[0].fusions)

    def spilling(plan):
        return tuple(text for text in texts(plan) if text == first.text)

    monkeypatch.setattr(spills, "spilling_choices", spilling)
    monkeypatch.setattr(spills, "spilled_bytes", lambda plan: len(spilling(plan)))
    inputs = replace(inputs_of(), spilling=(first.text,))
    following = next(heuristics.configs(graph, of("sm_80"), inputs=inputs))
    assert texts(compile_()) == (following.choice_text,) != (first.text,)
    # A config of an engine, which a user may have set knob by knob, is compiled as it is.
    knobs = {backend_engines.knob_type(name): value for name, value in first.knobs.items()}
    config = backend_engines.config_with(graph, of("sm_80"), first.engine.index, knobs)
    assert texts(compiled.plan_of(config)) == (first.text,)
