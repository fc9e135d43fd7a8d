"""Which engines write an output whose prior contents they read (`dialect/prior`).

    y = alpha * conv(x, w) + beta * prior         one buffer, read and written by one kernel

That takes kernels in which one thread, or one block after a barrier, has each element of the
output, reads the prior at that element alone and once, and writes it afterwards.  Engines say
whether theirs do (`updates_outputs`), and tests hold them to it: the interpreter finds a block that
reads what another one has written.
A kernel that reads the prior and writes elsewhere, as into the workspace, may be any engine's.
"""

from __future__ import annotations

from ..dialect.fusion import Fusion
from ..dialect.op import Op
from ..dialect.prior import priors_of
from ..dialect.tensor import Tensor
from ..engines import all_engines
from ..engines.engine import Engine, Reason
from ..errors import Status

_CLAUSE = "prior contents"


def prior_reasons(engine: Engine, fusion: Fusion) -> tuple[Reason, ...]:
    """Why an engine can't write an output of the fusion over what that held before."""
    priors = priors_of(fusion.inputs)
    found: list[Reason] = []
    for output in fusion.outputs:
        prior = priors.get(output.memory_uid)
        if prior is None:
            continue
        if not engine.updates_outputs:
            what = f"{output.label} is written over what it held, which is read"
            able = (other.name for other in all_engines() if other.updates_outputs)
            supported = f"a fusion of {', '.join(able)}"
            found.append(Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, _CLAUSE, what, supported))
            continue
        for op in _others(fusion, prior, output, reduces=engine.reduces_in_registers):
            what = f"{op.label} is computed of what {output.label} held, and {output.label} written"
            supported = "pointwise operations of its dims; others as a fusion that reads the output"
            found.append(Reason(Status.NOT_SUPPORTED_GRAPH_PATTERN, _CLAUSE, what, supported))
    return tuple(found)


def _others(fusion: Fusion, prior: Tensor, output: Tensor, *, reduces: bool) -> list[Op]:
    """The fusions below a prior that would read it at other elements than they have, or again.

    reduces: reductions take what is in registers, and what follows them reads their results.
    """
    below: set[Tensor] = {prior}
    found: list[Op] = []
    for op in fusion.ops:
        if below.isdisjoint(op.operands) or (reduces and op.role == "reduction"):
            continue
        below.update(op.results)
        if op.role != "pointwise" or any(t.shape != output.shape for t in op.results):
            found.append(op)
    return found
