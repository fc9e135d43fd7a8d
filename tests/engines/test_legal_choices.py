"""Whatever knobs `legal` passes, `emit` builds, in the shared memory that was counted."""

import datetime
from collections import Counter
from random import Random

import pytest

import dnnc
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.target import of
from tests import attention_graphs
from tests.legal_choices import COUNTING, DRAWS, TARGETS, check, check_drawn, check_graph

SEED = datetime.date.today().toordinal()


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("family", DRAWS)
def test_legal_choices_are_built(family):
    check_drawn(family, SEED, (TARGETS[SEED % len(TARGETS)],))


@pytest.mark.slow
@pytest.mark.parametrize("family", DRAWS)
def test_legal_choices_are_built_of_many(family):
    found = sum((check_drawn(family, seed) for seed in range(40)), Counter[str]())
    assert sum(found.values()) > 400


@pytest.mark.slow
def test_every_engine_that_counts_is_among_them():
    found = {engine for family in DRAWS for n in range(3) for engine in check_drawn(family, n)}
    assert found >= COUNTING


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("sequences", "fits"), [(8, True), (2048, False)])
def test_a_table_of_packed_sequences_takes_shared_memory(sequences, fits):
    """227 KiB hold three stages of keys and values, and a table of a few sequences beside them."""
    g, _ = attention_graphs.packed([70] * sequences, [70] * sequences, depth=128)
    finalized = g.graph.finalize()
    (fusion,) = partition(finalized, [finalized.live_ops])
    knobs = {"TILE_M": 128, "TILE_N": 128, "STAGES": 3, "KERNEL_CFG": 0, "SCHED_POLICY": 1}
    engine, target = engine_named("sdpa_fwd_sm90"), of("sm_90a")
    assert (not engine.legal(knobs, fusion, target)) == fits
    check(g.graph, engine, fusion, knobs if fits else {**knobs, "STAGES": 2}, target)


@pytest.mark.parametrize(("sums", "fits"), [(3, True), (4, False)])
def test_reductions_at_an_exit_take_shared_memory(sums, fits):
    """99 KiB hold three stages of 32, and 1 KiB for each of three sums of columns."""
    g = dnnc.pygraph("sums", io_data_type="f16", intermediate_data_type="f32")
    y = g.matmul(g.tensor([1, 256, 128]), g.tensor([1, 128, 256]))
    for number in range(sums):
        total = g.reduction(g.mul(y, 1.5 + number), "add").set_dim([1, 1, 256])
        total.set_output().set_data_type("f32")
    finalized = g.graph.finalize()
    (fusion,) = partition(finalized, [finalized.live_ops])
    knobs = {"TILE_M": 128, "TILE_N": 128, "TILEK": 64, "STAGES": 3}
    engine, target = engine_named("matmul_sm80"), of("sm_120")
    assert not engine.supports(fusion, target)
    assert (not engine.legal(knobs, fusion, target)) == fits
    check(g.graph, engine, fusion, knobs if fits else {**knobs, "STAGES": 2}, target)


def of_a_number(name):
    """A product or a convolution one of whose operands is a number of the graph."""
    g = dnnc.pygraph("number", io_data_type="f16", intermediate_data_type="f32")
    rank = 3 if name == "matmul" else 4
    number = g.tensor_scalar(1.5, dnnc.scalar_type.COMPILE_TIME_CONST).set_dim([1] * rank)
    number.set_stride([1] * rank).set_data_type("f16")
    if name == "matmul":
        made = g.matmul(number, g.tensor([1, 1, 64]))
    elif name == "conv_fprop":
        made = g.conv_fprop(g.tensor([2, 1, 8, 8]), number, padding=0, stride=1, dilation=1)
    else:
        made = g.conv_dgrad(g.tensor([2, 1, 8, 8]), number, padding=0, stride=1, dilation=1)
        made.set_dim([2, 1, 8, 8])
    made.set_output()
    return g.graph


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", ["matmul", "conv_fprop", "conv_dgrad"])
def test_an_operand_may_be_a_number_of_the_graph(name):
    assert len(check_graph(of_a_number(name), Random(0), name)) > 1
