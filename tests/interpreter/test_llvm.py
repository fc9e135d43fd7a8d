"""Kernels as LLVM's NVPTX back end writes them.

The files in `ptx/` were made with the MLIR bindings (LLVM 23) from `llvm.func` kernels in a
`gpu.module`, with the pass pipeline of the compiler and libdevice linked in:
  math.ptx       one function of the math dialect a kernel: exp, erf, sin, ..., float32 and float64
  pointwise.ptx  max(fma(erf(x / 2), x / 2, 1), 1) of bf16, eight elements a thread
  softmax.ptx    a row a CTA: shuffles, then shared memory, for the maximum and for the sum
  gemm.ptx       f16 in and out, 64x64x32 tiles, 3 stages of cp.async, ldmatrix, mma.sync m16n8k16
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dnnc.interpreter import InterpreterError, Memory, Module, Report, launch, parse

from .lanes import fails_within

Array = np.ndarray[Any, Any]


@cache
def module(name: str) -> Module:
    return parse((Path(__file__).parent / "ptx" / f"{name}.ptx").read_text())


def without(made: Module, kernel: str, index: int) -> Module:
    """The module with instruction `index` of a function removed."""
    function = made.function(kernel)
    labels = {name: at - (at > index) for name, at in function.labels.items()}
    kept = function.instructions[:index] + function.instructions[index + 1 :]
    shorter = replace(function, instructions=kept, labels=labels)
    return Module(made.version, made.target, {**made.functions, kernel: shorter}, made.variables)


def pointer(address: int) -> bytes:
    return address.to_bytes(8, "little")


def word(value: int) -> bytes:
    return value.to_bytes(4, "little")


# math -------------------------------------------------------------------------------------

# Units in the last place that libdevice's documentation allows, plus the reference's half.
FUNCTIONS: dict[str, tuple[Any, float]] = {
    "exp": (np.exp, 2),
    "erf": (np.vectorize(math.erf), 2),
    "tanh": (np.tanh, 2),
    "sin": (np.sin, 2),
    "log": (np.log, 1),
    "pow": (lambda x: x**2.75, 4),
}


@pytest.mark.parametrize("name", module("math").kernels)
def test_libdevice(name: str):
    function, _, width = name.partition("_")
    dtype = np.float32 if width == "f32" else np.float64
    rng = np.random.default_rng(0)
    # Large arguments take the slow path of the range reduction, through local memory or a call.
    x = np.concatenate(
        [rng.normal(size=300) * 3, rng.normal(size=60) * 1e6, rng.normal(size=40) * 1e-5]
    ).astype(dtype)
    memory = Memory()
    source, target = memory.allocate(x.nbytes), memory.allocate(x.nbytes)
    memory.upload(source, x)
    launch(
        module("math"),
        name,
        grid=(4, 1, 1),
        block=(128, 1, 1),
        params=[pointer(source), pointer(target), word(x.size)],
        memory=memory,
        seed=1,
    )
    got = memory.download(target, x.nbytes).view(dtype)
    reference, ulps = FUNCTIONS[function]
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        want = exact.astype(dtype)
    assert (np.isnan(got) == np.isnan(want)).all()
    finite = np.isfinite(want) & np.isfinite(got)
    assert (got[~finite & ~np.isnan(want)] == want[~finite & ~np.isnan(want)]).all()
    error = np.abs(got[finite].astype(np.float64) - exact[finite])
    assert (error / np.spacing(np.abs(want[finite]))).max() <= ulps


# pointwise --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_pointwise(seed: int):
    count = 4096
    x = (np.random.default_rng(0).normal(size=count) * 3).astype(ml_dtypes.bfloat16)
    memory = Memory()
    source, target = memory.allocate(2 * count), memory.allocate(2 * count)
    memory.upload(source, x)
    params = [pointer(source), pointer(target), word(count), bytes(8)]
    launch(module("pointwise"), "k", grid=(3, 1, 1), block=(256, 1, 1), params=params,
           memory=memory, seed=seed)  # fmt: skip
    got = memory.download(target, 2 * count).view(ml_dtypes.bfloat16).astype(np.float64)
    half = x.astype(np.float64) / 2
    want = np.maximum(np.vectorize(math.erf)(half) * half + 1, 1)
    assert np.abs(got - want).max() <= 2.0**-8 * np.abs(want).max()


# softmax ----------------------------------------------------------------------------------


def softmax(made: Module, seed: int, n: int = 300) -> None:
    rows = 3
    x = np.random.default_rng(0).normal(size=(rows, n)).astype(np.float32)
    memory = Memory()
    source, target = memory.allocate(x.nbytes), memory.allocate(x.nbytes)
    memory.upload(source, x)
    launch(made, "softmax", grid=(rows, 1, 1), block=(128, 1, 1),
           params=[pointer(source), pointer(target), word(n)],
           memory=memory, seed=seed)  # fmt: skip
    got = memory.download(target, x.nbytes).view(np.float32).reshape(rows, n)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True)
    assert np.abs(got / want - 1).max() < 1e-6


@pytest.mark.parametrize("seed", range(10))
def test_softmax(seed: int):
    softmax(module("softmax"), seed)


@pytest.mark.parametrize("n", [1, 31, 128, 129])
def test_softmax_of_short_rows(n: int):
    softmax(module("softmax"), 0, n)


BARRIERS = module("softmax").function("softmax").indices("bar.sync")


def test_softmax_has_the_barriers_that_are_removed():
    assert len(BARRIERS) == 3


@pytest.mark.parametrize("index", BARRIERS)
def test_softmax_needs_each_barrier(index: int):
    mutant = without(module("softmax"), "softmax", index)
    assert "race" in fails_within(1, lambda seed: softmax(mutant, seed))


# gemm -------------------------------------------------------------------------------------

M, N, K = 64, 128, 160


def gemm(made: Module, seed: int) -> Report:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(M, K)).astype(np.float16)
    b = rng.normal(size=(N, K)).astype(np.float16)
    memory = Memory()
    at, bt, ct = (memory.allocate(2 * size, name) for size, name in
                  ((M * K, "A"), (N * K, "B"), (M * N, "C")))  # fmt: skip
    memory.upload(at, a)
    memory.upload(bt, b)
    params = [pointer(at), pointer(bt), pointer(ct), word(N), word(K)]
    report = launch(made, "gemm", grid=(N // 64, M // 64, 1), block=(128, 1, 1), params=params,
                    memory=memory, dynamic_smem_bytes=3 * 8192, seed=seed)  # fmt: skip
    got = memory.download(ct, 2 * M * N).view(np.float16).reshape(M, N)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    # Sums are rounded to float32 after each instruction, then once to f16.
    assert np.abs(got - want).max() <= np.spacing(np.float16(np.abs(want).max()))
    return report


@pytest.mark.parametrize("seed", range(10))
def test_gemm(seed: int):
    gemm(module("gemm"), seed)


def test_the_seed_decides_the_schedule():
    reports = [gemm(module("gemm"), seed) for seed in range(8)]
    assert {report.style for report in reports} == {"together", "apart", "cta by cta"}
    assert gemm(module("gemm"), 3) == reports[3]


SYNCHRONISATION = [
    index
    for opcode in ("cp.async.wait_group", "cp.async.commit_group", "bar.sync", "cp.async.cg")
    for index in module("gemm").function("gemm").indices(opcode)
]


@pytest.mark.parametrize("index", SYNCHRONISATION)
def test_gemm_needs_each_wait_and_barrier(index: int):
    mutant = without(module("gemm"), "gemm", index)
    message = fails_within(20, lambda seed: gemm(mutant, seed))
    assert "race" in message or "poison" in message or "in flight" in message


def test_gemm_with_too_little_shared_memory():
    made = module("gemm")
    memory = Memory()
    addresses = [memory.allocate(2 * size) for size in (64 * 64, 64 * 64, 64 * 64)]
    for address in addresses[:2]:
        memory.upload(address, np.zeros((64, 64), np.float16))
    params = [*(pointer(address) for address in addresses), word(64), word(64)]
    with pytest.raises(InterpreterError, match=r"outside the 16368 bytes of shared memory"):
        launch(made, "gemm", grid=(1, 1, 1), block=(128, 1, 1), params=params, memory=memory,
               dynamic_smem_bytes=2 * 8192 - 16)  # fmt: skip
