"""Random graphs through verify, fuse and select, and through the compiler and the interpreter.

Every graph of a support surface gets its engine; of graphs drawn from the operations' constraints
alone nearly all get a plan; every refusal names its clause; every broken graph is a DnncError;
what is compiled computes what the reference computes, within the bounds of `random_bounds`.

A failing seed is shown by `python -m tests.random_graphs SEED [ENGINE|broken]`.
"""

import itertools
import warnings
from collections import Counter
from functools import cache

import numpy as np
import pytest

import dnnc
from dnnc import compiler, dtypes, mlir, passes
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.compiler import compile_graph
from dnnc.dialect import dnn, structure
from dnnc.dialect.fusion import partition
from dnnc.dialect.op import Op
from dnnc.dialect.ops import OPS, Matmul, MoeGroupedMatmul
from dnnc.dialect.ops.reduction import REDUCTION_MODES
from dnnc.dialect.pointwise_modes import MODES
from dnnc.dialect.reference import reference
from dnnc.engines import ENGINES, engine_named
from dnnc.errors import DnncError, Status
from dnnc.interpreter.parser import parse
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from dnnc.rounding import widen

from .breakages import BREAKAGES
from .random_bounds import bounds, informative, violations
from .random_broken import draw_broken
from .random_configs import any_config, target
from .random_graphs import draw, draw_inside
from .random_nodes import Offsets
from .support import machine, rotation

DRAWN, INSIDE_DRAWN, BROKEN = 1000, 400, 600  # 2,000 in all
CHUNK, THROUGH_PASSES = 50, 75  # graphs of a test; of each kind, through the passes
INTERPRETED = 50  # of each kind, 100 and more in all: a few of those drawn have no engine
HOPPER_DRAWN, HOPPER_INTERPRETED = 60, 10  # of the surface of matmul_sm90
GROUPED_DRAWN, GROUPED_INTERPRETED = 40, 4  # of each of grouped products and boolean outputs
PLAN_SHARE = 0.95


def chunks(count, size=CHUNK, first=0):
    """Ranges of seeds."""
    return [range(at, min(at + size, count)) for at in range(first, count, size)]


def chunk_id(seeds):
    return f"{seeds[0]}-{seeds[-1]}"


def in_chunks(count, size=CHUNK, first=0):
    return pytest.mark.parametrize("seeds", chunks(count, size, first), ids=chunk_id)


rotating = pytest.mark.rotating


def all_pass(kind, seeds, check):
    """Every seed passes; a failure lists each that does not."""
    failed = []
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:  # an escaped exception is what is looked for
            failed.append(f"{kind} {seed}: {type(error).__name__}: {str(error)[:600]}")
    assert not failed, "\n".join(failed)


# ---- verify, fuse, select


def target_of(seed):
    return targets.TARGETS[seed % len(targets.TARGETS)]


def assert_refusal_names_its_clauses(graph, target, error):
    """The error has its parts, and every engine its reasons."""
    assert error.status.category is Status.NOT_SUPPORTED
    assert error.what
    assert error.supported
    assert error.where
    clauses = []
    for op in graph.live_ops:
        (alone,) = (f for f in partition(graph, [[op] for op in graph.live_ops]) if f.ops == (op,))
        refused = heuristics.refusals(alone, target)
        for reason in (reason for refusal in refused for reason in refusal.reasons):
            assert reason.status.category is Status.NOT_SUPPORTED
            assert reason.clause
            assert reason.what
            assert reason.supported
        if len(refused) == len(ENGINES):
            clauses.append([f"{r.engine.name}: {r.reasons[0].clause}" for r in refused])
    assert clauses, "no operation is without an engine, yet there is no plan"
    return clauses


@cache
def drawn_graph(seed):
    return draw(seed).graph


@cache
def planned(seed):
    """The config of a drawn graph, or the clauses that refuse it."""
    graph = drawn_graph(seed).finalize()
    try:
        config = heuristics.best_config(graph, target_of(seed))
    except DnncError as error:
        return assert_refusal_names_its_clauses(graph, target_of(seed), error)
    placed = [op for choice in config.choices for op in choice.fusion.in_graph.ops]
    assert set(map(id, placed)) == set(map(id, graph.live_ops))
    twice = {op for op in placed if placed.count(op) > 1}
    assert {op.role for op in twice} <= {"pointwise", "view"}
    for choice in config.choices:
        assert not choice.engine.supports(choice.fusion, target_of(seed))
        assert not choice.engine.legal(choice.knobs, choice.fusion, target_of(seed))
        assert choice.prediction.seconds > 0
    assert bool(config.split_reason) == (len(config.choices) > 1)
    return config


def test_drawn_graphs_get_a_plan_or_a_clause_and_nearly_all_a_plan(capsys):
    refused = Counter()
    seeds = [seed for part in rotation.chosen(chunks(DRAWN), most=5) for seed in part]
    all_pass("draw", seeds, planned)
    found = [planned(seed) for seed in seeds]
    for clauses in (made for made in found if isinstance(made, list)):
        refused.update(" | ".join(lines) for lines in clauses)
    share = sum(not isinstance(made, list) for made in found) / len(seeds)
    with capsys.disabled():
        print(
            f"\n{share:.1%} of {len(seeds)} drawn graphs get a plan; refused operations by clause:"
        )
        for clauses, count in refused.most_common():
            print(f"  {count}: {clauses}")
    assert share >= PLAN_SHARE - 0.02 * (len(seeds) < DRAWN)


def draw_hopper(seed):
    return draw_inside(seed, "matmul_sm90")


def draw_grouped(seed):
    return draw_inside(seed, "grouped")


def draw_bits(seed):
    return draw_inside(seed, "bits")


def check_inside(seed, drawn=None, target=None):
    """A graph of an engine's surface is one fusion, which that engine takes."""
    drawn, target = drawn or draw_inside(seed), target or target_of(seed)
    graph = drawn.graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    reasons = engine_named(drawn.engine).supports(whole, target)
    assert not reasons, f"{drawn.engine}: {'; '.join(map(str, reasons))}\n{drawn.description}"
    config = heuristics.best_config(graph, target)
    assert len(config.choices) == 1 or "faster than one fusion" in config.split_reason
    configs = list(heuristics.configs(graph, target))
    assert any(c.choices[0].engine.name == drawn.engine for c in configs)


@rotating
@in_chunks(INSIDE_DRAWN)
def test_graphs_of_a_support_surface_get_their_engine(seeds):
    all_pass("inside", seeds, check_inside)


@rotating
@in_chunks(HOPPER_DRAWN, 12)
def test_graphs_of_the_surface_of_matmul_sm90_get_it(seeds):
    hopper = targets.of("sm_90a")
    all_pass("inside", seeds, lambda seed: check_inside(seed, draw_hopper(seed), hopper))


def test_drawn_products_can_be_counted_and_need_no_other_product():
    """Seeds whose product might have 2**36 elements, or an operand made of the other product."""
    hopper = targets.of("sm_90a")
    all_pass("inside", (910082, 911050), lambda s: check_inside(s, draw_hopper(s), hopper))


@rotating
@pytest.mark.parametrize("make", [draw_grouped, draw_bits])
@in_chunks(GROUPED_DRAWN, 8)
def test_grouped_products_and_boolean_outputs_get_matmul_sm90(make, seeds):
    hopper = targets.of("sm_90a")
    all_pass(make.__name__, seeds, lambda seed: check_inside(seed, make(seed), hopper))


def refusal(function):
    """The DnncError that a call raises, None if it raises nothing."""
    try:
        function()
    except DnncError as error:
        return error
    return None


def check_broken(seed):
    """A broken graph is a DnncError with all its parts, and nothing else."""
    broken = draw_broken(seed)
    error = refusal(broken.run)
    assert error is not None, f"{broken.kind} is accepted"
    assert error.status.category in (Status.BAD_PARAM, Status.NOT_SUPPORTED), broken.kind
    assert error.what, broken.kind
    assert error.supported, broken.kind
    assert error.where, broken.kind


@rotating
@in_chunks(BROKEN)
def test_broken_graphs_are_refused(seeds):
    all_pass("broken", seeds, check_broken)


def test_every_breakage_is_drawn():
    kinds = [draw_broken(seed).kind for seed in range(len(BREAKAGES))]
    assert kinds == list(BREAKAGES)


def check_passes(drawn, seed):
    """Verify, fuse and select-engine on the IR choose what the heuristics choose."""
    graph = drawn.graph.finalize()
    try:
        config = heuristics.best_config(graph, target_of(seed))
    except DnncError:
        config = None
    with dnn.context():
        module = compiler.start(graph, target_of(seed)).module
        back = dnn.from_mlir(mlir.parse(str(module)))
        assert back == graph, "another graph comes back from MLIR"
        pipeline = [passes.Verify(), passes.Fuse(), passes.SelectEngine()]
        if config is None:
            assert refusal(lambda: passes.run(module, pipeline)) is not None
            return
        passes.run(module, pipeline)
        text = str(module)
        assert str(mlir.parse(text)) == text
        functions = list(structure.fusion_functions(module))
        chosen = [structure.engine_of(function) for function in functions]
    assert chosen == [(c.engine.name, dict(c.knobs)) for c in config.choices]


@rotating
@in_chunks(THROUGH_PASSES, 25)
def test_drawn_graphs_through_the_passes(seeds):
    all_pass("pass draw", seeds, lambda seed: check_passes(draw(seed), seed))


@rotating
@in_chunks(THROUGH_PASSES, 25)
def test_graphs_of_a_support_surface_through_the_passes(seeds):
    all_pass("pass inside", seeds, lambda seed: check_passes(draw_inside(seed), seed))


# ---- the generator itself


def test_a_seed_gives_one_graph():
    for make, seed in itertools.product((draw, draw_inside), range(8)):
        first, second = make(seed), make(seed)
        assert first.description == second.description
        assert first.graph.finalize() == second.graph.finalize()
        one, other = first.inputs(), second.inputs()
        assert all(np.array_equal(one[uid], other[uid], equal_nan=True) for uid in one)


def test_the_drawn_graphs_have_everything():
    graphs = [drawn_graph(seed) for seed in range(DRAWN)]
    ops = [op for graph in graphs for op in graph.ops]
    tensors = [tensor for graph in graphs for tensor in graph.tensors]
    # Offsets of experts and of sequences, tables of pages and flags of peers are no random numbers,
    # and the bounds of a drawn graph know nothing else.
    not_drawn = {
        "conv_fprop",
        "conv_dgrad",
        "conv_wgrad",
        "moe_grouped_matmul",
        "peer_reduction",
        "resample",
        "rng",
    }
    not_drawn |= {"block_mask_load", "paged_cache_load", "ragged_load", "ragged_store"}
    # Composite operations are made of others, which are drawn; some others may be such.
    wanted = {kind.op_name for kind in OPS if kind.expand is Op.expand} - not_drawn
    wanted |= {"matmul", "reduction", "transpose", "slice", "reshape", "concatenate"}
    assert any(len(op.results) > 1 for op in ops if op.op_name == "reduction")
    assert {op.op_name for op in ops} == wanted
    assert {op.mode for op in ops if op.op_name == "pointwise"} == {m.name for m in MODES}
    assert {op.mode for op in ops if op.op_name == "reduction"} == {m.name for m in REDUCTION_MODES}
    assert {len(graph.ops) for graph in graphs} == set(range(1, 9))
    assert {len(tensor.dims) for tensor in tensors if tensor.dims} == set(range(1, 9))
    types = {tensor.dtype for tensor in tensors}
    assert types >= set(dtypes.ALL) - {dtypes.f8e4m3, dtypes.f8e5m2}
    assert sum(bool(graph.symbols) for graph in graphs) > DRAWN / 8
    assert sum(len(graph.outputs) > 1 for graph in graphs) > DRAWN / 8


# ---- compiled and interpreted


def interpreted(drawn):
    """(plan, boxes, outputs) of a drawn graph; None where no engine takes it."""
    rng = np.random.default_rng([99, drawn.seed])
    graph = drawn.graph.finalize()
    place = target(drawn.engine)
    if not list(itertools.islice(heuristics.configs(graph, place), 1)):
        return None
    config = any_config(drawn, rng)
    options = Options(partition=config.partition_text(graph), choices=config.choice_text)
    plan = compile_graph(graph, place, options)
    inputs = drawn.inputs()
    tf32 = min((c.knobs["TF32"] for c in config.choices if "TF32" in c.knobs), default=0)
    fp8 = False
    if any(choice.engine.name == "matmul_sm90" for choice in config.choices):
        tf32, fp8 = 1, True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        boxes = bounds(graph, inputs, drawn.sizes, tf32=tf32, fp8=fp8)
        wanted = reference(graph, inputs, sizes=drawn.sizes)
        outputs = machine.current().run(plan, inputs, sizes=drawn.sizes, seed=drawn.seed)
    for uid, box in boxes.items():  # the boxes stand around the reference
        np.testing.assert_array_equal(widen(wanted[uid]), box.mid)
    return plan, boxes, outputs


def products(graph):
    return [op for op in graph.live_ops if isinstance(op, Matmul | MoeGroupedMatmul)]


def check_interpreted(drawn, telling):
    """Checks that a plan's results lie in the boxes; telling: counts how much that says."""
    made = interpreted(drawn)
    if made is None:
        return
    plan, boxes, outputs = made
    wrong = violations(drawn.graph, boxes, outputs)
    engines = [fusion.engine for fusion in plan.programs[0].fusions]
    assert not wrong, f"{engines}: {'; '.join(wrong)}\n{drawn.description}"
    sums_fp8 = any(op.operands[0].type.is_fp8 for op in products(drawn.graph))
    told, total = informative(drawn.graph, boxes)
    telling.append((told, 0 if sums_fp8 and "matmul_sm90" in engines else total))


def all_compute(kind, seeds, make):
    telling = []
    all_pass(f"run {kind}", seeds, lambda seed: check_interpreted(make(seed), telling))
    # All of a surface run; of a few that are drawn from the constraints alone, most.
    assert len(telling) >= (0.6 * len(seeds) if kind == "draw" else len(seeds))
    # The bounds of nearly all elements are tight, or a wrong result would pass: of most graphs,
    # for one graph may have most of the elements of all.  Sums of fp8 in tensor cores are coarse.
    tight = [count / total for count, total in telling if total]
    assert not tight or np.mean(np.array(tight) >= 0.75) >= 0.6


@rotating
@in_chunks(INTERPRETED, 10)
def test_drawn_graphs_compute_what_the_reference_computes(seeds):
    all_compute("draw", seeds, draw)


@rotating
@in_chunks(INTERPRETED, 10)
def test_graphs_of_a_support_surface_compute_what_the_reference_computes(seeds):
    all_compute("inside", seeds, draw_inside)


@rotating
@in_chunks(HOPPER_INTERPRETED, 5)
def test_graphs_of_matmul_sm90_compute_what_the_reference_computes(seeds):
    """Graphs are compiled for "sm_90a"."""
    all_compute("hopper", seeds, draw_hopper)


@rotating
@pytest.mark.parametrize("make", [draw_grouped, draw_bits])
@in_chunks(GROUPED_INTERPRETED, 4)
def test_grouped_products_and_boolean_outputs_compute_what_the_reference_computes(make, seeds):
    """Graphs are compiled for "sm_90a"."""
    all_compute(make.__name__, seeds, make)


# ---- the comparison can fail


def corrupted(tensor, values):
    """Copies of an output with one thing wrong each."""
    flat = values.reshape(-1)
    last = flat.copy()
    if tensor.type.kind == "b":
        last[-1] = ~last[-1]
    elif tensor.type.is_integer:
        last[-1] = last[-1] - 1 if last[-1] > 0 else last[-1] + 1
    else:
        last[-1] = (widen(last[-1:])[0] * (1 + 2.0**-5) + 2.0**-10).astype(values.dtype)
    yield last.reshape(values.shape)
    if flat.size > 1 and flat[0] != flat[-1]:
        swapped = flat.copy()
        swapped[0], swapped[-1] = flat[-1], flat[0]
        yield swapped.reshape(values.shape)


def is_telling(box):
    """Whether a box says something of its first and last elements."""
    with np.errstate(invalid="ignore"):
        width = np.asarray(box.high, float) - np.asarray(box.low, float)
    ends = width.reshape(-1)[[0, -1]], box.wild.reshape(-1)[[0, -1]]
    return bool((ends[0] < 2.0**-12).all() and not ends[1].any())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("make", "count"), [(draw_inside, 24), (draw_grouped, 16), (draw_bits, 16)]
)
def test_a_corrupted_result_is_caught(make, count):
    caught = Counter()
    for seed in range(count):
        drawn = make(seed)
        graph = drawn.graph.finalize()
        inputs = drawn.inputs()
        boxes = bounds(graph, inputs, drawn.sizes)
        right = reference(graph, inputs, sizes=drawn.sizes)
        assert not violations(graph, boxes, right)
        for tensor in graph.outputs:
            if not is_telling(boxes[tensor.uid]):
                continue
            for wrong in corrupted(tensor, right[tensor.uid]):
                assert violations(graph, boxes, {**right, tensor.uid: wrong}), (seed, tensor)
                caught[tensor.type.kind] += 1
    assert caught["b" if make is draw_bits else "f"] > 10
    assert sum(caught.values()) > 20


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_that_another_expert_multiplies_are_caught():
    caught = tried = 0
    for seed in range(16):
        drawn = draw_grouped(seed)
        graph = drawn.graph.finalize()
        inputs = drawn.inputs()
        boxes = bounds(graph, inputs, drawn.sizes, tf32=1, fp8=True)
        (offsets,) = (t for t in graph.inputs if isinstance(drawn.styles[t], Offsets))
        shifted = {**inputs, offsets.uid: np.maximum(inputs[offsets.uid] - 1, 0)}
        wrong = reference(graph, shifted, sizes=drawn.sizes)
        if (shifted[offsets.uid] != inputs[offsets.uid]).any():
            tried += 1
            caught += bool(violations(graph, boxes, wrong))
    assert tried > 5
    assert caught >= 0.6 * tried


def test_a_miscompiled_kernel_is_caught():
    g = dnnc.pygraph(io_data_type=dtypes.f32, compute_data_type=dtypes.f32)
    g.add(g.tensor([5, 7], name="x"), g.tensor([5, 7], name="y")).set_output()
    graph = g.graph.finalize()
    rng = np.random.default_rng(1)
    inputs = {t.uid: rng.uniform(1, 2, (5, 7)).astype(np.float32) for t in graph.inputs}
    plan = compile_graph(graph, target())
    text = plan.blobs[plan.programs[0].modules[0].ptx].decode()
    boxes = bounds(graph, inputs, {})
    assert "add.rn.f32" in text
    for wanted, module in ((False, None), (True, parse(text.replace("add.rn.f32", "sub.rn.f32")))):
        outputs = run_plan(plan, inputs, module=module)
        assert bool(violations(graph, boxes, outputs)) == wanted


# ---- larger runs


@pytest.mark.slow
@in_chunks(5000, 250, DRAWN)
def test_more_drawn_graphs_verify_and_get_a_plan_or_a_clause(seeds):
    all_pass("draw", seeds, planned)
    with_plan = sum(not isinstance(planned(seed), list) for seed in seeds)
    assert with_plan >= (PLAN_SHARE - 0.02) * len(seeds)  # of a part


@pytest.mark.slow
@in_chunks(2000, 250, INSIDE_DRAWN)
def test_more_graphs_of_a_support_surface_get_their_engine(seeds):
    all_pass("inside", seeds, check_inside)


@pytest.mark.slow
@in_chunks(2000, 250, BROKEN)
def test_more_broken_graphs_are_refused(seeds):
    all_pass("broken", seeds, check_broken)


@pytest.mark.slow
@in_chunks(850, 25, INTERPRETED)
def test_more_drawn_graphs_compute_what_the_reference_computes(seeds):
    all_compute("draw", seeds, draw)


@pytest.mark.slow
@in_chunks(850, 25, INTERPRETED)
def test_more_graphs_of_a_support_surface_compute_what_the_reference_computes(seeds):
    all_compute("inside", seeds, draw_inside)


@pytest.mark.slow
@in_chunks(500, 25, HOPPER_INTERPRETED)
def test_more_graphs_of_matmul_sm90_compute_what_the_reference_computes(seeds):
    all_compute("hopper", seeds, draw_hopper)


@pytest.mark.slow
@pytest.mark.parametrize("make", [draw_grouped, draw_bits])
@in_chunks(500, 25, GROUPED_INTERPRETED)
def test_more_grouped_products_and_boolean_outputs_compute_what_the_reference_computes(make, seeds):
    all_compute(make.__name__, seeds, make)
