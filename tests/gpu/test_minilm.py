"""The demo's encoder on the device: every step, the sentences' vectors, the carried files."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="the demo's extra is not installed")
pytest.importorskip("safetensors", reason="the demo's extra is not installed")

from demo import model
from demo.carried import FILE
from demo.run_plans import BUNDLE

ROOT = Path(__file__).parents[2]


def python(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the demo has written its files."""
    try:
        model.model_folder()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    made = tmp_path_factory.mktemp("demo")
    done = python("-m", "demo", "--out", made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All are within what is allowed." in done.stdout
    assert "by the plans on the device" in done.stdout
    return made


def test_the_carried_files(folder):
    assert {BUNDLE, FILE} <= {path.name for path in folder.iterdir()}
    done = python("-m", "demo.run_plans", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 plans of" in done.stdout
    assert "all match float64" in done.stdout
