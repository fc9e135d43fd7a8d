"""Windows: which elements each output of a resampling reads, along one spatial dim.

All numbers are in units of 1 / unit elements, so that paddings and strides of upsampling may be
fractions.  Window o starts at o * stride - pre.

Pooling (unit 1) reads every element of the window.  Upsampling reads the value at the window's
centre, where element i is centred at i + 1/2: linearly between the two elements whose centres are
around it, or of the element that it lies in:

    position(o) = o * stride - pre + window / 2 - 1/2, clamped to [0, W - 1]
    linear:  y[o] = (1 - t) * x[i] + t * x[i + 1], where i = floor(position), t = position - i

With a window of 2, a stride of 1/2, and paddings of 1/2 and 1, as cuDNN has them, output o is at
x[o / 2].
"""

from __future__ import annotations

from dataclasses import dataclass

from ..expr import Expr


@dataclass(frozen=True)
class Windows:
    """pre, post: paddings.  kind: "pool", "linear" or "nearest"."""

    kind: str
    pre: int
    post: int
    stride: int
    window: int
    unit: int

    def outputs(self, extent: Expr) -> Expr:
        """How many windows a dim of some elements has."""
        padded = extent * self.unit + self.pre + self.post
        return (padded - self.window) // self.stride + 1

    @property
    def is_padded(self) -> bool:
        """Whether a window may start before the first element or end after the last."""
        return bool(self.pre or self.post)

    @property
    def taps(self) -> int:
        """Elements that one output reads."""
        return {"pool": self.window, "linear": 2, "nearest": 1}[self.kind]

    # ---- upsampling: places in units of 1 / (2 * unit) elements, which are all whole numbers

    @property
    def steps(self) -> int:
        """Places, in these units, from one element to the next."""
        return 2 * self.unit

    @property
    def shift(self) -> int:
        """Where output 0 is, from the centre (linear) or the start (nearest) of element 0.

        Output o is at 2 * stride * o + shift.
        """
        centre = self.window - 2 * self.pre
        return centre - self.unit if self.kind == "linear" else centre

    @property
    def lead(self) -> int:
        """Elements to add to a place so that none is negative."""
        return max(0, -(self.shift // self.steps))

    # ---- the windows that read an element: `readers` ones, downwards from the last

    @property
    def readers(self) -> int:
        """How many outputs in a row hold all that read one element."""
        if self.kind == "pool":
            return -(-self.window // self.stride)
        inner = -(-self.steps * self.taps // (2 * self.stride))
        return inner + self._readers_before + self._readers_after

    @property
    def _readers_before(self) -> int:
        """Outputs that lie wholly before element 0, which they read."""
        return max(0, -((self.shift - self.steps * (1 - self.taps)) // (2 * self.stride)))

    @property
    def _readers_after(self) -> int:
        """Outputs, at most, that lie wholly after the last element, which they read."""
        past = 2 * self.post - self.window - (self.unit if self.kind == "linear" else 0)
        return max(0, past // (2 * self.stride) + 1)

    def last_reader(self) -> tuple[int, int, int, int]:
        """(a, b, c, d): the last output that may read element i is (a * i + b) // c - d.

        a * i + b is not negative.
        """
        if self.kind == "pool":
            return 1, self.pre, self.stride, 0
        step, start = 2 * self.stride, self.steps - 1 - self.shift
        lead = max(0, -(start // step))
        return self.steps, start + lead * step, step, lead - self._readers_after
