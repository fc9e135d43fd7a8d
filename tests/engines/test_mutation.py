"""Every wait and barrier of a kernel matters: without it, some schedule of 20 goes wrong, and with
it that schedule is right."""

import functools

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.interpreter import InterpreterError, parse, plans
from dnnc.interpreter.launch import launch
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.attention_graphs import Pattern
from tests.dialect.attention_gradient_examples import gradient as gradient_of_attention
from tests.dialect.norm_examples import peer_reduction
from tests.support import multiprocessors
from tests.support.checked import random_inputs
from tests.support.compare import assert_close

from .conv.convs import image
from .conv.test_pattern import new_graph as conv_graph
from .conv.test_sm90 import SMALL as CONV_SMALL
from .elementwise.test_pointwise import new_graph
from .elementwise.test_reduction import reduce
from .product.test_fragments_sm90 import SWAPPED, weights_of_8_bits
from .product.test_grouped_matmul import operands
from .product.test_matmul_sm80 import new_graph as matmul_graph
from .product.test_matmul_sm80 import strides
from .product.test_matmul_sm90 import SMALL, TALL, softmax
from .rows.test_grid import batchnorm

SEEDS = 20
STEPS = 150_000  # of a launch
SPIN = "mbarrier.try_wait"  # inline assembly: a loop around it
WAITS = ("bar.sync", "cp.async.wait_group", "cp.async.commit_group")

# The last wait drains groups that are empty by then.  It stands so that no later change of the
# loop can leave a copy under way when the epilogue writes over the stages.
_DRAINED = "every group has been waited for when the loop ends"
# LLVM gives K = 0 a path of its own, on which nothing was copied.
_NO_TILES = "on the path of K = 0, where there is nothing to wait for"

# Kernel -> {(opcode, place from the end): why its absence can't be observed}.
UNOBSERVABLE = {
    "attention_gradient": {("cp.async.wait_group", -1): _DRAINED},
    "attention": {("cp.async.wait_group", -1): _DRAINED},
    "attention_of_wide_heads": {("cp.async.wait_group", -1): _DRAINED},
    "matmul": {("cp.async.wait_group", -1): _DRAINED},
    "matmul_through_registers": {
        ("cp.async.wait_group", -1): _DRAINED,
        ("cp.async.commit_group", -1): _NO_TILES,
    },
    "convolution": {("cp.async.wait_group", -1): _DRAINED},
    "convolution_of_elements": {
        ("cp.async.wait_group", -1): _DRAINED,
        ("cp.async.commit_group", -1): _NO_TILES,
    },
}


def matmul():
    g = matmul_graph(dtypes.f16)
    x, w, bias = g.tensor([1, 40, 200]), g.tensor([1, 200, 72]), g.tensor([1, 1, 72])
    g.bias(g.matmul(x, w), bias).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 3}


def matmul_through_registers():
    g = matmul_graph(dtypes.f16)
    x, w, scale = g.tensor([1, 40, 200]), g.tensor([1, 200, 72]), g.tensor([1, 1, 200])
    g.matmul(g.mul(x, scale).set_data_type(dtypes.f16), w).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2}


def convolution():
    """Copies of X and of W."""
    g = conv_graph()
    g.conv_fprop(image(g, [1, 24, 5, 6]), image(g, [40, 24, 3, 3]), padding=[1, 1]).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 3}


def convolution_of_elements():
    """Three channels: X goes straight into shared memory, W comes by copies."""
    g = conv_graph()
    x, w = image(g, [1, 3, 6, 6]), image(g, [40, 3, 5, 4])
    g.conv_fprop(x, w, padding=[2, 2]).set_output()
    return g, {"TILE_M": 32, "TILE_N": 64, "TILEK": 32, "STAGES": 2}


def reduction_of_rows():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([3, 2000]), "add", (1,)).set_output()
    return g, {"TILE_ROWS": 256, "SPLIT_K_SLC": 1}


def reduction_of_columns():
    g = new_graph(dtypes.f32)
    reduce(g, g.tensor([200, 64]), "add", (0,)).set_output()
    return g, {"TILE_ROWS": 8, "SPLIT_K_SLC": 1}


def depthwise():
    """A block of two warps' channels, whose filter comes to shared memory first."""
    g = matmul_graph(dtypes.f32)
    x = g.tensor([1, 64, 5, 6], [64 * 30, 1, 64 * 6, 64])
    g.conv_fprop(x, g.tensor([64, 1, 3, 3]), padding=[1, 1]).set_output()
    return g, {"LOAD_SIZE": 16, "TILE_ROWS": 1, "TILE_COLS": 1}


def attention():
    """Five blocks of keys, the last of them in part; the queries go to registers."""
    pattern = Pattern(batch=(1, 1), queries=32, keys=70, depth=24, width=16, statistics=None)
    return pattern.g, {"TILE_M": 32, "TILE_N": 16, "STAGES": 3, "PACK_GQA": 0, "SPLIT_KV": 1}


def attention_of_wide_heads():
    """Queries stay in shared memory."""
    pattern = Pattern(batch=(1, 1), queries=32, keys=40, depth=256, statistics=None)
    return pattern.g, {"TILE_M": 32, "TILE_N": 16, "STAGES": 2, "PACK_GQA": 0, "SPLIT_KV": 1}


def attention_gradient():
    """Tiles of keys: three blocks of queries of two heads that share them."""
    heads = {"batch": 1, "heads": 2, "kv_heads": 1, "depth": 24, "value_depth": 16}
    build = gradient_of_attention({"attn_scale": 0.3}, io=dtypes.f16, rows=40, columns=40, **heads)
    return build(), {"TILE_M": 32, "TILE_N": 16, "STAGES": 2}


CASES = {
    "attention": ("sdpa_sm80", attention),
    "attention_gradient": ("sdpa_bwd_sm80", attention_gradient),
    "attention_of_wide_heads": ("sdpa_sm80", attention_of_wide_heads),
    "matmul": ("matmul_sm80", matmul),
    "matmul_through_registers": ("matmul_sm80", matmul_through_registers),
    "convolution": ("conv_sm80", convolution),
    "convolution_of_elements": ("conv_sm80", convolution_of_elements),
    "reduction_of_rows": ("reduction", reduction_of_rows),
    "reduction_of_columns": ("reduction", reduction_of_columns),
    "depthwise": ("conv_depthwise", depthwise),
}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    """A spin that never ends is found soon."""
    monkeypatch.setattr(plans, "launch", functools.partial(launch, step_limit=STEPS))


def goes_wrong(plan, module, inputs, expected, seed):
    """Whether a schedule of the kernel fails or gives another result.

    expected: uid -> (values, type).
    """
    try:
        actual = run_plan(plan, inputs, seed=seed, module=module)
        for uid, (wanted, dtype) in expected.items():
            assert_close(actual[uid], wanted, dtype, slack=16.0)
    except (InterpreterError, AssertionError):
        return True
    return False


def first_wrong(*of):
    """The first schedule that goes wrong, None if all are right."""
    return next((seed for seed in range(SEEDS) if goes_wrong(*of, seed)), None)


def survivors(build, engine, target, removals, suffix=""):
    """The removals, and those of them that nothing shows.

    The unchanged kernel is right on every schedule that shows one.
    removals: of a function, (what, changed module) one at a time.  suffix: of the kernel's name.
    """
    g, knobs = build()
    graph = g.graph.finalize()
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, target, options)
    inputs = random_inputs(graph, {}, low=0.25)
    wanted = reference(graph, inputs, exact_outputs=True)
    expected = {t.uid: (wanted[t.uid], t.type) for t in graph.outputs}
    module = parse(plan.blobs[1].decode())
    kernel = next(k.name for k in plan.programs[0].kernels if k.name.endswith(suffix))
    found = list(removals(module, kernel))
    shown = {what: first_wrong(plan, changed, inputs, expected) for what, changed in found}
    for seed in {0, *shown.values()} - {None}:
        assert not goes_wrong(plan, module, inputs, expected, seed), seed
    return found, {what for what, seed in shown.items() if seed is None}


def removed(module, kernel, opcodes):
    """((opcode, place from the end), module without it) of each instruction."""
    for opcode in opcodes:
        places = module.function(kernel).indices(opcode)
        for number, place in enumerate(places):
            changed = module.without(kernel, place)
            if opcode == SPIN:
                # With the two branches of the loop around it.
                for _ in range(2):
                    assert changed.function(kernel).instructions[place].opcode[0] == "bra"
                    changed = changed.without(kernel, place)
            yield (opcode, number - len(places)), changed


# The second has the loop of matmul_through_registers.
_LONG = ("attention_of_wide_heads", "convolution_of_elements")


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in _LONG else ()) for n in CASES]
)
def test_each_wait_is_needed(name):
    engine, build = CASES[name]
    suffix = "_dv_dk" if name == "attention_gradient" else ""
    found, alive = survivors(build, engine, "sm_80", lambda *of: removed(*of, WAITS), suffix)
    assert found
    assert alive == set(UNOBSERVABLE.get(name, {}))


# ---- Hopper: three panels of k, so that loops unrolled by two take their odd path too


def tiles_with_a_residual():
    """Three tiles for one block, of two chunks each: every ring goes round."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    residual = g.tensor([1, 120, 136], data_type=dtypes.f32)
    g.add(g.matmul(x, w), residual).set_output()
    return g, {**TALL, "TILE_N": 64}


def weights_through_registers():
    g = matmul_graph(dtypes.f16)
    w = g.tensor([1, 136, 136], strides(136, 136, "column"), data_type=dtypes.i8)
    wide = g.mul(w, g.tensor([1, 1, 136])).set_data_type(dtypes.f16)
    g.matmul(g.tensor([1, 56, 136]), wide).set_output()
    return g, SMALL


def cluster_of_two():
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "TILE_CGA_M": 2}


def turns():
    """Five tiles: three of one warpgroup, two of the other; two stages for three panels."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 56, 136]), g.tensor([1, 136, 304], strides(136, 304, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "WARP_SPEC_CFG": 4}


def turns_with_a_residual():
    """Seven tiles; of each a fourth use of the ring brings the residual."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 56, 136]), g.tensor([1, 136, 432], strides(136, 432, "column"))
    g.add(g.matmul(x, w), g.tensor([1, 56, 432])).set_output()
    return g, {**SMALL, "WARP_SPEC_CFG": 4}


def split_k():
    """Two tiles, each by four blocks, two of which add."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 40, 264]), g.tensor([1, 264, 24], strides(264, 24, "column"))
    g.matmul(x, w).set_output()
    return g, {**SMALL, "TILE_N": 16, "SPLIT_K_SLC": 4}


def experts():
    """Pairs of tiles along the rows and along the columns, of which warpgroups have no rows.

    Offsets are up to 9, so that the last expert has two whole tiles of rows and a part of a third.
    Seven panels of k: the loop in which a warpgroup lets every stage go is unrolled by four.
    """
    g = matmul_graph(dtypes.f16)
    g.moe_grouped_matmul(*operands(g, 300, 3, 392, 128)).set_output()
    return g, {**TALL, "TILE_CGA_M": 2}


def weights_in_the_registers_of_consumers():
    """Three tiles for one block."""
    return weights_of_8_bits(dtypes.i8, 56, 136, 144), SWAPPED


def relu_with_its_mask():
    """Three tiles for one block; the mask is stored from registers, the rest by TMA."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 136], strides(136, 136, "column"))
    y = g.matmul(x, w)
    g.cmp_gt(y, 172.0).set_output().set_data_type(dtypes.i1)
    g.relu(y).set_output()
    return g, {**TALL, "TILE_N": 64}


def rows_over_a_cluster():
    """Three tiles for a pair of blocks, and four exchanges of each."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 150, 136]), g.tensor([1, 136, 40], strides(136, 40, "column"))
    softmax(g, g.matmul(x, w), [1, 150, 1]).set_output()
    return g, {**SMALL, "TILE_N": 32, "TILE_CGA_N": 2}


def reduction_at_the_exit():
    """Three tiles for one block, and sums of their columns."""
    g = matmul_graph(dtypes.f16)
    x, w = g.tensor([1, 120, 136]), g.tensor([1, 136, 72], strides(136, 72, "column"))
    c = g.matmul(x, w).set_output()
    g.reduction(c, "add").set_dim([1, 1, 72]).set_output().set_data_type(dtypes.f32)
    return g, {**TALL, "TILE_N": 32}


def promoted():
    """Sums of 128 products each, added in f32.  272 is a stride that TMA takes."""
    g = matmul_graph(dtypes.f8e4m3)
    x, w = g.tensor([1, 56, 272]), g.tensor([1, 272, 72], strides(272, 72, "column"))
    g.matmul(x, w).set_output().set_data_type(dtypes.f32)
    return g, {**SMALL, "TILE_N": 32}


HOPPER_CASES = {
    "wide rows": (rows_over_a_cluster, 2),
    "exit": (reduction_at_the_exit, 1),
    "promoted": (promoted, 1),
    "residual": (tiles_with_a_residual, 1),
    "registers": (weights_through_registers, 1),
    "cluster": (cluster_of_two, 2),
    "turns": (turns, 1),
    "turns and residual": (turns_with_a_residual, 1),
    "split k": (split_k, 8),
    "experts": (experts, 2),
    "fragments": (weights_in_the_registers_of_consumers, 1),
    "mask": (relu_with_its_mask, 1),
}
HOPPER_WAITS = (
    SPIN,
    "mbarrier.arrive",
    "fence",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "bar",
    "barrier",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "setmaxnreg",
)

# The interpreter takes the lanes of a warp as ordered; on a device lane 0 might release the buffer
# while another lane has yet to read it.
_ONE_WARP = "orders lanes of one warp, which the interpreter does by itself"
_MORE_REGISTERS = "registers that a thread may have are no register that it uses"

_WAITED_TWICE = "the residual's stage has been waited for when the turn ended"
_LAST_EXCHANGE = "each block has waited for the last exchange, after which none writes to it"

HOPPER_UNOBSERVABLE = {
    "attention": {("cp.async.wait_group", -1): _DRAINED},
    "attention_of_wide_heads": {("cp.async.wait_group", -1): _DRAINED},
    "wide rows": {
        **{("bar", place): _ONE_WARP for place in (-6, -5, -4, -3)},
        ("barrier", -1): _LAST_EXCHANGE,
    },
    "exit": {("setmaxnreg", -2): _MORE_REGISTERS},
    "experts": {("setmaxnreg", -2): _MORE_REGISTERS},
    "residual": {
        ("bar", -6): _ONE_WARP,
        ("bar", -3): _ONE_WARP,
        ("setmaxnreg", -2): _MORE_REGISTERS,
    },
    "split k": {("bar", -4): _ONE_WARP, ("bar", -1): _ONE_WARP},
    "mask": {("setmaxnreg", -2): _MORE_REGISTERS},
    "turns": {("setmaxnreg", -2): _MORE_REGISTERS},
    "turns and residual": {
        ("setmaxnreg", -2): _MORE_REGISTERS,
        ("bar", -3): _ONE_WARP,
        (SPIN, -5): _WAITED_TWICE,
    },
}


# In CI stay those that tell the waits of one part each.
SLOW = (
    "wide rows", "turns and residual", "residual", "experts", "mask", "registers", "turns", "exit",
    "fragments", "split k",
)  # fmt: skip


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in HOPPER_CASES]
)
def test_each_wait_of_hopper_is_needed(name, monkeypatch):
    """One cluster works through all tiles, whatever the "sm_90a" of the table has."""
    build, blocks = HOPPER_CASES[name]
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": blocks})
    found, alive = survivors(build, "matmul_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS))
    assert len(found) > 15
    assert alive == set(HOPPER_UNOBSERVABLE.get(name, {}))


# ---- pixels that warps compute: three tiles for one block, of three taps each


def computed_pixels(dims, knobs):
    def build():
        g = conv_graph()
        x = g.add(image(g, dims), g.tensor([1, dims[1], 1, 1])).set_data_type(dtypes.f16)
        g.conv_fprop(x, image(g, [40, dims[1], 1, 3]), padding=[0, 1]).set_output()
        return g, knobs

    return build


COMPUTED = {
    "stages": computed_pixels([1, 40, 8, 20], CONV_SMALL),
    # All filters stay: else their ring keeps the producer from running ahead with pixels.
    "halo": computed_pixels(
        [1, 128, 6, 14], {**CONV_SMALL, "TILE_ROWS": 2, "SWAP_AB": 1, "STAGES": 6}
    ),
    # A tile's rows are stored by a copy each.
    "halo of some columns": computed_pixels(
        [1, 128, 4, 14],
        {**CONV_SMALL, "TILE_ROWS": 2, "TILE_COLS": 8, "SWAP_AB": 1, "STAGES": 6},
    ),
}
_OF_HALOS = {
    ("bar", -1): _ONE_WARP,
    ("bar", -2): _ONE_WARP,
    ("setmaxnreg", -2): _MORE_REGISTERS,
}
COMPUTED_UNOBSERVABLE = {
    "stages": {("bar", -1): _ONE_WARP},
    "halo": _OF_HALOS,
    "halo of some columns": _OF_HALOS,
}


@pytest.mark.parametrize(
    "name",
    [n if n == "stages" else pytest.param(n, marks=pytest.mark.slow) for n in COMPUTED],
)
def test_each_wait_of_computed_pixels_is_needed(name, monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        COMPUTED[name], "conv_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 15
    assert alive == set(COMPUTED_UNOBSERVABLE.get(name, {}))


# ---- few channels: three tiles for one block, of two shares of k each

_OTHER_WORDS = "words of the next share have registers of their own, until they are assembled"
FEW_CHANNELS_UNOBSERVABLE = {
    ("bar", -3): _ONE_WARP,
    ("setmaxnreg", -2): _MORE_REGISTERS,
    ("wgmma.commit_group", -2): _OTHER_WORDS,
    ("wgmma.wait_group", -2): _OTHER_WORDS,
}


def few_channels():
    g = conv_graph()
    g.conv_fprop(image(g, [3, 8, 5, 10]), image(g, [24, 8, 7, 7]), padding=[3, 3]).set_output()
    return g, {"TILE_M": 128, "TILE_N": 32, "STAGES": 2}


@pytest.mark.slow
def test_each_wait_of_few_channels_is_needed(monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        few_channels, "conv_stem_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 15
    assert alive == set(FEW_CHANNELS_UNOBSERVABLE)


# ---- attention: one block works through all tiles, of two blocks of keys each


def tiles_of_attention(*, batch, queries, keys=66, knobs=None, **options):
    g = Pattern(batch=(batch,), queries=queries, keys=keys, **{"depth": 8, **options}).g
    return lambda: (g, ATTENTION | (knobs or {}))


ATTENTION = {"TILE_M": 128, "TILE_N": 64, "STAGES": 2, "KERNEL_CFG": 3, "SCHED_POLICY": 1}
TWO_TILES = tiles_of_attention(batch=1, queries=130, keys=100)
TURNED = tiles_of_attention(
    batch=1, queries=130, keys=200, depth=16, dtype="FP8_E4M3", weight_type="FLOAT",
    knobs={"KERNEL_CFG": 2},
)  # fmt: skip
ATTENTION_CASES = {
    "six tiles": tiles_of_attention(batch=6, queries=66),
    "one stage of queries": tiles_of_attention(
        batch=3, queries=66, depth=256, width=8, knobs={"SCHED_POLICY": 0, "KERNEL_CFG": 1}
    ),
}  # fmt: skip

_LAST_TURN = "the turn that is left over when a block ends is nobody's"
_OTHER_FENCE = "the other product's fence, right beside it, orders the same registers"
_TAKEN_BEFORE = "a tile's number is there before its queries are, for which the reader waited"
_NOT_AHEAD = "the producer is two tiles of queries ahead at most, and the ring has four slots"
_NOT_AROUND = "two tiles go round no ring of two or more"
_OF_EVERY_ATTENTION = {
    ("bar", -1): _LAST_TURN,
    ("setmaxnreg", -2): _MORE_REGISTERS,
    ("wgmma.fence", -3): _OTHER_FENCE,
    ("wgmma.fence", -2): _OTHER_FENCE,
}
_OF_TILES_BY_NUMBER = {
    ("bar", -2): _ONE_WARP,
    ("mbarrier.try_wait", -8): _TAKEN_BEFORE,
    ("mbarrier.try_wait", -6): _NOT_AHEAD,
}
ATTENTION_UNOBSERVABLE = {
    "six tiles": _OF_EVERY_ATTENTION | _OF_TILES_BY_NUMBER,
    "one stage of queries": _OF_EVERY_ATTENTION,
}
NOT_IN_TWO_TILES = {
    **ATTENTION_UNOBSERVABLE["six tiles"],
    ("cp.async.bulk.wait_group", -2): _NOT_AROUND,
    ("mbarrier.arrive", -13): _NOT_AROUND,
    ("mbarrier.arrive", -8): _NOT_AROUND,
    ("mbarrier.try_wait", -5): _NOT_AROUND,
    ("mbarrier.try_wait", -4): _NOT_AROUND,
}


def test_waits_of_attention_are_needed(monkeypatch):
    """All but those that two tiles can't show: looking for what shows nothing takes long."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})

    def observable(module, kernel):
        every = removed(module, kernel, HOPPER_WAITS)
        return [found for found in every if found[0] not in NOT_IN_TWO_TILES]

    found, alive = survivors(TWO_TILES, "sdpa_fwd_sm90", "sm_90a", observable)
    assert len(found) > 35
    assert not alive


def test_waits_of_turned_values_are_needed(monkeypatch):
    """Of fp8: four blocks of values go round two rings of two stages, by way of three warps, which
    wait for both, show what they wrote, and arrive at both."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})

    def around_the_turning(module, kernel):
        function = module.function(kernel)
        first, last = function.indices("ldmatrix")[0], function.indices("stmatrix")[-1]
        for found in removed(module, kernel, (SPIN, "mbarrier.arrive", "fence")):
            opcode, place = found[0]
            if first - 45 < function.indices(opcode)[place] < last + 6:
                yield found

    found, alive = survivors(TURNED, "sdpa_fwd_sm90", "sm_90a", around_the_turning)
    opcodes = [opcode for (opcode, _), _ in found]
    assert sorted(opcodes) == ["fence", *["mbarrier.arrive"] * 2, *[SPIN] * 2]
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION_CASES)
def test_each_wait_of_attention_is_needed(name, monkeypatch):
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 1})
    found, alive = survivors(
        ATTENTION_CASES[name], "sdpa_fwd_sm90", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert len(found) > 40
    assert alive == set(ATTENTION_UNOBSERVABLE[name])


# ---- blocks and devices that meet


def test_each_wait_of_grid_is_needed(monkeypatch):
    """Two meetings of three blocks."""
    monkeypatch.setattr(plans, "_device_variables", lambda program: {"sm_count": 3})

    def build():
        knobs = {"TILE_ROWS": 64, "ARRAY_SIZE_PER_THREAD": 1, "STAGES": 4}
        return batchnorm(2, 16, 4, 8, io="f32", running=False), knobs

    found, alive = survivors(build, "grid", "sm_90a", lambda *of: removed(*of, MEETING))
    assert {opcode for (opcode, _), _ in found} >= {"bar", "red"}
    assert not alive


def test_each_wait_of_peers_is_needed():
    """The interpreter has one device: what others see of it, and it of them, can't be observed."""
    found, alive = survivors(
        lambda: (peer_reduction((1, 300, 1), 2, 1)(), {}), "peers", "sm_80",
        lambda *of: removed(*of, MEETING),
    )  # fmt: skip
    assert {opcode for (opcode, _), _ in found} == {"bar", "fence", "red", "ld.acquire"}
    assert alive == {("bar", -2), ("bar", -1), ("fence", -2), ("fence", -1)}


MEETING = ("bar", "fence", "red", "ld.acquire", "cp.async.wait_group", "cp.async.commit_group")


# ---- rows


def rows_of_warps():
    """Two levels; rows of two warps each."""
    g = new_graph(dtypes.f32)
    x = g.tensor([3, 200])
    e = g.exp(g.sub(x, reduce(g, x, "max", (1,))))
    g.div(e, reduce(g, e, "add", (1,))).set_output()
    return g, ROWS | {"TILE_COLS": 64, "ARRAY_SIZE_PER_THREAD": 4}


def rows_of_a_cluster():
    g, knobs = rows_of_warps()
    return g, knobs | {"TILE_COLS": 32, "TILE_CGA": 2}


def rows_of_a_ring():
    """One level, four rows for each of two blocks of two stages, sums of columns."""
    g = new_graph(dtypes.f32)
    x = g.tensor([8, 68])
    mean = reduce(g, x, "avg", (1,))
    g.sub(x, mean).set_output()
    reduce(g, x, "add", (0,)).set_output()
    return g, ROWS | {"TILE_COLS": 128, "ARRAY_SIZE_PER_THREAD": 4, "CTA_COUNT": 1, "STAGES": 2}


def rows_of_rings(threads=128, columns=68, **knobs):
    """Rows less their means and a number each, and sums of columns; stages are used four times.

    It has one level: of a second one, all have taken the totals when they give the next row's.
    """
    g = new_graph(dtypes.f32)
    rows = 8 if threads > 32 else 32
    x = g.tensor([rows, columns])
    mean = g.add(reduce(g, x, "avg", (1,)), g.tensor([rows, 1]))
    g.sub(x, g.mul(mean, g.tensor([1, columns]))).set_output()
    reduce(g, x, "add", (0,)).set_output()
    own = {"TILE_COLS": threads, "CTA_COUNT": 1, "STAGES": 2, "KERNEL_CFG": 2}
    return g, ROWS | own | knobs


def rows_with_extremes():
    """Each of a warp: the warps of a block meet for what is of all rows alone."""
    g = new_graph(dtypes.f32)
    x = g.tensor([8, 68])
    y = g.sub(x, reduce(g, x, "avg", (1,))).set_output()
    for mode in ("amax", "min"):
        reduce(g, y, mode, (0, 1)).set_output()
    return g, ROWS


def rows_of_rings_of_warps():
    return rows_of_rings(32)


def rows_of_rings_of_a_cluster():
    return rows_of_rings(64, 264, TILE_CGA=2)


ROWS = {
    "TILE_COLS": 32, "TILE_ROWS": 0, "ARRAY_SIZE_PER_THREAD": 4, "TILE_CGA": 1,
    "CTA_COUNT": 0, "STAGES": 0, "KERNEL_CFG": 0,
}  # fmt: skip
ROWS_CASES = {
    "warps": rows_of_warps,
    "cluster": rows_of_a_cluster,
    "extremes": rows_with_extremes,
    "ring": rows_of_a_ring,
    "shared rings": rows_of_rings,
    "rings of warps": rows_of_rings_of_warps,
    "rings of a cluster": rows_of_rings_of_a_cluster,
}
_NO_MORE_WRITES = "no block writes to another after it; it ends what the last exchange began"
ROWS_UNOBSERVABLE = {
    "attention": {("cp.async.wait_group", -1): _DRAINED},
    "attention_of_wide_heads": {("cp.async.wait_group", -1): _DRAINED},
    "cluster": {("barrier", -1): _NO_MORE_WRITES},
    "ring": {("bar", place): _ONE_WARP for place in (-5, -4, -1)},
    "shared rings": {("bar", place): _ONE_WARP for place in (-3, -2, -1)},
    "rings of warps": {("bar", place): _ONE_WARP for place in range(-8, -2)},
    "rings of a cluster": {
        **{("bar", place): _ONE_WARP for place in (-5, -4, -3)},
        ("barrier", -1): _NO_MORE_WRITES,
    },
}


@pytest.mark.rotating
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n == "rings of a cluster" else ())
        for n in ROWS_CASES
    ],
)
def test_each_wait_of_rows_is_needed(name, monkeypatch):
    multiprocessors.few(monkeypatch, 2)
    found, alive = survivors(
        ROWS_CASES[name], "rows", "sm_90a", lambda *of: removed(*of, HOPPER_WAITS)
    )
    assert found
    assert alive == set(ROWS_UNOBSERVABLE.get(name, {}))


def test_the_unchanged_kernel_is_what_the_plan_runs():
    g, knobs = matmul()
    graph = g.graph.finalize()
    options = Options(engine="matmul_sm80", knobs=tuple(knobs.items()))
    plan = compile_graph(graph, "sm_80", options)
    inputs = random_inputs(graph, {})
    results = [
        run_plan(plan, inputs, module=module) for module in (None, parse(plan.blobs[1].decode()))
    ]
    for uid, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][uid])
