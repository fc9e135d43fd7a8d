"""Types of the public names: what editors and type checkers see is what runs."""

import ast
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import dnnc
from dnnc.dialect.ops import OPS
from dnnc.frontends import argument_types, signatures
from dnnc.frontends.operations import Operations

from ..typed import program

ROOT = Path(__file__).parent.parent.parent
TYPED = ROOT / "tests" / "typed"
METHODS = {n: m for n, m in vars(Operations).items() if not n.startswith("_")}


def generator():
    path = ROOT / "docs" / "generate_stubs.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_what_the_script_makes(tmp_path, capsys):
    script = generator()
    assert script.main(["--check"]) == 0, "run python docs/generate_stubs.py"
    other = tmp_path / "operations.pyi"
    other.write_text("class Operations: ...\n")
    assert script.main(["--check"], other) == 1
    assert "run python docs/generate_stubs.py" in capsys.readouterr().err


def mistakes():
    """(line, rule) of what comments in the file say."""
    for number, line in enumerate((TYPED / "mistakes.py").read_text().splitlines(), 1):
        for rule in re.findall(r"report\w+", line.partition("#")[2]):
            yield number, rule


def test_pyright_accepts_programs_and_finds_mistakes():
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(TYPED)]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == 3
    found = {"program.py": [], "mistakes.py": [], "ffn.py": []}
    for said in answer["generalDiagnostics"]:
        if not said["rule"].startswith("reportUnknown"):  # follows from another mistake
            place = (said["range"]["start"]["line"] + 1, said["rule"])
            found[Path(said["file"]).name].append(place)
    assert found == {"program.py": [], "mistakes.py": list(mistakes()), "ffn.py": []}


def tensors(*dims):
    g = dnnc.pygraph("typed", io_data_type="f32", compute_data_type="f32")
    return g, *(g.tensor(each) for each in dims)


def test_results_have_the_types_that_pyright_finds(monkeypatch):
    checked = []

    def assert_type(value, kind):
        assert value is None if kind is None else isinstance(value, kind)
        checked.append(value)
        return value

    monkeypatch.setattr(program, "assert_type", assert_type)
    program.products().validate()
    program.norms(*tensors([4, 8, 16, 16], [1, 8, 1, 1], [1, 8, 1, 1]))
    program.images(*tensors([4, 8, 16, 16], [8, 8, 3, 3]))
    program.attention(*tensors(*[[2, 4, 16, 64]] * 3))
    assert len(checked) == 8


# What is given where a call of an overload needs more than its own arguments.
ARGUMENTS = {
    "norm_forward_phase": "INFERENCE", "mode": "max", "resample_mode": "MAXPOOL", "epsilon": 1e-5,
    "accum_count": 8.0, "pre_padding": [0, 0], "post_padding": [0, 0], "stride": 2, "window": 2,
    "Training": "TRAINING", "Inference": "INFERENCE", "MaxPool": "MAXPOOL", "Operand": 0.5,
    "Literal[True]": True, "Literal[False]": False,
}  # fmt: skip
IMAGES = ("input", "grad", "q", "k", "v")


def overloads():
    """(method, signature) of calls whose results are known more exactly."""
    return [
        (name, signature)
        for name, method in METHODS.items()
        for signature in list(signatures.signatures(name, inspect.signature(method)))[:-1]
    ]


@pytest.mark.parametrize(("name", "signature"), overloads())
def test_overloads_return_what_they_say(name, signature):
    g, image, channels = tensors([2, 8, 16, 16], [1, 1, 1, 1] if "sdpa" in name else [1, 8, 1, 1])
    given = {
        p.name: ARGUMENTS.get(p.annotation)
        or ARGUMENTS.get(p.name)
        or (image if p.name in IMAGES else channels)
        for p in list(signature.parameters.values())[1:]
        if p.default is p.empty or signatures.is_required(name, p)
    }
    if name == "rmsnorm_backward":
        given["inv_variance"] = g.tensor([2, 1, 16, 16])
    given |= {n: False for n in given if signature.parameters[n].annotation == "Literal[False]"}
    made = getattr(g, name)(**given)
    wanted = eval(signature.return_annotation, {"GraphTensor": dnnc.Tensor})
    if wanted is dnnc.Tensor:
        assert isinstance(made, wanted)
    else:
        assert isinstance(made, tuple)
        kinds = [type(None) if kind is None else kind for kind in typing.get_args(wanted)]
        assert [type(result) for result in made] == kinds


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_described(name):
    """Every parameter has a type that exists, and stands in the docstring."""
    assert name in dir(dnnc.pygraph)
    method = getattr(dnnc.pygraph, name)
    signature = inspect.signature(method)
    known = {**vars(argument_types), "GraphTensor": dnnc.Tensor, "Tensor": dnnc.Tensor}
    parameters = list(signature.parameters.values())
    assert parameters.pop(0).name == "self"
    for parameter in parameters:
        assert re.search(rf"\b{parameter.name}\b", method.__doc__)
        eval(parameter.annotation, known)
    assert "GraphTensor" in signature.return_annotation


def texts_of(alias):
    """The texts among what an alias accepts."""
    for part in typing.get_args(alias):
        if isinstance(part, str):
            yield part
        elif typing.get_origin(part) is typing.Literal:
            yield from texts_of(part)


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.op_name)
def test_types_of_modes_have_all_choices(kind):
    method = METHODS.get(kind.op_name)
    for field in kind.fields_of("attribute"):
        if field.choices and method and field.parameter in inspect.signature(method).parameters:
            annotation = inspect.signature(method).parameters[field.parameter].annotation
            alias = getattr(argument_types, annotation.partition(" |")[0])
            assert {text.lower() for text in texts_of(alias)} == {
                choice.lower() for choice in field.choices
            }


def test_what_type_checkers_import_is_what_programs_get():
    tree = ast.parse(Path(dnnc.__file__).read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If) and isinstance(n.test, ast.Name)]
    found, others = {}, {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.name] = f"dnnc.{node.module}" if node.module else "dnnc"
        else:
            sources = getattr(node.value, "elts", [node.value])
            targets = getattr(node.targets[0], "elts", node.targets)
            others |= {t.id: s.id for t, s in zip(targets, sources, strict=True)}
    assert others == dnnc._RENAMED
    for name, source in others.items():
        found[name] = found.pop(source)
    assert found == {**dnnc._LAZY, **dict.fromkeys(dnnc._PACKAGES, "dnnc")}


def test_importing_the_package_loads_nothing_else_of_it():
    code = "import sys, dnnc; print(*[name for name in sys.modules if name.startswith('dnnc.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_a_wrong_method_is_named_with_its_graph():
    with pytest.raises(
        AttributeError, match="'pygraph' object has no attribute 'matmull'"
    ) as error:
        dnnc.pygraph().matmull()
    assert error.value.name == "matmull"  # from which Python suggests matmul
