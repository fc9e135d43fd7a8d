"""What all tests share."""

import gc

import pytest

from tests.support import seeds


def pytest_addoption(parser):
    parser.addoption(
        "--sass",
        action="store_true",
        help="check that the SASS of every kernel that a test assembles waits for its products",
    )


def pytest_configure(config):
    if config.getoption("--sass"):
        from tests.support.sass_plugin import SassPlugin

        config.pluginmanager.register(SassPlugin(), "sass")


def pytest_report_header():
    return f"dnnc: inputs on a device start from DNNC_TEST_SEED={seeds.BASE}"


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
