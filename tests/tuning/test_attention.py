"""Attention is tuned: which configs are worth timing, on what values, and what becomes of them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.choosing.choice_text import choice_of_text, choice_text
from dnnc.choosing.inputs import Inputs
from dnnc.choosing.variants import guarded_configs
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.reference import reference
from dnnc.expr import assuming, parse_guard
from dnnc.options import Options
from dnnc.record import Entry, Record, structure_key, symbol_names, to_structure
from dnnc.runtime import driver
from dnnc.target import of
from dnnc.tuning import DeviceTimer, autotune
from dnnc.tuning.candidates import candidates
from dnnc.tuning.race import Rules
from dnnc.tuning.values import of_plan
from tests import attention_graphs as graphs
from tests.attention_plans import decode, prefill
from tests.support.compare import assert_close

from .fakes import CountingClock, FakeTimer

LONG = {"batch": dnnc.Dim("B", max=64), "queries": 1, "heads": 8, "block": 16, "pages": 512}


def decode_of_long_caches():
    return graphs.paged(**LONG)[0]


# graph, target, sizes -> (engine, knob -> some of its values that are worth timing)
CASES = {
    "prefill": (
        prefill, "sm_90a", {"B": 4, "Sq": 4096, "Skv": 4096}, "sdpa_fwd_sm90",
        {"TILE_M": {128, 192}, "TILE_N": {64, 128}, "STAGES": {2, 3}, "SCHED_POLICY": {0, 1}},
    ),
    "prefill of sm_80": (
        prefill, "sm_80", {"B": 4, "Sq": 4096, "Skv": 4096}, "sdpa_sm80",
        {"TILE_M": {64, 128}, "TILE_N": {32, 64, 128}, "STAGES": {2, 3, 4}},
    ),
    "decode": (
        decode_of_long_caches, "sm_80", {"B": 4}, "sdpa_sm80",
        {"TILE_N": {32, 64}, "STAGES": {2, 3}, "SPLIT_KV": {8, 16, 32}},
    ),
    "decode of short caches": (
        decode, "sm_80", {"B": 64}, "sdpa_sm80", {"PACK_GQA": {0, 1}, "SPLIT_KV": {1}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_candidates(case):
    """Each is one kernel's config, legal, and there once; the most promising one is first."""
    make, target, sizes, name, wanted = CASES[case]
    graph, row = make().graph.finalize(), of(target)
    found = candidates(graph, row, [sizes], most=16)
    assert len(found) == len({c.choices for c in found}) == 16
    assert len({c.partition for c in found}) == 1
    with assuming(sizes):
        (fusion,) = partition(graph, [graph.live_ops])
        for candidate in found:
            engine, knobs = choice_of_text(candidate.choices)
            assert engine.name == name
            assert not engine.legal(knobs, fusion, row)
            assert knobs.keys() == {knob.name for knob in engine.knobs(fusion, row)}
    predicted = [c.predicted[0] for c in found]
    assert predicted[0] == min(predicted)
    every = [choice_of_text(c.choices)[1] for c in candidates(graph, row, [sizes], most=64)]
    for knob, values in wanted.items():
        assert values <= {knobs[knob] for knobs in every}, knob


# ---- what was fastest


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(1) as made:
        yield made


FASTEST = {
    4: "sdpa_sm80:PACK_GQA=1:SPLIT_KV=16:STAGES=4:TILE_M=16:TILE_N=32",
    64: "sdpa_sm80:PACK_GQA=1:SPLIT_KV=4:STAGES=3:TILE_M=16:TILE_N=32",
}


@pytest.fixture(scope="module")
def tuned(threads):
    """Decode of long caches, 4 sequences and 64, by a timer to which others than predicted are
    fastest."""
    timer = FakeTimer(lambda text, sizes: 1e-5 if text == FASTEST[sizes["B"]] else 3e-5)
    return autotune(
        decode_of_long_caches(), sizes=[{"B": 4}, {"B": 64}], modes=["A"], most=3, timer=timer,
        executor=threads, rules=Rules(rounds=2),
    )  # fmt: skip


def test_a_record_has_what_was_fastest_at_each_size(tuned):
    found = {entry.sizes["s0"]: entry.choices for entry in tuned.record.entries}
    assert found == FASTEST


@pytest.mark.in_turn
def test_a_plan_has_both_and_a_guard_between(tuned):
    """Attentions of two kernels each, under other names of tensors."""
    g = decode_of_long_caches()
    g.graph.name = "another"
    before = dnnc.compile(g, "sm_80", in_process=True)
    after = dnnc.compile(g, "sm_80", tuning=tuned.record, in_process=True)
    assert before.key != after.key
    for plan, is_tuned in ((before, False), (after, True)):
        taken = {size: choice_at(plan, size) for size in FASTEST}
        assert (taken == FASTEST) == is_tuned
    (program,) = after.programs
    assert all(len(variant.steps) == 2 for variant in program.variants)


def choice_at(plan, batch):
    """The choice that launches at so many sequences."""
    (program,) = plan.programs
    variant = next(v for v in program.variants if plan.guard(v.guard).holds({"B": batch}))
    kernel = next(k for k in program.kernels if k.name == variant.steps[0].launch.kernel)
    fusion = next(f for f in program.fusions if f.module == kernel.module)
    return choice_text(fusion.engine, fusion.knobs)


def test_a_pygraph_takes_it(tuned):
    g = decode_of_long_caches()
    g._target = "sm_80"
    g.build_operation_graph()
    g.create_execution_plans(["A"], tuning=tuned.record)
    assert g.get_plan_name_at_index(0) == "eng16_PACK_GQA=1_SPLIT_KV=4_STAGES=3_TILE_M=16_TILE_N=32"


@pytest.mark.in_turn
def test_sizes_of_several_symbols_that_were_timed_together():
    """Batch, queries and keys grow at once: what was fastest at both ends is in one plan."""
    graph, row = prefill().graph.finalize(), of("sm_90a")
    sizes = [{"B": 1, "Sq": 512, "Skv": 512}, {"B": 4, "Sq": 2048, "Skv": 2048}]
    fastest = {
        values["Sq"]: candidates(graph, row, [values], most=place)[-1]
        for values, place in zip(sizes, (2, 3), strict=True)
    }
    names = symbol_names(graph)
    entries = tuple(
        Entry(
            graph=structure_key(graph), name="", sizes={names[k]: n for k, n in values.items()},
            target="sm_90a", device="H100", driver="13.0", l2="warm",
            versions={"dnnc": dnnc.__version__}, seconds=1e-5,
            partition=to_structure(fastest[values["Sq"]].partition, graph),
            choices=fastest[values["Sq"]].choices,
        )
        for values in sizes
    )  # fmt: skip
    inputs = Inputs(record=Record(entries))
    config = heuristics.best_config(graph, row, inputs=inputs)
    found = guarded_configs(graph, row, config, inputs=inputs)
    assert [made.guard.split(" <= ")[0] for made in found] == ["Sq", "1"]
    for values in sizes:
        taken = next(m for m in found if parse_guard(m.guard, graph.symbols).holds(values))
        assert taken.config.choice_text == fastest[values["Sq"]].choices


# ---- what is timed


@pytest.mark.in_turn
def test_what_is_timed_computes_the_graph(gpu):
    """Tables name blocks that there are, lengths end inside them; configs agree."""
    graph = decode().graph.finalize()
    plans = [
        compile_graph(graph, "sm_80", Options(choices=text, partition=""))
        for text in (
            "sdpa_sm80:PACK_GQA=1:SPLIT_KV=4:STAGES=2:TILE_M=16:TILE_N=32",
            "sdpa_sm80:PACK_GQA=0:SPLIT_KV=1:STAGES=3:TILE_M=16:TILE_N=64",
        )
    ]
    sizes = {"B": 3}
    inputs = {}
    for uid, value in of_plan(plans[0], sizes):
        tensor = graph.tensor(uid)
        dims = [n.evaluate(sizes) for n in tensor.shape]
        inputs[uid] = value.view(tensor.type.numpy).reshape(dims)
    wanted = reference(graph, inputs, sizes=sizes, exact_outputs=True)
    for plan in plans:
        with DeviceTimer(clock=CountingClock()) as timer:
            timer.load(plan, sizes)(1)
            for tensor in graph.outputs:
                data = np.empty_like(inputs[tensor.uid])
                driver.download(data, timer._buffers.pack[tensor.uid])
                exact = wanted[tensor.uid]
                assert_close(data, exact, tensor.type, slack=4.0, allowance=1e-5)
