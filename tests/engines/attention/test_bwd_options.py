"""Pairs of options of attention's gradient on Hopper's tensor cores, and layouts of operands."""

from itertools import combinations, product

import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.fusion import partition
from dnnc.dialect.ops import RaggedLoad
from dnnc.engines.attention.bwd_sm90 import SDPA_BWD_SM90
from dnnc.target import of
from tests.checked_gradient import run
from tests.dialect.attention_examples import lengths
from tests.dialect.attention_gradient_examples import gradient, soft_cap
from tests.support import rotation

from .test_bwd_sm80 import packed_gradient
from .test_bwd_sm90 import CAUSAL, heads_of

# ---- pairs of options

BATCH, HEADS, LENGTH = 8, 16, 2048  # enough that tiles fill sums of dQ ahead, and are not split
_SCORES = [BATCH, HEADS, LENGTH, LENGTH]


def _number(g, name, dtype=dtypes.i64):
    return g.tensor([1, 1, 1, 1], data_type=dtype, name=name)


def _documents(g):
    numbers = g.tensor([BATCH, 1, LENGTH, 1], data_type=dtypes.i32)

    def masked(graph, scores):
        same = graph.cmp_eq(numbers, graph.transpose(numbers, [0, 1, 3, 2]))
        return graph.binary_select(scores, float("-inf"), same)

    return {"score_mod": masked}


def _halved(graph, gradient):
    return graph.mul(gradient, 0.5)


def _drawn(g):
    return {"dropout": (0.1, _number(g, "seed"), _number(g, "offset"))}


def _biased(g, dims):
    return {"bias": g.tensor(dims, name="bias"), "dBias": g.tensor(dims)}


ALL = {
    "causal": lambda g: {"use_causal_mask": True},
    "window": lambda g: {"diagonal_band_left_bound": 50, "diagonal_band_right_bound": 3},
    "end": lambda g: {"diagonal_band_right_bound": 0, "diagonal_alignment": "BOTTOM_RIGHT"},
    "lengths": lambda g: lengths(g, BATCH),
    "alibi": lambda g: {"use_alibi_mask": True, "diagonal_band_right_bound": 0},
    "bias": lambda g: {"bias": g.tensor([1, *_SCORES[1:]], name="bias")},
    "whole_dbias": lambda g: _biased(g, _SCORES),
    "summed_dbias": lambda g: _biased(g, [1, *_SCORES[1:]]),
    "soft_cap": lambda g: {"score_mod": soft_cap},
    "slope": lambda g: {"score_mod": soft_cap, "score_mod_bprop": _halved},
    "documents": _documents,
    "drawn": _drawn,
    "dump": lambda g: {**_drawn(g), "rng_dump": g.tensor(_SCORES)},
    "mask": lambda g: {"dropout": (g.tensor(_SCORES, name="mask"), _number(g, "kept", dtypes.f32))},
    "sink": lambda g: {name: g.tensor([1, HEADS, 1, 1]) for name in ("sink_token", "dSink_token")},
    "blocks": lambda g: {
        "block_mask": g.tensor([BATCH, HEADS, LENGTH // 128, LENGTH // 1024], data_type=dtypes.ui8)
    },
    "log2": lambda g: {"stats_use_log2": True},
    "repeated": lambda g: {"use_deterministic_algorithm": True},
}
# Options of which a call has one at most.
_EITHER = [
    {"causal", "window", "end", "alibi"},
    {"bias", "whole_dbias", "summed_dbias"},
    {"soft_cap", "slope"},
    {"documents", "slope"},  # whose gradient would be that of the documents' selection, too
    {"drawn", "dump", "mask"},
]
PAIRS = [
    pair for pair in combinations(ALL, 2) if not any(either >= set(pair) for either in _EITHER)
]


# By D: pairs whose kernel spills in all tiles, or is left to sdpa_bwd_sm80.
SPILLING = {
    192: [
        *((other, "blocks") for other in ("alibi", "bias", "drawn")),
        *(("alibi", "sink"), ("alibi", "log2"), ("documents", "dump")),
    ],
    256: [
        *(("lengths", other) for other in ("summed_dbias", "whole_dbias", "dump", "drawn")),
        *(("whole_dbias", "dump"), ("summed_dbias", "dump"), ("dump", "blocks")),
    ],
}


def together(*names):
    """The arguments of some options."""

    def arguments(g):
        given = {"attn_scale": 0.1}
        for name in names:
            more = ALL[name](g)
            if "score_mod" in given and "score_mod" in more:
                more["score_mod"] = _after(given["score_mod"], more["score_mod"])
            given |= more
        return given

    return arguments


def _after(first, second):
    return lambda graph, scores: second(graph, first(graph, scores))


def assert_taken(graph):
    (program,) = compile_graph(graph, "sm_90a").programs
    assert [fusion.engine for fusion in program.fusions] == ["sdpa_bwd_sm90"]
    assert len(program.kernels) <= 3
    for kernel in program.kernels:
        assert kernel.spill_store_bytes == kernel.spill_load_bytes == kernel.local_bytes == 0


# A kernel takes the assembler seconds: a commit compiles four of the thousand, others each time.
_PARTS = 256


def _cases():
    depths = [(64, 64), (128, 128), (192, 128), (256, 256)]
    cases = {
        "-".join([*pair, str(dims[0]), "shared" if heads == 4 else "own"]): (pair, dims, heads)
        for pair in PAIRS
        for dims, heads in product(depths, [4, 16])
    }
    compiled = rotation.chosen(rotation.mixed(cases), most=_PARTS)
    for name, case in cases.items():
        yield pytest.param(*case, marks=[] if name in compiled else [pytest.mark.slow], id=name)


@pytest.mark.assembled
@pytest.mark.parametrize(("pair", "dims", "kv_heads"), list(_cases()))
def test_pairs_are_taken_without_spills(pair, dims, kv_heads):
    """Heads of K and V are shared by four query heads each, or own."""
    if pair in SPILLING.get(dims[0], []):
        pytest.skip("docs/limits.md names it")
    sizes = heads_of(*dims, heads=HEADS, kv_heads=kv_heads, batch=BATCH)
    made = gradient(together(*pair), io=dtypes.bf16, rows=LENGTH, columns=LENGTH, **sizes)()
    assert_taken(made.graph.finalize())


# ---- drawn masks, slopes, layouts: results

DUMPED = [(132, 1), (70, 2)]


@pytest.mark.in_turn
@pytest.mark.feature
@pytest.mark.parametrize(("columns", "kv_heads"), DUMPED, ids=["runs", "apart"])
def test_drawn_masks(columns, kv_heads):
    """Counters of four keys of one query, which four threads share; of keys of two queries."""

    def arguments(g):
        dump = g.tensor([1, 2, 75, columns])
        return {**CAUSAL, **_drawn(g), "rng_dump": dump}

    dims = heads_of(24, 40, heads=2, kv_heads=kv_heads)
    run(arguments, dtypes.bf16, rows=75, columns=columns, **dims)


@pytest.mark.in_turn
@pytest.mark.parametrize("depth", [128, 136])
def test_soft_cap_and_dropout(depth):
    """Two query heads share keys."""

    def arguments(g):
        return {**lengths(g, 1), **CAUSAL, **_drawn(g), "score_mod": soft_cap}

    dims = heads_of(depth, heads=2, kv_heads=1)
    run(arguments, dtypes.bf16, rows=40, columns=72, **dims)


LAST, MIDDLE = (0, 1, 3, 2), (0, 2, 1, 3)
NAMES = ("q", "k", "v", "o", "do", "dq", "dk", "dv")
LAYOUTS = [
    (dict.fromkeys(NAMES, LAST), 64, 136, heads_of(64, heads=2, kv_heads=1)),
    (dict.fromkeys(NAMES, (3, 0, 2, 1)), 70, 45, heads_of(40, 24, heads=2)),
    ({"k": LAST, "do": LAST, "dq": LAST, "dv": LAST, "q": MIDDLE}, 40, 72, heads_of(136)),
    ({"v": LAST, "dk": LAST}, 37, 64, heads_of(192, 128)),
]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize(
    ("layouts", "rows", "columns", "dims"), LAYOUTS, ids=["rows", "heads", "long", "wide"]
)
def test_heads_whose_elements_are_apart(layouts, rows, columns, dims):
    """The kernel before copies operands; results are stored by their strides."""
    run(CAUSAL, dtypes.f16, rows=rows, columns=columns, layouts=layouts, **dims)


def test_packed_rows_that_are_apart_are_left_to_others():
    """A row more of an element: TMA takes strides of 16 bytes."""
    g, *_ = packed_gradient((100, 0, 256), 64)
    graph = g.graph
    load = next(op for op in graph.ops if isinstance(op, RaggedLoad))
    load.packed.strides = tuple(n * 65 // 64 if n.constant != 1 else n for n in load.packed.strides)
    graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    (reason,) = SDPA_BWD_SM90.supports(fusion, of("sm_90a"))
    assert "packed" in str(reason)
