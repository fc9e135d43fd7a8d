"""Every choice of knobs that `legal` passes is built, in the shared memory that `legal` counted.

As code of "sm_90a".
"""

import datetime
import re
from random import Random

import pytest

from dnnc import compiler
from dnnc.codegen.hopper import tma
from dnnc.dialect import dnn
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.product.shared_layout_sm90 import chunk_columns
from dnnc.options import Options
from dnnc.target import of
from tests import random_epilogues

from .test_candidates_sm90 import GRAPHS

TARGET = of("sm_90a")
ENGINES = ("matmul_sm90", "conv_product_sm90", "conv_sm90", "conv_stem_sm90")
DRAWS = [random_epilogues.product, random_epilogues.convolution]

# Of 300 seeds three a day.
_DAY = datetime.date.today().toordinal()
TODAY = [_DAY * 3 % 300 + i for i in range(3)]


def layout(engine, fusion, knobs):
    """Where everything lies."""
    return engine.tile_of(fusion, knobs, TARGET).shared


def is_whole(layout):
    """Whether chunks fill a warpgroup's columns, in rows that TMA takes.

    With a halo a buffer has all columns, and the last chunk of it may have fewer; so may that of
    a transposed tile.
    """
    if layout.pixels.halo:
        return True
    epilogue = layout.epilogue
    least = min([*epilogue.staged_bytes, *epilogue.loaded_bytes], default=tma.ALIGNMENT)
    is_filled = layout.own_columns % layout.chunk == 0 or epilogue.is_transposed
    return is_filled and layout.last_columns > 0 and layout.chunk * least >= tma.ALIGNMENT


def every_choice(graph):
    """(engine, fusion, knobs) of the legal choices, each of which has a layout that fits."""
    (fusion,) = partition(graph.finalize(), [graph.live_ops])
    for engine in map(engine_named, ENGINES):
        if engine.supports(fusion, TARGET):
            continue
        for candidate in engine.candidates(fusion, TARGET):
            assert not engine.legal(candidate, fusion, TARGET)
            found = layout(engine, fusion, candidate)
            assert found.bytes <= TARGET.limits.smem_block_bytes
            assert is_whole(found)
            yield engine, fusion, candidate


def check_built(graph, engine, fusion, knobs, stage="ptx"):
    """The kernel is launched with what the layout has, and every place is inside."""
    with dnn.context():
        work = compiler.start(graph, TARGET)
        options = Options(engine=engine.name, knobs=tuple(knobs.items()))
        compiler.advance(work, "kernel", options)
        kernel = f"fusion0_{engine.name}"
        ((needed,),) = [
            re.findall(r'dynamic_smem_bytes = "(\d+)"', launch)
            for launch in re.findall(r"launch = \{.*?kernel = \"\w+\"", work.text())
            if launch.endswith(f'"{kernel}"')
        ]
        assert int(needed) == layout(engine, fusion, knobs).bytes
        if stage == "ptx":
            compiler.advance(work, "ptx", options)
            places = re.findall(rf"{kernel}_smem\+(\d+)", work.ptx)
            assert 0 < max(map(int, places)) < int(needed)


def check_some(graph, name, stage):
    """Builds one choice of each engine; returns how many choices there were."""
    choices = list(every_choice(graph))
    for engine in {choice[0].name for choice in choices}:
        own = [choice for choice in choices if choice[0].name == engine]
        check_built(graph, *Random(f"{name} {engine}").choice(own), stage)
    return len(choices)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("draw", DRAWS)
def test_legal_choices_are_built(draw):
    assert sum(check_some(draw(seed).graph, seed, "ptx") for seed in TODAY) > 0


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
def test_legal_choices_are_built_of_many(draw):
    found = sum(check_some(draw(seed).graph, seed, "kernel") for seed in range(1000))
    assert found > 60_000


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", GRAPHS)
def test_legal_choices_of_known_graphs_are_built(name):
    assert check_some(GRAPHS[name]().graph, datetime.date.today(), "kernel") > 0


def _unaligned(other):
    """A product whose A passes through registers, beside a tensor of C's dims."""
    g = random_epilogues.dnnc.pygraph("m", io_data_type="f16", intermediate_data_type="f32")
    c = g.matmul(g.tensor([64, 512, 132]), g.tensor([64, 132, 512]))
    g.relu(c).set_output()
    g.mul(c, g.tensor([64, 512, 512], data_type=other)).set_output()
    return g


@pytest.mark.in_turn
def test_loads_that_a_kernel_does_not_stage_are_not_counted():
    """Chunks are as wide as without them, and so are the buffers of what is stored."""
    graph = _unaligned("f32").graph
    engine, fusion, knobs = next(every_choice(graph))
    assert layout(engine, fusion, knobs).epilogue.loaded_bytes == ()
    check_built(graph, engine, fusion, knobs)


def test_chunks_of_transposed_tiles_are_few():
    for columns in range(72, 257, 8):
        chunk = chunk_columns(columns, [2], is_transposed=True)
        assert chunk % 8 == 0
        assert chunk <= 64
        assert -(-columns // chunk) <= -(-columns // 32)
