"""Tests of `dnnc.torch`, on the CPU; those on a device are in `tests/gpu/test_torch.py`."""
