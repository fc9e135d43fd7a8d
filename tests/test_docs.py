"""The examples of pages (engines, tuning, pygraph, ...) run as they stand, without a GPU.

A page is one program: its python blocks share their names, its sh blocks are commands of dnnc in
the same folder.  A python block that begins with the name of a file is that file.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from dnnc import operations
from tests.cli.commands import dnnc as command
from tests.cli.commands import dnnc_process
from tests.tuning.fakes import FakeTimer

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [
    "engines.md", "tuning.md", "pygraph.md", "cli.md", "attention.md", "attention-gradients.md",
    "convolution.md",
]  # fmt: skip
TUTORIALS = [f"tutorials/{path.name}" for path in sorted((DOCS / "tutorials").glob("*.md"))]
_FILE = re.compile(r"# (\w+)\.py\n")
_FILES = ("ffn", "mlp", "norm", "attention", "block", "scale", "chain", "centre", "centred")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def gpu(monkeypatch):
    """Predictions are exact on this one."""

    def open_timer(ordinal=None, *, cold_l2=False, clock=None):
        made = FakeTimer(lambda text, sizes: 1e-5 * (1 + len(text) % 7))
        made.target, made.l2 = "sm_90a", "cold" if cold_l2 else "warm"
        return made

    monkeypatch.setattr("dnnc.tuning.search.DeviceTimer", open_timer)
    monkeypatch.setattr("dnnc.tuning.files.DeviceTimer", open_timer)
    # One compile worker for all examples.
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr("dnnc.tuning.candidates._close_workers", lambda: None)


def blocks(page):
    return [match.groups() for match in BLOCK.finditer((DOCS / page).read_text())]


@pytest.mark.rotating
@pytest.mark.parametrize("page", PAGES + TUTORIALS)
def test_examples(page, gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in _FILES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with operations.registered():  # what a page registers is known to its end
        run(page, tmp_path)


def run(page, folder):
    names = {}
    for language, text in blocks(page):
        if language == "json":
            json.loads(text)
            (folder / "errata.json").write_text(text)
        elif language == "c":
            continue  # a part of a program; docs/c.md has a whole one
        elif language == "sh":
            for line in text.splitlines():
                words = line.split()
                assert words[0] == "dnnc", line
                result = command(*words[1:])
                assert result.exit_code == 0, f"{line}\n{result.output}"
        else:
            assert language == "python", text
            if file := _FILE.match(text):
                (folder / f"{file[1]}.py").write_text(text)
                sys.modules.pop(file[1], None)
                importlib.invalidate_caches()
                names |= vars(importlib.import_module(file[1]))
                continue
            exec(compile(text, f"{page}: {text[:40]!r}", "exec"), names)


def test_a_graph_file_registers_an_operation_before_the_dialect_is_loaded(tmp_path):
    for _, text in blocks("tutorials/operation.md"):
        if file := _FILE.match(text):
            (tmp_path / f"{file[1]}.py").write_text(text)
    done = dnnc_process("compile", tmp_path / "centred.py", "--target", "sm_80", "--emit", "graph")
    assert '"dnn.centre"' in done.stdout, done.stderr


def test_a_layer_is_one_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ((_, text),) = blocks("supported.md")
    names = {}
    exec(compile(text, "supported.md", "exec"), names)
    for variant in names["plan"].programs[0].variants:
        (launch,) = [step.launch for step in variant.steps]
        assert "conv_sm80" in launch.kernel


@pytest.mark.rotating
def test_the_plan_that_is_shown_is_what_inspect_prints(tmp_path, monkeypatch):
    """Keys may differ, and numbers that follow the compiler: bytes of code, registers."""
    monkeypatch.chdir(tmp_path)
    texts = {language: text for language, text in reversed(blocks("plan-format.md"))}
    (tmp_path / "ffn.py").write_text(texts["python"])
    compiled, shown, _ = (line.split()[1:] for line in texts["sh"].splitlines())
    assert command(*compiled).exit_code == 0
    printed = masked(command(*shown).stdout).splitlines()
    for line in masked(texts["text"]).splitlines():
        start = line.removesuffix("...").rstrip()
        assert any(found.startswith(start) for found in printed), line


def masked(text):
    """A text without what changes from version to version, and without spaces for columns."""
    text = re.sub(
        r"(?m)^key .*|(?<=cubin )[\d,]+|(?<=PTX )[\d,]+|(?<=128 ) *\d+(?= +0 B)", "", text
    )
    return re.sub(r" +", " ", text)
