"""Options, hooks and fixtures of all tests."""

import gc
import os

import pytest

from tests.support import assembler, collecting, known_registers, rotation, seconds, seeds

# Tests whose kernels are interpreted, and not assembled without the mark `assembled`.
INTERPRETED = ("tests/engines/", "tests/choosing/", "tests/test_random_")


def pytest_addoption(parser):
    parser.addoption(
        "--sass",
        action="store_true",
        help="check that the SASS of every kernel that a test assembles waits for its products",
    )
    parser.addoption(
        "--assemble",
        action="store_true",
        help="assemble the kernels of all tests, also of those that only interpret the PTX",
    )

    parser.addoption(
        "--write-registers",
        action="store_true",
        help="assemble the kernels of tests marked `registers`, and write known_registers.txt",
    )


def pytest_configure(config):
    if config.getoption("--sass"):
        from tests.support.sass_plugin import SassPlugin

        config.pluginmanager.register(SassPlugin(), "sass")


def pytest_report_header():
    part = os.environ[rotation.VARIABLE]
    return [
        f"dnnc: inputs on a device start from DNNC_TEST_SEED={seeds.BASE}",
        f"dnnc: of rotating tests, the part of {rotation.VARIABLE}={part} is run",
    ]


def pytest_ignore_collect(collection_path, config):
    return collecting.is_left_out(collection_path, config) or None


def pytest_collection(session):
    collecting.import_own_share(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out the other parts of rotating tests; a test that is named is run, and so is one that
    is near to what `make check` is asked about."""
    if any("::" in argument for argument in config.args):
        return
    lane = config.pluginmanager.get_plugin("lane")
    near = frozenset() if lane is None else lane.near
    kept, left = rotation.kept_and_left(items, near=near)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Around the fixtures of the test too, which compile."""
    assemble = _assembler_of(item)
    if assemble is None:
        return (yield)
    with assembler.replaced_by(assemble):
        return (yield)


def _assembler_of(item):
    """The function that replaces the assembler in a test; None: nothing does."""
    is_wanted = any(map(item.config.getoption, ("--assemble", "--sass")))
    if is_wanted or item.get_closest_marker("assembled") or not item.nodeid.startswith(INTERPRETED):
        return None
    return (
        assembler.with_registers if item.get_closest_marker("registers") else assembler.unassembled
    )


def pytest_runtest_logreport(report):
    seconds.add(report)


def pytest_sessionfinish(session):
    """Keeps the seconds of tests; passes what was assembled to the file, or to the parent."""
    seconds.write(session.config)
    if session.config.getoption("--write-registers"):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["registers"] = known_registers.found
        else:
            known_registers.write(known_registers.found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    known_registers.found.update(getattr(node, "workeroutput", {}).get("registers", {}))


def pytest_collection_finish():
    """Ten thousand tests and what they import stay: the collector need not look at them again and
    again, which takes a sixth of the time that compiling and interpreting does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def no_cache(tmp_path_factory):
    """Tests compile, and keep away from the cache of whoever runs them; so do their children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNC_CACHE", "0")
        patch.setenv("DNNC_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, turned on; gives its folder."""
    monkeypatch.setenv("DNNC_CACHE", "1")
    monkeypatch.setenv("DNNC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
