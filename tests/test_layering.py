"""Imports go down the layers and never up; only dnnc/mlir.py knows the bindings.

A file has 600 lines at most.
"""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import imports

ROOT = Path(__file__).parent.parent / "dnnc"
PARTS = list(ROOT.iterdir())

# A layer may import those after it.  Within one layer imports are free.
LAYERS = (
    ("__main__", "cli", "torch", "tuning", "view", "cudnn"),
    ("api",),
    ("operations",),
    ("backend",),
    ("frontends",),
    ("worker", "cache"),
    ("compiler",),
    ("passes",),
    ("choosing",),
    ("engines",),
    ("codegen",),
    ("errata", "record"),
    ("dialect",),
    ("mlir",),
    ("emit",),
    ("plan",),
    ("keys",),
    ("store", "target", "tools", "options", "log", "rounding", "progress"),
    ("outside", "knobs"),
    ("dtypes", "expr"),
    ("given",),
    ("errors", "stackless"),
    ("places", "visible"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# Beside the order: part -> what alone it may import of the package.
LEAVES = {
    *("plan", "dtypes", "expr", "errors", "target"),
    *("store", "tools", "log", "rounding", "given"),
}
ONLY = {
    "emit": LEAVES,
    "runtime": LEAVES,
    "interpreter": LEAVES,
}
USERS_OF_RUNTIME = {"cli", "torch", "tuning", "cudnn", "backend", "frontends", "runtime"}
USERS_OF_INTERPRETER = {"cli", "interpreter"}


def modules():
    return sorted(ROOT.rglob("*.py"))


def test_files_have_600_lines_at_most():
    folders = [ROOT.parent / name for name in ("dnnc", "tests", "benchmarks", "docs", "demo")]
    lines = {p: p.read_bytes().count(b"\n") for root in folders for p in root.rglob("*.py")}
    assert len(lines) > 1000
    assert not {path: count for path, count in lines.items() if count > 600}


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@functools.cache
def imported_modules(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(imports.imported_modules(nodes, path, ROOT.parent))


def imported_parts(path):
    known = {p.stem if p.is_file() else p.name for p in PARTS}
    for name, line in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "dnnc" and len(parts) > 1 and parts[1] in known:
            yield parts[1], line


def is_allowed(part, other):
    """Whether a part of the package may import another."""
    if other == part or part == "__init__":
        return True
    if part in ONLY:
        return other in ONLY[part]
    if other == "runtime":
        return part in USERS_OF_RUNTIME
    if other == "interpreter":
        return part in USERS_OF_INTERPRETER
    return RANK[part] <= RANK[other]


def test_imports_go_down():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for path in modules()
        for other, line in imported_parts(path)
        if not is_allowed(part_of(path), other)
    ]
    assert not wrong


def test_an_import_that_goes_up_is_noticed():
    assert is_allowed("cli", "compiler")
    for part, other in (
        ("compiler", "cli"),
        ("emit", "compiler"),
        ("compiler", "runtime"),
        ("runtime", "interpreter"),
    ):
        assert not is_allowed(part, other), (part, other)


def test_only_one_module_imports_the_bindings():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules()
        for name, line in imported_modules(path)
        if path != ROOT / "mlir.py" and name.split(".")[0] in ("mlir", "numba_cuda_mlir")
    ]
    assert not wrong


def test_only_the_ir_side_of_the_dialect_imports_mlir():
    for path in (ROOT / "dialect").rglob("*.py"):
        uses = {other for other, _ in imported_parts(path)}
        assert ("mlir" in uses) <= (path.name in IR_SIDE), path.name


IR_SIDE = (
    "affine.py", "attributes.py", "bound_attributes.py", "define.py", "definition.py",
    "difference.py", "dnn.py", "rewriting.py", "structure.py",
)  # fmt: skip


def loaded_modules(statement):
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    "statement",
    ["import dnnc", "import dnnc.runtime", "from dnnc.runtime import driver, executor, args"],
)
def test_runtime_loads_no_compiler(statement):
    loaded = loaded_modules(statement)
    strange = ("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.passes", "dnnc.dialect")
    assert not [name for name in loaded if name.startswith(strange)]
    if statement == "import dnnc":
        assert "numpy" not in loaded


def test_descriptors_load_no_compiler():
    loaded = loaded_modules("import dnnc; dnnc.backend.CUDNN_BACKEND_TENSOR_DESCRIPTOR")
    assert "dnnc.backend.kinds" in loaded
    strange = (
        *("numba_cuda_mlir", "dnnc.mlir", "dnnc.compiler", "dnnc.passes"),
        *("dnnc.choosing", "dnnc.engines"),
    )
    assert not [name for name in loaded if name.startswith(strange)]


def test_a_graph_is_written_verified_and_run_without_mlir():
    loaded = loaded_modules("from dnnc.dialect import graph, json_form, reference, fusion")
    assert "dnnc.dialect.reference" in loaded
    assert not [name for name in loaded if name.startswith(("numba_cuda_mlir", "dnnc.mlir"))]


def test_the_bindings_have_every_name_that_is_used():
    from dnnc import mlir

    for name in ("ir", "PassManager", "arith", "ext", "func", "gpu", "linalg", "llvm", "math"):
        assert getattr(mlir, name) is not None
    for name in ("nvvm", "scf", "tensor", "vector"):
        assert getattr(mlir, name) is not None


def test_the_front_end_of_the_bindings_can_still_be_imported():
    loaded_modules("import dnnc.mlir; from numba_cuda_mlir import cuda")


# What others than engines may import of them, beside the fusions of `engines/views`.
OF_ALL_ENGINES = tuple(f"dnnc.engines{name}" for name in ("", ".engine", ".plain_data", ".surface"))


def test_nothing_outside_engines_knows_one_by_name():
    """All that engines are asked is a member of `Engine`; a name of two words is in no other."""
    texts = [path.read_text() for path in (ROOT / "engines").rglob("*.py")]
    names = set(re.findall(r'^    name: str = "(\w+_\w+)"$', "\n".join(texts), re.MULTILINE))
    assert "matmul_sm90" in names
    for path in modules():
        if RANK.get(part_of(path), RANK["engines"]) >= RANK["engines"]:
            continue
        for name, line in imported_modules(path):
            module = name if name in OF_ALL_ENGINES else name.rpartition(".")[0]
            if module.startswith("dnnc.engines.views") or module in OF_ALL_ENGINES:
                continue
            assert not name.startswith("dnnc.engines."), f"{path}:{line} imports {name}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in names, f"{path}:{node.lineno} names {node.value}"
