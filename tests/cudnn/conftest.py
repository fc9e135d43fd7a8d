"""Fixtures of several tests."""

import sys

import pytest


@pytest.fixture
def no_cudnn(monkeypatch):
    """No `cudnn` is imported before, nor left."""
    kept = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "cudnn"}
    for name in kept:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn"]:
        del sys.modules[name]
    sys.modules.update(kept)
