# pyright: basic
"""Remembers calls of an execution plan, so that one like an earlier one only launches.

A call is told by its keys, by what `signature_of` says of every value, the workspace, the stream,
the sizes and the current context.  To read all of that off torch tensors takes longer than all
else, so there is a short way before it: of their addresses alone, and a check that dims, strides,
data types and devices are those of the call that was last seen with them.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import DnncError
from .buffers import is_torch, signature_of
from .picking import picker
from .recent import Recent

# How many calls, and kinds of calls, are remembered.
_REMEMBERED = 256


class Seen:
    """Bound plans by the calls that they were made for; threads may share it."""

    def __init__(self) -> None:
        self._forms: Recent[_Form] = Recent(_REMEMBERED)
        self._bound: Recent[Any] = Recent(_REMEMBERED)

    def find(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        stream: int,
        sizes: Mapping[str, int] | None,
        context: Any,
    ) -> Any:
        """The bound plan of an equal call, the short way; None where that does not find it.

        context: the thread's current one.
        """
        try:
            form = self._forms.get(next(iter(pack), None))
            if form is None or form.count != len(pack):
                return None
            tensors, rest = form.tensors(pack), workspace
            if form.workspace_is_tensor:
                tensors, rest = (*tensors, workspace), None
            key = (*map(form.data_ptr, tensors), stream)
            if form.kinds is not None:
                others = (*form.others(pack), rest)
                if form.kinds != tuple(map(type, others)):
                    return None
                key = (*key, context, *(map(_told, others) if form.has_floats else others))
            elif rest is not None:
                return None
            found = form.calls.get((*key, *sizes.items()) if sizes else key)
        except (KeyError, TypeError, AttributeError):
            return None  # other keys, or no tensor of that class where one was
        if found is None:
            return None
        bound, check = found
        return bound if check is None or check(*tensors) else None

    def find_or_bind(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        stream: int,
        sizes: Mapping[str, int] | None,
        context: Any,
        bind: Callable[[], Any],
    ) -> Any:
        """The bound plan of an equal call, or one that `bind` makes.

        What is remembered keeps no buffer alive.
        """
        about = (stream, context, *sizes.items()) if sizes else (stream, context)
        try:
            values = tuple(map(signature_of, pack.values()))
            signature = (tuple(pack), values, signature_of(workspace), about)
        except DnncError:
            return bind()  # which says what is wrong
        bound = self._bound.get(signature)
        if bound is None:
            bound = bind()
            self._bound.add(signature, bound)
        self._add_short(pack, workspace, stream, sizes, context, bound)
        return bound

    def _add_short(
        self,
        pack: Mapping[Any, Any],
        workspace: Any,
        stream: int,
        sizes: Mapping[str, int] | None,
        context: Any,
        bound: Any,
    ) -> None:
        """Lets the short way find a call, if it may."""
        if not pack or not all(map(_is_quick, (*pack.values(), workspace))):
            return
        first = next(iter(pack))
        form = self._forms.get(first)
        if form is None or not form.fits(pack, workspace):
            form = _Form(pack, workspace)
            self._forms.add(first, form)
        values = form.values(pack, workspace)
        key = (*map(form.data_ptr, values.tensors), stream)
        if form.kinds is not None:
            key = (*key, context, *map(_told, values.others))
        check = described_as(values.tensors) if values.tensors else None
        form.calls.add((*key, *sizes.items()) if sizes else key, (bound, check))


def _is_quick(value: Any) -> bool:
    """Whether the short way can tell a value: not a number that may change where it stands."""
    kind = type(value)
    return value.is_cuda if is_torch(kind) else kind in (int, bool, float, type(None))


def _told(value: Any) -> Any:
    """A number so that -0.0 is not 0.0."""
    return value.hex() if type(value) is float else value


class _Values(NamedTuple):
    """The values that a call binds: torch tensors, with a workspace that is one; and all else,
    with it."""

    tensors: tuple[Any, ...]
    others: tuple[Any, ...]


class _Form:
    """Which values of a call are tensors and which are not; and the calls of that form.

    count: how many there are.  tensors, others: pick them from a pack.
    kinds: classes of the others and of a workspace that is none; None where there is nothing else.
    has_floats: whether one of them is float.  data_ptr: gives the address of a tensor.
    calls: (bound plan, check of the tensors) of each.
    """

    def __init__(self, pack: Mapping[Any, Any], workspace: Any):
        self.count = len(pack)
        self.tensors = picker([key for key, value in pack.items() if is_torch(type(value))])
        self.others = picker([key for key, value in pack.items() if not is_torch(type(value))])
        self.workspace_is_tensor = is_torch(type(workspace))
        values = self.values(pack, workspace)
        self.kinds = None if values.others == (None,) else tuple(map(type, values.others))
        self.has_floats = float in (self.kinds or ())
        self.data_ptr = _data_ptr_of(values.tensors)
        self.calls: Recent[tuple[Any, Callable[..., bool] | None]] = Recent(_REMEMBERED)

    def values(self, pack: Mapping[Any, Any], workspace: Any) -> _Values:
        tensors, others = self.tensors(pack), self.others(pack)
        if self.workspace_is_tensor:
            return _Values((*tensors, workspace), (*others, None))
        return _Values(tensors, (*others, workspace))

    def fits(self, pack: Mapping[Any, Any], workspace: Any) -> bool:
        """Whether a call is of this form."""
        if self.count != len(pack) or self.workspace_is_tensor != is_torch(type(workspace)):
            return False
        try:
            tensors, others = self.values(pack, workspace)
        except KeyError:
            return False
        if not all([is_torch(type(tensor)) for tensor in tensors]):
            return False
        kinds = None if others == (None,) else tuple(map(type, others))
        return kinds == self.kinds and _data_ptr_of(tensors) == self.data_ptr


_DATA_PTR = operator.methodcaller("data_ptr")


def _data_ptr_of(tensors: Sequence[Any]) -> Callable[[Any], int]:
    """A function that gives the address of each: that of their class, which is called quickest."""
    own = {type(tensor).data_ptr for tensor in tensors}
    return own.pop() if len(own) == 1 else _DATA_PTR


# ---- what tensors are beside their addresses


def described_as(tensors: Sequence[Any]) -> Callable[..., bool]:
    """A check whether tensors have the dims, strides, data types and devices that these have."""
    guards = _torch_guards()
    is_torchs = guards and all(isinstance(t, sys.modules["torch"].Tensor) for t in tensors)
    if is_torchs and len({*map(id, tensors)}) == len(tensors):  # it takes each object once only
        return guards(*tensors).check
    known = list(map(description, tensors))

    def check(*given: Any) -> bool:
        return list(map(description, given)) == known

    return check


def description(tensor: Any) -> tuple[Any, ...]:
    """The dims, strides, data type and device of a torch tensor."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _torch_guards() -> Any:
    """torch's own check of tensors, in one call where attributes take 5 each; None without it."""
    torch = sys.modules.get("torch")
    return None if torch is None else _guards_of(torch)


@functools.cache
def _guards_of(torch: Any) -> Any:
    """torch's check, or None where it does not tell apart what it must: it is not documented."""
    try:
        from torch._C._dynamo.guards import TensorGuards  # pyright: ignore

        cpu = functools.partial(torch.zeros, device="cpu")
        one = cpu(4, 6)
        others = (
            cpu(4, 6, dtype=torch.int32), cpu(5, 6), cpu(6, 4), cpu(6, 4).t(), cpu(4, 12)[:, ::2],
            cpu(4, 6, 1), torch.zeros(4, 6, device="meta"),
        )  # fmt: skip
        guards = functools.partial(TensorGuards, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        check = guards(one, one).check
        tells = check(cpu(4, 6), one) and not any(check(one, other) for other in others)
        return guards if tells else None
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None
