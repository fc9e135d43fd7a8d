"""A PTX interpreter on NumPy: runs the PTX that ships, on machines with no GPU.

It executes the text that LLVM's NVPTX back end makes, for tests and for the demo.  Warps run in
a random order that a seed decides; memory that was never written, copies not yet waited for and
registers never set are *poison*, which may be moved about but not stored to global memory, not
branched on and not used as an address; shared memory is watched for data races.  Whatever the
hardware leaves undefined, and any opcode it does not know, is an `InterpreterError`.

    memory = Memory()
    x = memory.allocate(nbytes, name="x")
    memory.upload(x, array)
    module = parse(ptx_text)
    launch(module, "kernel", grid=(4, 1, 1), block=(256, 1, 1),
           params=[x.to_bytes(8, "little")], memory=memory, seed=1)
    result = memory.download(x, nbytes)

Of sm_90a it knows mbarriers, TMA (tiled, im2col, plain bytes), wgmma, clusters, st.async and
setmaxnreg.  Bulk copies and asynchronous stores arrive at times that the seed decides;
accumulators, shared memory that wgmma or a store still reads, and ordinary accesses that no proxy
fence followed are watched.

On demand (`launch(watch=...)`, `run_plan(watch_global=True)`) global memory is watched, too: what
another CTA wrote is read after a release and an acquire, what a bulk store wrote after its wait,
what an earlier launch wrote after griddepcontrol.wait, and what was written here by no load of
constants.  `global_races` says what it leaves out.

Not modelled: the order in which writes to global memory become visible (every store is seen at
once), races inside one warp, caches, and the error of approximate instructions (their results are
the nearest numbers).  Also not, and refused: interleaved tensor maps, NaN fill,
element strides of tiled maps, bulk copies between CTAs, reductions but `.add`,
sparse wgmma, descriptors with a base offset, atomics on another CTA's shared memory.  A CTA of a
cluster may use another's shared memory before that one has started.  Bulk copies happen whole.
A warp sleeps at a try_wait while any of its lanes there must wait.
"""

from __future__ import annotations

from .failure import InterpreterError
from .launch import Report, launch
from .memory import Memory
from .parser import parse
from .ptx import Function, Instruction, Module

__all__ = [
    "Function",
    "Instruction",
    "InterpreterError",
    "Memory",
    "Module",
    "Report",
    "launch",
    "parse",
]
