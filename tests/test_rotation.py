"""Which tests a commit runs: each comes, tests that patch names of the package at each commit."""

from types import SimpleNamespace

import pytest

from .support import rotation

TURNS = range(0, rotation._CYCLE * rotation.TURNS, rotation._CYCLE)


def item(name, marks="", patches=False):
    function = (lambda monkeypatch: None) if patches else (lambda: None)
    return SimpleNamespace(
        nodeid=name, function=function, get_closest_marker=lambda mark: mark in marks
    )


def kept(items, number):
    runs, left = rotation.kept_and_left(items, number)
    assert sorted(runs + left, key=items.index) == items
    return {one.nodeid for one in runs}


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_all_parts_are_all_of_a_rotating_test_and_each_has_some(count):
    commits = range(7, 7 + min(rotation.PARTS, count))
    parts = [rotation.chosen(range(count), number) for number in commits]
    assert sorted(case for part in parts for case in part) == list(range(count))
    assert all(parts)
    assert rotation.chosen(range(count), None) == list(range(count))


def test_a_part_has_values_of_every_parameter():
    sizes = rotation.PARTS
    cases = [f"test[{kind}-{size}]" for kind in "abcdef" for size in range(sizes)]
    mixed = rotation.mixed(cases)
    assert sorted(mixed) == cases
    for number in range(rotation.PARTS):
        part = rotation.chosen(mixed, number)
        assert len(part) == 6
        assert len({case[-2] for case in part}) > 1  # every one in order would be one size


def test_a_part_of_a_files_tests_comes_in_turn():
    """With all their cases, but for those that rotate besides."""
    marks = {"a.py::x": "in_turn", "a.py::y[0]": "in_turn", "a.py::y[1]": "in_turn",
             "a.py::z[0]": "in_turn rotating", "a.py::z[1]": "in_turn rotating",
             "a.py::always": "", "b.py::alone": "in_turn",
             "tests/gpu/c.py::x": "in_turn", "tests/gpu/c.py::y": "in_turn"}  # fmt: skip
    items = [item(*one) for one in marks.items()]
    everywhere = {"a.py::always", "b.py::alone", "tests/gpu/c.py::x", "tests/gpu/c.py::y"}
    runs = [kept(items, number) for number in TURNS]
    assert all(everywhere <= run for run in runs)
    assert {tuple(sorted(run - everywhere)) for run in runs} == {
        ("a.py::x",), ("a.py::y[0]", "a.py::y[1]"), ("a.py::z[0]",)
    }  # fmt: skip
    assert rotation.kept_and_left(items, 0, near={"a.py"}) == (items, [])


def test_each_case_of_a_test_that_rotates_and_is_in_turn_comes():
    items = [
        item(f"a.py::{a}[{n}]", "in_turn rotating") for a in range(rotation.TURNS) for n in "abc"
    ]
    runs = [kept(items, number) for number in range(0, TURNS.stop, 7)]
    assert {len(run) for run in runs} == {1}
    assert set().union(*runs) == {one.nodeid for one in items}


def test_what_patches_names_is_never_out_of_turn():
    items = [item(f"a.py::{a}", "in_turn") for a in range(12)]
    patching = item("a.py::patching", "in_turn", patches=True)
    runs = [kept([*items, patching], number) for number in TURNS]
    assert all(patching.nodeid in run and len(run) < len(items) for run in runs)
