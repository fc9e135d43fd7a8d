"""Engine transpose in the interpreter: types, sizes, layouts, knobs, choice."""

import itertools
import math
import re

import numpy as np
import pytest

import dnnc
from dnnc import dtypes, passes
from dnnc.choosing import heuristics
from dnnc.codegen.region import Region
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.elementwise.sweep import Sweep
from dnnc.options import Options
from dnnc.target import of
from tests.engines.removed_waits import WAITS, removed, survivors
from tests.support import multiprocessors
from tests.support.checked import check, random_inputs

M = dnnc.Dim("M", max=4096)
N = dnnc.Dim("N", max=4096)
TILES = tuple(itertools.product((32, 64, 128), repeat=2))

SHORT_TILES = tuple(
    tile
    for short, long in ((4, 32), (4, 1024), (8, 64), (8, 512), (16, 256), (32, 256))
    for tile in ((short, long), (long, short))
)


def new_graph(io=dtypes.bf16, **options):
    defaults = {
        "io_data_type": io,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f64 if io.bits == 64 else dtypes.f32,
        "target": "sm_90",
    }
    return dnnc.pygraph("transpose", **{**defaults, **options})


def strides(dims, order):
    """That pack dims; order: of the axes, outermost first."""
    found, running = [1] * len(dims), 1
    for axis in reversed(order):
        found[axis] = running
        running = running * dims[axis]
    return found


def row_major(tensor):
    tensor.set_output().set_stride(strides(tensor.get_dim(), range(len(tensor.get_dim()))))
    return tensor


def transposed(g, dims, **options):
    """An input whose last two axes lie the other way round."""
    rank = len(dims)
    order = (*range(rank - 2), rank - 1, rank - 2)
    return g.tensor(dims, strides(dims, order), **options)


def channels_last(dims):
    return strides(dims, (0, *range(2, len(dims)), 1))


def check_transpose(g, sizes=None, **options):
    return check(g, sizes, engine="transpose", **{"target": "sm_90", **options})


def whole(g):
    graph = g.graph.finalize()
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def clauses(g):
    return [reason.clause for reason in engine_named("transpose").supports(whole(g), of("sm_90"))]


# ---- types and sizes

TYPES = [t for t in dtypes.ALL if t.kind != "b"]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("io", TYPES, ids=str)
@pytest.mark.parametrize("dims", [[64, 128], [37, 53], [72, 200]], ids=str)
def test_types_and_sizes(io, dims):
    g = new_graph(io)
    row_major(g.add(transposed(g, dims), g.tensor(dims)))
    check_transpose(g, slack=1.0)


@pytest.mark.rotating
@pytest.mark.parametrize("dims", [[2, 2], [2, 300], [300, 2], [31, 33], [130, 66], [8, 8]], ids=str)
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32, dtypes.f8e4m3], ids=str)
def test_sizes_of_a_copy(io, dims):
    g = new_graph(io)
    row_major(g.identity(transposed(g, dims)))
    check_transpose(g, slack=0.0)


@pytest.mark.rotating
@pytest.mark.parametrize("mixed", list(itertools.permutations(("i8", "bf16", "f32", "f64"), 3)))
def test_mixed_types(mixed):
    """Transposed, row-major and output types that differ: fragments have one number of elements."""
    of_x, of_z, of_y = (dtypes.of(name) for name in mixed)
    g = new_graph()
    x, z = transposed(g, [48, 80], data_type=of_x), g.tensor([48, 80], data_type=of_z)
    wide = dtypes.f64 in (of_x, of_z, of_y)
    y = g.add(x, z, compute_data_type=dtypes.f64 if wide else dtypes.f32)
    row_major(y).set_data_type(of_y)
    check_transpose(g)


@pytest.mark.in_turn
def test_symbols_are_sizes_of_any_kind():
    g = new_graph()
    row_major(g.add(transposed(g, [M, N]), g.tensor([M, N])))
    plan = check_transpose(g, {"M": 37, "N": 53})
    for sizes in ({"M": 64, "N": 64}, {"M": 1, "N": 70}, {"M": 129, "N": 1}, {"M": 1, "N": 1}):
        check(g, sizes, plan=plan)


def test_symbols_of_whole_vectors():
    rows, columns = (dnnc.Dim(name, max=512, multiple_of=8) for name in "RC")
    g = new_graph()
    row_major(g.add(transposed(g, [rows, columns]), g.tensor([rows, columns])))
    plan = check_transpose(g, {"R": 40, "C": 72})
    ptx = plan.blobs[1].decode()
    assert "ld.global.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx
    check(g, {"R": 8, "C": 128}, plan=plan)


@pytest.mark.in_turn
def test_more_than_two_to_the_31_elements_use_64_bit_offsets():
    rows = dnnc.Dim("R", max=1 << 22)
    g = new_graph()
    g.relu(g.tensor([rows, 48], [1, 1 << 22])).set_output().set_stride([1 << 12, 1])
    check_transpose(g, {"R": 5})


# ---- layouts


@pytest.mark.parametrize("dims", [[3, 40, 72], [2, 3, 17, 33], [2, 1, 3, 16, 40]], ids=str)
def test_batches(dims):
    g = new_graph()
    row_major(g.add(transposed(g, dims), g.tensor(dims)))
    check_transpose(g)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("dims", [[2, 24, 5, 8], [1, 3, 7, 9], [3, 64, 1, 40], [2, 5, 2, 3, 8]])
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32, dtypes.i8], ids=str)
def test_channels_first_and_last(io, dims):
    """H and W are one axis, channels the other, with or without work on the way."""
    for is_back, has_work in itertools.product((False, True), repeat=2):
        g = new_graph(io)
        x = g.tensor(dims, channels_last(dims) if is_back else None)
        bias = g.tensor([1, dims[1], *[1] * (len(dims) - 2)])
        y = g.relu(g.add(x, bias)) if has_work else g.identity(x)
        packed = strides(dims, range(len(dims))) if is_back else channels_last(dims)
        y.set_output().set_stride(packed)
        sweep = Sweep.of_fusion(whole(g))
        axes = tuple(a for a in range(2, len(dims)) if dims[a] > 1)
        wanted = {(1,), axes}
        assert {sweep.slow_group, sweep.groups[-1]} == wanted
        check_transpose(g)


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("out", ORDERS, ids=str)
@pytest.mark.parametrize("pad", [0, 1])
def test_layouts(out, pad):
    """Inputs in three orders, with gaps, wherever the engine takes them."""
    dims = [6, 20, 40]
    taken = 0
    for order in ORDERS:
        g = new_graph()
        padded = [n + pad for n in dims]
        a, b = g.tensor(dims, strides(padded, order)), g.tensor(dims, strides(dims, out))
        y = g.mul(g.add(a, b), g.tensor([1, 20, 1])).set_output()
        y.set_stride(strides(padded, out))
        if order[-1] == out[-1]:
            assert clauses(g) == ["transposed inputs"]
        else:
            check_transpose(g)
            taken += 1
    assert taken == 4


# Lengths of a short group, of the long one beside it, and the sides of a tile.
SHORT = {
    "i8": (([4, 300], (4, 512)), ([4, 1037], (4, 1024)), ([8, 264], (8, 256)), ([3, 280], (4, 256)),
           ([16, 272], (16, 256)), ([5, 96], (8, 64)), ([32, 600], (32, 512))),
    "bf16": (([4, 304], (4, 256)), ([6, 70], (8, 64))),
    "f32": (([8, 264], (8, 256)),),
    "f64": (([4, 66], (4, 64)),),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("is_slow", [True, False], ids=["transposed", "row-major"])
@pytest.mark.parametrize(
    ("io", "dims", "tile"), [(io, *case) for io, cases in SHORT.items() for case in cases], ids=str
)
def test_short_groups_are_a_side_of_the_tile(io, dims, tile, is_slow):
    """Transposed to rows of a few elements, and back, in batches, with a residual and a bias of
    each side."""
    own = [2, *dims] if is_slow else [2, *dims[::-1]]
    g = new_graph(dtypes.of(io))
    wide = {"compute_data_type": dtypes.f64} if io == "f64" else {}
    y = g.add(transposed(g, own), g.tensor(own), **wide)
    y = g.add(g.add(y, g.tensor([1, 1, own[2]]), **wide), g.tensor([2, own[1], 1]), **wide)
    row_major(y)
    knobs = dict(zip(("TILE_M", "TILE_N"), tile if is_slow else tile[::-1], strict=True))
    engine, fusion = engine_named("transpose"), whole(g)
    arrays = [{**knobs, "ARRAY_SIZE_PER_THREAD": n} for n in (4, 2, 1)]
    check_transpose(g, knobs=next(k for k in arrays if not engine.legal(k, fusion, of("sm_90"))))


def test_rows_of_vectors_are_read_and_written_16_bytes_at_a_time():
    """[300, 4] bytes to [4, 300] and back: by whole lines that follow each other, as NC/4HW4 is."""
    for own, short in (([3, 4, 304], 0), ([3, 304, 4], 1)):
        g = new_graph(dtypes.i8)
        row_major(g.relu(transposed(g, own)))
        knobs = dict(zip(("TILE_M", "TILE_N"), ((4, 512), (512, 4))[short], strict=True))
        plan = check_transpose(g, knobs={**knobs, "ARRAY_SIZE_PER_THREAD": 4})
        found = re.findall(r"\b(ld|st)\.global\.(?:nc\.)?(\S+)", plan.blobs[1].decode())
        assert {width for _, width in found} == {"v4.b32"}, found


@pytest.mark.in_turn
def test_rows_with_gaps_are_stored_on_their_own():
    """A residual or an output whose vectors do not follow each other, or an odd number of them."""
    for own, strides_of_y in (([304, 4], [5, 1]), ([304, 4], [8, 1]), ([303, 4], [4, 1])):
        g = new_graph(dtypes.i8)
        y = g.add(transposed(g, own), g.tensor(own, strides_of_y))
        y.set_output().set_stride(strides_of_y if own[0] == 303 else [4, 1])
        knobs = {"TILE_M": 512, "TILE_N": 4, "ARRAY_SIZE_PER_THREAD": 4}
        check_transpose(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(("batches", "threads"), [(3, 32), (131, 64), (703, 128)])
def test_small_tiles_share_a_block(batches, threads, monkeypatch):
    """Threads past the last tile take it again, and store nothing; few tiles are fewer a block."""
    is_small = multiprocessors.few(monkeypatch, 4, "sm_90") == 4
    g = new_graph(dtypes.i8)
    row_major(g.add(transposed(g, [batches, 4, 52]), g.tensor([batches, 4, 52])))
    knobs = {"TILE_M": 4, "TILE_N": 64, "ARRAY_SIZE_PER_THREAD": 2}
    plan = check_transpose(g, knobs=knobs)
    assert plan.programs[0].variants[0].steps[0].launch.block[0] == threads or not is_small


def test_small_tiles_of_any_number_of_batches():
    g = new_graph(dtypes.i8)
    batches = dnnc.Dim("B", max=1 << 20)
    row_major(g.relu(transposed(g, [batches, 52, 4])))
    knobs = {"TILE_M": 64, "TILE_N": 4, "ARRAY_SIZE_PER_THREAD": 2}
    plan = check_transpose(g, {"B": 7}, knobs=knobs)
    for count in (1, 4, 9):
        check(g, {"B": count}, plan=plan)


@pytest.mark.in_turn
def test_short_groups_beside_symbols():
    rows = dnnc.Dim("R", max=4096, multiple_of=16)
    for own in ([2, 4, rows], [2, rows, 4]):
        g = new_graph(dtypes.i8)
        row_major(g.relu(transposed(g, own)))
        tile = (4, 512) if own[1] == 4 else (512, 4)
        knobs = {"TILE_M": tile[0], "TILE_N": tile[1], "ARRAY_SIZE_PER_THREAD": 4}
        plan = check_transpose(g, {"R": 1040}, knobs=knobs)
        assert "ld.global.v4.b32" in plan.blobs[1].decode()
        check(g, {"R": 16}, plan=plan)


@pytest.mark.registers
def test_several_transposed_inputs():
    g = new_graph()
    x, z = transposed(g, [40, 72]), transposed(g, [40, 72], data_type=dtypes.i8)
    w = g.tensor([40, 72], [3, 120], data_type=dtypes.f32)  # its elements lie 3 apart
    row_major(g.add(g.mul(x, z), g.mul(w, g.tensor([40, 72]))))
    plan = check_transpose(g)
    assert plan.programs[0].kernels[0].static_smem_bytes == 32 * 32 * (2 + 1 + 4)


def test_several_outputs():
    g = new_graph()
    x, z = transposed(g, [40, 72]), g.tensor([40, 72])
    total = row_major(g.add(x, z)).set_data_type(dtypes.f32)
    row_major(g.relu(total)).set_data_type(dtypes.f8e4m3)
    row_major(g.mul(x, 2.0)).set_stride([80, 1])
    check_transpose(g)


@pytest.mark.rotating
@pytest.mark.parametrize("alignment", [2, 4, 8])
def test_low_alignment(alignment):
    g = new_graph()
    x = transposed(g, [64, 64], alignment_value=alignment)
    row_major(g.add(x, g.tensor([64, 64], alignment_value=alignment)))
    plan = check_transpose(g)
    assert plan.programs[0].fusions[0].engine == "transpose"
    widths = re.findall(r"ld\.global\.(?:v([24])\.)?b(\d+)", plan.blobs[1].decode())
    assert {int(count or 1) * int(bits) // 8 for count, bits in widths} == {alignment}


# ---- views, and what else is read


@pytest.mark.rotating
@pytest.mark.feature
@pytest.mark.parametrize("n", [16, 37, 72])
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32, dtypes.i8, dtypes.f8e5m2], ids=str)
def test_a_matrix_and_its_transpose(io, n):
    """One input, read in both ways."""
    g = new_graph(io)
    x = g.tensor([n, n])
    row_major(g.add(x, g.transpose(x, [1, 0])))
    check_transpose(g, slack=1.0)


def test_views_in_a_chain():
    g = new_graph()
    x = g.tensor([48, 2, 40])
    y = g.reshape(g.transpose(g.relu(x), [1, 2, 0]), "LOGICAL").set_dim([2, 1, 40, 48])
    row_major(g.add(y, g.tensor([2, 1, 40, 48])))
    check_transpose(g)


@pytest.mark.in_turn
def test_axes_of_the_batch_are_exchanged():
    """Both are transposed, and only the batch tells one from the other."""
    g = new_graph()
    x = transposed(g, [3, 3, 20, 40])
    row_major(g.sub(x, g.transpose(x, [1, 0, 2, 3])))
    check_transpose(g)


def test_parts_of_inputs_are_read_from_memory():
    """A slice has an offset; the whole input beside it is transposed."""
    g = new_graph()
    x, z = g.tensor([64, 56]), g.tensor([40, 3, 48])
    part = g.slice(x, [slice(3, 51), slice(8, 48)])
    middle = g.slice(z, [slice(0, 40), slice(1, 2), slice(0, 48)])
    middle = g.reshape(middle, "LOGICAL").set_dim([40, 48])
    y = g.add(g.transpose(part, [1, 0]), g.mul(transposed(g, [40, 48]), middle))
    row_major(y)
    check_transpose(g)


def test_broadcasts_masks_scalars_and_indices():
    g = new_graph()
    dims = [2, 40, 56]
    x, mask = transposed(g, dims), g.tensor(dims, data_type=dtypes.i1)
    scale, column = g.tensor_scalar(1.5, "RUNTIME_PARAM"), g.tensor([1, 40, 1])
    row = g.gen_index(x, 1)
    y = g.binary_select(g.mul(g.add(x, column), scale), g.tensor([2, 1, 56]), mask)
    row_major(g.add(y, row))
    check_transpose(g, inputs=random_inputs(g.graph.finalize(), {}))


def test_an_index_alone_reads_nothing_that_is_transposed():
    g = new_graph()
    x = transposed(g, [40, 72, 8])
    row_major(g.add(g.gen_index(x, 1), g.tensor([40, 72, 8])))
    engine = engine_named("transpose")
    (whole,) = partition(g.graph.finalize(), [g.graph.finalize().live_ops])
    assert engine.supports(whole, of("sm_90"))


# ---- drawn graphs


def drawn(seed):
    """A few inputs in any order of the axes, a transposed one among them at times."""
    rng = np.random.default_rng([31, seed])
    rank = int(rng.integers(2, 6))
    dims = [int(n) for n in rng.choice([1, 2, 3, 8, 17, 24, 40], rank)]
    while math.prod(dims) > 6000:
        dims[int(np.argmax(dims))] = 2
    io = [dtypes.bf16, dtypes.f32, dtypes.i8, dtypes.f16][rng.integers(4)]
    g = new_graph(io)
    total = None
    for _ in range(int(rng.integers(1, 4))):
        order = [int(axis) for axis in rng.permutation(rank)]
        if rng.random() < 0.3:
            back = [order.index(axis) for axis in range(rank)]
            origin = [dims[axis] for axis in back]
            x = g.transpose(g.tensor(origin), order)
            x.set_dim(dims)
        else:
            shape = [n if rng.random() < 0.9 else 1 for n in dims]
            padded = [n + int(rng.choice([0, 0, 0, 1, 8])) for n in shape]
            x = g.tensor(shape, strides(padded, order))
        total = g.relu(x) if total is None else g.add(total, x)
    if total.get_dim() != dims:
        total = g.add(total, g.tensor(dims))
    total.set_output().set_stride(strides(dims, [int(axis) for axis in rng.permutation(rank)]))
    return g


def any_knobs(fusion, seed):
    rng = np.random.default_rng([32, seed])
    engine = engine_named("transpose")
    while True:
        found = {k.name: int(rng.choice(k.values)) for k in engine.knobs(fusion, of("sm_90"))}
        if not engine.legal(found, fusion, of("sm_90")):
            return found


def swept(g):
    """(slow axis, groups, paths of transposed operands) of the region of a graph's fusion."""
    with dnn.context():
        module = dnn.to_mlir(g.graph.finalize())
        passes.run(module, [passes.Verify(), passes.Fuse(), passes.SelectEngine(),
                            passes.PrepareFusions(), passes.LowerToLinalg()])  # fmt: skip
        (function,) = structure.fusion_functions(module)
        found = Sweep.of_region(Region.of(function))
        return found.slow, found.groups, sorted(r.path(found.dims) for r in found.transposed)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("seeds", [range(at, at + 12) for at in range(0, 60, 12)], ids=str)
def test_drawn_graphs(seeds):
    taken = 0
    for seed in seeds:
        g = drawn(seed)
        fusion = whole(g)
        found = Sweep.of_fusion(fusion)
        paths = sorted(r.path(found.dims) for r in found.transposed)
        assert (found.slow, found.groups, paths) == swept(g), seed
        if not engine_named("transpose").supports(fusion, of("sm_90")):
            check_transpose(g, knobs=any_knobs(fusion, seed), seed=seed)
            taken += 1
    assert taken >= 3


# ---- knobs and choice


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32, dtypes.i8], ids=str)
def test_every_tile(tile, io):
    """With the most and the fewest accesses that are legal, at sizes of one block and some more."""
    g = new_graph(io)
    row_major(g.add(transposed(g, [136, 72]), g.tensor([136, 72])))
    engine, fusion = engine_named("transpose"), whole(g)
    every = (
        {"TILE_M": tile[0], "TILE_N": tile[1], "ARRAY_SIZE_PER_THREAD": array}
        for array in (16, 8, 4, 2, 1)
    )
    legal = [knobs for knobs in every if not engine.legal(knobs, fusion, of("sm_90"))]
    assert legal or tile[0] * tile[1] * io.bits // 8 > 48 << 10
    for knobs in legal[:1] + legal[1:][-1:]:
        check_transpose(g, knobs=knobs)


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("types", [("i8", "f64"), ("f64", "i8"), ("i8", "bf16")], ids=str)
def test_every_number_of_accesses_of_mixed_types(types):
    source, result = map(dtypes.of, types)
    g = new_graph(source)
    row_major(g.identity(transposed(g, [136, 72]))).set_data_type(result)
    engine, fusion = engine_named("transpose"), whole(g)
    tried = 0
    for m, array in itertools.product((32, 64), (16, 8, 4, 2, 1)):
        knobs = {"TILE_M": m, "TILE_N": 32, "ARRAY_SIZE_PER_THREAD": array}
        if not engine.legal(knobs, fusion, of("sm_90")):
            check_transpose(g, knobs=knobs)
            tried += 1
    assert tried >= 6


@pytest.mark.parametrize("count", [1, 3, 6, 11])
@pytest.mark.parametrize("io", [dtypes.i8, dtypes.bf16, dtypes.f32], ids=str)
def test_many_inputs_have_candidates(io, count):
    g = new_graph(io)
    total = transposed(g, [512, 512])
    for _ in range(count - 1):
        total = g.add(total, transposed(g, [512, 512]))
    row_major(g.relu(total))
    engine, fusion = engine_named("transpose"), whole(g)
    assert not engine.supports(fusion, of("sm_90"))
    assert engine.candidates(fusion, of("sm_90"))


def test_knobs_that_can_not_be():
    g = new_graph(dtypes.f32)
    row_major(g.add(transposed(g, [136, 72]), g.tensor([136, 72])))
    engine, fusion = engine_named("transpose"), whole(g)

    def said(m, n, array):
        knobs = {"TILE_M": m, "TILE_N": n, "ARRAY_SIZE_PER_THREAD": array}
        return [str(reason) for reason in engine.legal(knobs, fusion, of("sm_90"))]

    assert said(64, 64, 4) == []
    assert said(128, 128, 8) == ["shared memory: 65536 bytes; accepted: at most 49152 on sm_90"]
    assert said(64, 64, 1) == ["knobs: a tile of 1024 threads; accepted: 32 to 512 threads"]
    assert said(32, 32, 16) == ["knobs: a tile of 16 threads; accepted: 32 to 512 threads"]
    assert "a side of 8 along 136 elements; accepted: 32 or more, or the" in said(8, 512, 1)[0]
    assert said(64, 256, 8)[0].startswith("knobs: a tile of 64x256; accepted: sides of at most 128")


def test_large_transposed_inputs_get_the_engine():
    for io, side in itertools.product((dtypes.bf16, dtypes.f32, dtypes.i8), (512, 2048, 8192)):
        g = new_graph(io)
        row_major(g.add(transposed(g, [side, side]), g.tensor([side, side])))
        found = heuristics.best_config(g.graph.finalize(), of("sm_90"))
        assert found.choices[0].engine.name == "transpose"


@pytest.mark.parametrize("dims", [[1 << 20, 2], [2, 1 << 20]], ids=str)
def test_a_few_long_rows_or_columns_do_not(dims):
    """Most of a tile would lie beyond them."""
    g = new_graph()
    row_major(g.add(transposed(g, dims), g.tensor(dims)))
    found = heuristics.best_config(g.graph.finalize(), of("sm_90"))
    assert found.choices[0].engine.name == "pointwise"


def test_gathers_are_predicted_as_they_were_measured():
    """On an H100, one transposed input of 2 bytes of two: 0.24 of the copy bandwidth."""
    g = new_graph()
    row_major(g.add(transposed(g, [8192, 8192]), g.tensor([8192, 8192])))
    straight = new_graph()
    row_major(straight.add(*(straight.tensor([8192, 8192]) for _ in range(2))))
    engine = engine_named("pointwise")
    knobs = {"LOAD_SIZE": 16, "ARRAY_SIZE_PER_THREAD": 4}
    slow, fast = (engine.predict(whole(g), knobs, of("sm_90")).seconds for g in (g, straight))
    assert 0.2 < fast / slow < 0.35


def test_the_barrier_is_needed():
    def build():
        g = new_graph(dtypes.f32)
        row_major(g.add(transposed(g, [40, 72]), g.tensor([40, 72])))
        return g, {"TILE_M": 64, "TILE_N": 64, "ARRAY_SIZE_PER_THREAD": 4}

    found, alive = survivors(build, "transpose", "sm_90", lambda *of: removed(*of, WAITS))
    assert len(found) == 1
    assert not alive


# ---- assembly


def large(io):
    g = new_graph(io)
    row_major(g.add(transposed(g, [8192, 8192]), g.tensor([8192, 8192])))
    return g


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("io", [dtypes.bf16, dtypes.f32, dtypes.i8, dtypes.f64], ids=str)
@pytest.mark.registers
def test_no_candidate_spills(target, io):
    """Each candidate's kernel has no spills, and its blocks leave an SM room for 512 threads."""
    g = large(io)
    for knobs in engine_named("transpose").candidates(whole(g), of(target)):
        options = Options(engine="transpose", knobs=tuple(knobs.items()))
        plan = compile_graph(g.graph, target, options)
        (kernel,) = plan.programs[0].kernels
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.local_bytes) == (0, 0, 0)
        assert kernel.registers <= 128
        assert kernel.static_smem_bytes <= 48 << 10
