"""Takes the prior contents of an output's memory as an input: y = alpha * op(x) + beta * y.

    x ------> conv --> add --> y        y and its prior are one buffer
    prior --> mul ------^

The input has the output's uid in `prior_of`, and its dims, strides, type and alignment.  It has no
buffer of its own: kernels find both by one pointer.  So each of its elements must be read before
that place is written.  Pointwise work of these dims alone leads from it to the output, and nothing
else reads it: whoever writes an element has read it, or a launch ahead has.  What reads the output
inside the graph finds what is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .. import dtypes
from ..errors import DnncError, Status
from .op import Op
from .tensor import Tensor, text

if TYPE_CHECKING:
    from .graph import OperationGraph


def priors_of(tensors: Iterable[Tensor]) -> dict[int, Tensor]:
    """Uid of an output -> the tensor of what its memory held."""
    return {t.prior_of: t for t in tensors if t.prior_of is not None}


def verify(graph: OperationGraph) -> None:
    """Every tensor with `prior_of` is as the file's docstring says."""
    outputs = {tensor.uid: tensor for tensor in graph.outputs}
    known: dict[int, Tensor] = {}
    for prior in graph.tensors:
        if prior.prior_of is None:
            continue
        output = outputs.get(prior.prior_of)
        if output is None:
            raise prior.error(
                Status.BAD_PARAM,
                f"what tensor {prior.prior_of} held, which is no output",
                "prior_of: the uid of an output",
            )
        if prior.prior_of in known:
            raise prior.error(
                Status.BAD_PARAM_DUPLICATED_ENTRIES,
                f"what {output.label} held, as is {known[prior.prior_of].label}",
                "one tensor of what an output held",
            )
        known[prior.prior_of] = prior
        _verify_kind(prior, output, graph)
        for op in _readers(prior, output, graph):
            _verify_reader(prior, output, op)


def _verify_kind(prior: Tensor, output: Tensor, graph: OperationGraph) -> None:
    is_buffer = not (prior.is_virtual or prior.is_by_value or prior.value is not None)
    if not is_buffer or prior in graph.producers:
        raise prior.error(
            Status.BAD_PARAM,
            f"what {output.label} held, and a number or a result",
            "an input that is read from memory",
        )
    if _form(prior) != _form(output):
        raise prior.error(
            Status.BAD_PARAM_SHAPE_MISMATCH,
            f"what {output.label} held, as {_text(prior)}",
            _text(output),
        )
    if output.type == dtypes.i1:
        raise prior.error(
            Status.NOT_SUPPORTED_DATA_TYPE,
            f"what {output.label} held, of packed booleans: eight are written at once",
            "an output of whole bytes, or a tensor of its own and a pointwise operation",
        )


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.layout, tensor.type, tensor.alignment


def _text(tensor: Tensor) -> str:
    return (
        f"{tensor.type} {text(tensor.shape)} of strides {text(tensor.layout)}, aligned to "
        f"{tensor.alignment}"
    )


def _readers(prior: Tensor, output: Tensor, graph: OperationGraph) -> Iterator[Op]:
    """The operations that depend on a prior, but for those that read the output."""
    pending, found = [prior], set[Op]()
    while pending:
        for op in graph.consumers(pending.pop()):
            if op not in found:
                found.add(op)
                yield op
                pending += [tensor for tensor in op.results if tensor is not output]


def _verify_reader(prior: Tensor, output: Tensor, op: Op) -> None:
    is_elementwise = op.role == "pointwise" and all(t.shape == output.shape for t in op.results)
    if not is_elementwise or any(not (t.is_virtual or t is output) for t in op.results):
        raise prior.error(
            Status.NOT_SUPPORTED_GRAPH_PATTERN,
            f"what {output.label} held is read by {op.label}, which is no pointwise work on the "
            "way to it (before vectors of elements there are others)",
            f"pointwise operations of dims {text(output.shape)} that lead to this output alone; "
            "else a tensor of its own and a pointwise operation that adds it",
        )


def verify_partition(graph: OperationGraph, computed_twice: Iterable[Op]) -> None:
    """An output whose prior is read is computed once: after that its memory has the new value.

    computed_twice: operations that several fusions have.
    """
    priors = priors_of(graph.tensors)
    for op in computed_twice:
        for tensor in op.results:
            if tensor.uid in priors:
                raise DnncError(
                    Status.BAD_PARAM,
                    f"{op.label} in several fusions, which reads what {tensor.label} held",
                    "in one of them",
                    f"graph '{graph.name}'",
                    made_at=op.made_at,
                )
