"""What `legal` counts of shared memory is what kernels lay out, in random epilogues.

As code of "sm_90a".
"""

import datetime
from dataclasses import replace

import pytest

from dnnc import compiler
from dnnc.choosing.choice import choices
from dnnc.codegen.hopper import tma
from dnnc.codegen.region import Region
from dnnc.compiler import TEXT_STAGES, compile_graph
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.conv import halo_knobs_sm90, stem_sm90
from dnnc.engines.conv.facts_sm90 import beside_of, conv_facts_of, main_loop_knobs
from dnnc.engines.conv.product import product_fusion
from dnnc.engines.conv.region_sm90 import conv_instruction_of
from dnnc.engines.conv.sm90 import _copied, _relaid
from dnnc.engines.product.facts_sm90 import facts_of
from dnnc.engines.product.knobs_sm90 import layout_of
from dnnc.engines.product.region_sm90 import instruction_of
from dnnc.engines.product.tile_sm90 import Tiling
from dnnc.options import Options
from dnnc.target import of
from tests import random_epilogues

LINALG = TEXT_STAGES[TEXT_STAGES.index("linalg")]
TARGET = of("sm_90a")
ENGINES = ("matmul_sm90", "conv_product_sm90", "conv_sm90", "conv_stem_sm90")
MORE = ({}, {"SCHED_POLICY": 1}, {"STREAM_K": 1})

# Of 300 seeds three a day.
_DAY = datetime.date.today().toordinal()
TODAY = [_DAY * 3 % 300 + i for i in range(3)]


def judged(engine, fusion, knobs):
    """The layout that `legal` judges."""
    if engine.name == "conv_stem_sm90":
        return stem_sm90.layout_of(stem_sm90._relaid(fusion).fusion, knobs)
    if engine.name == "conv_product_sm90":
        return layout_of(knobs, facts_of(product_fusion(fusion)))
    if engine.name == "matmul_sm90":
        return layout_of(knobs, facts_of(fusion))
    fusion = _relaid(fusion, _copied(knobs)).fusion
    if knobs["TILE_ROWS"]:
        return halo_knobs_sm90.layout_of(knobs, fusion)
    return layout_of(main_loop_knobs(knobs), conv_facts_of(fusion, beside_of(fusion, knobs)))


def laid_out(engine, region, knobs):
    """The layout of the kernel."""
    swaps = bool(knobs.get("SWAP_AB"))
    rows = conv_instruction_of if engine.name == "conv_sm90" else instruction_of
    return Tiling.of(engine.tile(region, knobs, TARGET), rows(region, swaps=swaps)).shared


def is_whole(layout):
    """Whether chunks fill a warpgroup's columns, in rows that TMA takes.

    With a halo a buffer has all columns, and the last chunk of it may have fewer.
    """
    if layout.halo_bytes:
        return True
    least = min([*layout.staged_bytes, *layout.loaded_bytes], default=tma.ALIGNMENT)
    return layout.own_columns % layout.chunk == 0 and layout.chunk * least >= tma.ALIGNMENT


def check_every_choice(graph):
    """Returns how many choices of knobs there were."""
    (fusion,) = partition(graph.finalize(), [graph.live_ops])
    count = 0
    for engine in map(engine_named, ENGINES):
        if engine.supports(fusion, TARGET):
            continue
        with dnn.context():
            work = compiler.start(graph, TARGET)
            compiler.advance(work, LINALG, Options(engine=engine.name))
            (function,) = structure.fusion_functions(work.module)
            region = Region.of(function)
            for candidate in engine.candidates(fusion, TARGET):
                assert not engine.legal(candidate, fusion, TARGET)
                for more in MORE if len(candidate) > 3 else MORE[:1]:
                    knobs = {**candidate, **more}
                    if engine.legal(knobs, fusion, TARGET):
                        continue
                    said, made = judged(engine, fusion, knobs), laid_out(engine, region, knobs)
                    # Which operands have raw tiles depends on more than heuristics look at.
                    assert made.raw_bytes <= said.raw_bytes
                    assert made == replace(said, raw_bytes=made.raw_bytes), (engine.name, knobs)
                    assert made.bytes <= said.bytes <= TARGET.smem_block_bytes
                    assert is_whole(made)
                    count += 1
    return count


DRAWS = [random_epilogues.product, random_epilogues.convolution]


@pytest.mark.parametrize("draw", DRAWS)
def test_layouts_are_as_judged(draw):
    assert sum(check_every_choice(draw(seed).graph) for seed in TODAY) > 0


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
def test_layouts_are_as_judged_of_many(draw):
    assert sum(check_every_choice(draw(seed).graph) for seed in range(300)) > 20_000


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
def test_every_best_choice_is_emitted(draw):
    """Of each graph the best choice of each engine, up to the kernel."""
    for seed in range(100):
        graph = draw(seed).graph.finalize()
        (fusion,) = partition(graph, [graph.live_ops])
        for engine in map(engine_named, ENGINES):
            if found := choices(fusion, TARGET, [engine]):
                knobs = tuple(found[0].knobs.items())
                with dnn.context():
                    work = compiler.start(graph, TARGET)
                    compiler.advance(work, "kernel", Options(engine=engine.name, knobs=knobs))


def _transposed(other):
    """A product whose operand passes through registers, beside a tensor of C's dims."""
    g = random_epilogues.dnnc.pygraph("m", io_data_type="f16", intermediate_data_type="f32")
    a, b = g.tensor([64, 512, 128], name="a"), g.tensor([64, 512, 128], name="b")
    c = g.matmul(a, g.transpose(b, [0, 2, 1]))
    g.relu(c).set_output()
    g.mul(c, g.tensor([64, 512, 512], data_type=other)).set_output()
    return g


def test_loads_that_a_kernel_does_not_stage_are_not_counted():
    """Chunks are as wide as without them, and so are the buffers of what is stored."""
    graph = _transposed("f32").graph
    assert check_every_choice(graph) > 0
    plan = compile_graph(graph, "sm_90a", Options(most_variants=1))
    (step,) = plan.programs[0].variants[0].steps
    needed = plan.expression(step.launch.dynamic_smem_bytes).evaluate({})
    assert needed <= TARGET.smem_block_bytes
