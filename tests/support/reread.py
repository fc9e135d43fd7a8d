"""Finds kernels that read of a tensor what they, or other blocks of theirs, have written before.

The interpreter looks for races in shared memory alone.  Here a load of a byte that the same launch
has stored is an AssertionError.  Which blocks come first is the schedule's: several seeds show
both orders.
"""

import numpy as np

from dnnc.interpreter import plans
from dnnc.interpreter.memory import Memory


class Watch:
    """Watches the tensor of a name in all that the interpreter runs, until `monkeypatch` ends.

    reads: bytes that were read.
    """

    def __init__(self, monkeypatch, name):
        self.name, self.reads, self._written = name, 0, {}
        load, store, gather, scatter = Memory.load, Memory.store, Memory.gather, Memory.scatter
        launch = plans.launch

        def places(memory, address, size, fail):
            found = memory.locate(address, size, fail)
            return [found] if isinstance(found, tuple) else [part[:2] for part in found]

        def watched_load(memory, address, size, code, count, fail):
            for region, index in places(memory, address, size, fail):
                self._read(region, index, size)
            return load(memory, address, size, code, count, fail)

        def watched_store(memory, address, size, values, fail, strong=False):
            for region, index in places(memory, address, size, fail):
                self._wrote(region, index, size)
            store(memory, address, size, values, fail, strong)

        def watched_gather(memory, starts, nbytes, fail):
            self._read(*memory._rows(starts, nbytes, fail), nbytes)
            return gather(memory, starts, nbytes, fail)

        def watched_scatter(memory, starts, data, fail):
            self._wrote(*memory._rows(starts, data.shape[1], fail), data.shape[1])
            scatter(memory, starts, data, fail)

        def watched_launch(*given, **more):
            self._written.clear()
            launch(*given, **more)

        monkeypatch.setattr(Memory, "load", watched_load)
        monkeypatch.setattr(Memory, "store", watched_store)
        monkeypatch.setattr(Memory, "gather", watched_gather)
        monkeypatch.setattr(Memory, "scatter", watched_scatter)
        monkeypatch.setattr(plans, "launch", watched_launch)

    def _bytes_of(self, region):
        """Whether each byte of a region was written; None: the region is another tensor's."""
        if region.name != self.name:
            return None
        size = region.offset + region.nbytes
        return self._written.setdefault(id(region), np.zeros(size, bool))

    def _wrote(self, region, index, size):
        if (written := self._bytes_of(region)) is not None:
            written[_places(index, size)] = True

    def _read(self, region, index, size):
        if (written := self._bytes_of(region)) is not None:
            again = int(written[_places(index, size)].sum())
            assert not again, f"{again} bytes of {self.name} are read after they were written"
            self.reads += size * np.size(index)


def _places(index, size):
    return (np.asarray(index, np.int64).reshape(-1, 1) + np.arange(size)).reshape(-1)
