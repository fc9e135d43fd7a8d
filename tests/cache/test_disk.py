"""The store on disk: what it gives back, what it drops, and what it makes of damage."""

import logging
import os
import random

import pytest

from dnnc.cache import entry, write
from dnnc.cache.disk import DiskStore
from dnnc.store import LayeredStore, MemoryStore


def key(number, kind="cubin"):
    return f"{kind}-{number:064x}"


def store_in(path, max_bytes=1 << 20, salt=""):
    return DiskStore(path / "store", max_bytes, salt)


def files(store):
    return sorted(p for p in store.directory.rglob("*") if p.is_file())


def test_what_was_put_is_there_for_others(tmp_path):
    store_in(tmp_path).put(key(1), b"one")
    other = store_in(tmp_path)
    assert other.get(key(1)) == b"one"
    assert other.get(key(2)) is None
    assert other.get(key(1, "ptx")) is None


def test_other_sources_of_dnnc_have_other_entries(tmp_path):
    store_in(tmp_path, salt="old").put(key(1), b"old code")
    assert store_in(tmp_path, salt="new").get(key(1)) is None
    assert store_in(tmp_path, salt="old").get(key(1)) == b"old code"


def test_empty_data_is_an_entry(tmp_path):
    store = store_in(tmp_path)
    store.put(key(1), b"")
    assert store.get(key(1)) == b""


def test_an_entry_that_is_there_is_left_as_it_is(tmp_path):
    store = store_in(tmp_path)
    store.put(key(1), b"same")
    (file,) = files(store)
    before = file.stat().st_ino
    store_in(tmp_path).put(key(1), b"same")
    assert file.stat().st_ino == before


@pytest.mark.parametrize("damage", ["flip", "cut", "append", "empty"])
def test_altered_entries_are_removed_and_made_again(tmp_path, damage, caplog):
    store = store_in(tmp_path)
    store.put(key(1), bytes(range(200)))
    (file,) = files(store)
    data = file.read_bytes()
    draw = random.Random(damage)
    for _ in range(100 if damage == "flip" else 1):
        altered = {
            "flip": flipped(data, draw),
            "cut": data[:-1],
            "append": data + b"x",
            "empty": b"",
        }
        file.write_bytes(altered[damage])
        with caplog.at_level(logging.WARNING, "dnnc"):
            assert store.get(key(1)) is None
        assert "was altered" in caplog.text
        assert not file.exists()
        store.put(key(1), bytes(range(200)))
        assert store.get(key(1)) == bytes(range(200))


def flipped(data, draw):
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ draw.randrange(1, 256)]) + data[place + 1 :]


def test_an_entry_at_the_place_of_another_is_none(tmp_path):
    store = store_in(tmp_path)
    store.put(key(1), b"one")
    (first,) = files(store)
    store.put(key(2), b"two")
    (second,) = [file for file in files(store) if file != first]
    second.write_bytes(first.read_bytes())
    assert store.get(key(2)) is None
    assert store.get(key(1)) == b"one"


def test_verify_removes_what_was_altered_and_nothing_else(tmp_path):
    store = store_in(tmp_path)
    for number in range(5):
        store.put(key(number), b"data of %d" % number)
    bad = files(store)[2]
    bad.write_bytes(b"?" + bad.read_bytes()[1:])
    assert [found.path for found in store.verify()] == [bad]
    assert len(files(store)) == 4
    assert store.verify() == []
    assert sorted(filter(None, map(store.get, map(key, range(5)))))


def test_clear_leaves_what_is_no_entry(tmp_path):
    store = store_in(tmp_path)
    store.put(key(1), b"one")
    strange = [store.directory / "notes.txt", files(store)[0].with_name("notes.txt")]
    for file in strange:
        file.write_text("mine")
    assert len(store.clear()) == 1
    assert files(store) == sorted(strange)


# ---- the limit

SIZE = len(entry.encode("", bytes(1000)))


def test_entries_that_were_not_used_longest_are_dropped(tmp_path):
    store = store_in(tmp_path, max_bytes=4 * SIZE)
    for number in range(4):
        store.put(key(number), bytes(1000))
    for place, file in enumerate(files(store)):
        os.utime(file, (100 + place, 100 + place))
    kept = next(n for n in range(4) if store._path(key(n)) == files(store)[0])
    assert store.get(key(kept)) is not None  # the oldest by its time is used now
    store.put(key(4), bytes(1000))
    store.put(key(5), bytes(1000))
    there = [number for number in range(6) if store.get(key(number)) is not None]
    assert len(there) == 4
    assert {kept, 4, 5} <= set(there)
    assert sum(file.stat().st_size for file in files(store)) <= store.max_bytes


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path):
    store = store_in(tmp_path, max_bytes=SIZE)
    store.put(key(1), bytes(1000))
    store.put(key(2), bytes(1001))
    assert store.get(key(1)) == bytes(1000)
    assert store.get(key(2)) is None


def test_a_process_looks_at_the_whole_after_a_sixteenth_of_the_limit(tmp_path, monkeypatch):
    store = store_in(tmp_path, max_bytes=32 * SIZE)
    looks = []
    monkeypatch.setattr(store, "trim", lambda: looks.append(1))
    counts = []
    for number in range(7):
        store.put(key(number), bytes(1000))
        counts.append(len(looks))
    assert counts == [1, 1, 1, 2, 2, 2, 3]


def test_temporary_files_are_removed_when_nobody_writes_them_any_more(tmp_path):
    store = store_in(tmp_path)
    store.put(key(1), b"one")
    folder = files(store)[0].parent
    old, new = folder / f"{write.TEMPORARY}1", folder / f"{write.TEMPORARY}2"
    for file in (old, new):
        file.write_bytes(b"part")
    os.utime(old, (1, 1))
    store.trim()
    assert not old.exists()
    assert new.exists()
    assert len(list(store.entries())) == 1
    store.clear()
    assert files(store) == []


# ---- file systems that do not help


def test_without_files_without_names_one_is_renamed(tmp_path, monkeypatch):
    def refuse(path, data):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(write, "_write_unnamed", refuse)
    store = store_in(tmp_path)
    store.put(key(1), b"one")
    assert store.get(key(1)) == b"one"
    assert len(files(store)) == 1


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write.os, "link", full)
    monkeypatch.setattr(write.os, "replace", full)
    store = store_in(tmp_path)
    store.put(key(1), b"one")
    assert files(store) == []


def test_a_place_that_can_not_be_is_said_once_and_nothing_fails(tmp_path, caplog):
    (tmp_path / "store").write_text("a file")
    store = store_in(tmp_path)
    with caplog.at_level(logging.WARNING, "dnnc"):
        for number in range(3):
            store.put(key(number), b"one")
            assert store.get(key(number)) is None
    assert caplog.text.count("no cache in") == 1
    assert list(store.entries()) == store.verify() == store.clear() == []


# ---- memory in front of it


def test_memory_takes_what_the_disk_has(tmp_path):
    disk = store_in(tmp_path)
    disk.put(key(1), b"one")
    store = LayeredStore(MemoryStore(), disk)
    assert store.get(key(1)) == b"one"
    disk.clear()
    assert store.get(key(1)) == b"one"
    store.put(key(2), b"two")
    assert disk.get(key(2)) == b"two"
    assert store.get(key(3)) is None
