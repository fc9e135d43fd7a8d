# pyright: basic
"""Works out what sizes alone decide of a plan on a device: the variant, shapes, grids, arguments.

It is worked out once for each set of sizes; binding then fills in addresses and numbers.  A plan's
texts are parsed and compiled once, when it is loaded: a new set of sizes only evaluates them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..errors import DnncError, Status
from ..expr import Evaluator, compiled
from ..plan import bounds
from ..plan.arguments import fitting
from ..plan.plan import Arg, Launch, Memset, Plan, Program, Step, TensorMap, TensorRecord
from . import driver
from .args import Layout
from .buffers import label
from .picking import picker


class SizedTensor(NamedTuple):
    """A tensor of known dims.

    bytes: from its first to its last element.
    """

    record: TensorRecord
    label: str
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int


class Pointer(NamedTuple):
    """An argument that is an address: of a tensor, of the workspace (uid -1), or of a peer's."""

    place: int
    uid: int
    offset: int
    rank: int | None = None


class SizedMap(NamedTuple):
    """A tensor map but for its address."""

    place: int
    recipe: TensorMap
    offset: int
    encode: driver.Encoder
    dims: tuple[int, ...]
    strides: tuple[int, ...]


class SizedLaunch(NamedTuple):
    """A launch whose grid and arguments are known but for addresses and numbers.

    values: of arguments in their order, None for those that `pointers`, `maps` and `numbers` have
    by their place.  numbers: (place, uid, data type).
    """

    function: Any
    grid: tuple[int, int, int]
    smem: int
    launch: Launch
    layout: Layout
    values: tuple[Any, ...]
    pointers: tuple[Pointer, ...]
    maps: tuple[SizedMap, ...]
    numbers: tuple[tuple[int, int, str], ...]


class SizedMemset(NamedTuple):
    uid: int
    offset: int
    value: int
    bytes: int


@dataclass(frozen=True)
class Sized:
    """A plan on a device for one set of sizes."""

    tensors: tuple[SizedTensor, ...]
    workspace_bytes: int
    steps: tuple[SizedLaunch | SizedMemset, ...]


Function = Callable[[Launch, int], Any]


class Sizer:
    """A plan's program on a device, ready to be worked out for sizes; threads may share it."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        place: driver.Device,
        kernels: Mapping[str, Any],
        function: Function,
    ):
        """kernels: by name.  function: gives a launch's kernel, ready for so many bytes of shared
        memory."""
        self._plan = plan
        self._place = place
        static = {k.name: k.static_smem_bytes for k in program.kernels}
        self._variants = [
            (plan.guard(v.guard).compiled(), v.workspace_bytes, [_step(s, static) for s in v.steps])
            for v in program.variants
        ]
        taken = {name: driver.parameter_bytes(kernel) for name, kernel in kernels.items()}
        for *_, steps in self._variants:
            for step in steps:
                if isinstance(step, _Launch):
                    step.verify(taken)
        self._guards = " or ".join(v.guard for v in program.variants)
        self._function = function
        texts = {text for v in program.variants for text in _texts(v.workspace_bytes, v.steps)}
        texts |= {text for t in plan.tensors for text in (*t.dims, *t.strides)}
        constants = {text: plan.expression(text).constant for text in texts}
        self._fixed = {text: value for text, value in constants.items() if value is not None}
        self._evaluators = {
            text: compiled(plan.expression(text)) for text in texts if text not in self._fixed
        }
        self._tensors = [_tensor(record, self._fixed) for record in plan.tensors]

    def at(self, sizes: Mapping[str, int]) -> Sized:
        """The plan for values of its symbols."""
        known = {**sizes, **self._place.variables}
        values = _Values(self._fixed, self._evaluators, known)
        _, workspace, steps = self._variant(known)
        workspace_bytes = bounds.workspace_bytes(values[workspace])
        tensors = tuple([t.at(values) if isinstance(t, _Tensor) else t for t in self._tensors])
        rooms = {tensor.record.uid: tensor.bytes for tensor in tensors}
        rooms[bounds.WORKSPACE] = workspace_bytes
        made = [step.at(values, rooms, self._place, self._function) for step in steps]
        return Sized(tensors, workspace_bytes, tuple([step for step in made if step is not None]))

    def _variant(self, known: Mapping[str, int]) -> Any:
        """The first whose guard holds."""
        for variant in self._variants:
            if variant[0](known):
                return variant
        raise DnncError(
            Status.NOT_SUPPORTED_SHAPE,
            f"no variant of the plan takes sizes {known}",
            self._guards,
            f"plan '{self._plan.name}'",
        )


class _Values(dict[str, int]):
    """Values of texts, each evaluated when it is first asked for."""

    def __init__(
        self,
        fixed: Mapping[str, int],
        evaluators: Mapping[str, Evaluator],
        known: Mapping[str, int],
    ):
        super().__init__(fixed)
        self._evaluators, self._known = evaluators, known

    def __missing__(self, text: str) -> int:
        value = self[text] = self._evaluators[text](self._known)
        return value


def _texts(workspace_bytes: str, steps: Sequence[Step]) -> list[str]:
    """Every expression of a variant."""
    found = [workspace_bytes]
    for step in steps:
        if step.memset is not None:
            found += [step.memset.offset, step.memset.bytes]
        if step.launch is not None:
            found += [*step.launch.grid, step.launch.dynamic_smem_bytes]
            for arg in step.launch.args:
                found += [arg.offset, *([arg.value] if arg.kind == "scalar" else [])]
                if arg.tensor_map is not None:
                    recipe = arg.tensor_map
                    found += [*recipe.dims, *recipe.strides, recipe.offset]
    return found


class _Tensor:
    """A tensor whose dims are still texts."""

    def __init__(self, record: TensorRecord):
        self._about = (record, label(record), dtypes.of(record.dtype))
        self._dims, self._strides = picker(record.dims), picker(record.strides)

    def at(self, values: Mapping[str, int]) -> SizedTensor:
        record, text, dtype = self._about
        dims, strides = self._dims(values), self._strides(values)
        bytes_ = bounds.tensor_bytes(record, dtype, dims, strides)
        return SizedTensor(record, text, dtype, dims, strides, bytes_)


def _tensor(record: TensorRecord, fixed: Mapping[str, int]) -> _Tensor | SizedTensor:
    """The tensor itself if no size changes it."""
    made = _Tensor(record)
    return made.at(fixed) if fixed.keys() >= {*record.dims, *record.strides} else made


def tensors_at(plan: Plan, sizes: Mapping[str, int]) -> list[SizedTensor]:
    """The plan's tensors for values of its symbols, whatever the device."""
    texts = {text for tensor in plan.tensors for text in (*tensor.dims, *tensor.strides)}
    values = {text: plan.expression(text).evaluate(sizes) for text in texts}
    return [_Tensor(record).at(values) for record in plan.tensors]


def _step(step: Step, static_smem: Mapping[str, int]) -> _Memset | _Launch:
    """static_smem: bytes, by the names of kernels."""
    if step.memset is not None:
        return _Memset(step.memset)
    assert step.launch is not None, "the reader refuses a step of nothing"
    return _Launch(step.launch, static_smem[step.launch.kernel])


class _Memset:
    def __init__(self, memset: Memset):
        self._memset = memset

    def at(
        self, values: _Values, rooms: bounds.Rooms, place: driver.Device, function: Function
    ) -> SizedMemset | None:
        memset = self._memset
        count = values[memset.bytes]
        if not count:
            return None
        offset = values[memset.offset]
        bounds.verify_memset(memset.uid, offset, count, rooms)
        return SizedMemset(memset.uid, offset, memset.value, count)


class _Launch:
    """A launch whose grid and arguments are still texts."""

    def __init__(self, launch: Launch, static_smem: int):
        self._launch = launch
        self._static_smem = static_smem
        self._layout = Layout(launch.args)
        self._grid = picker(launch.grid)
        self._fixed: list[Any] = [None] * len(launch.args)
        self._scalars: list[tuple[int, str, str]] = []
        self._pointers: list[tuple[int, int, str, int | None]] = []
        self._maps: list[_Map] = []
        self._numbers: list[tuple[int, int, str]] = []
        for place, arg in enumerate(launch.args):
            self._add(place, arg)
        # An offset of 0 is in any tensor.
        self._shifted = [(uid, text) for _, uid, text, _ in self._pointers if text != "0"]

    def verify(self, taken: Mapping[str, Sequence[int] | None]) -> None:
        """The arguments are those that the code takes: of others, it would read what is not there.

        taken: bytes of the parameters of each kernel, None where they are not known.
        """
        wanted, given = taken[self._launch.kernel], self._layout.bytes
        if wanted is None:
            return
        if len(wanted) != len(given) or any(map(operator.gt, wanted, given)):
            raise DnncError(
                Status.BAD_PARAM_SIZE_INSUFFICIENT,
                f"arguments of {given} bytes",
                f"parameters of {list(wanted)} bytes, as the code has them",
                f"kernel {self._launch.kernel}",
            )

    def _add(self, place: int, arg: Arg) -> None:
        if arg.kind == "scalar":
            self._scalars.append((place, arg.value, arg.type))
        elif arg.kind == "by_value":
            self._numbers.append((place, arg.uid, arg.type))
        elif arg.kind == "bytes":
            self._fixed[place] = bytes.fromhex(arg.data)
        elif arg.tensor_map is not None:
            self._maps.append(_Map(place, arg.tensor_map))
        else:
            uid = -1 if arg.kind == "workspace" else arg.uid
            rank = arg.rank if arg.kind == "peer" else None
            self._pointers.append((place, uid, arg.offset, rank))

    def at(
        self, values: _Values, rooms: bounds.Rooms, place: driver.Device, function: Function
    ) -> SizedLaunch | None:
        launch = self._launch
        x, y, z = grid = self._grid(values)
        if 0 in grid:
            return None  # nothing to do for these sizes
        smem = values[launch.dynamic_smem_bytes]
        bounds.verify_launch(launch, (x, y, z), smem)
        in_all = smem + self._static_smem
        if in_all > place.max_dynamic_smem_bytes:
            raise DnncError(
                Status.NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT,
                f"kernel {launch.kernel} needs {in_all} bytes of shared memory",
                f"{place.max_dynamic_smem_bytes} on {place.name}",
            )
        filled = list(self._fixed)
        for at, text, type_ in self._scalars:
            filled[at] = fitting(values[text], type_)
        pointers = [Pointer(at, uid, values[text], rank) for at, uid, text, rank in self._pointers]
        for uid, text in self._shifted:
            bounds.verify_offset(launch, uid, values[text], rooms)
        maps = [map_.at(values) for map_ in self._maps]
        for map_ in maps:
            bounds.verify_map(launch, map_.recipe, map_.offset, map_.dims, map_.strides, rooms)
        return SizedLaunch(
            function(launch, smem), (x, y, z), smem, launch, self._layout, tuple(filled),
            tuple(pointers), tuple(maps), tuple(self._numbers),
        )  # fmt: skip


class _Map:
    """A tensor map whose dims are still texts."""

    def __init__(self, place: int, recipe: TensorMap):
        self._about = (place, recipe, recipe.offset, driver.tensor_map_encoder(recipe))
        self._dims, self._strides = picker(recipe.dims), picker(recipe.strides)

    def at(self, values: Mapping[str, int]) -> SizedMap:
        place, recipe, offset, encode = self._about
        dims, strides = self._dims(values), self._strides(values)
        return SizedMap(place, recipe, values[offset], encode, dims, strides)
