"""The sum that a convolution and its two gradients share, and what each of them sums over.

Along each spatial dim, a tap of the filter lies on a pixel of the image for an output where

    pixel = output * stride - pre + tap * dilation

(of a filter that is flipped, taps - 1 - tap).  In each group of channels,

    response[batch, filter, output] = sum of image[batch, channel, pixel] * w[filter, channel, tap]

Each operation computes one of the three tensors from the other two.  It sums over the indices that
its result does not have; one place follows from the other two:

    operation   result     sums over                                  follows
    fprop       response   taps, channels of the group                pixel
    dgrad       image      taps, filters of the group                 output, if stride divides
    wgrad       filter     batch, outputs                             pixel

Outside the tensor that moves under the filter (the image; for dgrad the response) there are zeros,
which are multiplied like any other element: an infinite factor gives NaN there.
"""

from __future__ import annotations

from dataclasses import dataclass

IMAGE, FILTER, RESPONSE = "image", "filter", "response"

# Tensor -> what its axes count; the last name stands for one axis a spatial dim.  `channel` and
# `filter` count through all groups, `own_channel` and `own_filter` through one.
AXES: dict[str, tuple[str, str, str]] = {
    IMAGE: ("batch", "channel", "pixel"),
    FILTER: ("filter", "own_channel", "tap"),
    RESPONSE: ("batch", "filter", "output"),
}
SPATIAL = ("pixel", "tap", "output")


@dataclass(frozen=True)
class WindowContraction:
    """Which tensor is computed from which, by the roles that the forward convolution gives them.

    operands: in the order of the operation's.  summed: the indices of the sum, as in `AXES`.
    """

    result: str
    operands: tuple[str, str]
    summed: tuple[str, str]

    @property
    def follows(self) -> str:
        """The place that the other two give."""
        return "output" if self.result == IMAGE else "pixel"

    @property
    def moved(self) -> str:
        """The operand that is read at that place, and has zeros around it."""
        return RESPONSE if self.result == IMAGE else IMAGE

    @property
    def other(self) -> str:
        """The operand beside it."""
        return next(role for role in self.operands if role != self.moved)


FPROP = WindowContraction(RESPONSE, (IMAGE, FILTER), ("tap", "own_channel"))
DGRAD = WindowContraction(IMAGE, (RESPONSE, FILTER), ("tap", "own_filter"))
WGRAD = WindowContraction(FILTER, (IMAGE, RESPONSE), ("batch", "output"))
