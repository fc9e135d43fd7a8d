"""What all tests share."""

import pytest

from tests.support import seeds


def pytest_report_header():
    return f"dnnc: inputs on a device start from DNNC_TEST_SEED={seeds.BASE}"


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
