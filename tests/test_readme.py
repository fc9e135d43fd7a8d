"""The README: its commands and snippets run as they stand; what needs a GPU is parsed."""

import re
import shlex
from pathlib import Path

import pytest

import dnnc
from benchmarks import headline
from tests.cli.commands import dnnc as command
from tests.emit import c_compiler

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    return [text for found, text in BLOCK.findall(README) if found == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A clone's examples, and what the README's commands write beside them."""
    made = tmp_path_factory.mktemp("readme")
    (made / "examples").symlink_to(ROOT / "examples")
    return made


def run(line):
    words = shlex.split(line, comments=True)
    assert words[0] == "dnnc"
    result = command(*words[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


def test_it_is_short():
    assert len(README.splitlines()) <= 120


def test_the_graph_is_the_example():
    graph, _ = blocks("python")
    assert (ROOT / "examples" / "ffn.py").read_text().endswith(graph)


@pytest.mark.parametrize(
    "page", ["cli", "pygraph", "tuning", "engines", "c", "caches", "plan-format"]
)
def test_pages_show_the_same_graph(page):
    graph, _ = blocks("python")
    assert graph in (ROOT / "docs" / f"{page}.md").read_text()


def test_the_commands_of_60_seconds_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (commands,) = blocks("sh")
    compiled, checked = map(run, commands.strip().splitlines())
    assert "sm_90a" in compiled
    assert "good" in checked


def test_the_pytorch_script_gives_the_plans_inputs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    _, script = blocks("python")
    compile(script, "README", "exec")
    plan = dnnc.load("ffn.dnnplan")
    ((output, inputs),) = re.findall(r"(\w+) = plan\((.*?)\)", script)
    assert inputs.split(", ") == [tensor.name for tensor in plan.inputs]
    assert [output] == [tensor.name for tensor in plan.outputs]
    # nn.Linear keeps [out, in]; its transpose has the strides that the graph gives w.
    w = plan.record("w")
    assert (w.dims[1:], w.strides[1:]) == (("384", "1536"), ("1", "384"))


def test_the_c_lines_compile_against_the_header(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (command_line,) = re.findall(r"`(dnnc compile examples/ffn.py --emit c)`", README)
    run(f"{command_line} --target sm_90a")
    (lines,) = blocks("c")
    Path("main.c").write_text(
        '#include "ffn.h"\n'
        "int launch(CUdeviceptr x, CUdeviceptr w, CUdeviceptr b, CUdeviceptr y, CUstream stream);\n"
        "int launch(CUdeviceptr x, CUdeviceptr w, CUdeviceptr b, CUdeviceptr y, CUstream stream)\n"
        "{\n" + lines + "return error;\n}\n"
    )
    c_compiler.c("-c", "main.c", "-o", "main.o")


def test_the_table_is_what_was_measured():
    assert headline.table() in README
    ratios = [float(found) for found in re.findall(r"\| ([0-9.]+)x \|", headline.table())]
    assert len(ratios) == 8
    assert min(ratios) < 1  # an honest miss


def test_the_refusal_is_printed_so(tmp_path, monkeypatch):
    """README and docs/cli.md show how the example in fp8 is refused for an A100, which can't
    convert it."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "examples" / "ffn.py").read_text()
    Path("ffn.py").write_text(text.replace('io_data_type="f16"', 'io_data_type="FP8_E4M3"'))
    said = command("compile", "ffn.py", "--target", "a100").stderr
    shown = [line for line in README.splitlines() if re.match(r"error: |  ffn\.py:", line)]
    assert said.splitlines()[: len(shown)] == shown
    assert len(shown) == 2
    commands = (ROOT / "docs" / "cli.md").read_text()
    assert "".join(f"    {line}\n" for line in shown) in commands


def test_the_hint_is_printed_so():
    """The graph behind it is one of tests/choosing/test_hints.py."""
    from dnnc.choosing import heuristics, hints
    from dnnc.target import of
    from tests.choosing.test_hints import product

    graph, target = product(k=4095).graph.finalize(), of("sm_90a")
    (hint,) = hints.hints(graph, heuristics.best_config(graph, target), target)
    assert f"\nhint       sm_90a: {hint}\n" in README
