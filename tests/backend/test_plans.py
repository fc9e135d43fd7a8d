"""Engines, heuristics, plans and variant packs through descriptors."""

import json

import numpy as np
import pytest

import dnnc
from dnnc import DnncError, Status
from dnnc import backend as b
from dnnc.backend.engines import knob_name
from dnnc.choosing import heuristics
from dnnc.engines import ENGINES
from dnnc.expr import bound_of
from tests.backend.building import (
    I64,
    D,
    device,
    engine,
    got,
    graph_of,
    made,
    matmul,
    opened,
    plan_of,
    pointwise,
    tensor,
)
from tests.backend.building import heuristics as ranked
from tests.runtime.fake_driver import FakeDriver
from tests.support import machine
from tests.support.checked import random_inputs
from tests.support.compare import assert_close

HALF, FLOAT = b.CUDNN_DATA_HALF, b.CUDNN_DATA_FLOAT
TOKENS = dnnc.Dim("tokens", max=4096)


def ffn(m=40, k=64, n=48):
    """gelu(x @ w + bias) of halves; m may be a size of dnnc.Dim."""
    x = tensor(1, [1, m, k], [m * k, k, 1], HALF)
    w = tensor(2, [1, k, n], None, HALF)
    bias = tensor(3, [1, 1, n], None, HALF)
    rows, strides = [1, m, n], [m * n, n, 1]
    product = tensor(4, rows, strides, FLOAT, virtual=True)
    total = tensor(5, rows, strides, FLOAT, virtual=True)
    y = tensor(6, rows, strides, HALF)
    return graph_of(
        matmul(x, w, product),
        pointwise(b.CUDNN_POINTWISE_ADD, X=product, B=bias, Y=total),
        pointwise(b.CUDNN_POINTWISE_GELU_FWD, X=total, Y=y),
    )


def interpreted(plan, graph, sizes=None, slack=2.0):
    """Runs a plan, in the interpreter or on a device, and compares with the reference."""
    made_of = b.operation_graph(graph)
    inputs = random_inputs(made_of, sizes or {})
    found = machine.current().run(b.execution_plan(plan).plan, inputs, sizes=sizes or {}, seed=1)
    exact = dnnc.reference(made_of, inputs, sizes=sizes, exact_outputs=True)
    for output in made_of.outputs:
        assert_close(found[output.uid], exact[output.uid], output.type, slack=slack)


def json_of(plan):
    return got(plan, b.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, b.CUDNN_TYPE_CHAR)


def plan_from(text):
    name = b.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION
    return made(b.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, (name, b.CUDNN_TYPE_CHAR, text))


def refused(call, *arguments):
    with pytest.raises(DnncError) as caught:
        call(*arguments)
    return caught.value


# ---- to a result


def test_matmul_bias_gelu():
    graph = ffn()
    target = machine.current().target
    plan = plan_of(ranked(graph, target=target)[0])
    interpreted(plan, graph)


def test_a_plan_of_sizes_that_come_later():
    graph = ffn(TOKENS)
    plan = plan_of(ranked(graph, target=machine.current().target)[0])
    for tokens in (1, 37):
        interpreted(plan, graph, {"tokens": tokens})


def test_factors_scale_what_they_belong_to():
    """y = (2 x) * (0.5 b) - 3 z, with the factors of the operations."""
    x, other, z, y = (tensor(uid, [6, 8]) for uid in range(4))
    product = tensor(9, [6, 8], virtual=True)
    factors = [(b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, b.CUDNN_TYPE_FLOAT, [2.0]),
               (b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, b.CUDNN_TYPE_DOUBLE, [0.25])]  # fmt: skip
    three = [(b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, b.CUDNN_TYPE_FLOAT, [3.0])]
    graph = graph_of(
        pointwise(b.CUDNN_POINTWISE_MUL, factors=factors, X=x, B=other, Y=product),
        pointwise(b.CUDNN_POINTWISE_SUB, factors=three, X=product, B=z, Y=y),
    )
    interpreted(plan_of(ranked(graph, target=machine.current().target)[0]), graph, slack=8.0)
    one = np.ones([6, 8])
    values = dnnc.reference(b.operation_graph(graph), {0: 5 * one, 1: 2 * one, 2: one})
    np.testing.assert_array_equal(values[3], 5 * one - 3)
    single = [(b.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, b.CUDNN_TYPE_FLOAT, [2.0])]
    error = refused(lambda: pointwise(b.CUDNN_POINTWISE_EXP, factors=single, X=x, Y=y))
    assert error.status is Status.BAD_PARAM


def test_random_numbers_of_a_seed_on_the_host():
    offset = tensor(1, [1, 1], None, b.CUDNN_DATA_INT64)
    y = tensor(2, [8, 8])
    uniform = made(
        b.CUDNN_BACKEND_RNG_DESCRIPTOR,
        (b.CUDNN_ATTR_RNG_DISTRIBUTION, b.CUDNN_TYPE_RNG_DISTRIBUTION, [1]),
    )
    numbers = made(
        b.CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_RNG_DESC, D, [uniform]),
        (b.CUDNN_ATTR_OPERATION_RNG_YDESC, D, [y]),
        (b.CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, D, [offset]),
        (b.CUDNN_ATTR_OPERATION_RNG_SEED, I64, [11]),
    )
    seed = b.CUDNN_ATTR_OPERATION_RNG_SEED
    assert b.get_attribute(numbers, seed, I64) == (1, [11])
    assert refused(b.get_attribute, numbers, seed, D).status is Status.BAD_PARAM_ATTRIBUTE_TYPE
    (op,) = b.operation_graph(graph_of(numbers)).ops
    assert (op.seed.value, op.seed.is_constant, op.distribution) == (11, True, "UNIFORM")


# ---- engines


def test_what_an_engine_says_of_itself():
    graph = ffn()
    count = got(graph, b.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, I64)
    assert count == [max(e.index for e in ENGINES) + 1]
    found = engine(graph, 4)
    assert got(found, b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64) == [4]
    notes = got(found, b.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, b.CUDNN_TYPE_NUMERICAL_NOTE)
    assert b.CUDNN_NUMERICAL_NOTE_TENSOR_CORE in notes
    notes = got(found, b.CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, b.CUDNN_TYPE_BEHAVIOR_NOTE)
    assert b.CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION in notes
    layouts = got(found, b.CUDNN_ATTR_ENGINE_LAYOUT_INFO, D)
    uids = [got(item, b.CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID, I64) for item in layouts]
    assert uids == [[1], [2], [3], [6]]
    types = b.CUDNN_ATTR_LAYOUT_INFO_TYPES
    assert b.get_attribute(layouts[0], types, b.CUDNN_TYPE_LAYOUT_TYPE) == (0, [])
    (again,) = got(found, b.CUDNN_ATTR_ENGINE_OPERATION_GRAPH, D)
    assert b.operation_graph(again) is b.operation_graph(graph)


def knobs_of(found):
    """Knob -> (minimum, maximum, stride)."""
    ends = (
        b.CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE,
        b.CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE,
        b.CUDNN_ATTR_KNOB_INFO_STRIDE,
    )
    infos = got(found, b.CUDNN_ATTR_ENGINE_KNOB_INFO, D)
    return {
        got(info, b.CUDNN_ATTR_KNOB_INFO_TYPE, b.CUDNN_TYPE_KNOB_TYPE)[0]: tuple(
            got(info, end, I64)[0] for end in ends
        )
        for info in infos
    }


def test_knobs_are_ranges_that_hold_every_value():
    graph = b.operation_graph(ffn())
    (whole,) = heuristics.partition(graph, [graph.live_ops])
    row = next(e for e in ENGINES if e.index == 4)
    known = knobs_of(engine(ffn(), 4))
    assert known[b.CUDNN_KNOB_TYPE_TILE_M] == (32, 256, 32)
    for knob in row.knobs(whole, dnnc.target.of("sm_80")):
        low, high, stride = next(v for t, v in known.items() if knob_name(t) == knob.name)
        assert set(knob.values) <= set(range(low, high + 1, stride))
        assert {low, high} <= set(knob.values)
    assert knobs_of(engine(ffn(), 0)) == {}


def config(found, *knobs):
    """An engine config; knobs: (type, value)."""
    choices = [
        made(
            b.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
            (b.CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, b.CUDNN_TYPE_KNOB_TYPE, [kind]),
            (b.CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, I64, [value]),
        )
        for kind, value in knobs
    ]
    return made(
        b.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
        (b.CUDNN_ATTR_ENGINECFG_ENGINE, D, [found]),
        (b.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, D, choices),
    )


def choices_of(found):
    rows = got(found, b.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, D)
    kinds = b.CUDNN_TYPE_KNOB_TYPE
    return {
        got(row, b.CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, kinds)[0]:
            got(row, b.CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, I64)[0]
        for row in rows
    }  # fmt: skip


def test_knobs_that_are_chosen_are_those_of_the_plan():
    found = engine(ffn(), 4)
    chosen = config(found, (b.CUDNN_KNOB_TYPE_TILE_M, 64), (b.CUDNN_KNOB_TYPE_STAGES, 3))
    fusion = b.execution_plan(plan_of(chosen)).plan.programs[0].fusions[0]
    assert (fusion.engine, fusion.knobs["TILE_M"], fusion.knobs["STAGES"]) == ("matmul_sm80", 64, 3)
    assert choices_of(chosen) == {b.CUDNN_KNOB_TYPE_TILE_M: 64, b.CUDNN_KNOB_TYPE_STAGES: 3}


@pytest.mark.parametrize(
    ("knobs", "status"),
    [
        ([(b.CUDNN_KNOB_TYPE_TILE_M, 96)], Status.NOT_SUPPORTED),  # on the range, but no value
        ([(b.CUDNN_KNOB_TYPE_TILE_M, 7)], Status.NOT_SUPPORTED),
        ([(b.CUDNN_KNOB_TYPE_SPLIT_COLS, 1)], Status.NOT_SUPPORTED),
        ([(b.CUDNN_KNOB_TYPE_TILE_M, 64)] * 2, Status.BAD_PARAM_DUPLICATED_ENTRIES),
    ],
)
def test_knobs_that_the_engine_has_not_are_refused(knobs, status):
    error = refused(config, engine(ffn(), 4), *knobs)
    assert error.status is status
    assert error.supported


def test_the_heuristics_choice_has_no_knobs():
    error = refused(config, engine(ffn(), 0), (b.CUDNN_KNOB_TYPE_TILE_M, 64))
    assert error.status is Status.NOT_SUPPORTED
    assert "its own index" in error.supported


def test_engines_that_are_refused_say_why():
    graph = ffn()
    last = max(e.index for e in ENGINES)
    for index in (-1, last + 1, 1 << 40):
        error = refused(engine, graph, index)
        assert error.status is Status.NOT_SUPPORTED
        assert error.supported == f"0 to {last}"
    error = refused(engine, graph, 5)  # Hopper's
    assert error.status is Status.NOT_SUPPORTED_ARCH_MISMATCH
    assert "matmul_sm90" in error.what
    for name, kind, value in (
        (b.CUDNN_ATTR_ENGINE_SM_COUNT_TARGET, b.CUDNN_TYPE_INT32, 4),
        (b.CUDNN_ATTR_ENGINE_DISABLE_CLUSTER_COOPERATIVE, b.CUDNN_TYPE_BOOLEAN, True),
    ):
        open_ = opened(
            b.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
            (b.CUDNN_ATTR_ENGINE_OPERATION_GRAPH, D, [graph]),
            (b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64, [4]),
            (b.CUDNN_ATTR_ENGINE_DEVICEPROP, D, [device()]),
            (name, kind, [value]),
        )
        assert refused(b.finalize, open_).status is Status.NOT_SUPPORTED
        b.set_attribute(open_, name, kind, 1, 0)
        b.finalize(open_)


# ---- heuristics


def indices_of(configs):
    engines = (got(each, b.CUDNN_ATTR_ENGINECFG_ENGINE, D)[0] for each in configs)
    return {got(each, b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64)[0] for each in engines}


def test_errata_of_the_users_file_bar_configs(tmp_path, monkeypatch):
    rule = {"id": "none", "why": "a test", "engine": "matmul_sm80"}
    path = tmp_path / "errata.json"
    path.write_text(json.dumps({"dnnc_errata": 1, "rules": [rule]}))
    assert 4 in indices_of(ranked(ffn()))
    monkeypatch.setenv("DNNC_ERRATA_FILE", str(path))
    assert indices_of(ranked(ffn())) == {2}
    error = refused(engine, ffn(), 4)
    assert "barred by errata rule 'none': a test" in str(error)
    path.write_text(json.dumps({"dnnc_errata": 1, "rules": [{**rule, "engine": "matmul"}]}))
    assert refused(ranked, ffn()).status is Status.BAD_PARAM


def test_results_are_the_heuristics_configs_in_their_order():
    graph = ffn()
    inner, target = b.operation_graph(graph), dnnc.target.of("sm_80")
    for mode in ("A", "B", "FALLBACK", "INSTANT"):
        name = mode if mode in heuristics.MODES else "A"
        found = ranked(graph, getattr(b, f"CUDNN_HEUR_MODE_{mode}"))
        wanted = list(heuristics.configs(inner, target, (name,)))
        assert len(found) == len(wanted)
        knobs = [{knob_name(t): v for t, v in choices_of(item).items()} for item in found]
        assert knobs == [entry.knobs for entry in wanted]


def test_a_graph_that_needs_several_engines_is_one_config_of_each_mode():
    """A product of a product: no engine takes both."""
    a, w, v = (tensor(uid, [1, 32, 32], None, HALF) for uid in (1, 2, 3))
    c = tensor(4, [1, 32, 32], None, HALF, virtual=True)
    y = tensor(5, [1, 32, 32], None, HALF)
    graph = graph_of(matmul(a, w, c), matmul(c, v, y))
    target = machine.current().target
    assert len(ranked(graph, b.CUDNN_HEUR_MODE_FALLBACK, target)) == 1
    (split,) = ranked(graph, b.CUDNN_HEUR_MODE_A, target)
    (chosen,) = got(split, b.CUDNN_ATTR_ENGINECFG_ENGINE, D)
    assert got(chosen, b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, I64) == [0]
    assert choices_of(split) == {}
    plan = plan_of(split)
    interpreted(plan, graph, slack=4.0)
    assert len(b.execution_plan(plan).plan.programs[0].fusions) == 2
    assert got(plan, b.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, I64)[0] >= 2 * 32 * 32
    # Index 0 chooses the same for who asks for it.
    by_index = plan_of(config(engine(graph, 0, target)))
    assert b.execution_plan(by_index).plan == b.execution_plan(plan).plan


def test_what_a_config_needs_is_known_before_its_plan():
    first = ranked(ffn())[0]
    plan = plan_of(first)
    size = got(first, b.CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, I64)
    assert size == got(plan, b.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, I64)
    (shared,) = got(first, b.CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, b.CUDNN_TYPE_INT32)
    knobs = choices_of(first)
    rows = knobs[b.CUDNN_KNOB_TYPE_TILE_M] + knobs[b.CUDNN_KNOB_TYPE_TILE_N]
    wanted = 2 * rows * knobs[b.CUDNN_KNOB_TYPE_TILEK] * knobs[b.CUDNN_KNOB_TYPE_STAGES]
    assert wanted <= shared <= 163 << 10


# ---- plans as text


def test_a_plan_is_text_and_the_text_a_plan():
    graph = ffn()
    plan = plan_of(ranked(graph, target=machine.current().target)[0])
    text = json_of(plan)
    again = plan_from(text)
    assert b.execution_plan(again).plan == b.execution_plan(plan).plan
    assert json_of(again) == text
    assert b.get_attribute(again, b.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, D) == (0, [])
    interpreted(again, graph)
    assert json.loads(text)["targets"] == [machine.current().target]


def altered(data):
    """Base 64 with another letter in its middle."""
    middle = len(data) // 2
    return data[:middle] + ("A" if data[middle] != "A" else "B") + data[middle + 1 :]


def test_text_that_is_no_plan_is_refused():
    text = json_of(plan_of(ranked(ffn())[0]))
    record = json.loads(text)
    wrong = [
        "", "{", "[]", "null", "7", text[:-9], json.dumps({**record, "dnnc_plan": 2}),
        json.dumps({**record, "data": altered(record["data"])}), json.dumps({**record, "data": 5}),
        json.dumps({**record, "data": record["data"][:400]}), "[" * 100_000,
    ]  # fmt: skip
    for given in wrong:
        assert refused(plan_from, given or " ").status.category is Status.BAD_PARAM


def test_a_plan_is_of_a_config_or_of_text():
    first = ranked(ffn())[0]
    kind = b.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
    assert refused(made, kind).status is Status.BAD_PARAM
    name = b.CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION
    error = refused(plan_of, first, (name, b.CUDNN_TYPE_CHAR, json_of(plan_of(first))))
    assert error.status is Status.BAD_PARAM
    name = b.CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
    assert refused(plan_of, first, (name, D, [device("sm_90")])).status is Status.BAD_PARAM
    plan_of(first, (name, D, [device("sm_80")]))
    name = b.CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS
    assert refused(plan_of, first, (name, I64, [4])).status is Status.NOT_SUPPORTED
    plan_of(first, (name, I64, []))


def test_a_kernel_cache_keeps_what_was_compiled():
    first, second, *_ = ranked(ffn())
    cache = made(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR)
    asked = b.CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED
    text_of = (b.CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION, b.CUDNN_TYPE_CHAR)

    def is_cached(where, found):
        return b.get_attribute(where, asked, D, 1, [found]).element_count > 0

    assert not is_cached(cache, first)
    plan = plan_of(first, (b.CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, D, [cache]))
    assert is_cached(cache, first)
    assert not is_cached(cache, second)
    kept = made(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, (*text_of, got(cache, *text_of)))
    assert is_cached(kept, first)
    again = plan_of(first, (b.CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, D, [kept]))
    assert json_of(again) == json_of(plan)
    wrong = opened(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, (*text_of, '{"plans": {}}'))
    assert refused(b.finalize, wrong).status is Status.BAD_PARAM
    assert refused(b.set_attribute, wrong, asked, D, 1, [first]).status is Status.BAD_PARAM
    assert refused(b.get_attribute, cache, asked, D, 1, []).status is Status.BAD_PARAM


@pytest.mark.parametrize(
    "alter",
    [
        lambda plans: {key: altered(data) for key, data in plans.items()},
        lambda plans: dict(zip(plans, reversed(plans.values()), strict=True)),
        lambda plans: {key[::-1]: data for key, data in plans.items()},
        lambda plans: dict(list(plans.items())[1:]),
        lambda plans: 7,
    ],
    ids=["bytes", "swapped", "keys", "fewer", "none"],
)
def test_an_altered_kernel_cache_is_refused_when_it_is_finalized(alter):
    first, second, *_ = ranked(ffn())
    cache = made(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR)
    for each in (first, second):
        plan_of(each, (b.CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, D, [cache]))
    text_of = (b.CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION, b.CUDNN_TYPE_CHAR)
    record = json.loads(got(cache, *text_of))
    made(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, (*text_of, json.dumps(record, indent=1)))
    text = json.dumps({**record, "plans": alter(record["plans"])})
    error = refused(b.finalize, opened(b.CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR, (*text_of, text)))
    assert error.status is Status.BAD_PARAM
    assert "altered: the SHA-256 of its plans differs" in str(error)


# ---- variant packs


def pack(uids, pointers, *more, workspace=None):
    return made(
        b.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        (b.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, I64, uids),
        (b.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, b.CUDNN_TYPE_VOID_PTR, pointers),
        (b.CUDNN_ATTR_VARIANT_PACK_WORKSPACE, b.CUDNN_TYPE_VOID_PTR, [workspace]),
        *more,
    )


def override(uids, shapes, strides=None):
    rows = [
        (b.CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, I64, uids),
        (b.CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, b.CUDNN_TYPE_VOID_PTR, [shapes]),
    ]
    if strides is not None:
        name = b.CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES
        rows.append((name, b.CUDNN_TYPE_VOID_PTR, [strides]))
    return rows


def test_packs_that_are_refused():
    assert refused(pack, [1, 2], [256]).status is Status.BAD_PARAM
    assert refused(pack, [1, 1], [256, 512]).status is Status.BAD_PARAM_DUPLICATED_ENTRIES
    bare = opened(b.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    assert refused(b.finalize, bare).status is Status.BAD_PARAM
    pack([], [])
    for rows in (override([1], [[2, 3], [4]]), override([1], 5), override([1], [["x"]]),
                 override([1], [[2]], [[1], [1]])):  # fmt: skip
        assert refused(pack, [1], [256], *rows).status is Status.BAD_PARAM
    alone = override([1], [[2]])[:1]
    assert refused(pack, [1], [256], *alone).status is Status.BAD_PARAM


@pytest.fixture
def fake(monkeypatch):
    made_ = FakeDriver((8, 0))
    made_.install(monkeypatch)
    return made_


def test_sizes_come_with_the_pack(fake):
    plan = plan_of(ranked(ffn(TOKENS))[0])
    handle = dnnc.create_handle()
    dnnc.set_stream(handle, 77)
    uids, addresses = [1, 2, 3, 6], [1 << 20, 2 << 20, 3 << 20, 4 << 20]
    grids = []
    for tokens in (16, 1024):
        rows = override([1], [[1, tokens, 64]], [[tokens * 64, 64, 1]])
        b.execute(handle, plan, pack(uids, addresses, *rows))
        launch = fake.launches[-1]
        grids.append(launch.grid)
        assert launch.stream == 77
    assert np.prod(grids[0]) < np.prod(grids[1])
    missing = refused(b.execute, handle, plan, pack(uids, addresses))
    assert missing.status is Status.BAD_PARAM
    for rows in (
        override([1], [[1, 16, 65]]),  # a fixed size
        override([1], [[1, 16]]),
        override([9], [[1, 16, 64]]),
        override([1, 6], [[1, 16, 64], [1, 17, 48]]),
        override([1], [[1, 16, 64]], [[2048, 128, 1]]),
        override([1], [[1, 5000, 64]]),  # past the symbol's range
    ):
        error = refused(b.execute, handle, plan, pack(uids, addresses, *rows))
        assert error.status is Status.BAD_PARAM_SHAPE_MISMATCH


PRODUCTS = b.DNNC_ATTR_OPERATIONGRAPH_BOUND_PRODUCTS
MAXIMA = b.DNNC_ATTR_OPERATIONGRAPH_BOUND_MAXIMA


def test_products_of_sizes_have_bounds():
    batch, length = dnnc.Dim("batch", max=1 << 15), dnnc.Dim("length", max=1 << 16)
    x, y = (tensor(uid, [batch, length, 512], None, HALF) for uid in (1, 2))

    def graph(*bounds):
        relu = pointwise(b.CUDNN_POINTWISE_RELU_FWD, X=x, Y=y)
        ops = (b.CUDNN_ATTR_OPERATIONGRAPH_OPS, D, [relu])
        return made(b.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, ops, *bounds)

    assert refused(ranked, graph()).status is Status.NOT_SUPPORTED_SHAPE
    product, most = (PRODUCTS, I64, [batch * length]), (MAXIMA, I64, [1 << 20])
    bounded = graph(product, most)
    assert ranked(bounded)
    bound, _ = bound_of(batch * length, 1 << 20)
    assert [own for own, _ in b.operation_graph(bounded).bounds] == [bound]
    assert refused(graph, product).status is Status.BAD_PARAM
    assert refused(graph, (PRODUCTS, I64, [batch]), most).status is Status.BAD_PARAM
