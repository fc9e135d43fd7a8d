"""tests/support/collecting.py: which tests are left out, and in which order files are imported."""

import importlib.util
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import collecting

TESTS = Path(__file__).parent
DEVICE_TESTS = sorted((TESTS / "gpu").rglob("test_*.py"))


def config(markexpr, *args):
    return SimpleNamespace(option=SimpleNamespace(markexpr=markexpr), args=list(args))


def test_tests_for_a_device_are_left_out_only_by_default():
    assert collecting.is_left_out(TESTS / "gpu", config(collecting.WITHOUT_GPU))
    assert not collecting.is_left_out(TESTS / "gpu", config("gpu"))
    assert not collecting.is_left_out(TESTS / "cli", config(collecting.WITHOUT_GPU))


def test_the_expression_is_the_default(pytestconfig):
    assert collecting.WITHOUT_GPU in pytestconfig.getini("addopts")


def test_tests_for_a_device_can_be_imported():
    """Nothing collects them here."""
    assert DEVICE_TESTS
    for path in DEVICE_TESTS:
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        spec = importlib.util.spec_from_file_location(name, path)
        with suppress(pytest.skip.Exception):  # of a file that needs a package
            spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize(("own", "mine"), [(0, ["a"]), (1, ["b", "c"])])
def test_processes_begin_with_different_files(own, mine, tmp_path, monkeypatch):
    """The files of other processes are imported later, by collecting; errors are met there."""
    imported = []

    def import_module(name):
        imported.append(name)
        if name.endswith("b"):
            pytest.skip("a package is missing", allow_module_level=True)
        raise ImportError

    for name in "abc":
        (tmp_path / f"test_{name}.py").write_text("")
    monkeypatch.setattr(collecting, "TESTS", tmp_path)
    monkeypatch.setattr(collecting.importlib, "import_module", import_module)
    monkeypatch.setattr(collecting.sys, "dont_write_bytecode", False)
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{own}")
    collecting.import_own_share(config("", "tests"))
    assert imported == [f"{tmp_path.name}.test_{name}" for name in mine]
