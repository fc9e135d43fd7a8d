# pyright: basic
"""Arrays that `dnnc run` reads, makes up and writes, by the tensors of a graph.

A tensor is called by its name where that is unique, else by its uid.  NumPy has no bf16 and fp8;
such outputs are written as float32, which holds them exactly.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..dialect.graph import OperationGraph
from ..dialect.reference import drawn, solve_sizes
from ..dialect.tensor import Tensor, text
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import bounds_of, range_text, verify_products
from ..plan.format import write_whole
from ..rounding import round_to, stored, widen
from . import console, files

Array = Any


def key_of(graph: OperationGraph, tensor: Tensor) -> str:
    """The tensor's unique name, else its uid; what an output held before is called as that is."""
    if tensor.prior_of is not None:
        return key_of(graph, graph.tensor(tensor.prior_of))
    named = [t for t in graph.tensors if t.name == tensor.name]
    return tensor.name if tensor.name and len(named) == 1 else str(tensor.uid)


# ---- reading


def read_inputs(graph: OperationGraph, arguments: Sequence[str]) -> dict[int, Array]:
    """uid -> array, of arguments FILE.npz, NAME=FILE.npy and NAME=NUMBER."""
    found: dict[int, Array] = {}
    for argument in arguments:
        for key, array in _arrays_of(argument).items():
            tensor = _input(graph, key, argument)
            assert tensor.uid is not None
            if tensor.uid in found:
                raise DnncError(
                    Status.BAD_PARAM_DUPLICATED_ENTRIES, f"{tensor.label} twice", "once", argument
                )
            found[tensor.uid] = _stored(array, tensor, argument)
    return found


def _arrays_of(argument: str) -> dict[str, Array]:
    name, equals, value = argument.partition("=")
    if not equals:
        files.suffix_of(argument, (".npz",))
        loaded = _load(argument)
        return {key: _load_entry(loaded, key, argument) for key in loaded.files}
    if _is_number(value):
        return {name: np.asarray(float(value))}
    files.suffix_of(value, (".npy",))
    return {name: _load(value)}


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _load(path: str) -> Any:
    data = files.read_bytes(path)
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # zip and NumPy raise many kinds
        raise _no_array(path, error) from error


def _load_entry(loaded: Any, key: str, path: str) -> Array:
    try:
        return loaded[key]
    except Exception as error:
        raise _no_array(f"{path}: {key}", error) from error


def _no_array(path: str, error: Exception) -> DnncError:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DnncError(
        Status.BAD_PARAM, f"no NumPy array: {said}", "what numpy.save or numpy.savez wrote", path
    )


def _input(graph: OperationGraph, key: str, argument: str) -> Tensor:
    called = {key_of(graph, t): t for t in graph.inputs} | {str(t.uid): t for t in graph.inputs}
    if key not in called:
        inputs = ", ".join(key_of(graph, t) for t in graph.inputs)
        raise DnncError(Status.BAD_PARAM, f"no input is called {key!r}", inputs, argument)
    return called[key]


def _stored(array: Array, tensor: Tensor, argument: str) -> Array:
    """The array in the tensor's type; what it rounds is said."""
    wanted = tensor.type.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)  # how NumPy saves the types of ml_dtypes
    if array.dtype.kind not in "fiub":
        raise DnncError(
            Status.BAD_PARAM, f"data type {array.dtype}", "floats, integers, booleans", argument
        )
    made = stored(array, tensor.type)
    if not np.array_equal(widen(made), widen(array), equal_nan=array.dtype.kind == "f"):
        console.note(f"note: {argument}: {array.dtype} values are rounded to {tensor.type}")
    return made


# ---- sizes


def sizes_of(
    graph: OperationGraph, inputs: Mapping[int, Array], given: Mapping[str, int]
) -> dict[str, int]:
    """Values of the graph's symbols, of `given` and the inputs' dims; each in its range."""
    _verify_names(graph, given)
    shapes = {graph.tensor(uid): np.shape(array) for uid, array in inputs.items()}
    found = solve_sizes(shapes, given)
    for name, dim in graph.symbols.items():
        if name not in found:
            raise DnncError(
                Status.BAD_PARAM,
                f"the size {name} is not given",
                f"--size {name}=N, {range_text(dim)}, or an input that shows it",
                f"graph '{graph.name}'",
            )
    _verify_ranges(graph, found)
    return found


def verify_sizes(graph: OperationGraph, given: Mapping[str, int]) -> None:
    """Sizes that are given are of the graph's symbols, each in its range."""
    _verify_names(graph, given)
    _verify_ranges(graph, given)


def _verify_names(graph: OperationGraph, given: Mapping[str, int]) -> None:
    unknown = [name for name in given if name not in graph.symbols]
    if unknown:
        known = ", ".join(graph.symbols) or "none: every size is fixed"
        raise DnncError(Status.BAD_PARAM, f"no size is called {unknown[0]!r}", known, "--size")


def _verify_ranges(graph: OperationGraph, sizes: Mapping[str, int]) -> None:
    for name, value in sizes.items():
        dim = graph.symbols[name]
        if not dim.min <= value <= dim.max or value % dim.multiple_of:
            raise DnncError(
                Status.BAD_PARAM_SHAPE_MISMATCH,
                f"{name} = {value}",
                range_text(dim),
                f"graph '{graph.name}'",
            )
    verify_products(bounds_of(graph.symbols.values()), sizes, f"graph '{graph.name}'")


def verify_inputs(
    graph: OperationGraph, inputs: Mapping[int, Array], sizes: Mapping[str, int]
) -> None:
    """Every input is there and has its dims; a by-value one may keep its default."""
    for tensor in graph.inputs:
        array = inputs.get(tensor.uid or 0)
        if array is None:
            if tensor.value is not None:
                continue
            name = key_of(graph, tensor)
            raise DnncError(
                Status.BAD_PARAM,
                "no array is given for it",
                f"{name}=FILE.npy, an entry {name} of an .npz, or --random",
                tensor.label,
            )
        wanted = tuple(size.evaluate(sizes) for size in tensor.shape)
        if array.shape != wanted and not (tensor.is_by_value and array.size == 1):
            raise DnncError(
                Status.BAD_PARAM_SHAPE_MISMATCH,
                f"an array of dims {text(array.shape)}",
                text(wanted),
                tensor.label,
            )
        kept = held(tensor, array, sizes) if array.shape == wanted else array
        if kept is not array and not np.array_equal(*(a.view(np.uint8) for a in (kept, array))):
            raise DnncError(
                Status.BAD_PARAM,
                "elements that share an address have different values",
                f"one value for each address of strides {text(tensor.layout)}",
                tensor.label,
            )


def held(tensor: Tensor, values: Array, sizes: Mapping[str, int]) -> Array:
    """The values as memory gives them back: where strides overlap, the last one at an address."""
    strides = [stride.evaluate(sizes) for stride in tensor.layout]
    reach = 0
    for extent, stride in sorted(zip(values.shape, strides, strict=True), key=lambda pair: pair[1]):
        if extent > 1 and stride <= reach:
            break
        reach += (extent - 1) * stride
    else:
        return values  # no two elements share an address
    places = np.zeros(values.shape, np.int64)
    for axis, (extent, stride) in enumerate(zip(values.shape, strides, strict=True)):
        along = [1] * values.ndim
        along[axis] = extent
        places += (np.arange(extent) * stride).reshape(along)
    memory = np.zeros(int(places.max(initial=0)) + 1, values.dtype)
    memory[places.ravel()] = values.ravel()
    return memory[places]


# ---- making up


def random_inputs(
    graph: OperationGraph, sizes: Mapping[str, int], seed: int, given: Mapping[int, Array]
) -> dict[int, Array]:
    """Fresh arrays for the inputs that are not given and have no default.

    Floats lie in -2 to 2, integers in -9 to 9 (unsigned: 0 to 9), where operations take those.
    """
    rng = np.random.default_rng(seed)
    found = dict(given)
    for tensor in graph.inputs:
        assert tensor.uid is not None
        if tensor.uid not in found and tensor.value is None:
            shape = [size.evaluate(sizes) for size in tensor.shape]
            values = drawn(graph, tensor, rng, sizes)
            if values is None:
                values = _random(rng, shape, tensor.type)
            found[tensor.uid] = held(tensor, round_to(values, tensor.type), sizes)
    return found


def _random(rng: np.random.Generator, shape: Sequence[int], dtype: DType) -> Array:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return rng.integers(0 if dtype.kind == "u" else -9, 10, shape)
    return rng.uniform(-2.0, 2.0, shape)


# ---- writing


def verify_output(path: Path, graph: OperationGraph) -> str:
    """The suffix of a file that can hold the outputs of a graph; of another, BAD_PARAM."""
    suffix, count = files.suffix_of(str(path), (".npz", ".npy")), len(graph.outputs)
    if suffix == ".npy" and count > 1:
        what = f"{count} outputs in an .npy file"
        raise DnncError(Status.BAD_PARAM, what, "an .npz file", str(path))
    return suffix


def write_outputs(path: Path, graph: OperationGraph, outputs: Mapping[int, Array]) -> None:
    """An .npz of every output by name, or the .npy of the only one; whole or not at all."""
    named = {key_of(graph, t): _writable(outputs[t.uid or 0]) for t in graph.outputs}
    suffix = verify_output(path, graph)
    buffer = io.BytesIO()
    if suffix == ".npz":
        np.savez(buffer, **named)
    else:
        np.save(buffer, next(iter(named.values())))
    write_whole(str(path), buffer.getvalue())


def _writable(array: Array) -> Array:
    """ml_dtypes' floats as float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array
