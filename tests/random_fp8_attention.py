"""Random attention of fp8: `draw(random, most, heads)`."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.random_attention import Attention, Drawn
from tests.random_conditions import drawn_condition

FACTOR = 64.0  # of weights ahead of their product
_TYPES = ("f8E4M3FN", "f8E5M2")
_HEADS = (16, 32, 48, 64, 64, 80, 128, 128, 144, 160, 256)


def draw(random: Random, most: int, heads: int = 6) -> Drawn:
    """most, heads: as of `random_attention.draw`."""
    return _Fp8Attention(random, most, heads).drawn()


class _Fp8Attention(Attention):
    """`Attention` of operands of fp8; biases and masks are of 16 bits still."""

    def __init__(self, random: Random, most: int, heads: int):
        super().__init__(random, most, heads, keeps=False)
        self.loses = True
        self.largest: list[Any] = []
        self.operand_type = random.choice(_TYPES)
        self.value_type = random.choice((self.operand_type, *_TYPES))
        self.unit = 16
        self.products = random.choice(("f32", "f32", "FAST_FLOAT_FOR_FP8"))
        self.depth, self.width = random.choice(_HEADS), random.choice(_HEADS)
        if self.products == "f32":
            self.width = min(self.width, 160)

    @property
    def weight_type(self) -> str:
        own = {self.value_type} if self.products == "f32" else {self.value_type, self.operand_type}
        return max(own, key=_TYPES.index)

    def _rounded(self, p: Any) -> Any:
        """Fast products want fp8: with a factor for which few are subnormal."""
        chosen = "f32" if self.products == "f32" else self.operand_type
        return self.g.mul(p, FACTOR).set_data_type(chosen)

    def _multiple(self, x: Any) -> Any:
        return x

    def _weights(self, p: Any, s: Any, is_guarded: bool) -> Any:
        self.is_plain = not (is_guarded and self.chance(0.3))
        if self.is_plain:
            if self.share != "after" and self.chance(0.5):
                self._largest(p)
            return self._dropped(p) if self.chance(0.08) else p
        return self.g.binary_select(p, 0.0, drawn_condition(self, s, 0))

    def _after(self, o: Any) -> None:
        o = self.g.mul(
            o, self.g.tensor([1] * len(self.dims), name=self.new_name(), data_type="f32")
        )
        # Of packed queries the largest result is known where nothing but products comes before it.
        if not (self.q_rows is not None and self.share == "after") and self.chance(0.5):
            self._largest(o)
        super()._after(o)

    def _largest(self, x: Any) -> None:
        """An output of the largest of all."""
        made = self.g.reduction(x, mode="amax").set_dim([1] * len(self.dims))
        self.largest.append(made.set_output().set_data_type("f32"))
