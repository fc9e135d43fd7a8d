# pyright: basic
"""The MLIR Python bindings: the only module that imports them.

They come from numba-cuda-mlir (LLVM 23), a private package of that project; it is imported
behind a stub parent, so that its own front end, which we do not use, is not executed.  A user may
import that front end before or after, and then compiles in the worker: it gives every MLIR value of
the process operators of its own (`==` builds a comparison), so `context` refuses beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .errors import DnncError, Status
from .places import Place

_PACKAGE = "numba_cuda_mlir"


# What gives values operators, in the front end of the package.
_FRONT_END = f"{_PACKAGE}.mlir.dialect_exts.arith"


class _Stub(types.ModuleType):
    """A package that runs its own code only when something is asked of it that it lacks so far."""

    def __getattr__(self, name: str) -> Any:
        is_of_the_import_system = name.startswith("__") and name != "__version__"
        if is_of_the_import_system or not _is_stub(self):
            raise AttributeError(name)
        _complete(self)
        return getattr(self, name)


def _is_stub(package: Any) -> bool:
    """Whether a module is a stub whose own code has not run."""
    return isinstance(package, _Stub) and package.__dict__.get("_dnnc_state") == "stub"


def _complete(package: _Stub) -> None:
    """Runs the code of a stub's package."""
    package.__dict__["_dnnc_state"] = "full"
    assert package.__spec__ and package.__spec__.loader
    package.__spec__.loader.exec_module(package)


class _Completing(importlib.abc.MetaPathFinder):
    """Runs the code of a stub's package before a module inside it, as an import does."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        parent, _, child = name.rpartition(".")
        package = sys.modules.get(parent)
        if child == "_mlir" or not _is_stub(package):
            return None
        _complete(package)  # pyright: ignore[reportArgumentType]
        loaded = sys.modules.get(name)
        return None if loaded is None else importlib.machinery.ModuleSpec(name, _Loaded(loaded))


class _Loaded(importlib.abc.Loader):
    """Loads a module that its package has loaded meanwhile."""

    def __init__(self, module: Any):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: Any) -> Any:
        return self.module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = self.spec


def _stub(name: str) -> Any:
    """The package of a name, as it is in this process, or else as a stub."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            "the compiler's MLIR bindings are not installed",
            'pip install "dnnc[compiler]"',
        )
    module = _Stub(spec.name)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__ = spec.name
    module.__path__ = list(spec.submodule_search_locations)
    module.__dict__["_dnnc_state"] = "stub"
    sys.modules[spec.name] = module
    return module


def _install_stub_parent() -> None:
    if _PACKAGE not in sys.modules:
        _isolate_symbols(_stub(_PACKAGE).__path__[0])
        sys.meta_path.insert(0, _Completing())


def _isolate_symbols(root: str) -> None:
    """Loads the library so that another LLVM in the process (llvmlite) can't take its symbols."""
    library = os.path.join(root, "_mlir", "_mlir_libs", "libMLIRPythonCAPI.so")
    if os.path.exists(library) and hasattr(os, "RTLD_DEEPBIND"):
        ctypes.CDLL(library, os.RTLD_LAZY | os.RTLD_LOCAL | os.RTLD_DEEPBIND)


def _load(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}._mlir.{name}")


def _linalg() -> Any:
    """The linalg dialect's operations, without the language of its package (0.2 s of imports)."""
    package = _stub(f"{_PACKAGE}._mlir.dialects.linalg")
    for name in ("dialects._linalg_ops_gen", "_mlir_libs._mlirDialectsLinalg"):
        for key, value in vars(_load(name)).items():
            if not key.startswith("_"):
                package.__dict__.setdefault(key, value)
    return package


def declare_dialect(name: str) -> None:
    """Says that a dialect is defined elsewhere than in the bindings.

    They look for a module of it whenever they show one of its operations or attributes, and
    search the path again each time that there is none.
    """
    place = f"{_PACKAGE}._mlir.dialects.{name}"
    sys.modules.setdefault(place, types.ModuleType(place))


_install_stub_parent()
ir = _load("ir")
PassManager = _load("passmanager").PassManager
arith = _load("dialects.arith")
ext = _load("dialects.ext")
func = _load("dialects.func")
gpu = _load("dialects.gpu")
irdl = _load("dialects.irdl")
linalg = _linalg()
llvm = _load("dialects.llvm")
math = _load("dialects.math")
nvvm = _load("dialects.nvvm")
rewriter = _load("rewrite")
scf = _load("dialects.scf")
tensor = _load("dialects.tensor")
vector = _load("dialects.vector")

if not hasattr(ir, "DynamicOpTrait"):
    raise DnncError(
        Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        f"the MLIR bindings of {_PACKAGE} can't define dialects",
        f"{_PACKAGE} 0.5.4 to 0.6",
    )

_DIALECTS = (
    "arith", "func", "gpu", "irdl", "linalg", "llvm", "math", "nvvm", "scf", "tensor", "vector",
)  # fmt: skip

# `ext` names attribute constraints by this field, which these two classes lack.
ir.DenseI64ArrayAttr.attr_name = "builtin.dense_array"
ir.BoolAttr.attr_name = "builtin.integer"

# Loading a dialect from two threads at once crashes; one lock for the process.
dialect_lock = threading.Lock()


@contextlib.contextmanager
def context() -> Iterator[Any]:
    """A new MLIR context, entered, with an unknown location.

    MLIR's own threads are off: a verifier written in Python that they call would deadlock.
    Only dialects whose operations are built are loaded, parsed texts and passes load theirs: all
    would take 3 ms more here, and canonicalization would gather the patterns of all each time.
    Beside the front end of the package it is refused: the process would crash.
    """
    if _FRONT_END in sys.modules:
        raise DnncError(
            Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
            f"{_PACKAGE} is in use in this process, and changes the MLIR bindings for all of it",
            "compiling in the worker (in_process=False), or in a process without it",
        )
    with ir.Context(load_on_create_dialects=_DIALECTS) as made:
        made.enable_multithreading(False)
        with ir.Location.unknown():
            yield made


def parse(text: str, file: str = "-") -> Any:
    """The module of `text`, verified; an error is BAD_PARAM with MLIR's message and place.

    file: its name, which locations and errors have.
    """
    if _depth(text) > MAX_DEPTH:
        what = f"brackets more than {MAX_DEPTH} deep"
        raise DnncError(Status.BAD_PARAM, f"not a valid module: {what}", "fewer")
    _verify_strings(text)
    try:
        module = ir.Module.parse(text)
        verify(module)
    except ir.MLIRError as error:
        raise invalid(error, file) from error
    _name_file(module, file)
    return module


MAX_DEPTH = 256  # of brackets: MLIR's parser calls itself for each


def _depth(text: str) -> int:
    """How deep the brackets of a text stand in one another, at most."""
    depth = most = 0
    for bracket in re.sub(r"->|>=|<=|[^][(){}<>]+", "", text):
        depth += 1 if bracket in "([{<" else -1
        most = max(most, depth)
    return most


_STRING = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_BYTE = re.compile(rb"\\([0-9A-Fa-f]{2})")


def _verify_strings(text: str) -> None:
    """Strings spell UTF-8: where the bindings make one of Python's of others, the process ends."""
    if "\\" not in text:
        return
    for found in _STRING.finditer(text.encode(errors="replace")):
        meant = _BYTE.sub(lambda byte: bytes([int(byte[1], 16)]), found[0])
        try:
            meant.decode()
        except UnicodeDecodeError as error:
            what = f"not a valid module: the string {found[0][:80].decode(errors='replace')}"
            raise DnncError(Status.BAD_PARAM, what, "bytes of UTF-8 text") from error


def verify(module: Any) -> None:
    """Verifies; an ir.MLIRError says what is wrong."""
    module.operation.verify()


def run_pipeline(module: Any, pipeline: str, *, verifies_each: bool = True) -> None:
    """Runs upstream passes by their textual pipeline; a failure is an internal error.

    verifies_each: the module is verified after each pass; else whoever calls verifies it.
    """
    manager = PassManager.parse(pipeline)
    manager.enable_verifier(verifies_each)
    try:
        manager.run(module.operation)
    except ir.MLIRError as error:
        raise DnncError(
            Status.INTERNAL_ERROR_COMPILATION_FAILED, f"{message(error)}", where="MLIR"
        ) from error


MOST_REWRITES = 200  # of patterns, for each operation that there was


def apply_patterns(
    root: Any, patterns: Mapping[str, Callable[[Any], Sequence[Any] | None]]
) -> None:
    """Rewrites the operations in `root`, by MLIR's greedy driver, until no pattern matches.

    patterns: operation's name -> function that is called with such an operation; it looks at it,
    builds others ahead of it, at its location, and gives values for its results; None: no match,
    and nothing is built.  Operations without effects whose results nothing uses go.
    """
    count = sum(len(block.operations) for region in root.operation.regions for block in region)
    left = [MOST_REWRITES * count]

    def as_pattern(function: Callable[[Any], Sequence[Any] | None]) -> Callable[[Any, Any], bool]:
        def rewrite(operation: Any, rewriting: Any) -> bool:
            with rewriting.ip, operation.location:
                values = function(operation)
            if values is None:
                return True  # truthy: no match
            left[0] -= 1
            if left[0] < 0:
                raise _still_matching(operation)
            rewriting.replace_op(operation, list(values))
            return False

        return rewrite

    found = rewriter.RewritePatternSet()
    for name, function in patterns.items():
        found.add(name, as_pattern(function))
    config = rewriter.GreedyRewriteConfig()
    config.region_simplification_level = rewriter.GreedySimplifyRegionLevel.DISABLED
    rewriter.apply_patterns_and_fold_greedily(root.operation, found.freeze(), config)


def apply_patterns_to(
    function: Any, patterns: Mapping[str, Callable[[Any], Sequence[Any] | None]]
) -> Any:
    """Rewrites a function of a module, which a pattern of `func.func` may replace, as
    `apply_patterns` does what is inside; gives the function that stands in its place.

    The driver rewrites what is inside an operation, so that the function is alone in a module of
    its own meanwhile.
    """
    with ir.InsertionPoint(function.operation):
        around = ir.Operation.create("builtin.module", regions=1)
    block = around.regions[0].blocks.append()
    block.append(function.operation)  # it moves
    try:
        apply_patterns(around, patterns)
    finally:
        found = list(block.operations)
        for made in found:
            made.operation.move_before(around)
        around.erase()
    return found[0]


def _still_matching(operation: Any) -> DnncError:
    what = f"rewrite patterns still match after {MOST_REWRITES} rewrites an operation"
    accepted, made_at = "patterns that match nothing in the end", place_of(operation.location)
    return DnncError(Status.BAD_PARAM, what, accepted, operation.name, made_at=made_at)


# ---- where it stands in a file

_UNNAMED = "-"  # what MLIR's parser calls a text


def _name_file(module: Any, file: str) -> None:
    """Gives the name of its file to locations of a text."""

    def named(location: Any) -> Any:
        is_own = isinstance(location, ir.FileLineColLoc) and location.filename == _UNNAMED
        if not is_own:
            return location
        return ir.Location.file(file, location.start_line, location.start_col)

    def visit(operation: Any) -> Any:
        operation.location = named(operation.location)
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(named(argument.location))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def place_of(location: Any, file: str = _UNNAMED) -> Place | None:
    """The place in a file that a location has; None: it has none.

    file: the name of a text that is still being parsed.
    """
    if type(location) is ir.Location:  # as diagnostics have it
        location = ir.Location.from_attr(location.attr)
    if isinstance(location, ir.NameLoc):
        return place_of(location.child_loc, file)
    if isinstance(location, ir.CallSiteLoc):
        return place_of(location.callee, file)
    if isinstance(location, ir.FusedLoc):
        return next(filter(None, (place_of(part, file) for part in location.locations)), None)
    if not isinstance(location, ir.FileLineColLoc) or not location.start_line:
        return None
    name = location.filename
    return Place(file if name == _UNNAMED else name, location.start_line, location.start_col)


def location_of(place: Place | None) -> Any:
    """The location of a place; the current one where it is not known."""
    return ir.Location.file(*place) if place else ir.Location.current


@contextlib.contextmanager
def located(operation: Any) -> Iterator[None]:
    """Gives errors that are raised inside, and name no place, that of an operation."""
    place = place_of(operation.location)  # inside, it may be erased
    try:
        yield
    except DnncError as error:
        error.made_at = error.made_at or place
        raise


def invalid(error: Any, file: str = _UNNAMED) -> DnncError:
    """BAD_PARAM for an ir.MLIRError about a text, at the place of its first diagnostic."""
    first = next(iter(error.error_diagnostics), None)
    made_at = None if first is None else place_of(first.location, file)
    said = message(error, file)
    if made_at is not None:
        said = said.removeprefix(f"{made_at}: ")
    return DnncError(Status.BAD_PARAM, f"not a valid module: {said}", made_at=made_at)


def message(error: Any, file: str = _UNNAMED) -> str:
    """The message of an ir.MLIRError: its diagnostics, each behind its place."""
    said = []
    for diagnostic in error.error_diagnostics:
        place = place_of(diagnostic.location, file)
        said.append(diagnostic.message if place is None else f"{place}: {diagnostic.message}")
    return "; ".join(said) or str(error)


def is_argument(value: Any) -> bool:
    """Whether a value is an argument of a block."""
    return isinstance(value.owner, ir.Block)


def is_returned(value: Any) -> bool:
    """Whether a function returns a value."""
    return any(use.owner.name == "func.return" for use in value.uses)


def bytecode_of(operation: Any) -> bytes:
    """MLIR's bytecode of an operation, with its locations."""
    code = io.BytesIO()
    operation.write_bytecode(code)
    return code.getvalue()


def attributes_of(operation: Any) -> dict[str, Any]:
    """Name -> attribute of an operation."""
    return {name: operation.attributes[name] for name in operation.attributes}
