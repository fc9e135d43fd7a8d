"""Verdicts that `tests.gpu.sanitize` makes of what the tool says, and the tests that it finds."""

import pytest

from tests.gpu.sanitize import by_file, one_of_each, verdict

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at f+0x10 and Read access at f+0x20
.                                                     [100%]
1 passed in 3.00s
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_each_function_has_its_turns():
    names = ["a.py::f[1]", "a.py::f[2]", "a.py::g", "b.py::f[3]"]
    assert one_of_each(names, 0) == ["a.py::f[1]", "a.py::g", "b.py::f[3]"]
    assert one_of_each(names, 3) == ["a.py::f[2]", "a.py::g", "b.py::f[3]"]
    assert by_file(names) == [names[:3], names[3:]]


@pytest.mark.parametrize(
    ("status", "said", "wrong"),
    [
        (0, "1 passed in 0.9s", ""),
        (86, RACE, "reported: Error: Race reported between Write"),
        (0, "1 skipped in 0.9s", "no pass (status 0): 1 skipped"),
        (1, "1 failed, 1 passed in 0.9s", "no pass (status 1): 1 failed"),
        (-11, "", "no pass (status -11)"),
    ],
)
def test_verdict(status, said, wrong):
    """The verdict of one test; where two were wanted, one that passes is not enough."""
    found = verdict(status, said)
    assert found.startswith(wrong)
    assert bool(found) == bool(wrong)
    assert verdict(status, said, 2)
