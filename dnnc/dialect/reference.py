"""Runs an operation graph on NumPy: slow, plain, and what everything is compared with.

Float arithmetic is float64 whatever the compute type; every tensor, virtual ones included, is
rounded to its data type (docs/numerics.md).  INT32 arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Expr
from ..given import is_integer
from ..rounding import round_to, stored, widen
from .graph import OperationGraph
from .op import Op
from .prior import priors_of
from .tensor import Tensor, text

Array = Any


class Outputs(dict[int, Array]):
    """Arrays by the uids of a graph's outputs; a unique name or a tensor finds them as well."""

    def __init__(self, arrays: Mapping[int, Array], graph: OperationGraph):
        super().__init__(arrays)
        self._graph = graph

    def __missing__(self, key: Any) -> Array:
        """The array of a name or a tensor; BAD_PARAM says which outputs there are."""
        found = self._uid(key)
        if found is None:
            tensors = [self._graph.tensor(uid) for uid in self]
            known = ", ".join(f"{t.uid}{f' ({t.name})' if t.name else ''}" for t in tensors)
            what = f"{key!r:.80} is no output"
            accepted = f"a uid, unique name or tensor of: {known}"
            raise DnncError(Status.BAD_PARAM, what, accepted, f"graph '{self._graph.name}'")
        return self[found]

    def __contains__(self, key: object) -> bool:
        return self._uid(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:
        """The array of an output, else the default."""
        return self[key] if key in self else default

    def _uid(self, key: Any) -> int | None:
        """The uid of an output; None for what is none."""
        if isinstance(key, str):
            named = [uid for uid in self if key and self._graph.tensor(uid).name == key]
            return named[0] if len(named) == 1 else None
        uid = key.uid if isinstance(key, Tensor) else key
        return uid if is_integer(uid) and super().__contains__(uid) else None


def reference(
    graph: OperationGraph,
    inputs: Mapping[Any, Array],
    *,
    sizes: Mapping[str, int] | None = None,
    exact_outputs: bool = False,
) -> Outputs:
    """The graph's outputs, uid -> array of the logical dims; names and tensors are keys as well.

    inputs: by uid, unique name or Tensor; arrays of the logical dims, numbers for scalars; what an
    output held before by the output's, too.
    sizes: values of symbols that no input's dims show.
    exact_outputs: leave outputs as float64, int64 or bool, before their own rounding.
    """
    outputs: dict[int, Array] = {}
    for step in _steps(graph, inputs, sizes or {}, graph.finalize().ops):
        for tensor, exact, rounded in step.results:
            if not tensor.is_virtual:
                assert tensor.uid is not None
                outputs[tensor.uid] = exact if exact_outputs else rounded
    return Outputs(outputs, graph)


def undefined_parts(
    graph: OperationGraph,
    inputs: Mapping[Any, Array],
    *,
    sizes: Mapping[str, int] | None = None,
) -> dict[int, Array]:
    """uid -> which elements of an output may be anything; outputs that are defined are left out."""
    if all(type(op).undefined is Op.undefined for op in graph.ops):
        return {}
    found: dict[int, Array] = {}
    for step in _steps(graph, inputs, sizes or {}, graph.finalize().ops):
        undefined = step.op.undefined(*step.operands, sizes=step.sizes)
        for tensor, _, _ in step.results:
            if undefined is not None and not tensor.is_virtual and tensor.uid is not None:
                found[tensor.uid] = undefined
    return found


class Step(NamedTuple):
    """An operation that was computed.  results: (tensor, its values, these in its type)."""

    op: Op
    operands: list[Array]
    results: list[tuple[Tensor, Array, Array]]
    sizes: Mapping[str, int]


def single_steps(
    graph: OperationGraph, inputs: Mapping[Any, Array], *, sizes: Mapping[str, int] | None = None
) -> Iterator[Step]:
    """`OperationGraph.live_ops` in order, composite operations as what they stand for."""
    return _steps(graph, inputs, sizes or {}, graph.finalize().live_ops)


def _steps(
    graph: OperationGraph, inputs: Mapping[Any, Array], sizes: Mapping[str, int], ops: Sequence[Op]
) -> Iterator[Step]:
    given = {_key_to_tensor(graph, key): value for key, value in inputs.items()}
    values = {tensor: _input_array(tensor, given) for tensor in graph.inputs}
    found = solve_sizes({t: np.shape(v) for t, v in values.items()}, sizes)
    for tensor, value in values.items():
        _require_dims(tensor, np.shape(value), found)
    if ops is not graph.ops:
        forms = {tensor: graph.form_of(tensor) for tensor in values}
        values = {form: in_form(tensor, values[tensor], form) for tensor, form in forms.items()}
    for tensor in dict.fromkeys(tensor for op in ops for tensor in op.operands):
        if tensor.is_constant:
            values[tensor] = np.full([1] * tensor.rank, tensor.value)
    values = {t: widen(stored(v, t.type)) for t, v in values.items()}
    for op in ops:
        operands = [values[tensor] for tensor in op.operands]
        made = _tuple(op.reference(*operands, sizes=found))
        results = [
            (tensor, exact, _in_type(op, exact, tensor.type))
            for tensor, exact in zip(op.results, made, strict=True)
        ]
        values |= {tensor: widen(rounded) for tensor, _, rounded in results}
        yield Step(op, operands, results, found)


def _in_type(op: Op, exact: Array, dtype: DType) -> Array:
    """A result in its type: a view moves elements as they are, infinities of fp8 too."""
    return exact.astype(dtype.numpy) if op.role == "view" else round_to(exact, dtype)


def in_form(tensor: Tensor, value: Array, form: Tensor) -> Array:
    """An input's value as that of the tensor that stands for it in `live_ops`."""
    if form is tensor:
        return value
    repeated = tensor.repeated_axes
    once = tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(tensor.rank))
    found = np.asarray(value)[once]
    dims = [1 if a in repeated else n for a, n in enumerate(found.shape)]
    dims = [1] * (form.rank - tensor.rank) + dims
    return found.reshape(dims) if found.size else np.zeros(dims, found.dtype)


def solve_sizes(
    shapes: Mapping[Tensor, tuple[int, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    """Values of the symbols, from `given` and the dims that are a symbol alone."""
    found = dict(given)
    for tensor, shape in shapes.items():
        if len(shape) != tensor.rank:
            continue
        for extent, actual in zip(tensor.shape, shape, strict=True):
            for dim in extent.dims():
                if extent == Expr.of(dim):
                    found.setdefault(dim.name, actual)
    return found


def drawn(
    graph: OperationGraph, tensor: Tensor, rng: np.random.Generator, sizes: Mapping[str, int]
) -> Array | None:
    """Random values for an input that an operation restricts; None where all values do."""
    made = (op.draw(tensor, rng, sizes) for op in graph.consumers(tensor))
    return next((values for values in made if values is not None), None)


def _key_to_tensor(graph: OperationGraph, key: Any) -> Tensor:
    tensor = key if isinstance(key, Tensor) else graph.tensor(key)
    return priors_of(graph.inputs).get(tensor.memory_uid, tensor)


def _input_array(tensor: Tensor, given: Mapping[Tensor, Array]) -> Array:
    if tensor in given:
        array = _array_of(tensor, given[tensor])
        return array.reshape([1] * tensor.rank) if array.size == 1 else array
    if tensor.value is not None:
        return np.full([1] * tensor.rank, tensor.value)
    raise DnncError(
        Status.BAD_PARAM, "no value is given for it", "an array for every input", tensor.label
    )


def _array_of(tensor: Tensor, value: Any) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
        # The types of ml_dtypes are no kind of NumPy's; an array of objects may hold numbers.
        if array.dtype.kind in "VO" and array.dtype.names is None:
            return array if array.dtype.kind == "V" else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise DnncError(
        Status.BAD_PARAM, f"a {type(value).__name__}", "an array of numbers", tensor.label
    )


def _require_dims(tensor: Tensor, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    wanted = tuple(extent.evaluate(sizes) for extent in tensor.shape)
    if shape != wanted:
        raise DnncError(
            Status.BAD_PARAM_SHAPE_MISMATCH,
            f"an array of dims {text(shape)}",
            text(wanted),
            tensor.label,
        )


def _tuple(values: Any) -> tuple[Array, ...]:
    return values if isinstance(values, tuple) else (values,)
