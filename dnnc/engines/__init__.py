"""The engines, in the order in which ties are broken.  A new one is a file and its line here."""

from __future__ import annotations

from ..errors import DnncError, Status
from .attention.bwd_sm90 import SDPA_BWD_SM90
from .attention.fwd_sm90 import SDPA_FWD_SM90
from .attention.sm80 import SDPA_SM80
from .conv.depthwise import CONV_DEPTHWISE
from .conv.grouped_sm80 import CONV_GROUPED_SM80
from .conv.product_sm90 import CONV_PRODUCT_SM90
from .conv.sm80 import CONV_SM80
from .conv.sm90 import CONV_SM90
from .conv.stem_sm90 import CONV_STEM_SM90
from .conv.wgrad_sm90 import CONV_WGRAD_SM90
from .elementwise.fallback import FALLBACK
from .elementwise.peers import PEERS
from .elementwise.pointwise import POINTWISE
from .elementwise.reduction import REDUCTION
from .elementwise.resample import RESAMPLE
from .elementwise.transpose import TRANSPOSE
from .engine import Engine
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
    MATMUL_SM90,
    MATMUL_SM80,
    CONV_PRODUCT_SM90,
    CONV_SM90,
    CONV_STEM_SM90,
    CONV_SM80,
    CONV_GROUPED_SM80,
    CONV_DEPTHWISE,
    CONV_WGRAD_SM90,
    RESAMPLE,
    PEERS,
    FALLBACK,
)

BY_NAME = {engine.name: engine for engine in ENGINES}


def engine_named(name: str) -> Engine:
    """The engine of this name; another is BAD_PARAM."""
    if name not in BY_NAME:
        raise DnncError(Status.BAD_PARAM, f"engine {name!r}", ", ".join(BY_NAME))
    return BY_NAME[name]
