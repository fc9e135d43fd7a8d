"""Operations of a training step behind the loss, as graphs: gradients, and the update.

A batch norm's gradient takes two steps.  Whatever computes the gradient g of its result also sums
g and g * y by channel, at the exit of the same kernel; then dy = factor_g * g + factor_y * y +
offset.  g is masked by the ReLU that follows the norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from .network import AveragePool, Conv, Linear, MaxPool, Shape
from .training_graphs import (
    BACKOFF,
    GROWTH,
    GROWTH_INTERVAL,
    MOMENTUM,
    WEIGHT_DECAY,
    Graph,
    filter_of,
    sizes_of,
    spatial,
    windows_of,
)


@dataclass(frozen=True)
class LogitsFilter:
    """dw = dlogits transposed times x."""

    linear: Linear

    @property
    def id(self) -> str:
        return f"dw-{self.linear.id}"

    def add(self, made: Graph, n: int) -> None:
        classes, channels = self.linear.w_shape
        dlogits = made.transposed("dlogits", n, classes)
        dw = made.ops.matmul(dlogits, made.matrix("x", n, channels))
        made.output(dw, "dw", "f32")


@dataclass(frozen=True)
class LogitsBias:
    """dbias: dlogits summed over the images."""

    linear: Linear

    @property
    def id(self) -> str:
        return f"dbias-{self.linear.id}"

    def add(self, made: Graph, n: int) -> None:
        classes = self.linear.classes
        dlogits = made.matrix("dlogits", n, classes)
        made.output(made.ops.reduction(dlogits, "ADD").set_dim([1, 1, classes]), "dbias", "f32")


@dataclass(frozen=True)
class LogitsImage:
    """dx = dlogits times w."""

    linear: Linear

    @property
    def id(self) -> str:
        return f"dx-{self.linear.id}"

    def add(self, made: Graph, n: int) -> None:
        classes, channels = self.linear.w_shape
        dlogits = made.matrix("dlogits", n, classes)
        made.output(made.ops.matmul(dlogits, made.matrix("w", classes, channels)), "dx")


@dataclass(frozen=True)
class AverageGradient:
    """g of the activation that is averaged, and the gradients of its norms (one or two)."""

    pool: AveragePool
    norms: int

    @property
    def id(self) -> str:
        return f"dx-{self.pool.id}-{self.norms}norm"

    def add(self, made: Graph, n: int) -> None:
        shape = self.pool.x_shape
        dx = made.image("dx", n, (1, 1, self.pool.channels))
        spread = made.ops.mul(dx, 1.0 / (shape[0] * shape[1]))
        g = made.ops.relu_backward(spread, made.image("a", n, shape))
        _norms(made, made.output(g, "g"), n, shape, self.norms)


@dataclass(frozen=True)
class NormGradient:
    """dy, once the sums over g are known."""

    shape: Shape

    @property
    def id(self) -> str:
        h, w, c = self.shape
        return f"dnorm-{h}x{w}x{c}"

    def add(self, made: Graph, n: int) -> None:
        ops, c = made.ops, self.shape[-1]
        of_g = ops.mul(made.image("g", n, self.shape), made.channels("factor_g", c))
        of_y = ops.mul(made.image("y", n, self.shape), made.channels("factor_y", c))
        made.output(ops.add(ops.add(of_g, of_y), made.channels("offset", c)), "dy")


@dataclass(frozen=True)
class FilterGradient:
    """dw in f32."""

    conv: Conv

    @property
    def id(self) -> str:
        return f"dw-{sizes_of(self.conv)}"

    def add(self, made: Graph, n: int) -> None:
        conv = self.conv
        x, dy = made.image("x", n, conv.x_shape), made.image("dy", n, conv.y_shape)
        dw = made.ops.conv_wgrad(x, dy, **spatial(conv))
        shape = [conv.filters, conv.channels, conv.taps, conv.taps]
        made.output(dw.set_dim(shape), "dw", "f32")


@dataclass(frozen=True)
class ImageGradient:
    """The gradient of a convolution's image, masked, and the gradients of the norms before it.

    has_residual: whether another gradient is added first.  mask: "none"; "norm": by the norm of
    y, which is computed again; "activation": by a, which was kept.  norms: 0 to 2.
    """

    conv: Conv
    has_residual: bool = False
    mask: str = "none"
    norms: int = 0

    @property
    def id(self) -> str:
        residual = "-add" if self.has_residual else ""
        return f"dx-{sizes_of(self.conv)}{residual}-{self.mask}-{self.norms}norm"

    def add(self, made: Graph, n: int) -> None:
        conv, ops, shape = self.conv, made.ops, self.conv.x_shape
        dy, w = made.image("dy", n, conv.y_shape), filter_of(made, conv)
        dims = [n, conv.channels, conv.size, conv.size]
        g = ops.conv_dgrad(dy, w, **spatial(conv)).set_dim(dims)
        if self.has_residual:
            g = ops.add(g, made.image("residual", n, shape))
        if self.mask == "activation":
            g = ops.relu_backward(g, made.image("a", n, shape))
            _norms(made, made.output(g, "g"), n, shape, self.norms)
        elif self.mask == "norm":
            _masked_by_norm(made, g, n, shape)
        else:
            made.output(g, "g")


@dataclass(frozen=True)
class PoolGradient:
    """g of the activation that is pooled, and the gradients of its norm."""

    pool: MaxPool

    @property
    def id(self) -> str:
        return f"dx-{self.pool.id}"

    def add(self, made: Graph, n: int) -> None:
        pool, types = self.pool, made.types
        h, w, c = pool.x_shape
        dy = made.image("dy", n, pool.y_shape)
        index = made.image("index", n, pool.y_shape, "i8")
        g = made.ops.resample_backward(loss=dy, index=index, **windows_of(pool))
        g.set_dim([n, c, h, w]).set_stride([h * w * c, 1, w * c, c]).set_data_type(types["f16"])
        _masked_by_norm(made, g, n, pool.x_shape)


def _masked_by_norm(made: Graph, g, n: int, shape: Shape) -> None:
    """Masks g by the ReLU after y's norm; outputs g and the norm's gradients."""
    y = made.image("y", n, shape)
    g = made.output(made.ops.relu_backward(g, made.normalized(y, shape[-1])), "g")
    made.norm_gradients(g, y, shape[-1])


def _norms(made: Graph, g, n: int, shape: Shape, count: int) -> None:
    """Gradients of the norms whose results were added up to what g is the gradient of."""
    for suffix in ("", "2")[:count]:
        made.norm_gradients(g, made.image("y" + suffix, n, shape), shape[-1], suffix)


@dataclass(frozen=True)
class CheckGradients:
    """Whether all gradients are finite, and the loss scale of the next step.

    is_good: 1 or 0.  A step whose gradients are not all finite halves the scale; GROWTH_INTERVAL
    good ones, one after the other, double it.
    """

    parameters: int

    @property
    def id(self) -> str:
        return f"check-{self.parameters}"

    def add(self, made: Graph, n: int) -> None:
        ops = made.ops
        scale, steps = (made.channels(name, 1) for name in ("loss_scale", "good_steps"))
        # An infinity times zero is NaN, as NaN is, and so is any sum with one.
        flaws = ops.mul(made.image("gradient", 1, (1, 1, self.parameters), "f32"), 0.0)
        is_good = ops.cmp_eq(ops.reduction(flaws, "ADD").set_dim([1, 1, 1, 1]), 0.0)
        count = ops.add(steps, 1.0)
        is_due = ops.cmp_ge(count, float(GROWTH_INTERVAL))
        grown = ops.mul(scale, ops.binary_select(GROWTH, 1.0, is_due))
        kept = ops.binary_select(0.0, count, is_due)
        next_scale = ops.binary_select(grown, ops.mul(scale, BACKOFF), is_good)
        made.output(next_scale, "next_loss_scale", "f32")
        made.output(ops.binary_select(kept, 0.0, is_good), "next_good_steps", "f32")
        made.output(ops.binary_select(1.0, 0.0, is_good), "is_good", "f32")


@dataclass(frozen=True)
class Update:
    """SGD with momentum and weight decay, of all parameters; and their copies in f16.

    velocity' = MOMENTUM * velocity + gradient / loss_scale + WEIGHT_DECAY * master,
    master' = master - rate * velocity'; where the step is not good, both stay as they are.
    """

    parameters: int

    @property
    def id(self) -> str:
        return f"update-{self.parameters}"

    def add(self, made: Graph, n: int) -> None:
        ops = made.ops
        names = ("master", "velocity", "gradient")
        master, velocity, gradient = (
            made.matrix(name, 1, self.parameters, "f32") for name in names
        )
        names = ("loss_scale", "rate", "is_good")
        scale, rate, good = (made.matrix(name, 1, 1, "f32") for name in names)
        is_good = ops.cmp_gt(good, 0.0)
        step = ops.add(ops.mul(velocity, MOMENTUM), ops.div(gradient, scale))
        step = ops.add(step, ops.mul(master, WEIGHT_DECAY))
        made.output(ops.binary_select(step, velocity, is_good), "next_velocity", "f32")
        after = ops.binary_select(ops.sub(master, ops.mul(step, rate)), master, is_good)
        made.output(after, "next_master", "f32")
        made.output(ops.identity(after), "half")
