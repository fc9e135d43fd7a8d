"""The seed of inputs on a device: fresh each time, the same again by DNNC_TEST_SEED."""

import os
import secrets

# For processes that are started from here too, so that what is printed is what they use.
os.environ["DNNC_TEST_SEED"] = os.environ.get("DNNC_TEST_SEED") or str(secrets.randbelow(1 << 30))
BASE = int(os.environ["DNNC_TEST_SEED"])
