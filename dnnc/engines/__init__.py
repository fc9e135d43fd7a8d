"""The engines, in the order in which ties are broken.  A new one is a file and its line here.

An engine of another package joins them for a process by `register`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import is_dataclass

from .. import outside
from ..errors import DnncError, Status
from ..knobs import KNOBS
from .attention.bwd_sm80 import SDPA_BWD_SM80
from .attention.bwd_sm90 import SDPA_BWD_SM90
from .attention.fwd_sm90 import SDPA_FWD_SM90
from .attention.sm80 import SDPA_SM80
from .conv.depthwise import CONV_DEPTHWISE
from .conv.grouped_sm80 import CONV_GROUPED_SM80
from .conv.product_sm90 import CONV_PRODUCT_SM90
from .conv.sm80 import CONV_SM80
from .conv.sm90 import CONV_SM90
from .conv.stem_sm90 import CONV_STEM_SM90
from .conv.wgrad_depthwise import CONV_WGRAD_DEPTHWISE
from .conv.wgrad_sm80 import CONV_WGRAD_SM80
from .conv.wgrad_sm90 import CONV_WGRAD_SM90
from .elementwise.fallback import FALLBACK
from .elementwise.peers import PEERS
from .elementwise.pointwise import POINTWISE
from .elementwise.reduction import REDUCTION
from .elementwise.resample import RESAMPLE
from .elementwise.transpose import TRANSPOSE
from .engine import Engine as Engine
from .engine import Knob as Knob
from .engine import Knobs as Knobs
from .engine import Marks as Marks
from .engine import Prediction as Prediction
from .engine import Reason as Reason
from .product.matmul_sm80 import MATMUL_SM80
from .product.matmul_sm90 import MATMUL_SM90
from .rows.engine import ROWS
from .rows.grid import GRID

ENGINES: tuple[Engine, ...] = (
    POINTWISE,
    TRANSPOSE,
    REDUCTION,
    ROWS,
    GRID,
    SDPA_FWD_SM90,
    SDPA_SM80,
    SDPA_BWD_SM90,
    SDPA_BWD_SM80,
    MATMUL_SM90,
    MATMUL_SM80,
    CONV_PRODUCT_SM90,
    CONV_SM90,
    CONV_STEM_SM90,
    CONV_SM80,
    CONV_GROUPED_SM80,
    CONV_DEPTHWISE,
    CONV_WGRAD_SM90,
    CONV_WGRAD_SM80,
    CONV_WGRAD_DEPTHWISE,
    RESAMPLE,
    PEERS,
    FALLBACK,
)

# Indices of engines from outside the package; its own stay below them.
OUTSIDE_INDICES = range(1000, 10000)

_NAME = re.compile("[a-z][a-z0-9_]*")


def all_engines() -> tuple[Engine, ...]:
    """The package's engines and those that are registered, in the order in which ties are broken.

    Registered ones stand ahead of the fallback, which takes what nothing else does.
    """
    *own, last = ENGINES
    return (*own, *outside.engines(), last)


def engine_named(name: str) -> Engine:
    """The engine of this name; another is BAD_PARAM."""
    known = all_engines()
    found = next((engine for engine in known if engine.name == name), None)
    if found is None:
        raise DnncError(
            Status.BAD_PARAM, f"engine {name!r}", ", ".join(engine.name for engine in known)
        )
    return found


# ---- engines from outside the package


def register(engine: Engine) -> None:
    """Adds an engine from outside the package, for the rest of this process.

    It is asked, ranked and listed as the package's own are.  While there is one, graphs are
    compiled in this process, and plans are neither taken from the cache nor kept there.  Its index
    is one of `OUTSIDE_INDICES`; it and the name, of lower-case letters, digits and `_`, are no
    other engine's.
    """
    _verify(engine)
    outside.set_engines((*outside.engines(), engine))


@contextmanager
def registered(*engines: Engine) -> Generator[None]:
    """Registers engines for the length of a `with` statement."""
    before = outside.engines()
    try:
        for engine in engines:
            register(engine)
        yield
    finally:
        outside.set_engines(before)


def _verify(engine: object) -> None:
    def error(what: str, accepted: str) -> DnncError:
        return DnncError(Status.BAD_PARAM, what, accepted, "dnnc.engines.register")

    if not isinstance(engine, Engine):
        raise error(f"{engine!r:.80}", "an instance of a subclass of dnnc.engines.Engine")
    for member in ("name", "index", "families", "support", "tiling"):
        if not hasattr(engine, member):
            raise error(f"{type(engine).__name__} has no {member}", f"an engine with a {member}")
    if not is_dataclass(engine.tiling):
        raise error(f"tiling {engine.tiling!r:.80} of {engine.name}", "a dataclass")
    if _NAME.fullmatch(engine.name) is None:
        raise error(f"name {engine.name!r}", "lower-case letters, digits and _, a letter first")
    if engine.index not in OUTSIDE_INDICES:
        first, last = OUTSIDE_INDICES[0], OUTSIDE_INDICES[-1]
        raise error(f"index {engine.index} of engine {engine.name}", f"{first} to {last}")
    for knob in engine.all_knobs:
        if knob.name not in KNOBS:
            raise error(f"knob {knob.name} of engine {engine.name}", ", ".join(KNOBS))
    for other in all_engines():
        if other.name == engine.name or other.index == engine.index:
            what = f"engine {engine.name} ({engine.index}) beside {other.name} ({other.index})"
            raise error(what, "a name and an index that no other engine has")
