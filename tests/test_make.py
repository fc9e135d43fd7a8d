"""`make` alone says what there is to make."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_make_alone_prints_every_target():
    done = subprocess.run(["make", "-C", ROOT, "-s"], capture_output=True, text=True, check=True)
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    shown = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")]
    assert shown
    assert sorted(shown) == sorted(phony.split())
    assert all(len(line.split()) > 2 for line in done.stdout.splitlines())
