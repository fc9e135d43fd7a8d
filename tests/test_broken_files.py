"""Graph files that are broken are refused by a DnncError, soon; MLIR ends no command unsaid."""

import json

import pytest

from dnnc.dialect.json_form import to_json
from dnnc.errors import DnncError

from .broken_files import GRAPHS, broken_files, outcome, treated
from .cli.commands import dnnc_process
from .support import seeds

# What may become of a file: MLIR's parser may still end a process, which the command line's is not.
EXPECTED = ("done", "refused", "ended by SIGSEGV", "ended by SIGABRT")


@pytest.mark.parametrize("seed", [f"{seeds.BASE} ci"])
def test_broken_files(seed):
    wrong = [
        f"{name} {suffix}: {said}"
        for name, suffix, text in broken_files(seed, 28)
        if (said := outcome(text, suffix)) not in EXPECTED
    ]
    assert not wrong, wrong[0]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(30))
def test_more_broken_files(part):
    test_broken_files(f"{seeds.BASE} {part}")


def graph():
    g = GRAPHS[0]()
    g.build_operation_graph()
    return to_json(g.graph)


def changed(change):
    data = graph()
    change(data)
    return json.dumps(data)


JSON_CASES = {
    "a list for a uid": lambda d: d["ops"][0]["operands"].update(x=[]),
    "a dict for a result": lambda d: d["ops"][0]["results"].update(y={}),
    "a list for an offset": lambda d: d["tensors"][0].update(ragged_offset=[]),
    "a list for a name": lambda d: d["tensors"][0].update(name=["x"]),
    "a list for the graph's name": lambda d: d.update(name=[]),
    "a list for an operation's name": lambda d: d["ops"][0].update(name=[]),
    "a value of 400 digits": lambda d: d["tensors"][0].update(value=10**400, is_by_value=True),
    "an attribute of 400 digits": lambda d: d["ops"][-1]["attributes"].update(
        relu_lower_clip=10**400
    ),
    "a stride of 400 digits": lambda d: d["tensors"][0].update(strides=[10**400, 1]),
    "an alignment of 400 digits": lambda d: d["tensors"][0].update(alignment=1 << 1300),
    "a size of 400 digits": lambda d: d["symbols"][0].update(max=10**400),
    "half a surrogate pair": lambda d: d["tensors"][0].update(name="\ud800"),
    "half a surrogate pair in an attribute": lambda d: d["ops"][0]["attributes"].update(
        mode="\ud800"
    ),
    "true for a uid": lambda d: d["tensors"][0].update(uid=True),
    "an unknown field of a tensor": lambda d: d["tensors"][0].update(alignmnt=4),
    "an unknown field of an operation": lambda d: d["ops"][0].update(attribute={}),
    "an unknown field": lambda d: d.update(tensor=[]),
}


@pytest.mark.parametrize("name", JSON_CASES)
def test_json(name, tmp_path):
    path = tmp_path / "g.json"
    path.write_text(changed(JSON_CASES[name]))
    with pytest.raises(DnncError):
        treated(str(path))


def test_brackets_without_end(tmp_path):
    for suffix in (".json", ".mlir"):
        path = tmp_path / f"g{suffix}"
        path.write_text("[" * 200_000)
        with pytest.raises(DnncError):
            treated(str(path))


@pytest.mark.parametrize("sizes", ["array<i64: 1, 0, 0>", "array<i8: 1, 0, 0>", "5", "[1, 0, 0]"])
def test_segment_sizes_of_another_type(sizes, tmp_path):
    path = tmp_path / "g.mlir"
    path.write_text(
        "func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> attributes {dnn.graph} {\n"
        '  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp",'
        f" operandSegmentSizes = {sizes}}} : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %0 : tensor<4xf32>\n}\n"
    )
    with pytest.raises(DnncError):
        treated(str(path))


# MLIR's parser calls itself for each sign, until its stack ends.
ENDING = "#map = affine_map<()[s0] -> (" + "-" * 2_000_000 + "s0)>\nmodule {}\n"


@pytest.mark.rotating
@pytest.mark.parametrize("command", [["inspect"], ["compile", "--emit", "ptx"], ["opt"]])
def test_a_text_that_ends_mlir_ends_the_command_with_a_line(command, tmp_path):
    path = tmp_path / "g.mlir"
    path.write_text(ENDING)
    done = dnnc_process(*command, path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(
        "error: INTERNAL_ERROR: MLIR or LLVM ended the command by SIGSEGV"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit(3)", "g.py:1: SystemExit: 3"),
        ("raise RuntimeError('\\ud800')", "RuntimeError"),
        ("def build(): return build()", "RecursionError"),
        ("def build(): return 5", "a int"),
        ("build = 5", "no function build()"),
        ("def build(:", "SyntaxError"),
        ("\0", "null bytes"),
    ],
)
def test_python_files(text, said, tmp_path):
    (tmp_path / "g.py").write_text(text)
    done = dnnc_process("inspect", tmp_path / "g.py")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("spelt", "is_right"), [("\\C3\\A9", True), ("\\FF\\FE", False)])
def test_strings_of_a_module(spelt, is_right, tmp_path):
    path = tmp_path / "g.mlir"
    path.write_text(
        f'func.func @g(%x: tensor<4xf32> {{dnn.name = "{spelt}"}}) -> tensor<4xf32>'
        " attributes {dnn.graph} {\n"
        '  %0 = "dnn.pointwise"(%x) {compute_type = f32, mode = "exp",'
        " operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %0 : tensor<4xf32>\n}\n"
    )
    if is_right:
        treated(str(path))
        return
    with pytest.raises(DnncError, match="UTF-8"):
        treated(str(path))
