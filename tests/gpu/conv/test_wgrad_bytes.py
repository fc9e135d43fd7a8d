"""Gradients of filters of bytes, summed in INT32, on the device; sums that wrap, and large ones."""

import numpy as np
import pytest

from tests.engines.conv.convs import around
from tests.engines.conv.test_wgrad_bytes import *  # noqa: F403
from tests.engines.conv.test_wgrad_bytes import BOTH, ENGINES, all_bytes, new_graph, output
from tests.support.checked import check


@BOTH
def test_sums_wrap(engine):
    """2^17 pixels of -128 times -128 are 2^31."""
    g = new_graph(engine)
    output(g, [8, 16, 128, 128], [16, 16, 1, 1])
    inputs = {
        t.uid: np.full([n.constant for n in t.shape], -128, np.int8)
        for t in g.graph.finalize().inputs
    }
    check(g, engine=engine, target=ENGINES[engine][0], inputs=inputs)


@pytest.mark.parametrize("channels", [64, 256])
@BOTH
def test_layers(engine, channels):
    """Each engine's own choice of knobs computes the filters' gradient of bytes."""
    g = new_graph(engine)
    dims = [16, channels, 28, 28], [channels, channels, 3, 3]
    output(g, *dims, **around(1))
    check(g, engine=engine, target=ENGINES[engine][0], inputs=all_bytes(g))
