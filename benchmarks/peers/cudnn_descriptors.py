"""cuDNN's own graph of DgradDreluBNBwdWeight, by its backend API.

The frontend's Python has no `dbn_weight`, so the graph is made of descriptors.  The enumerations of
`dnnc.backend` are cuDNN's.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dnnc import backend as b

from .. import timing
from ..cases.case import Buffers, Case
from ..cases.conv_dgrad import GRADIENTS, NORM
from ..cases.conv_shape import ConvShape

DESCRIPTOR, INT64 = b.CUDNN_TYPE_BACKEND_DESCRIPTOR, b.CUDNN_TYPE_INT64
_C_TYPES = {
    DESCRIPTOR: ctypes.c_void_p,
    b.CUDNN_TYPE_HANDLE: ctypes.c_void_p,
    b.CUDNN_TYPE_VOID_PTR: ctypes.c_void_p,
    INT64: ctypes.c_int64,
    b.CUDNN_TYPE_BOOLEAN: ctypes.c_bool,
    b.CUDNN_TYPE_DOUBLE: ctypes.c_double,
    b.CUDNN_TYPE_FLOAT: ctypes.c_float,
}  # others are enumerations
_MODES = (b.CUDNN_HEUR_MODE_A, b.CUDNN_HEUR_MODE_FALLBACK)
_MOST_PLANS = 64
_UIDS = ("dy", "f", "dx", "x", *NORM, *GRADIENTS)

Given = tuple[Any, Any, Sequence[Any]]  # an attribute, the type of its elements, these


class Library:
    """cuDNN's functions; a status that is no success is an error with what cuDNN says."""

    def __init__(self, name: str = "libcudnn.so.9"):
        self._library = ctypes.CDLL(name)
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p

    def __call__(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            why = ctypes.create_string_buffer(1000)
            self._library.cudnnGetLastErrorString(why, ctypes.c_size_t(len(why)))
            name = self._library.cudnnGetErrorString(status).decode()
            raise RuntimeError(f"{function}: {name}: {why.value.decode(errors='replace')}")

    def handle(self, stream: int) -> int:
        handle = ctypes.c_void_p()
        self("cudnnCreate", ctypes.byref(handle))
        self("cudnnSetStream", handle, ctypes.c_void_p(stream))
        return handle.value or 0

    def opened(self, kind: Any, *attributes: Given) -> int:
        """A descriptor with attributes, not finalized; nothing here frees it."""
        made = ctypes.c_void_p()
        self("cudnnBackendCreateDescriptor", ctypes.c_int(kind), ctypes.byref(made))
        for name, type_, elements in attributes:
            array = (_C_TYPES.get(type_, ctypes.c_int) * len(elements))(*elements)
            self(
                "cudnnBackendSetAttribute", made, ctypes.c_int(name), ctypes.c_int(type_),
                ctypes.c_int64(len(elements)), array,
            )  # fmt: skip
        return made.value or 0

    def made(self, kind: Any, *attributes: Given) -> int:
        """A finalized descriptor."""
        found = self.opened(kind, *attributes)
        self("cudnnBackendFinalize", ctypes.c_void_p(found))
        return found

    def got(self, descriptor: int, name: Any, type_: Any, elements: Sequence[Any]) -> list[Any]:
        """Elements of an attribute; elements: as many as are wanted, descriptors that are open."""
        array = (_C_TYPES.get(type_, ctypes.c_int) * len(elements))(*elements)
        count = ctypes.c_int64()
        self(
            "cudnnBackendGetAttribute", ctypes.c_void_p(descriptor), ctypes.c_int(name),
            ctypes.c_int(type_), ctypes.c_int64(len(elements)), ctypes.byref(count), array,
        )  # fmt: skip
        return list(array)[: count.value]


class DescriptorGraph:
    """A conv_dgrad case with epilogue "norm" and what modes A and FALLBACK list, on buffer sets.

    It has what `CudnnGraph` has.
    """

    def __init__(self, case: Case, sets: Sequence[Buffers], stream: Any):
        self._library = Library()
        self._handle = self._library.handle(stream.cuda_stream)
        self._packs = [self._pack(buffers) for buffers in sets]
        self._configs = self._listed(operations_of(self._library, case.p))
        if not self._configs:
            raise RuntimeError("cuDNN lists no engine for it")

    def names(self) -> list[str]:
        """The engine of each plan and its place, the heuristics' first choice first."""
        return [f"eng{self._engine(config)} #{i}" for i, config in enumerate(self._configs)]

    def launch(self, index: int) -> timing.Launch:
        plan = self._library.made(
            b.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
            (b.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, b.CUDNN_TYPE_HANDLE, [self._handle]),
            (b.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DESCRIPTOR, [self._configs[index]]),
        )
        (size,) = self._library.got(
            plan, b.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, INT64, [0]
        )  # fmt: skip
        workspace = torch.empty(max(1, size), dtype=torch.uint8, device="cuda")
        packs = [self._bound(pack, workspace.data_ptr()) for pack in self._packs]
        return functools.partial(self._execute, plan, packs, workspace)

    def _execute(self, plan: int, packs: Sequence[int], workspace: Any, i: int) -> None:
        pointers = (ctypes.c_void_p(value) for value in (self._handle, plan, packs[i]))
        self._library("cudnnBackendExecute", *pointers)

    def _pack(self, buffers: Buffers) -> list[Given]:
        names = b.cudnnBackendAttributeName_t
        pointers = [buffers[name].data_ptr() for name in _UIDS]
        uids = list(range(1, len(_UIDS) + 1))
        return [
            (names.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, INT64, uids),
            (names.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, b.CUDNN_TYPE_VOID_PTR, pointers),
        ]

    def _bound(self, pack: Sequence[Given], workspace: int) -> int:
        name = b.CUDNN_ATTR_VARIANT_PACK_WORKSPACE
        return self._library.made(
            b.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
            *pack,
            (name, b.CUDNN_TYPE_VOID_PTR, [workspace]),
        )

    def _listed(self, operations: Sequence[int]) -> list[int]:
        """Engine configs of the operations, best first."""
        library, found = self._library, list[int]()
        graph = library.made(
            b.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
            (b.CUDNN_ATTR_OPERATIONGRAPH_OPS, DESCRIPTOR, operations),
            (b.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, b.CUDNN_TYPE_HANDLE, [self._handle]),
        )
        for mode in _MODES:
            heuristics = library.made(
                b.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                (b.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DESCRIPTOR, [graph]),
                (b.CUDNN_ATTR_ENGINEHEUR_MODE, b.CUDNN_TYPE_HEUR_MODE, [mode]),
            )
            kind = b.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
            places = [library.opened(kind) for _ in range(_MOST_PLANS)]
            results = b.CUDNN_ATTR_ENGINEHEUR_RESULTS
            found += library.got(heuristics, results, DESCRIPTOR, places)
        return found

    def _engine(self, config: int) -> int:
        library = self._library
        place = library.opened(b.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        (engine,) = library.got(config, b.CUDNN_ATTR_ENGINECFG_ENGINE, DESCRIPTOR, [place])
        return library.got(engine, b.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, INT64, [0])[0]


def operations_of(library: Library, p: Mapping[str, Any]) -> list[int]:
    """The operations of DgradDreluBNBwdWeight."""
    shape: ConvShape = p["shape"]
    io = b.CUDNN_DATA_HALF if p["dtype"] == "fp16" else b.CUDNN_DATA_BFLOAT16
    channels = shape.channels(shape.c)
    sizes = {"dy": shape.y, "f": shape.f, "dx": shape.x, "x": shape.x}
    tensors = {
        name: _tensor(library, uid, *sizes.get(name, channels), io if name in sizes else _FLOAT)
        for uid, name in enumerate(_UIDS, 1)
    }
    uids = iter(range(100, 200))

    def virtual() -> int:
        return _tensor(library, next(uids), *shape.x, _FLOAT, is_virtual=True)

    pointwise = functools.partial(_pointwise, library)
    gradient, centred, normal, scaled, y = (virtual() for _ in range(5))
    x, mean, rstd, scale, bias = (tensors[name] for name in ("x", *NORM))
    return [
        _gradient(library, shape, tensors["dy"], tensors["f"], gradient),
        pointwise(b.CUDNN_POINTWISE_SUB, {"X": x, "B": mean, "Y": centred}),
        pointwise(b.CUDNN_POINTWISE_MUL, {"X": centred, "B": rstd, "Y": normal}),
        pointwise(b.CUDNN_POINTWISE_MUL, {"X": normal, "B": scale, "Y": scaled}),
        pointwise(b.CUDNN_POINTWISE_ADD, {"X": scaled, "B": bias, "Y": y}),
        pointwise(b.CUDNN_POINTWISE_RELU_BWD, {"DY": gradient, "X": y, "DX": tensors["dx"]}),
        _norms_gradients(library, tensors),
    ]


_FLOAT = b.CUDNN_DATA_FLOAT


def _name(text: str) -> Any:
    return b.cudnnBackendAttributeName_t[text]


def _tensor(
    library: Library,
    uid: int,
    dims: Sequence[int],
    strides: Sequence[int],
    dtype: Any,
    *,
    is_virtual: bool = False,
) -> int:
    return library.made(
        b.CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        (b.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, [uid]),
        (b.CUDNN_ATTR_TENSOR_DATA_TYPE, b.CUDNN_TYPE_DATA_TYPE, [dtype]),
        (b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, INT64, [16]),
        (b.CUDNN_ATTR_TENSOR_DIMENSIONS, INT64, dims),
        (b.CUDNN_ATTR_TENSOR_STRIDES, INT64, strides),
        (b.CUDNN_ATTR_TENSOR_IS_VIRTUAL, b.CUDNN_TYPE_BOOLEAN, [is_virtual]),
    )


def _pointwise(library: Library, mode: Any, tensors: Mapping[str, int]) -> int:
    computed = library.made(
        b.CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
        (b.CUDNN_ATTR_POINTWISE_MODE, b.CUDNN_TYPE_POINTWISE_MODE, [mode]),
        (b.CUDNN_ATTR_POINTWISE_MATH_PREC, b.CUDNN_TYPE_DATA_TYPE, [_FLOAT]),
    )
    prefix = "CUDNN_ATTR_OPERATION_POINTWISE_"
    return library.made(
        b.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
        (b.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, DESCRIPTOR, [computed]),
        *((_name(f"{prefix}{end}DESC"), DESCRIPTOR, [value]) for end, value in tensors.items()),
    )


def _gradient(library: Library, shape: ConvShape, dy: int, f: int, dx: int) -> int:
    sizes = (
        ("DILATIONS", [shape.dilation] * shape.rank),
        ("FILTER_STRIDES", [shape.stride] * shape.rank),
        ("PRE_PADDINGS", [shape.padding] * shape.rank),
        ("POST_PADDINGS", [shape.padding] * shape.rank),
        ("SPATIAL_DIMS", [shape.rank]),
    )
    convolution = library.made(
        b.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        (_name("CUDNN_ATTR_CONVOLUTION_COMP_TYPE"), b.CUDNN_TYPE_DATA_TYPE, [_FLOAT]),
        (
            _name("CUDNN_ATTR_CONVOLUTION_CONV_MODE"),
            b.CUDNN_TYPE_CONVOLUTION_MODE,
            [b.CUDNN_CROSS_CORRELATION],
        ),
        *((_name(f"CUDNN_ATTR_CONVOLUTION_{end}"), INT64, values) for end, values in sizes),
    )
    prefix = "CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_"
    links = (("CONV_DESC", convolution), ("DY", dy), ("W", f), ("DX", dx))
    return library.made(
        b.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        *((_name(prefix + end), DESCRIPTOR, [value]) for end, value in links),
        (_name(f"{prefix}ALPHA"), b.CUDNN_TYPE_FLOAT, [1.0]),
        (_name(f"{prefix}BETA"), b.CUDNN_TYPE_FLOAT, [0.0]),
    )


def _norms_gradients(library: Library, tensors: Mapping[str, int]) -> int:
    ends = {
        "dx": "DY_DESC", "x": "X_DESC", "mean": "MEAN_DESC", "rstd": "INVSTD_DESC",
        "scale": "BN_SCALE_DESC", "dscale": "DBN_SCALE_DESC", "dbias": "DBN_BIAS_DESC",
        "of_dy": "EQ_DY_SCALE_DESC", "of_x": "EQ_X_SCALE_DESC", "shift": "EQ_BIAS",
    }  # fmt: skip
    prefix = "CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_"
    return library.made(
        b.CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
        (_name(f"{prefix}MATH_PREC"), b.CUDNN_TYPE_DATA_TYPE, [_FLOAT]),
        *((_name(prefix + end), DESCRIPTOR, [tensors[name]]) for name, end in ends.items()),
    )
