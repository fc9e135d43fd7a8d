"""Runs a few PTX instructions of sm_90a: kernels with tensor maps and clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dnnc.interpreter import Memory, launch, parse
from dnnc.interpreter.global_races import Watch
from dnnc.interpreter.tensor_map import encode
from dnnc.plan.plan import TensorMap

Array = np.ndarray[Any, Any]
SEEDS = range(6)

# An mbarrier for one arrival, and everybody knows it.
INIT = """
setp.ne.u32 %p0, %thread, 0;
@%p0 bra READY;
mbarrier.init.shared.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""


def wait(phase: int | str = 0, barrier: str = "bar") -> str:
    """The spin loop that MLIR writes."""
    return f"""{{
    .reg .pred P1;
    LAB_WAIT:
    mbarrier.try_wait.parity.shared.b64 P1, [{barrier}], {phase}, 10000000;
    @P1 bra.uni DONE;
    bra.uni LAB_WAIT;
    DONE:
    }}
    """


@dataclass(frozen=True)
class Map:
    """A tensor map over a buffer; dims, strides (bytes) and box are innermost first."""

    buffer: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    swizzle: str = "NONE"
    mode: str = "tiled"
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def encoded(self, address: int) -> bytes:
        steps = self.more.get("element_strides", (1,) * len(self.dims))
        more = {key: value for key, value in self.more.items() if key != "element_strides"}
        recipe = TensorMap(
            *(self.mode, 0, "0", self.dtype, (), (), steps),
            box=self.box,
            swizzle=self.swizzle,
            **more,
        )
        return encode(recipe, address, self.dims, self.strides)


def kernel(body: str, pointers: int, maps: int, block: int, smem: int) -> str:
    """Pointers in %ptr0.., addresses of maps in %map0..; `s` is for data, `bar` for mbarriers."""
    params = [f".param .u64 q{at}" for at in range(pointers)]
    params += [f".param .align 64 .b8 m{at}[128]" for at in range(maps)]
    loads = [f"ld.param.u64 %ptr{at}, [q{at}];" for at in range(pointers)]
    loads += [f"mov.b64 %map{at}, m{at}; cvta.param.u64 %map{at}, %map{at};" for at in range(maps)]
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.shared .align 1024 .b8 s[{smem}];
.shared .align 8 .b8 bar[64];
.visible .entry k({", ".join(params)})
.reqntid {block}, 1, 1
{{
.reg .pred %p<16>;
.reg .b16 %h<16>;
.reg .b32 %r<512>;
.reg .b64 %rd<32>;
.reg .b64 %ptr<8>;
.reg .b64 %map<8>;
.reg .b32 %thread;
.reg .b32 %cta;
{" ".join(loads)}
mov.u32 %thread, %tid.x;
mov.u32 %cta, %ctaid.x;
{body}
ret;
}}
"""


def run(
    body: str,
    *buffers: Array | tuple[int, Any],
    maps: tuple[Map, ...] = (),
    block: int = 32,
    grid: int = 1,
    cluster: int = 1,
    seed: int = 0,
    smem: int = 16384,
    allow_poison: bool = False,
    watch: Watch | None = None,
    **launched: Any,
) -> list[Array]:
    """Run a kernel of this body; returns the buffers given as (count, dtype).

    watch: of global memory."""
    memory = Memory()
    addresses: list[int] = []
    for buffer in buffers:
        nbytes = (
            buffer[0] * np.dtype(buffer[1]).itemsize if isinstance(buffer, tuple) else buffer.nbytes
        )
        addresses.append(memory.allocate(nbytes))
        if not isinstance(buffer, tuple):
            memory.upload(addresses[-1], buffer)
    params = [address.to_bytes(8, "little") for address in addresses]
    params += [each.encoded(addresses[each.buffer]) for each in maps]
    launch(
        parse(kernel(body, len(buffers), len(maps), block, smem)),
        "k",
        grid=(grid, 1, 1),
        block=(block, 1, 1),
        cluster=(cluster, 1, 1),
        params=params,
        memory=memory,
        seed=seed,
        step_limit=200_000,
        watch=watch,
        **launched,
    )
    return [
        memory.download(at, buffer[0] * np.dtype(buffer[1]).itemsize, allow_poison).view(buffer[1])
        for at, buffer in zip(addresses, buffers, strict=True)
        if isinstance(buffer, tuple)
    ]
