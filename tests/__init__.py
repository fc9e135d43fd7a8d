"""Tests of dnnc, and what they share."""

import os

# Tests run in a process for each core: threads of NumPy's products would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
