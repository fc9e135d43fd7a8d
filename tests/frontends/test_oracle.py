"""Inference against what cudnn-frontend was recorded to infer: tests/frontend_oracle."""

from pathlib import Path

import pytest

import dnnc
from tests.frontend_oracle import differences, methods, random_cases, steps

CASES = steps.recorded()["cases"]
LISTED = {name: row for row in differences.ROWS for name in row.cases}
GROUPS = ("random", "example", *dict.fromkeys(name.partition("/")[0] for name in methods.cases()))


def cases(group):
    return {name: case for name, case in CASES.items() if name.startswith(f"{group}/")}


@pytest.mark.parametrize("group", GROUPS)
def test_inference_is_the_frontends(group):
    module = steps.ours(dnnc, target="sm_90a")
    wrong = {}
    for name, case in cases(group).items():
        found = list(differences.problems(module, case))
        if bool(found) != (name in LISTED):
            wrong[name] = found or "equal, and listed as different"
    assert not wrong


def test_the_record_is_of_these_cases():
    """A record of other cases is to be recorded anew: see tests/frontend_oracle/record.py."""
    made = {**methods.cases(), **random_cases.cases()}
    for case in made.values():
        steps.expand(case, made)
    assert all(CASES[name]["steps"] == case["steps"] for name, case in made.items())
    others = {name for name in CASES if not name.startswith("example/")}
    assert others == made.keys()


def test_most_cases_are_recorded():
    """Every random graph, every method and every example has an outcome."""
    assert all({"results", "error"} & case.keys() for case in CASES.values())
    assert len(cases("random")) == random_cases.COUNT
    compared = [name for name in cases("random") if differences.inferred(CASES[name])]
    assert len(compared) > 0.9 * random_cases.COUNT


def test_differences_are_of_cases():
    assert set(LISTED) <= set(CASES)


def test_the_page_has_the_differences():
    page = (Path(__file__).parents[2] / "docs" / "cudnn.md").read_text()
    assert differences.table() in page


@pytest.mark.slow
def test_recorded_anew(tmp_path):
    """With the wheel of cudnn-frontend and the parts of cuDNN that it loads."""
    cudnn = pytest.importorskip("cudnn")
    from tests.frontend_oracle import record

    if cudnn.__version__ != record.VERSION:
        pytest.skip(f"cudnn-frontend {cudnn.__version__}, not {record.VERSION}")
    path = tmp_path / "recorded.json"
    path.write_text(steps.RECORDED.read_text())
    record.main(path)
    found, known = steps.recorded(path), steps.recorded()
    if found["versions"]["library"] != known["versions"]["library"]:
        pytest.skip("another cuDNN refuses other graphs")
    for each in (found, known):
        del each["cases"]["matmul/ranks"]  # whose dims are not initialised
    assert found == known
