"""ProductWork: a product's sizes, and the bytes that it moves, as models see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductWork:
    """A product.

    m, n, k, count: sizes, and how many products.  moved_bytes: of global memory in all.
    groups: of rows of A, each of which has a tile that is not full.  split: bytes of an element
    of each output whose rows, of n elements, begin inside sectors of memory.  phases: stages of a
    tile of each of the products that follow each other, where they have not the same k.
    """

    m: int
    n: int
    k: int
    count: int
    moved_bytes: int
    groups: int = 0
    split: tuple[int, ...] = ()
    phases: tuple[int, ...] = ()
