"""The driver: stages, determinism, the store, several targets, many sizes from one cubin."""

import hashlib
import importlib
import subprocess
import sys

import numpy as np
import pytest

import dnnc
from dnnc import compiler, dtypes, mlir, passes, tools, worker
from dnnc.codegen import nvptx
from dnnc.compiler import TEXT_STAGES, compile_graph
from dnnc.dialect import dnn, structure
from dnnc.errors import DnncError, Status
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from dnnc.plan import format
from dnnc.store import MemoryStore
from dnnc.target import of
from tests.support.checked import check, random_inputs
from tests.support.compare import assert_close

TOKENS = dnnc.Dim("tokens", max=65536)
ONE = Options(most_variants=1)


def ffn(tokens=TOKENS):
    g = dnnc.pygraph(
        "ffn", io_data_type=dtypes.f16, intermediate_data_type=dtypes.f32, target="sm_80"
    )
    x = g.tensor([1, tokens, 64], name="x")
    w, b = g.tensor([1, 64, 96], [6144, 1, 64], name="w"), g.tensor([1, 1, 96], name="b")
    g.gelu(g.bias(g.matmul(x, w, name="fc"), b)).set_output().set_name("y")
    return g


TOKEN_COUNTS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 257]


def test_one_cubin_serves_twenty_token_counts():
    g = ffn()
    plan = compile_graph(g.graph, "sm_80", ONE)
    assert len(plan.programs) == 1
    assert len(plan.programs[0].modules) == 1
    for tokens in TOKEN_COUNTS:
        check(g, {"tokens": tokens}, plan=plan, seed=tokens)


def test_fixed_sizes_share_the_cubin_as_well():
    """A kernel knows of its sizes what divides them and which are 1 or equal, nothing else."""
    knobs = (("TILE_M", 32), ("TILE_N", 64), ("TILEK", 64), ("STAGES", 3))
    options = Options(engine="matmul_sm80", knobs=knobs)
    sizes = [65, 99, 127, 129, 255, 257, 1001, 4097]
    cubins = {compile_graph(ffn(m).graph, "sm_80", options).blobs[0] for m in sizes}
    assert len(cubins) == 1


def split():
    """Two fusions, each with a module of its own."""
    g = dnnc.pygraph("split", io_data_type="f32", intermediate_data_type="f32")
    g.exp(g.tanh(g.tensor([3, 16]))).set_output()
    return g


@pytest.mark.parametrize(("build", "partition"), [(ffn, ""), (split, "0|1")])
def test_text_stages_resume_to_the_same_plan(build, partition):
    g = build()
    options = Options(most_variants=1, partition=partition)
    whole = compile_graph(g.graph, "sm_80", options)
    assert len(whole.programs[0].modules) == len(whole.programs[0].fusions)
    with dnn.context():
        for stage in TEXT_STAGES:
            work = compiler.advance(compiler.start(g.graph, of("sm_80")), stage, options)
            text = work.text()
            with dnn.context():
                again = compiler.resume(text)
                assert again.stage == stage
                assert again.text() == text
                assert compiler.finish(again, options) == whole


@pytest.mark.parametrize(
    ("found", "put", "said"),
    [
        ("STAGES = 3", "STAGES = 77", "STAGES=77"),
        ("TILE_M = 64", "TILE_M = 256", "tile 256x64"),
        ("TILEK = 64 : i64, ", "", "no TILEK"),
        ('dnn.engine = "matmul_sm80"', 'dnn.engine = "pointwise"', "engine pointwise"),
        ("dnn.notes = ", "dnn.other = ", "dnn.notes"),
    ],
)
def test_edited_texts_are_checked(found, put, said):
    knobs = (("TILE_M", 64), ("TILE_N", 64), ("TILEK", 64), ("STAGES", 3))
    options = Options(engine="matmul_sm80", knobs=knobs)
    with dnn.context():
        work = compiler.advance(compiler.start(ffn().graph, of("sm_80")), "fused", options)
        text = work.text()
        assert found in text
        with dnn.context(), pytest.raises(dnnc.DnncError, match=said):
            compiler.finish(compiler.resume(text.replace(found, put)))


def test_ptx_stage_is_what_an_assembler_takes():
    with dnn.context():
        text = compiler.advance(compiler.start(ffn().graph, of("sm_80")), "ptx").text()
    assert nvptx.assemble(text, of("sm_80")).cubin[:4] == b"\x7fELF"


def test_another_process_gives_the_same_bytes():
    code = (
        "import hashlib, sys; from tests.test_compiler import ffn; "
        "from dnnc.compiler import compile_graph; from dnnc.plan import format; "
        "plan = compile_graph(ffn().graph, 'sm_80,sm_90'); "
        "print(hashlib.sha256(format.to_bytes(plan)).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = format.to_bytes(compile_graph(ffn().graph, "sm_80,sm_90"))
    assert done.stdout.strip() == hashlib.sha256(mine).hexdigest()


def test_one_plan_for_several_targets():
    plan = compile_graph(ffn().graph, "sm_80,sm_90,sm_90a")
    assert [p.target for p in plan.programs] == ["sm_80", "sm_90", "sm_90a"]
    assert [p.exact for p in plan.programs] == [False, False, True]
    ptx = [plan.blobs[p.modules[0].ptx].decode() for p in plan.programs]
    assert all(f".target {p.target}" in t for p, t in zip(plan.programs, ptx, strict=True))
    graph = ffn().graph.finalize()
    inputs = random_inputs(graph, {"tokens": 9})
    results = [run_plan(plan, inputs, target=p.target) for p in plan.programs]
    for result in results[1:]:
        np.testing.assert_array_equal(result[graph.outputs[0].uid], results[0][6])


def test_changing_one_operation_of_the_linalg_stage_changes_the_result():
    """The kernels come from that stage and nothing else."""
    g = ffn()
    graph = g.graph.finalize()
    with dnn.context():
        work = compiler.advance(compiler.start(graph, of("sm_80")), "linalg")
        text = work.text()
        assert text.count("arith.addf %in, ") == 1
        original = compiler.finish(compiler.resume(text))
        changed = compiler.finish(
            compiler.resume(text.replace("arith.addf %in, ", "arith.subf %in, "))
        )
    assert original.blobs[1] != changed.blobs[1]
    inputs = random_inputs(graph, {"tokens": 5})
    name = {t.name: t.uid for t in graph.tensors}
    negated = {**inputs, name["b"]: -inputs[name["b"]]}
    expected = dnnc.reference(graph, negated, exact_outputs=True)[name["y"]]
    assert_close(run_plan(changed, inputs)[name["y"]], expected, dtypes.f16, slack=2.0)


def test_passes_of_ours_and_upstreams_mix():
    with dnn.context():
        work = compiler.start(ffn().graph, of("sm_80"))
        seen = []
        pipeline = passes.parse_pipeline("verify,canonicalize,fuse{modes=A},cse,select-engine")
        passes.run(work.module, pipeline, lambda name, module: seen.append(name))
        assert seen == ["verify", "canonicalize", "fuse", "cse", "select-engine"]
        assert 'dnn.engine = "matmul_sm80"' in str(work.module)


@pytest.mark.parametrize(
    ("pipeline", "what"),
    [
        ("no-such-pass", "no-such-pass"),
        ("fuse{colour=blue}", "colour=blue"),
        ("fuse{partition=7}", "partition '7'"),
        ("fuse,select-engine{choices=nobody}", "engine 'nobody'"),
        ("fuse,select-engine{choices=fallback:LOAD_SIZE=3}", "LOAD_SIZE=3"),
        ("lower-to-kernels", "at stage graph; accepted: one at stage linalg, as lower-to-linalg"),
        ("fuse,select-engine,tile", "a module at stage fused; accepted: one at stage linalg"),
        ("fuse,fuse", "a module at stage fused; accepted: one at stage graph$"),
        (
            "fuse,select-engine{choices=fallback},prepare-fusions,lower-to-linalg,lower-to-kernels",
            "tile first",
        ),
    ],
)
def test_bad_pipelines_are_named(pipeline, what):
    with dnn.context():
        work = compiler.start(ffn().graph, of("sm_80"))
        with pytest.raises(DnncError, match=what):
            passes.run(work.module, passes.parse_pipeline(pipeline))


class Strange(passes.Tile):
    """A pass that leaves what its stage does not hold."""

    def run(self, module):
        super().run(module)
        (function,) = structure.fusion_functions(module)
        function.attributes["dnn.strange"] = mlir.ir.UnitAttr.get()


@pytest.mark.parametrize("verifies_each", [True, False])
def test_a_pass_that_makes_what_its_stage_does_not_hold_is_named(verifies_each):
    with dnn.context():
        work = compiler.advance(compiler.start(ffn().graph, of("sm_80")), "fused")
        steps = [passes.PrepareFusions(), passes.LowerToLinalg(), Strange()]
        with pytest.raises(DnncError, match=r"pass tile made .* linalg .*dnn\.strange") as caught:
            passes.run(work.module, steps, verifies_each=verifies_each)
    assert caught.value.status is Status.INTERNAL_ERROR_UNEXPECTED_VALUE


def test_a_program_without_its_workspace_is_named():
    with dnn.context():
        work = compiler.start(ffn().graph, of("sm_80"))
        lowered = "prepare-fusions,lower-to-linalg,tile,lower-to-kernels"
        passes.run(work.module, passes.parse_pipeline(f"fuse,select-engine,{lowered}"))
        with pytest.raises(DnncError, match="assign-workspace first"):
            compiler.finish(compiler.resume(work.text()))


def test_modes_are_checked_before_any_is_looked_at():
    with pytest.raises(DnncError, match="heuristic mode 'X'"):
        compile_graph(ffn().graph, "sm_80", Options(modes=("A", "X")))


def test_the_store_keeps_ptx_and_cubins():
    store, calls = MemoryStore(), []
    for _ in range(2):
        compile_graph(ffn().graph, "sm_80", ONE, store=store, report=lambda s, t: calls.append(s))
    assert calls.count("ptx") == 1
    assert calls.count("linalg") == 2


def test_the_memory_store_drops_what_was_used_longest_ago():
    store = MemoryStore(max_bytes=10)
    for key in "abc":
        store.put(key, b"1234")
        store.get("a")
    assert [store.get(key) is not None for key in "abc"] == [True, False, True]
    store.put("huge", bytes(11))
    assert store.get("huge") is None


def test_no_assembler_is_said(monkeypatch):
    def missing(name, *rest):
        if name == "cuda.bindings.nvjitlink":
            raise ImportError(name)
        return real(name, *rest)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(tools, "nvidia_folders", list)
    monkeypatch.setattr(nvptx.shutil, "which", lambda name: None)
    with pytest.raises(DnncError, match="neither nvJitLink nor ptxas") as caught:
        nvptx.assemble(".version 7.0\n.target sm_80\n", of("sm_80"))
    assert caught.value.status is Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING


def test_ptxas_takes_over_where_nvjitlink_is_missing(monkeypatch):
    plan = compile_graph(ffn().graph, "sm_80")
    made = nvptx._with_ptxas(plan.blobs[1].decode(), of("sm_80"))
    assert made.cubin[:4] == b"\x7fELF"
    (resources,) = made.resources.values()
    assert resources.registers > 0


@pytest.mark.parametrize("assemble", [nvptx.assemble, nvptx._with_ptxas])
def test_ptx_that_is_refused_is_kept_with_the_command(assemble):
    with pytest.raises(DnncError, match="refused the PTX, kept in") as caught:
        assemble(".version 7.0\n.target sm_80\n.address_size 64\nnonsense;\n", of("sm_80"))
    assert caught.value.status is Status.INTERNAL_ERROR_COMPILATION_FAILED
    assert "ptxas -arch=sm_80" in caught.value.supported


def test_unresolved_functions_are_errors():
    with dnn.context():
        module = mlir.parse(
            """module attributes {gpu.container_module} {
              gpu.module @kernels [#nvvm.target<chip = "sm_80">] {
                llvm.func @nobody(f32) -> f32
                llvm.func @k(%p: !llvm.ptr<1>, %x: f32) attributes {nvvm.kernel} {
                  %y = llvm.call @nobody(%x) : (f32) -> f32
                  llvm.store %y, %p : f32, !llvm.ptr<1>
                  llvm.return
                }
              }
            }"""
        )
        with pytest.raises(DnncError, match="nobody, which nothing defines"):
            nvptx.to_ptx(module)


# ---- the worker


def test_the_worker_gives_what_the_process_itself_gives():
    graph = ffn().graph.finalize()
    reports = []
    made = worker.compile_graph(graph, "sm_80", report=lambda stage, s: reports.append(stage))
    assert made == compile_graph(graph, "sm_80")
    assert reports[:3] == ["begin", "choose", "fused"]
    assert worker.compile_graph(graph, "sm_80") == made


def test_errors_come_back_as_they_were():
    g = dnnc.pygraph(io_data_type=dtypes.f16, target="sm_80")
    g.relu(g.tensor([8, 8], data_type=dtypes.f8e4m3), name="of fp8").set_output()
    graph = g.graph.finalize()
    with pytest.raises(dnnc.cudnnGraphNotSupportedError) as here:
        compile_graph(graph, "sm_80")
    with pytest.raises(dnnc.cudnnGraphNotSupportedError) as there:
        worker.compile_graph(graph, "sm_80")
    assert str(here.value) == str(there.value)
    assert "of fp8" in str(here.value)


def test_a_worker_that_dies_is_an_error_with_the_way_to_repeat_it():
    mine = worker.Worker()
    graph = ffn().graph.finalize()
    message = {"graph": graph.canonical_text(), "targets": ["sm_80"], "options": {}}
    crash = {**message, "crash": True}
    mine.start()
    mine._process.kill()
    mine._process.wait()
    # A child that died while idle is started again, unnoticed.
    assert format.read(mine.request(message, lambda *_: None)).name == "ffn"
    mine._process.kill()
    mine._process.poll = lambda: None  # as if it died while it worked
    with pytest.raises(DnncError, match="worker ended with status -9") as caught:
        mine.request(crash, lambda *_: None)
    assert caught.value.status is Status.INTERNAL_ERROR
    path = caught.value.supported.rpartition(" ")[2]
    done = subprocess.run(
        [sys.executable, "-m", "dnnc.worker", path], capture_output=True, text=True, check=True
    )
    assert "cubin" in done.stdout
    mine.close()
