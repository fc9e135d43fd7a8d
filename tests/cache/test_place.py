"""Where the cache is, how large, and whether there is one."""

import platformdirs
import pytest

from dnnc.cache import place
from dnnc.errors import DnncError
from dnnc.store import LayeredStore, MemoryStore


@pytest.fixture
def unset(monkeypatch):
    for name in (place.SWITCH, place.DIRECTORY, place.SIZE):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_by_default_it_is_where_the_user_s_caches_are(unset):
    found = place.settings()
    assert found == place.Settings(platformdirs.user_cache_dir("dnnc"), 1 << 30)


def test_tests_have_none():
    assert place.settings() is None
    assert isinstance(place.store(), MemoryStore)


@pytest.mark.parametrize("value", ["0", "off", "OFF", "no", "false"])
def test_it_can_be_turned_off(unset, value):
    unset.setenv("DNNC_CACHE", value)
    assert place.settings() is None
    assert place.configured().max_bytes == 1 << 30


@pytest.mark.parametrize("value", ["", "1", "on", "True"])
def test_it_can_be_turned_on(unset, value):
    unset.setenv("DNNC_CACHE", value)
    assert place.settings() is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DNNC_CACHE", "/tmp/there"),
        ("DNNC_CACHE", "2"),
        ("DNNC_CACHE_SIZE", "much"),
        ("DNNC_CACHE_SIZE", "-1"),
        ("DNNC_CACHE_SIZE", "1.5G"),
    ],
)
def test_other_values_are_refused(unset, name, value):
    unset.setenv(name, value)
    with pytest.raises(DnncError, match=rf"environment: {name}={value}"):
        place.settings()


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096", 4096), ("5k", 5 << 10), ("500M", 500 << 20), ("2G", 2 << 30), ("2GiB", 2 << 30),
     ("10 MB", 10 << 20), ("0", 0)],
)  # fmt: skip
def test_sizes(unset, text, count):
    unset.setenv("DNNC_CACHE_SIZE", text)
    assert place.configured().max_bytes == count


def test_folders_are_absolute(unset, tmp_path):
    unset.chdir(tmp_path)
    unset.setenv("HOME", str(tmp_path))
    for given, there in (("here", "here"), ("~/there", "there")):
        unset.setenv("DNNC_CACHE_DIR", given)
        assert place.configured().directory == str(tmp_path / there)


def test_each_place_has_a_memory_of_its_own(cache, monkeypatch, tmp_path):
    first = place.store()
    assert isinstance(first, LayeredStore)
    assert place.store() is first
    first.put(f"plan-{0:064x}", b"one")
    monkeypatch.setenv("DNNC_CACHE_DIR", str(tmp_path / "other"))
    assert place.store().get(f"plan-{0:064x}") is None
