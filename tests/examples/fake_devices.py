"""Devices that are interpreted, and drivers that record, for the examples' tests."""

import numpy as np

from tests.demo.interpreted_driver import InterpretedDriver
from tests.runtime.fake_driver import OK, FakeDriver


class Interpreted(InterpretedDriver):
    """With memsets, and nodes of graphs that are launches."""

    def _memset(self, address, value, count, stream):
        self.memory.upload(address, np.full(count, value, np.uint8))
        return (0,)


class InOrder:
    """In place of a CUDA graph."""

    def __init__(self, calls, stream=0, *, is_timed=False):
        self._bound = [call.bind() for call in calls]

    def __call__(self):
        for bound in self._bound:
            bound()

    def seconds(self):
        return [1e-6] * len(self._bound)

    def close(self):
        pass


class WithEvents(FakeDriver):
    """With events in graphs; a pair of them is a millisecond apart."""

    def __init__(self):
        super().__init__(capability=(9, 0), argument_bytes={})
        self.events, self.destroyed = 0, []

    def _cuEventCreate(self, flags):
        self.events += 1
        return OK, self.events

    def _cuEventElapsedTime(self, start, end):
        return OK, float(end - start)

    def _cuGraphAddEventRecordNode(self, graph, after, count, event):
        return self._add(graph, after, count, "EVENT", event)

    def _cuGraphAddMemcpyNode(self, graph, after, count, copy, context):
        return self._add(graph, after, count, "MEMCPY", copy)

    def _cuGraphExecDestroy(self, executable):
        return (OK,)

    def _cuGraphDestroy(self, graph):
        self.destroyed.append(graph)
        return (OK,)

    def _cuEventDestroy(self, event):
        self.destroyed.append(event)
        return (OK,)

    def _cuGraphLaunch(self, executable, stream):
        return (OK,)
