"""Random graphs of operations that both modules have, a seed each, as steps."""

from __future__ import annotations

import random
from typing import Any

from .methods import BINARY, UNARY

COUNT = 300

_TYPES = ("@HALF", "@BFLOAT16", "@FLOAT")


class _Sketch:
    """A graph that grows; what it knows of a tensor is its dims, where inference gives them."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.steps: list[list[Any]] = []
        self.dims: dict[str, list[int]] = {}
        self.results: list[str] = []
        io, other = (self.rng.choice(_TYPES) for _ in range(2))
        self.types = f"{io} {other if self.rng.random() < 0.7 else '@FLOAT'} @FLOAT"

    def strides(self, dims: list[int]) -> list[int] | None:
        """None is row-major; else packed in some order, channels last, or with gaps."""
        way = self.rng.choice(("default", "packed", "order", "last", "gaps", "gaps"))
        order = list(range(len(dims)))
        if way == "order":
            self.rng.shuffle(order)
        if way == "last" and len(dims) > 2:
            order = [0, *order[2:], 1]
        if way == "default":
            return None
        strides, running = [0] * len(dims), 1
        for axis in reversed(order):
            strides[axis] = running
            gap = self.rng.choice((0, 0, 8)) if way == "gaps" else 0
            running = running * dims[axis] + gap
        return strides

    def tensor(self, dims: list[int], **more: Any) -> str:
        name = f"x{len(self.dims)}"
        given: dict[str, Any] = {"dim": dims, **more}
        if (strides := self.strides(dims)) is not None:
            given["stride"] = strides
        self.steps.append([name, "tensor", given])
        self.dims[name] = dims
        return name

    def do(self, method: str, dims: list[int], count: int = 1, **given: Any) -> list[str]:
        """Adds an operation whose first result has such dims, and gives its results' names."""
        place = len(self.results)
        names = [f"y{place + i}" for i in range(count)]
        if self.rng.random() < 0.4:
            given["name"] = f"n{place}"
        self.steps.append([" ".join(names), method, given])
        self.dims[names[0]] = dims
        self.results += names
        return names

    def set(self, name: str, setter: str, value: Any) -> None:
        self.steps.append([name, setter, [value]])

    def known(self) -> str:
        """A tensor to go on with: one of the graph, or a new one."""
        ready = [name for name in self.results if name in self.dims]
        if ready and self.rng.random() < 0.8:
            return self.rng.choice(ready[-3:])
        rank = self.rng.choice((3, 3, 4, 4, 4, 5))
        return self.tensor([self.rng.choice((1, 2, 3, 4, 6, 8)) for _ in range(rank)])

    def partner(self, dims: list[int]) -> str:
        """A tensor that broadcasts to dims, or has them."""
        same = [n for n in self.dims if self.dims[n] == dims]
        if same and self.rng.random() < 0.4:
            return self.rng.choice(same)
        return self.tensor([n if self.rng.random() < 0.6 else 1 for n in dims])

    # ---- operations

    def unary(self) -> None:
        x = self.known()
        self.do(self.rng.choice(UNARY), self.dims[x], input=f"${x}")

    def binary(self) -> None:
        x = self.known()
        pair = [x, self.partner(self.dims[x])]
        self.rng.shuffle(pair)
        method = self.rng.choice(sorted(BINARY))
        named = {key: f"${name}" for key, name in zip(BINARY[method], pair, strict=True)}
        self.do(method, self.dims[x], **named)

    def select(self) -> None:
        x = self.known()
        dims = self.dims[x]
        others = [self.partner(dims), self.partner(dims)]
        self.do("binary_select", dims, input0=f"${x}", input1=f"${others[0]}", mask=f"${others[1]}")

    def matmul(self) -> None:
        a = self.known()
        dims = self.dims[a]
        batch = [n if self.rng.random() < 0.7 else 1 for n in dims[:-2]]
        b = self.tensor([*batch, dims[-1], self.rng.choice((1, 4, 8))])
        self.do("matmul", [*dims[:-1], self.dims[b][-1]], A=f"${a}", B=f"${b}")

    def conv(self) -> None:
        x = self.known()
        dims = self.dims[x]
        taps = [self.rng.choice((1, 2, 3)) for _ in dims[2:]]
        w = self.tensor([self.rng.choice((4, 8)), dims[1], *taps])
        stride = [self.rng.choice((1, 1, 2)) for _ in taps]
        out = [1 + (n + 2 - r) // s for n, r, s in zip(dims[2:], taps, stride, strict=True)]
        each = {"padding": [1] * len(taps), "stride": stride, "dilation": [1] * len(taps)}
        dims = [dims[0], self.dims[w][0], *out]
        self.do("conv_fprop", dims, image=f"${x}", weight=f"${w}", **each)

    def reduce(self) -> None:
        x = self.known()
        dims = [1 if self.rng.random() < 0.4 else n for n in self.dims[x]]
        mode = self.rng.choice(("ADD", "MAX", "AMAX", "MIN"))
        (y,) = self.do("reduction", dims, input=f"${x}", mode=f"@reduction_mode.{mode}")
        self.set(y, "set_dim", dims)

    def transpose(self) -> None:
        x = self.known()
        order = list(range(len(self.dims[x])))
        self.rng.shuffle(order)
        dims = [self.dims[x][axis] for axis in order]
        self.do("transpose", dims, input=f"${x}", permutation=order)

    def slice(self) -> None:
        inputs = [n for n in self.dims if n.startswith("x") and max(self.dims[n]) > 1]
        if not inputs:  # of a result the frontend slices nothing: it knows its dims too late
            return
        x = self.rng.choice(inputs)
        parts, dims = [], []
        for n in self.dims[x]:
            start = self.rng.randrange(n)
            stop = self.rng.randint(start + 1, n)
            step = self.rng.choice((1, 1, 1, 2))
            parts.append(f":{start}:{stop}:{step}")
            dims.append(len(range(start, stop, step)))
        self.do("slice", dims, input=f"${x}", slices=parts)

    def reshape(self) -> None:
        x = self.known()
        dims = self.dims[x]
        at = self.rng.randrange(len(dims) - 1)
        joined = [*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]]
        (y,) = self.do("reshape", joined, input=f"${x}")
        self.set(y, "set_dim", joined)

    def concatenate(self) -> None:
        x = self.known()
        axis = self.rng.randrange(len(self.dims[x]))
        other = self.tensor([2 if i == axis else n for i, n in enumerate(self.dims[x])])
        dims = [n + 2 * (i == axis) for i, n in enumerate(self.dims[x])]
        (y,) = self.do("concatenate", dims, inputs=[f"${x}", f"${other}"], axis=axis)
        self.set(y, "set_dim", dims)

    def norm(self) -> None:
        x = self.known()
        dims = self.dims[x]
        per = [1, *dims[1:]]
        method = self.rng.choice(("layernorm", "rmsnorm", "instancenorm"))
        if method == "instancenorm":
            per = [1, dims[1], *[1] * (len(dims) - 2)]
        s, b = (self.tensor(per, data_type="@FLOAT") for _ in range(2))
        ones = [1] * len(dims)
        e = self.tensor(ones, data_type="@FLOAT", is_pass_by_value=True)
        count = 2 if method == "rmsnorm" else 3
        self.do(
            method, dims, count, norm_forward_phase="@norm_forward_phase.TRAINING",
            input=f"${x}", scale=f"${s}", bias=f"${b}", epsilon=f"${e}",
        )  # fmt: skip

    def statistics(self) -> None:
        x = self.known()
        dims = self.dims[x]
        self.do("genstats", [1, dims[1], *[1] * (len(dims) - 2)], 2, input=f"${x}")

    def finish(self) -> dict[str, Any]:
        """The case, its last result and some others being outputs, some of them set further."""
        for name in self.results:
            is_last = name == self.results[-1]
            if is_last or self.rng.random() < 0.25:
                self.set(name, "set_output", True)
                if self.rng.random() < 0.2:
                    self.set(name, "set_name", f"mine_{name}")
                if self.rng.random() < 0.2:
                    self.set(name, "set_data_type", self.rng.choice(_TYPES))
                if name in self.dims and self.rng.random() < 0.2:
                    strides = self.strides(self.dims[name])
                    if strides is not None:
                        self.set(name, "set_stride", strides)
        return {"types": self.types, "steps": self.steps}


_WAYS = {
    _Sketch.unary: 5, _Sketch.binary: 8, _Sketch.select: 1, _Sketch.matmul: 4, _Sketch.conv: 3,
    _Sketch.reduce: 3, _Sketch.transpose: 2, _Sketch.slice: 2, _Sketch.reshape: 2,
    _Sketch.concatenate: 1, _Sketch.norm: 2, _Sketch.statistics: 1,
}  # fmt: skip


def random_case(seed: int) -> dict[str, Any]:
    """The case of a seed: one to six operations."""
    sketch = _Sketch(seed)
    for _ in range(sketch.rng.randint(1, 6)):
        (way,) = sketch.rng.choices(list(_WAYS), list(_WAYS.values()))
        way(sketch)
    if not sketch.results:
        sketch.unary()
    return sketch.finish()


def cases() -> dict[str, Any]:
    """COUNT cases, by their seeds."""
    return {f"random/{seed}": random_case(seed) for seed in range(COUNT)}
