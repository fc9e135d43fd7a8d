"""Numbers as a page shows them."""

from __future__ import annotations

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def si(value: float) -> str:
    """990 T, 3.35 T, 12 k: three digits, then a space and what the unit's prefix is."""
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "


def percent(share: float) -> str:
    """73%, and 0.4% below one."""
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"
