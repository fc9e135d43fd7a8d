"""Tensors without elements: their addresses may be 0, and no stride of theirs is taken."""

from types import SimpleNamespace

import pytest

from dnnc import dtypes
from dnnc.errors import DnncError
from dnnc.runtime.buffers import Buffer, placed, verify_buffer
from dnnc.runtime.laid_out import Bound, lay_out
from dnnc.runtime.recent import Recent
from dnnc.runtime.sized import SizedLaunch, SizedMap, SizedTensor


@pytest.mark.parametrize("offset", [0, -8192])
def test_the_map_of_a_tensor_without_elements_has_some_address(offset):
    """An empty torch tensor's address is 0, which the driver encodes no map of."""
    asked = []

    def encode(address, dims, strides):
        asked.append((address, dims, strides))
        return b"map"

    layout = SimpleNamespace(filled=tuple)
    maps = tuple(
        SizedMap(place, SimpleNamespace(uid=uid), offset, encode, (64, 1), (128,))
        for place, uid in ((0, 1), (1, 2))
    )
    launch = SizedLaunch(None, (1, 1, 1), 0, None, layout, (None, None), (), maps, ())
    bound = Bound({1: 0, 2: 16384}, {}, 0, {})
    (step,) = lay_out(SimpleNamespace(steps=[launch]), bound, Recent(4))
    assert step.arguments == (b"map", b"map")
    (nowhere, *_), (somewhere, *_) = asked
    assert nowhere > 0
    assert nowhere % 256 == 0
    assert somewhere == 16384 + offset


@pytest.mark.parametrize("keys", [0, 3])
def test_strides_of_an_empty_array_may_be_any(keys):
    """A framework counts an empty axis as one when it computes strides."""
    record = SimpleNamespace(alignment=16, is_peer=False, reordering="NONE")
    dims, f16 = (2, keys, 64), dtypes.f16
    tensor = SizedTensor(record, "k", f16, dims, (keys * 64, 64, 1), 2 * keys * 128)
    given = Buffer(0, dims, (64, 64, 1), f16, 0)
    if not keys:
        verify_buffer(tensor, given, 0)
        return
    with pytest.raises(DnncError, match="strides"):
        verify_buffer(tensor, given, 0)


def test_an_empty_array_is_on_no_device():
    buffer = Buffer(0, (2, 0, 64))
    assert placed(buffer, "k") is buffer
