"""The model of products with mma.sync predicts loads of fewer bytes than 16."""

import json
import math
from pathlib import Path

import pytest

import dnnc
from dnnc import dtypes
from dnnc.choosing import heuristics
from dnnc.dialect.fusion import partition
from dnnc.engines import engine_named
from dnnc.engines.product import matmul_sm80
from dnnc.target import of

SM90A = of("sm_90a")
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
SM80 = engine_named("matmul_sm80")


def product(m, n, k, batch=1, epilogue="none", strides=(None, None)):
    """A [m, k] times B [n, k] transposed, of f16; strides: of A and B."""
    g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f32", compute_data_type="f32")
    a = g.tensor([batch, m, k], strides[0])
    b = g.tensor([batch, k, n], strides[1] or [n * k, 1, k])
    c = g.matmul(a, b)
    if epilogue != "none":
        c = g.relu(g.bias(c, g.tensor([1, 1, n])))
    c.set_output().set_data_type("f16")
    return g.graph.finalize()


def whole(graph):
    (fusion,) = partition(graph, [graph.live_ops])
    return fusion


def timed(pattern):
    """(fusion, [(knobs, seconds)]) of products whose rows aren't multiples of 16 bytes."""
    for path in sorted(RESULTS.glob(pattern)):
        for name, row in json.loads(path.read_text())["rows"].items():
            _, _, epilogue, sizes = name.split("/")
            *batch, m, n, k = map(int, sizes.split("x"))
            if k * 2 % 16:
                graph = product(m, n, k, *batch, epilogue=epilogue)
                yield whole(graph), [(c["knobs"], c["seconds"]) for c in row["configs"]]


@pytest.mark.parametrize(
    ("pattern", "count"), [("sweep-sm80-odd-*-h100.json", 80), ("sweep-seed[23]-h200.json", 66)]
)
def test_narrow_loads_take_as_long_as_they_were_timed(pattern, count):
    """Between 5 us and 3 ms; before the model knew of them, some were a sixth."""
    ratios, chosen = [], []
    for fusion, configs in timed(pattern):
        pairs = [(SM80.predict(fusion, k, SM90A).seconds, seconds) for k, seconds in configs]
        ratios += [predicted / seconds for predicted, seconds in pairs]
        chosen.append(min(pairs)[0] / min(pairs)[1])
    assert len(ratios) == count
    assert math.sqrt(sum(math.log(r) ** 2 for r in ratios) / count) < 0.15
    assert all(0.75 < r < 1.25 for r in chosen)


@pytest.mark.parametrize(
    ("sizes", "engine"),
    [((2, 2095, 5977), "matmul_sm90"), ((1632, 152, 14525), "matmul_sm90"),
     ((123, 1872, 1525), "matmul_sm90"), ((3248, 8936, 994, 7), "matmul_sm80"),
     ((2544, 6728, 46), "matmul_sm80"), ((2, 5352, 324), "matmul_sm80"),
     ((8, 128, 628), "matmul_sm80")],
)  # fmt: skip
def test_the_faster_engine_takes_rows_that_tma_cant(sizes, engine):
    """The choice is the faster of both, as timed on an H100."""
    engines = [engine_named(name) for name in ("matmul_sm80", "matmul_sm90")]
    assert heuristics.choices(whole(product(*sizes)), SM90A, engines)[0].engine.name == engine


def strided(rows, columns, layout, pad):
    if layout == "row":
        return [rows * (columns + pad), columns + pad, 1]
    if layout == "column":
        return [columns * (rows + pad), 1, rows + pad]
    return [rows * columns * 4, columns * 4, 2]


KNOBS = {"TILE_M": 32, "TILE_N": 64, "TILEK": 64, "STAGES": 3}


@pytest.mark.parametrize(
    ("layout", "pad", "accesses"),
    [("row", 0, (16, 16)), ("row", 4, (8, 8)), ("row", 2, (4, 4)), ("row", 1, (0, 0)),
     ("column", 4, (8, 8)), ("column", 1, (0, 0)), ("gaps", 0, (0, 0))],
)  # fmt: skip
def test_accesses_are_those_of_the_kernel(layout, pad, accesses):
    m, n, k = 32, 64, 48
    # B as A's transpose lies: along k, or along its rows.
    k_by_n = {"row": "column", "column": "row"}.get(layout, layout)
    strides = (strided(m, k, layout, pad), strided(k, n, k_by_n, pad))
    graph = product(m, n, k, strides=strides)
    assert matmul_sm80._accesses(whole(graph)) == accesses
    tile = SM80.tile_of(whole(graph), KNOBS, of("sm_80"))
    found = tuple(p.access_bytes if p.path == "async" else 0 for p in (tile.a, tile.b))
    assert found == accesses


def test_computed_operands_are_read_as_their_largest_source_lies():
    for k, access in ((48, 16), (52, 8), (49, 0)):
        g = dnnc.pygraph(io_data_type="f16", intermediate_data_type="f16", target="sm_90a")
        a, scale = g.tensor([1, 32, k]), g.tensor([1, 1, k])
        w = g.tensor([1, k, 64], [64 * k, 1, k], data_type=dtypes.i8)
        wide = g.identity(w).set_data_type("f16")
        g.matmul(g.mul(a, scale), wide).set_output().set_data_type("f16")
        # i8 becomes f16: an access of 8 of its bytes brings what 16 bytes hold.
        of_w = {48: 16, 52: 8, 49: 0}[k]
        assert matmul_sm80._accesses(whole(g.graph.finalize())) == (access, of_w)
