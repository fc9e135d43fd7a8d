"""Random numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import dtypes
from .. import philox
from ..op import Op, attribute, operand, result
from ..tensor import Tensor, packed_strides, text

# Distribution -> its parameters and their defaults; None: it has none.
DISTRIBUTIONS: dict[str, dict[str, float | None]] = {
    "BERNOULLI": {"bernoulli_probability": None},
    "UNIFORM": {"uniform_minimum": 0.0, "uniform_maximum": 1.0},
    "NORMAL": {"normal_mean": 0.0, "normal_standard_deviation": 1.0},
}
_PARAMETERS = tuple(name for row in DISTRIBUTIONS.values() for name in row)

# Bits of a word that make a fraction: as many as f32 holds.
FRACTION_BITS = 24


class Rng(Op):
    """Y = random numbers, each a function of the seed, the offset and its place.

    Y [d0, ..., dn], any layout; seed and offset [1, ..., 1].  Element i of Y, counted row-major
    over its dims whatever its layout, comes from Philox 4x32-10 (see `dialect.philox`):

        w0 ... w3 = philox(counter = (q low, q high, offset low, offset high),
                           key = (seed low, seed high)),   q = i // 4, r = i % 4
        u(w) = (w >> 8) / 2**24, in [0, 1)
        BERNOULLI: 1 where u(wr) < probability, else 0
        UNIFORM: minimum + (maximum - minimum) * u(wr)
        NORMAL: mean + deviation * radius * (cos(angle) for even r, sin(angle) for odd r),
                where radius = sqrt(-2 ln(u(wa) + 2**-24)), angle = 2 pi u(wb), wa = w0,
                wb = w1 for r < 2, else w2 and w3
    where low and high are the halves of 64 bits.  Equal seeds and offsets give equal numbers on
    every device, in every kernel.  Arithmetic is in f32.
    Source: cuDNN graph API, Rng operation, which leaves the generator open.

    Constraints:
    (C1) seed and offset are INT64 and have one element.
    (C2) parameters belong to the distribution; the probability is given and is 0 to 1; limits are
         finite, the lower one first; mean and deviation are finite, the deviation not negative.
    """

    op_name = "rng"
    scalars = ("seed", "offset")
    kind_field = "distribution"
    backend = "OPERATION_RNG"
    prefix = "OPERATION_RNG"
    role = "pointwise"

    seed: Tensor = operand("[1, ..., 1], INT64", backend="SEED")
    offset: Tensor = operand("[1, ..., 1], INT64", backend="OFFSET_DESC")
    y: Tensor = result("[d0, ..., dn]", backend="YDESC")
    distribution: str = attribute("what is drawn", str, "BERNOULLI", choices=tuple(DISTRIBUTIONS))
    bernoulli_probability: float | None = attribute("of a 1", float, optional=True)
    uniform_minimum: float | None = attribute("the lower limit", float, optional=True)
    uniform_maximum: float | None = attribute("the upper limit", float, optional=True)
    normal_mean: float | None = attribute("the mean", float, optional=True)
    normal_standard_deviation: float | None = attribute(
        "the standard deviation", float, optional=True
    )

    def parameters(self) -> dict[str, float]:
        """The distribution's parameters, defaults filled in."""
        row = DISTRIBUTIONS[self.distribution]
        given = self.attributes()
        return {name: given.get(name, default) for name, default in row.items()}

    @property
    def threshold(self) -> int:
        """u(w) is below the probability where w >> 8 is below this."""
        return math.ceil(self.parameters()["bernoulli_probability"] * (1 << FRACTION_BITS))

    def infer(self) -> None:
        if self.y.dims is None:
            raise self.error("y", "the result's dims are not set", "dims, by set_dim")
        if self.y.strides is None:
            self.y.strides = packed_strides(self.y.dims)

    def verify(self) -> None:
        self.require_attribute_choices()
        for tensor in self.operands:
            if tensor.elements().constant != 1:  # rng_c1
                raise self.shape_error(
                    "C1", f"{tensor.label} has dims {text(tensor.shape)}", "one element"
                )
            self.require_type("C1", tensor, [dtypes.i64])  # rng_c1
        self._verify_parameters()

    def _verify_parameters(self) -> None:
        values = self.parameters()
        given = [name for name in _PARAMETERS if getattr(self, name) is not None]
        strange = [name for name in given if name not in values]
        if strange:  # rng_c2
            raise self.error("C2", ", ".join(strange), ", ".join(values))
        problem = ""
        given_numbers: list[float | None] = list(values.values())
        if any(value is None or not math.isfinite(value) for value in given_numbers):
            problem = "finite parameters"
        elif self.distribution == "BERNOULLI" and not 0 <= values["bernoulli_probability"] <= 1:
            problem = "a probability from 0 to 1"
        elif self.distribution == "UNIFORM" and list(values.values()) != sorted(values.values()):
            problem = "a minimum that is not above the maximum"
        elif self.distribution == "NORMAL" and values["normal_standard_deviation"] < 0:
            problem = "a deviation that is not negative"
        if problem:  # rng_c2
            what = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise self.error("C2", what, problem)

    def reference(self, *operands: Any, **context: Any) -> Any:
        sizes: Mapping[str, int] = context.get("sizes", {})
        dims = [extent.evaluate(sizes) for extent in self.y.shape]
        seed, offset = (_halves(np.asarray(array).astype(np.int64).ravel()) for array in operands)
        place = np.arange(math.prod(dims), dtype=np.uint64)
        group, rest = _halves(place // np.uint64(4)), (place % np.uint64(4)).astype(np.int64)
        words = np.stack(np.broadcast_arrays(*philox.words((*group, *offset), seed)))
        values = self._drawn(words, rest)
        return values.reshape(dims)

    def _drawn(self, words: Any, rest: Any) -> Any:
        """words: [4, elements]; rest: which of its four numbers each element is."""
        one = np.arange(rest.size)
        fractions = (words >> np.uint64(32 - FRACTION_BITS)).astype(np.float64)
        fractions = fractions / (1 << FRACTION_BITS)
        values = self.parameters()
        if self.distribution == "BERNOULLI":
            return (fractions[rest, one] < values["bernoulli_probability"]).astype(np.int64)
        if self.distribution == "UNIFORM":
            low, high = values["uniform_minimum"], values["uniform_maximum"]
            return low + (high - low) * fractions[rest, one]
        first, second = fractions[rest // 2 * 2, one], fractions[rest // 2 * 2 + 1, one]
        radius = np.sqrt(-2 * np.log(first + 1 / (1 << FRACTION_BITS)))
        angle = 2 * np.pi * second
        side = np.where(rest % 2, np.sin(angle), np.cos(angle))
        return values["normal_mean"] + values["normal_standard_deviation"] * radius * side


def _halves(numbers: Any) -> tuple[Any, Any]:
    """The low and high 32 bits of 64-bit numbers."""
    words = numbers.astype(np.uint64)
    return words & np.uint64(philox.WORD), words >> np.uint64(32)
