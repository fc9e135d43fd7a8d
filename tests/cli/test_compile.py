"""`dnnc compile`: plans, stages, resuming, choices, and what it refuses."""

import dataclasses
import json
import re
import sys

import pytest

from dnnc.cli.summary import print_times
from dnnc.compiler import TEXT_STAGES
from dnnc.engines import ENGINES
from dnnc.plan import format

from .commands import FFN, REFUSED, SPLIT, dnnc, dnnc_process, error_of

# ---- plans


def test_the_plan_is_named_for_the_file(here, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    # Sizes of its own: of a plan that the process has compiled before no stage is timed.
    (here / "model.py").write_text(FFN.replace("inner=128", "inner=136"))
    result = dnnc("compile", "model.py", "--target", "sm_80")
    assert result.exit_code == 0, result.output
    assert format.read("model.dnnplan").programs[0].target == "sm_80"
    assert result.stdout.startswith("model.dnnplan: plan 'ffn', ")
    assert re.search(r"sm_80 .*TILE_M=\d+.* fusion0_\w+ +\d+ +0 B +\d+ B", result.stdout)
    assert re.search(r"stage times +choose +fused +linalg +kernel .*cubin +all", result.stdout)
    assert sorted(path.name for path in here.iterdir()) == ["model.dnnplan", "model.py"]


def test_stages_stand_in_the_order_of_the_pipeline(plan, capsys):
    """A first target whose code was kept has fewer stages, and changes no order."""
    first = {"choose": 1.0, "fused": 1.0, "cubin": 1.0}
    whole = {"choose": 1.0, "fused": 1.0, "linalg": 1.0, "ptx": 1.0, "cubin": 1.0}
    print_times(format.read(plan), [first, whole])
    header = capsys.readouterr().out.strip().splitlines()[0].split()
    assert header == ["stage", "times", "choose", "fused", "linalg", "ptx", "cubin", "all"]


def test_one_plan_for_several_targets(plan):
    assert [p.target for p in format.read(plan).programs] == ["sm_80", "sm_90a"]


def test_the_worker_and_this_process_make_the_same_bytes(plan, ffn, here):
    options = ("-t", "sm_80,sm_90a", "--variants", "1", "--in-process")
    result = dnnc("compile", ffn, *options, "-o", "here.dnnplan")
    assert result.exit_code == 0, result.output
    assert (here / "here.dnnplan").read_bytes() == plan.read_bytes()


def test_a_split_is_shown_with_its_reason(here):
    (here / "twice.py").write_text(SPLIT)
    result = dnnc("compile", "twice.py")
    assert "fusion0_" in result.stdout
    assert "fusion1_" not in result.stdout  # equal to the first, whose kernel it launches
    said = "no engine takes the graph as one fusion: matmul_sm90, the nearest, declines operations:"
    assert f"split      sm_90a: {said} matmul 'second' needs another product; " in result.stdout
    assert "sdpa_sm80: operations" not in result.stdout
    for _ in range(2):  # the second is of the cache
        explained = dnnc("compile", "twice.py", "--explain").stdout
        for engine in ("matmul_sm80", "sdpa_sm80", "peers"):
            assert f"\n           {engine}: operations: " in explained
    assert "sdpa_sm80: operations: " in dnnc("inspect", "twice.dnnplan", "--explain").stdout
    assert "(--explain lists what each engine says)" in dnnc("inspect", "twice.dnnplan").stdout


def test_engine_and_knobs_are_taken(ffn, here):
    result = dnnc(
        "compile", ffn, "--engine", "fallback", "--knob", "LOAD_SIZE=4", "-o", "a.dnnplan"
    )
    assert result.exit_code == 0, result.output
    (fusion,) = format.read("a.dnnplan").programs[0].fusions
    assert (fusion.engine, fusion.knobs) == ("fallback", {"LOAD_SIZE": 4})


SMALL = (
    '{"dnnc_device": 1, "name": "one", "capability": [8, 6], "sm_count": 2,'
    ' "max_dynamic_smem_bytes": 101376}'
)


def test_a_target_may_be_a_device(ffn, here):
    """JSON or a file names it; the index of files tells its plans from those of the usual part."""
    (here / "device.json").write_text(SMALL)
    (here / "graph.json").write_text(json.dumps(graph_json(ffn)))
    plans = {}
    for _ in range(2):
        for given in ("sm_86", SMALL, "device.json", '{"dnnc_device": 1, "target": "sm_86"}'):
            result = dnnc("compile", "graph.json", "--target", given, "-o", "a.dnnplan")
            assert result.exit_code == 0, result.output
            plans.setdefault(given, set()).add((here / "a.dnnplan").read_bytes())
    assert all(len(made) == 1 for made in plans.values())
    usual, text, file, named = plans.values()
    assert usual == named != text == file
    chosen = dnnc("engines", ffn, "--target", SMALL).stdout
    assert chosen != dnnc("engines", ffn, "--target", "sm_86").stdout
    fused = [
        dnnc("compile", ffn, "--emit", "fused", "-t", given).stdout for given in (SMALL, "sm_86")
    ]
    assert fused[0] != fused[1]


@pytest.mark.parametrize(
    ("option", "named"), [("sm_version=80", "sm_80"), (f"device_property={SMALL!r}", "sm_86")]
)
def test_what_a_graph_names_is_compiled_for(option, named, here):
    (here / "named.py").write_text(FFN.replace('"ffn",', f'"ffn", {option},'))
    result = dnnc("compile", "named.py")
    assert result.exit_code == 0, result.output
    assert [p.target for p in format.read("named.dnnplan").programs] == [named]
    assert f"on {named}," in dnnc("engines", "named.py").stdout


def graph_json(path):
    from dnnc.cli.files import read_source
    from dnnc.dialect.json_form import to_json

    return to_json(read_source(str(path)).graph)


# ---- graph files


def cubin_of(here, *arguments, stdin=None):
    path = here / "x.cubin"
    result = dnnc("compile", *arguments, "--emit", "cubin", "-o", path, stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    return path.read_bytes()


def test_each_fusion_that_differs_has_a_cubin(here):
    """Its kernel's name in the module says nothing of the graph."""
    (here / "two.py").write_text("from tests.broken_files import norm as build\n")
    options = ("-t", "sm_80", "--in-process")
    assert dnnc("compile", "two.py", *options, "-o", "two.dnnplan").exit_code == 0
    result = dnnc("compile", "two.py", *options, "--emit", "cubin", "-o", "two.cubin")
    assert [line.split()[1] for line in result.output.splitlines()] == [
        "two.0.cubin",
        "two.1.cubin",
    ]
    made = format.read(here / "two.dnnplan")
    for place in range(2):
        assert (here / f"two.{place}.cubin").read_bytes() == made.blobs[2 * place]
    shown = dnnc("inspect", "two.dnnplan").stdout
    assert re.search(r"^kernel +in its module ", shown, re.MULTILINE)
    assert re.search(r"^fusion1_matmul_sm80 +fusion0_matmul_sm80 ", shown, re.MULTILINE)


def test_every_form_of_a_graph_gives_one_cubin(ffn, plan, here):
    wanted = format.read(plan).blobs[0]
    graph = json.dumps(format.read(plan).graph)
    (here / "ffn.json").write_text(graph)
    assert cubin_of(here, "ffn.json", "-t", "sm_80") == wanted
    text = dnnc("compile", ffn, "-t", "sm_80", "--emit", "graph").stdout
    assert cubin_of(here, "-", stdin=text) == wanted


@pytest.mark.rotating
@pytest.mark.parametrize("stage", TEXT_STAGES)
def test_each_stage_resumes_in_a_new_process(stage, ffn, plan, here):
    name = f"ffn.{stage}.{'ptx' if stage == 'ptx' else 'mlir'}"
    printed = dnnc("compile", ffn, "-t", "sm_90a", "--emit", stage, "-o", name)
    assert (printed.exit_code, printed.stdout) == (0, "")
    done = dnnc_process("compile", name, "--emit", "cubin", "-o", "resumed.cubin")
    assert done.returncode == 0, done.stderr
    assert (here / "resumed.cubin").read_bytes() == format.read(plan).blobs[2]


def test_a_resumed_text_makes_a_plan(ffn, plan, here):
    text = dnnc("compile", ffn, "-t", "sm_80", "--emit", "kernel").stdout
    result = dnnc("compile", "-", "-o", "resumed.dnnplan", stdin=text)
    assert result.exit_code == 0, result.output
    made, whole = format.read("resumed.dnnplan"), format.read(plan)
    assert made.programs[0].variants == whole.programs[0].variants
    assert made.tensors == whole.tensors


def test_a_stage_is_all_that_stdout_holds(ffn):
    result = dnnc("compile", ffn, "--emit", "linalg")
    assert result.stdout.startswith("#map = affine_map<")
    assert result.stderr == ""
    again = dnnc("opt", "-", stdin=result.stdout)
    assert again.stdout == result.stdout


def test_texts_of_several_targets_are_separated(ffn):
    result = dnnc("compile", ffn, "--emit", "fused", "-t", "sm_80,sm_90a")
    first, second = result.stdout.split("// -----\n")
    assert 'dnn.target = "sm_80"' in first
    assert 'dnn.target = "sm_90a"' in second


def test_a_graphs_target_may_change_and_a_later_stages_not(ffn):
    text = dnnc("compile", ffn, "-t", "sm_80", "--emit", "graph").stdout
    assert 'dnn.target = "sm_80"' in dnnc("compile", "-", "-e", "fused", stdin=text).stdout
    changed = dnnc("compile", "-", "-e", "fused", "-t", "sm_90", stdin=text)
    assert 'dnn.target = "sm_90"' in changed.stdout
    fused = dnnc("compile", "-", "-e", "fused", stdin=text).stdout
    said = error_of(dnnc("compile", "-", "-e", "ptx", "-t", "sm_90", stdin=fused))
    assert said == "BAD_PARAM: stdin: --target sm_90 of a text at stage fused; accepted: sm_80"


# ---- refusals

SM80 = ("--engine", "matmul_sm80")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "sm_91"], "NOT_SUPPORTED_ARCH_MISMATCH: target: target 'sm_91'; accepted: sm_80,"),
        (["-t", "sm_80,sm_80"], "BAD_PARAM_DUPLICATED_ENTRIES: target: targets sm_80,sm_80"),
        (["--engine", "matmul"], "BAD_PARAM: engine 'matmul'; accepted: pointwise,"),
        (["--engine", "pointwise"], "engine pointwise: operations: matmul 'mm'"),
        ([*SM80, "--knob", "TILES=3"], "has no knob TILES; accepted: TILE_M, TILE_N"),
        ([*SM80, "--knob", "STAGES=99"], "BAD_PARAM: knob STAGES=99 of engine"),
        ([*SM80, "--knob", "TILE_M=256", "--knob", "TILE_N=256"], "tile 256x256; accepted: 32x64"),
        (["-o", "no/such/folder/a.dnnplan"], "can't be written: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_can_not_be_is_an_error(arguments, said, ffn, here):
    assert said in error_of(dnnc("compile", ffn, *arguments))
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--emit", "sass"],
        ["--knob", "TILE_M"],
        ["--knob", "TILE_M=many"],
        ["--knob", "TILE_M=32", "--knob", "TILE_M=64"],
        ["--knob", "TILE_M=64"],  # of no engine
        ["--mode", "A,C"],
        ["--emit", "cubin"],
        ["--emit", "cubin", "-o", "x.cubin", "-t", "sm_80,sm_90"],
    ],
    ids=" ".join,
)
def test_wrong_use_exits_with_2(arguments, ffn, here):
    result = dnnc("compile", ffn, *arguments)
    assert result.exit_code == 2
    assert "Error" in result.stderr
    assert list(here.iterdir()) == []


NEAREST = (
    "NOT_SUPPORTED_LAYOUT: refused.py:6: graph 'refused': no engine for sm_90a takes "
    "pointwise:cmp_gt 'sign': pointwise, the nearest, declines boolean output: a boolean output "
    "with gaps, or several in different orders of the axes; accepted: packed boolean outputs with "
    "the same order of axes"
)


def test_a_graph_that_no_engine_takes(here):
    (here / "refused.py").write_text(REFUSED)
    (here / "refused.dnnplan").write_bytes(b"as it was")
    result = dnnc("compile", "refused.py")
    assert error_of(result) == NEAREST
    _, source, hint = result.stderr.splitlines()
    assert source == '  refused.py:6: y = g.cmp_gt(g.tensor([4, 6]), 0, name="sign")'
    assert hint == "hint: --explain lists what each engine says"
    assert (here / "refused.dnnplan").read_bytes() == b"as it was"


def test_a_graph_that_no_engine_takes_explained(here):
    (here / "refused.py").write_text(REFUSED)
    explained = dnnc("compile", "refused.py", "--explain").stderr
    summary, _, operation, first, *others = explained.splitlines()
    assert summary == f"error: {NEAREST}"
    assert operation == "pointwise:cmp_gt 'sign':"
    assert first.startswith("  pointwise: boolean output: a boolean output with gaps, or several")
    assert {line.split(":")[0].strip() for line in (first, *others)} == {e.name for e in ENGINES}
    # A command without the option names one that has it.
    hint = dnnc("run", "refused.py", "--random", "-d", "interpreter").stderr.splitlines()[-1]
    assert hint == "hint: dnnc engines GRAPH --explain lists what each engine says"


@pytest.mark.parametrize("arguments", [["--emit", "fused"], ["--in-process", "--no-cache"]])
def test_wherever_it_is_refused_the_line_is_named(arguments, here):
    (here / "refused.py").write_text(REFUSED)
    assert error_of(dnnc("compile", "refused.py", *arguments)) == NEAREST


def test_a_text_goes_on_to_later_stages_only(ffn):
    text = dnnc("compile", ffn, "--emit", "linalg").stdout
    said = error_of(dnnc("compile", "-", "--emit", "fused", stdin=text))
    assert said == (
        "BAD_PARAM: stdin: --emit fused of a text at stage linalg; "
        "accepted: linalg, kernel, nvvm, ptx, cubin, plan, c"
    )
    said = error_of(dnnc("compile", "-", "--engine", "fallback", stdin=text))
    assert "whose engines are chosen; accepted: a graph" in said


def test_no_assembler(ffn, here, monkeypatch):
    """Without nvJitLink and ptxas, PTX is still made, and a cubin is an error."""
    from dnnc.codegen import nvptx
    from dnnc.errors import DnncError, Status

    def absent(ptx, target):
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, "no assembler: neither", "packages"
        )

    monkeypatch.setattr(nvptx, "assemble", absent)
    assert ".visible .entry" in dnnc("compile", ffn, "--emit", "ptx").stdout
    said = error_of(dnnc("compile", ffn, "--in-process", "--no-cache", "-o", "a.dnnplan"))
    assert said.startswith("NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING: no assembler")
    assert list(here.iterdir()) == []


# ---- C


def test_a_graph_and_its_plan_give_the_same_c(ffn, plan, here):
    options = ("-t", "sm_80,sm_90a", "--variants", "1")
    result = dnnc("compile", ffn, *options, "--emit", "c")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("ffn.h, ffn.c: plan 'ffn', ")
    assert "functions  ffn_load, ffn_workspace_size, ffn_run, ffn_unload, ffn_err" in result.stdout
    assert "build      cc -std=c99 -c ffn.c; link with -lcuda" in result.stdout
    assert re.search(r"sm_80 .*TILE_M=\d+.* fusion0_\w+ +\d+ +0 B +\d+ B", result.stdout)
    texts = {path.name: path.read_bytes() for path in here.iterdir()}
    assert sorted(texts) == ["ffn.c", "ffn.h"]
    (here / "of_plan").mkdir()
    result = dnnc("compile", plan, "--emit", "c", "-o", "of_plan/ffn.c")
    assert result.exit_code == 0, result.output
    assert {path.name: path.read_bytes() for path in (here / "of_plan").iterdir()} == texts


def test_c_of_some_targets_of_a_plan(plan, here):
    result = dnnc("compile", plan, "--emit", "c", "-t", "sm_90a", "-o", "one")
    assert result.exit_code == 0, result.output
    assert "for sm_90a, key" in (here / "one.h").read_text()
    assert "sm_80," not in (here / "one.c").read_text()


def test_c_of_one_plan_of_a_bundle(plan, here):
    first = format.read(plan)
    format.write("both.dnnplan", [first, dataclasses.replace(first, name="other")])
    said = error_of(dnnc("compile", "both.dnnplan", "--emit", "c"))
    assert "accepted: one of ffn, other" in said
    result = dnnc("compile", "both.dnnplan", "--emit", "c", "--plan", "other", "-o", "net")
    assert result.exit_code == 0, result.output
    assert "plan 'other' for sm_80, sm_90a" in (here / "net.h").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--emit plan of a plan; accepted: c"),
        (["--emit", "ptx"], "--emit ptx of a plan; accepted: c"),
        (["--emit", "c", "--engine", "fallback"], "for a plan, whose engines are chosen"),
        (["--emit", "c", "-t", "sm_90"], "the plan has no code for sm_90; accepted: sm_80, sm_90a"),
        (["--emit", "c", "-o", "no/folder/a"], "can't be written: No such file or directory"),
        (["--emit", "c", "--plan", "other"], "no plan 'other'; accepted: one of ffn"),
    ],
    ids=" ".join,
)
def test_what_a_plan_is_not_compiled_to(arguments, said, plan, here):
    assert said in error_of(dnnc("compile", plan, *arguments))
    assert list(here.iterdir()) == []


def test_a_graph_is_no_bundle(ffn, here):
    said = error_of(dnnc("compile", ffn, "--plan", "ffn"))
    assert said == f"BAD_PARAM: {ffn}: --plan ffn of a graph; accepted: .dnnplan"


@pytest.mark.parametrize("command", ["compile", "engines", "opt", "tune"])
def test_an_empty_target_is_not_the_default(command, ffn, here):
    more = ["--compile-only", "made"] if command == "tune" else []
    said = error_of(dnnc(command, ffn, "--target", "", *more))
    assert "target ''; accepted: sm_80" in said
    assert list(here.iterdir()) == []


def test_a_hint_is_a_line_of_compile_and_of_inspect(here):
    (here / "odd.py").write_text(
        "import dnnc\n"
        "def build():\n"
        "    g = dnnc.pygraph('odd', io_data_type='f16', intermediate_data_type='f32')\n"
        "    x, w = g.tensor([1, 1024, 4095], name='x'), g.tensor([1, 4095, 4096], name='w')\n"
        "    g.matmul(x, w).set_output().set_name('y')\n"
        "    return g\n"
    )
    said = "rows begin at no multiple of 16 bytes; with strides 'x' [4194304, 4096, 1]: predicted "
    made = dnnc("compile", "odd.py", "-t", "sm_80", "--variants", "1")
    assert f"hint       sm_80: {said}" in made.stdout, made.output
    assert f"hint       {said}" in dnnc("inspect", "odd.dnnplan").stdout
