"""The seed of inputs on a device: fresh each time, the same again by DNNC_TEST_SEED."""

import os
import secrets

BASE = int(os.environ.get("DNNC_TEST_SEED") or secrets.randbelow(1 << 30))
