"""The memory of tests on a device notices writes beside buffers; without a device."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.device import GUARD_BYTES, POISON, Memory


@pytest.mark.parametrize("offset", [GUARD_BYTES, 3 * GUARD_BYTES])
@pytest.mark.parametrize("place", [-1, 512])
def test_bytes_beside_a_buffer_are_seen(offset, place):
    """place: of a byte that is written, from the buffer's first on."""
    memory, held = Memory(), np.full(8 * GUARD_BYTES, POISON, np.uint8)
    memory.download = lambda address, count: held[address : address + count]
    memory._buffers = [(SimpleNamespace(base=0, size=held.size), offset, 512)]
    memory.verify_guards()
    held[offset + place] = 0
    with pytest.raises(AssertionError, match="beside a buffer"):
        memory.verify_guards()
