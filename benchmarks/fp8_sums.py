"""How far sums of fp8 products are off, on a GPU: the table of docs/numerics.md.

python -m benchmarks.fp8_sums
"""

from __future__ import annotations

import math

import torch

import dnnc

DEPTHS = (32, 64, 96, 128, 160, 256, 512, 1024, 4096)
RANGES = ((0.25, 2.0), (1.0, 2.0), (-1.0, 1.0), (0.01, 448.0))
SIDE = 256  # rows and columns of the product


def operand(k: int, low: float, high: float) -> torch.Tensor:
    """[1, SIDE, k] of e4m3, uniform."""
    wide = torch.empty(1, SIDE, k, device="cuda").uniform_(low, high)
    return wide.to(torch.float8_e4m3fn)


def main() -> None:
    for compute in (dnnc.data_type.FAST_FLOAT_FOR_FP8, dnnc.data_type.FLOAT):
        for k in DEPTHS:
            g = dnnc.pygraph("sums", io_data_type="FP8_E4M3", target="sm_90a")
            a, b = g.tensor([1, SIDE, k]), g.tensor([1, k, SIDE], [SIDE * k, 1, k])
            c = g.matmul(a, b, compute_data_type=compute).set_output().set_data_type("FLOAT")
            g.build()
            for low, high in RANGES:
                x, w = operand(k, low, high), operand(k, low, high)
                y = torch.empty(1, SIDE, SIDE, device="cuda")
                g.execute({a: x, b: w.mT, c: y})
                torch.cuda.synchronize()
                exact = x.double() @ w.double().mT
                off = (y.double() - exact) / (x.double().abs() @ w.double().abs().mT)
                worst = math.log2(max(float(off.abs().max()), 2.0**-60))
                print(
                    f"{compute} K={k} {low} to {high}: worst 2^{worst:.2f}, mean {off.mean():.2e}"
                )


if __name__ == "__main__":
    main()
