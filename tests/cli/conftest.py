"""Graph files and a plan that the tests of the command line share."""

import pytest

from .commands import FFN, dnnc


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """ffn.py and ffn.dnnplan, its plan for sm_80 and sm_90a, one config for all sizes."""
    made = tmp_path_factory.mktemp("cli")
    (made / "ffn.py").write_text(FFN)
    plan = made / "ffn.dnnplan"
    options = ("--target", "sm_80,sm_90a", "--variants", "1")
    result = dnnc("compile", made / "ffn.py", *options, "-o", plan)
    assert result.exit_code == 0, result.output
    return made


@pytest.fixture
def ffn(folder):
    return folder / "ffn.py"


@pytest.fixture
def plan(folder):
    return folder / "ffn.dnnplan"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
