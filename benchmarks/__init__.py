"""Benchmarks: our kernels beside torch and cuDNN, compile times, host times.

python -m benchmarks --help
"""
