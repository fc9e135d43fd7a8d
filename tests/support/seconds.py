"""The seconds that each test took when it was last run, kept in pytest's cache."""

import json
from collections import defaultdict
from pathlib import Path

KEY = "dnnc/seconds"

_taken = defaultdict(float)


def add(report):
    """Adds the time of a test's setup, call or teardown."""
    _taken[report.nodeid] += report.duration


def write(config):
    """Keeps the times of this process, or of all workers where it leads them."""
    if _taken and not hasattr(config, "workerinput") and hasattr(config, "cache"):
        known = config.cache.get(KEY, {})
        new = {test: round(seconds, 3) for test, seconds in _taken.items()}
        config.cache.set(KEY, {**known, **new})


def read(root):
    """Test -> seconds, {} where no test was run below `root` before."""
    path = Path(root) / ".pytest_cache" / "v" / KEY
    return json.loads(path.read_text()) if path.exists() else {}
