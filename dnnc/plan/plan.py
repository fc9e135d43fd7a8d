"""The records of an execution plan: what a runtime needs, and nothing of operations.

Sizes are texts of expressions (`dnnc.expr`) over the plan's symbols and the device variables.
A plan holds a program for each target; a program has variants, of which the first whose guard
holds runs its steps in order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DnncError, Status
from ..expr import Bound, Dim, Expr, Guard, bound_of, bounded, bounds_of, parse, parse_guard


@dataclass(frozen=True)
class Symbol:
    """A size known at run time; see `dnnc.Dim`."""

    name: str
    min: int
    max: int
    multiple_of: int

    @property
    def dim(self) -> Dim:
        return Dim(self.name, self.min, self.max, self.multiple_of)


@dataclass(frozen=True)
class ProductBound:
    """A product of symbols, as "batch*length", is `max` at most."""

    product: str
    max: int


@dataclass(frozen=True)
class TensorRecord:
    """A tensor that the caller binds.

    dims, strides: in elements.  dtype: dnnc's name.  alignment: bytes that divide its address.
    role: "input" or "output".  is_by_value: a number, not a buffer.
    value: a by-value tensor's default.
    is_peer: an input through which devices exchange values: kernels write it too, and its buffer
    may be on any device whose memory this one accesses.
    prior: of an output that is read before it is written: the uid of the graph's input that stands
    for what it holds before; None: that does not matter.
    reordering: "F16x16" where dims and strides are those of matrices in that order.
    """

    uid: int
    name: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    dtype: str
    role: str
    alignment: int = 16
    is_by_value: bool = False
    value: float | None = None
    is_peer: bool = False
    prior: int | None = None
    reordering: str = "NONE"


@dataclass(frozen=True)
class TensorMap:
    """A recipe for the 128 bytes of a CUDA tensor map over the buffer of a tensor.

    mode: "tiled" or "im2col".  uid: the tensor, or -1: the workspace.  offset: bytes from it.
    dims, strides: innermost first; strides in bytes, without the innermost, as the driver takes
    them.  box: of a tiled map.  lower, upper, channels_per_pixel, pixels_per_column: of im2col.
    interleave, swizzle, l2_promotion, oob_fill: the driver's names.
    """

    mode: str
    uid: int
    offset: str
    dtype: str
    dims: tuple[str, ...]
    strides: tuple[str, ...]
    element_strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels_per_pixel: int = 0
    pixels_per_column: int = 0
    interleave: str = "NONE"
    swizzle: str = "NONE"
    l2_promotion: str = "NONE"
    oob_fill: str = "NONE"


# Data types of tensor maps -> the driver's names after CU_TENSOR_MAP_DATA_TYPE_.
TENSOR_MAP_TYPES = {
    "f32": "FLOAT32", "f64": "FLOAT64", "f16": "FLOAT16", "bf16": "BFLOAT16", "i32": "INT32",
    "i64": "INT64", "i8": "UINT8", "ui8": "UINT8", "f8E4M3FN": "UINT8", "f8E5M2": "UINT8",
    "tf32": "TFLOAT32",
}  # fmt: skip


@dataclass(frozen=True)
class Arg:
    """One kernel argument.

    kind: "pointer" (a tensor's address + offset), "workspace" (its address + offset),
    "peer" (a tensor's address on the device of rank `rank`), "scalar" (an expression),
    "by_value" (the number bound to a tensor), "bytes" (as they are), "tensor_map".
    type: of a scalar or by-value argument: i32, i64, or a data type.
    buffer: a workspace buffer's name, until assign-workspace turns it into an offset.
    """

    kind: str
    uid: int = -1
    offset: str = "0"
    value: str = ""
    type: str = ""
    data: str = ""
    rank: int = 0
    buffer: str = ""
    tensor_map: TensorMap | None = None

    @staticmethod
    def pointer(uid: int, offset: str = "0") -> Arg:
        return Arg("pointer", uid=uid, offset=offset)

    @staticmethod
    def workspace(buffer: str) -> Arg:
        return Arg("workspace", buffer=buffer)

    @staticmethod
    def scalar(value: str, type: str) -> Arg:
        return Arg("scalar", value=value, type=type)

    @staticmethod
    def by_value(uid: int, type: str) -> Arg:
        return Arg("by_value", uid=uid, type=type)


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    grid: in blocks (not clusters).  block, cluster: in threads and blocks.
    cooperative: all blocks must be resident at once.  programmatic: may start before the launch
    ahead of it ends (programmatic dependent launch).
    """

    kernel: str
    grid: tuple[str, str, str]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False
    dynamic_smem_bytes: str = "0"


@dataclass(frozen=True)
class Memset:
    """Bytes set to a value before the steps after it; uid -1: in the workspace."""

    uid: int
    offset: str
    bytes: str
    value: int = 0
    buffer: str = ""


@dataclass(frozen=True)
class Step:
    """A launch or a memset: exactly one is there."""

    launch: Launch | None = None
    memset: Memset | None = None


@dataclass(frozen=True)
class Variant:
    """Steps for the sizes that a guard takes ("1": all).  workspace_bytes: what they need."""

    guard: str
    workspace_bytes: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel of a module, with what the assembler said of it.

    registers: a thread.  spill_*_bytes, local_bytes: a thread.  static_smem_bytes: a block.
    threads: of a block, at most.  symbol: its name in the module, where that is another.
    """

    name: str
    module: int
    threads: int
    registers: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    local_bytes: int = 0
    static_smem_bytes: int = 0
    symbol: str = field(default="", metadata={"required": True})

    @property
    def entry(self) -> str:
        """The name of its function in the module."""
        return self.symbol or self.name


@dataclass(frozen=True)
class Module:
    """Code: blobs of the file, -1 for none.

    ptx_runs_later: the PTX may be compiled for architectures after the program's.
    """

    cubin: int
    ptx: int = -1
    ptx_runs_later: bool = False


@dataclass(frozen=True)
class FusionRecord:
    """The decisions on one fusion, for `inspect` and `view`.

    ops: labels of its operations.  engine, index, knobs: the choice.  notes: numerical notes.
    module: place of the module that has its kernels; equal fusions of a config share one.
    places: of its operations, among those of the graph that an output needs.  steps: how many
    steps of its config are its own.  config: place of its config in the program.  In plans of
    earlier versions, places and steps may be empty, and a config -1: it is the module's place.
    """

    ops: tuple[str, ...]
    engine: str
    index: int
    knobs: Mapping[str, int]
    notes: tuple[str, ...] = ()
    module: int = 0
    places: tuple[int, ...] = ()
    steps: int = 0
    config: int = -1

    @property
    def config_place(self) -> int:
        """The place of its config, in plans of any version."""
        return self.module if self.config < 0 else self.config


@dataclass(frozen=True)
class Program:
    """A plan's code for one target.

    capability: compute capability.  exact: runs on that one alone; otherwise its cubins run on
    later minor versions of the same major version too.
    split_reason: why the graph is more than one fusion ("" when it is one): a sentence, on lines
    after it what each engine said.
    warnings: what the log said of the choices when they were made.
    """

    target: str
    capability: tuple[int, int]
    exact: bool
    modules: tuple[Module, ...]
    kernels: tuple[Kernel, ...]
    variants: tuple[Variant, ...]
    fusions: tuple[FusionRecord, ...] = ()
    split_reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """sm_90: matmul_sm80 STAGES=3 TILE_M=128 + pointwise ..., and why there are several.

        Configs for other sizes follow after "or".
        """
        configs: dict[int, list[str]] = {}
        for fusion in self.fusions:
            knobs = (f"{k}={v}" for k, v in sorted(fusion.knobs.items()))
            configs.setdefault(fusion.config_place, []).append(" ".join([fusion.engine, *knobs]))
        text = f"{self.target}: " + " or ".join(map(" + ".join, configs.values()))
        sentence, _, _ = self.split_reason.partition("\n")
        return f"{text} ({sentence})" if sentence else text

    def fusions_of(self, config: int) -> list[FusionRecord]:
        """The fusions of a config, in order."""
        return [fusion for fusion in self.fusions if fusion.config_place == config]

    def config_of(self, variant: Variant) -> int:
        """The place of the config that a variant runs; -1: it launches nothing."""
        launched = [step.launch.kernel for step in variant.steps if step.launch is not None]
        if not launched:
            return -1
        module = next(kernel.module for kernel in self.kernels if kernel.name == launched[0])
        return next((f.config_place for f in self.fusions if f.module == module), module)


@dataclass(frozen=True, repr=False)
class Plan:
    """An execution plan.

    graph: the JSON form of the operation graph.  tensors: those with role input and output are
    bound by the caller.  may_alias: (output, input) uids that may be one buffer.
    bounds: of products of symbols.
    key: hash of everything that the compilation depended on.
    tools: name -> version of what made it.  blobs: cubins and PTX, by index.
    """

    name: str
    graph: Mapping[str, Any]
    symbols: tuple[Symbol, ...]
    tensors: tuple[TensorRecord, ...]
    programs: tuple[Program, ...]
    may_alias: tuple[tuple[int, int], ...] = ()
    key: str = ""
    tools: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[ProductBound, ...] = field(default=(), metadata={"required": True})
    blobs: tuple[bytes, ...] = field(default=(), metadata={"json": False})

    def serialize(self) -> bytes:
        """The bytes of a `.dnnplan` file with this plan, for `deserialize` and `dnnc.load`."""
        from . import format

        return format.to_bytes(self)

    @staticmethod
    def deserialize(data: bytes) -> Plan:
        """The plan of such bytes; what is truncated or altered is BAD_PARAM."""
        from . import format

        return format.read(data)

    @functools.cached_property
    def dims(self) -> dict[str, Dim]:
        """Symbol name -> symbol, for parsing expressions."""
        dims = {symbol.name: symbol.dim for symbol in self.symbols}
        return bounded(dims, [bound_of(parse(b.product, dims), b.max)[0] for b in self.bounds])

    @functools.cached_property
    def products(self) -> tuple[Bound, ...]:
        """The bounds of products of symbols."""
        return bounds_of(self.dims.values())

    def __repr__(self) -> str:
        """Without the code and the graph, which are long."""
        return f"<plan of {self.summary}; key {self.key[:12]}>"

    @property
    def summary(self) -> str:
        """The plan of the graph, on one line."""
        return f"graph '{self.name}' for {'; '.join(p.summary for p in self.programs)}"

    @functools.cached_property
    def _expressions(self) -> dict[str, Expr]:
        return {}

    def expression(self, text: str) -> Expr:
        """The expression of a text; each text is parsed once."""
        found = self._expressions.get(text)
        if found is None:
            found = self._expressions[text] = parse(text, self.dims)
        return found

    @functools.cached_property
    def _guards(self) -> dict[str, Guard]:
        return {}

    def guard(self, text: str) -> Guard:
        """The guard of a text; each text is parsed once."""
        found = self._guards.get(text)
        if found is None:
            found = self._guards[text] = parse_guard(text, self.dims)
        return found

    def text(self, blob: int) -> str:
        """The PTX of a blob; a module without it, or bytes that are no text, are BAD_PARAM."""
        try:
            if blob >= 0:
                return self.blobs[blob].decode()
            what = "a module without PTX"
        except UnicodeDecodeError:
            what = f"blob {blob} is no text"
        raise DnncError(Status.BAD_PARAM, what, "PTX", f"plan '{self.name}'")

    @functools.cached_property
    def _by_key(self) -> dict[int | str, list[TensorRecord]]:
        found: dict[int | str, list[TensorRecord]] = {}
        for tensor in self.tensors:
            found.setdefault(tensor.uid, []).append(tensor)
            found.setdefault(tensor.name, []).append(tensor)
        return found

    def tensor(self, key: int | str) -> TensorRecord | None:
        """The tensor with this uid, or with this name if only one has it; else None."""
        found = self._by_key.get(key, ())
        return found[0] if len(found) == 1 else None

    def no_tensor(self, key: Any) -> DnncError:
        """BAD_PARAM of a key that is no tensor's, or a name that several have."""
        known = ", ".join(f"{t.uid} {t.name}".strip() for t in self.tensors)
        count = sum(t.name == key for t in self.tensors)
        what = f"{key!r:.60} is no tensor of the plan"
        if count > 1:
            what = f"{count} tensors of the plan are called {key!r:.60}"
            known = f"a uid: {known}"
        return DnncError(Status.BAD_PARAM, what, known, "variant pack")
