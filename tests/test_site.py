"""The documentation site builds without a warning, and shows every public name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dnnc
from dnnc.frontends.operations import Operations

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(made)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return made


def test_the_readme_is_the_first_page(site):
    text = (site / "index.html").read_text()
    assert "60 seconds" in text
    assert 'href="pygraph/"' in text
    assert (site / "pictures" / "pipeline.svg").exists()


def test_the_reference_has_every_public_name(site):
    text = (site / "reference" / "index.html").read_text()
    headings = set(re.findall(r'<h2 id="[^"]*">dnnc\.(\w+)', text))
    assert headings == set(dnnc._LAZY)
    operations = {name for name in vars(Operations) if not name.startswith("_")}
    assert operations <= set(re.findall(r'<h3 id="[^"]*">(\w+)', text))


def test_links_to_files_that_are_no_pages_are_words(site):
    assert not list(site.rglob("*.py"))
    assert "tests/" not in "".join(
        re.findall(r'href="([^"]*)"', (site / "support" / "index.html").read_text())
    )
