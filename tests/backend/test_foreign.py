"""Descriptors of operations that dnnc has not: taken, checked, and refused with the graph."""

import pytest

from dnnc import DnncError, Status
from dnnc import backend as b
from dnnc.backend import foreign
from dnnc.backend.enums import CONSTANTS
from dnnc.backend.kinds import KINDS

from .building import DATA_TYPE, I64, D, graph_of, made, name_of, tensor

HALF, INT32 = b.CUDNN_DATA_HALF, b.CUDNN_DATA_INT32


def tensors(prefix, **given):
    return [(name_of(prefix, end), D, [value]) for end, value in given.items()]


def operation(kind, *rows):
    return made(CONSTANTS[f"CUDNN_BACKEND_OPERATION_{kind}_DESCRIPTOR"], *rows)


def image(uid, channels=4):
    return tensor(uid, [2, channels, 8, 8], dtype=HALF)


def signal():
    prefix = "OPERATION_SIGNAL"
    return operation(
        "SIGNAL",
        (b.CUDNN_ATTR_OPERATION_SIGNAL_MODE, b.CUDNN_TYPE_SIGNAL_MODE, [b.CUDNN_SIGNAL_WAIT]),
        (b.CUDNN_ATTR_OPERATION_SIGNAL_VALUE, I64, [3]),
        *tensors(prefix, FLAGDESC=tensor(1, [1], dtype=INT32), XDESC=image(2), YDESC=image(3)),
    )


def block_scale(kind):
    prefix = f"OPERATION_BLOCK_SCALE_{kind}"
    return operation(
        f"BLOCK_SCALE_{kind}",
        *tensors(prefix, XDESC=image(1), YDESC=image(2), SCALE_DESC=image(3, 1)),
        (name_of(prefix, "MATH_PREC"), DATA_TYPE, [b.CUDNN_DATA_FLOAT]),
        (name_of(prefix, "BLOCK_SIZE"), b.CUDNN_TYPE_INT32, [32]),
    )


def band(kind, prefix):
    return operation(
        f"{kind}_BAND_MATRIX",
        *tensors(prefix, XDESC=image(1), YDESC=image(2)),
        *((name_of(prefix, end), I64, [1]) for end in
          ("LOWER_BANDWIDTH", "UPPER_BANDWIDTH", "AXIS")),
    )  # fmt: skip


ALL = {
    "SIGNAL": signal,
    "BLOCK_SCALE_QUANTIZE": lambda: block_scale("QUANTIZE"),
    "BLOCK_SCALE_DEQUANTIZE": lambda: block_scale("DEQUANTIZE"),
    "EXPAND_BAND_MATRIX": lambda: band("EXPAND", "OPERATION_EXPAND_BAND_MATRIX"),
    "CONTRACT_BAND_MATRIX": lambda: band("CONTRACT", "OPERATION_CONTRACT_BAND_MATRIX"),
}


def test_they_are_all_here():
    assert {f"OPERATION_{name}" for name in ALL} == {
        kind.type.name.removeprefix("CUDNN_BACKEND_").removesuffix("_DESCRIPTOR")
        for kind in foreign.KINDS
    }


@pytest.mark.parametrize("name", ALL)
def test_the_descriptor_is_taken_and_the_graph_refused(name):
    if KINDS[CONSTANTS[f"CUDNN_BACKEND_OPERATION_{name}_DESCRIPTOR"]] not in foreign.KINDS:
        pytest.skip("the dialect has it")
    operation = ALL[name]()
    for _ in range(2):  # the refusal is made anew each time
        with pytest.raises(DnncError, match="dnnc has no such operation yet") as caught:
            graph_of(operation)
        assert caught.value.status is Status.NOT_SUPPORTED_GRAPH_PATTERN
        assert caught.value.where == f"OPERATION_{name}"
        assert caught.value.supported


@pytest.mark.parametrize("kind", foreign.KINDS, ids=lambda kind: kind.type.name)
def test_what_is_missing_is_asked_for(kind):
    with pytest.raises(DnncError, match="it is not set") as caught:
        made(kind.type)
    assert caught.value.status is Status.BAD_PARAM
