"""`dnnc bundle`, and what other commands make of its file."""

import dataclasses

import pytest

import dnnc as package
from dnnc.plan import format
from tests.plan.plans import WHOLE

from .commands import SCALED, dnnc, error_of


@pytest.fixture
def files(here):
    """a.dnnplan and b.dnnplan, both called "whole", and c.dnnplan, called "other"."""
    for name, plan in (("a", WHOLE), ("b", WHOLE), ("c", dataclasses.replace(WHOLE, name="other"))):
        format.write(f"{name}.dnnplan", plan)
    return here


def test_plans_come_together(files):
    result = dnnc("bundle", "m.dnnplan", "a.dnnplan", "c.dnnplan", "third=b.dnnplan")
    assert result.exit_code == 0, result.output
    shared = 2 * sum(map(len, WHOLE.blobs))
    size = (files / "m.dnnplan").stat().st_size
    assert result.stdout.splitlines() == [
        f"m.dnnplan: 3 plans, {size:,} bytes",
        f"shared     {shared:,} bytes of code that several plans have",
        "plan       whole (sm_90a, sm_80)",
        "plan       other (sm_90a, sm_80)",
        "plan       third (sm_90a, sm_80)",
    ]
    bundle = package.load_bundle("m.dnnplan")
    assert bundle.names == ("whole", "other", "third")
    assert bundle["whole"].plan == WHOLE
    assert bundle["third"].plan == dataclasses.replace(WHOLE, name="third")
    listed = dnnc("inspect", "m.dnnplan").stdout
    assert listed.startswith("bundle of 3 plans")
    assert "third" in listed


def test_bundles_of_bundles(files):
    assert dnnc("bundle", "m.dnnplan", "a.dnnplan", "c.dnnplan").exit_code == 0
    assert dnnc("bundle", "n.dnnplan", "m.dnnplan", "more=b.dnnplan").exit_code == 0
    assert format.Bundle("n.dnnplan").names == ("whole", "other", "more")


def test_a_path_may_hold_an_equals_sign(files):
    (files / "x=y").mkdir()
    format.write("x=y/d.dnnplan", WHOLE)
    assert dnnc("bundle", "m.dnnplan", "x=y/d.dnnplan", "n=x=y/d.dnnplan").exit_code == 0
    assert format.Bundle("m.dnnplan").names == ("whole", "n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.dnnplan", "b.dnnplan"],
         "BAD_PARAM_DUPLICATED_ENTRIES: a.dnnplan, b.dnnplan: several plans are called 'whole'; "
         "accepted: a name each: NAME=FILE gives another"),
        (["both=two.dnnplan"], "names a bundle of 2 plans; accepted: NAME=FILE of a file with one"),
        (["missing.dnnplan"], "missing.dnnplan: can't be read"),
        (["a.json"], "suffix '.json'; accepted: .dnnplan"),
        (["broken.dnnplan"], "truncated, altered or no plan"),
    ],
)  # fmt: skip
def test_what_can_not_be_a_bundle(files, arguments, said):
    format.write("two.dnnplan", [WHOLE, dataclasses.replace(WHOLE, name="other")])
    (files / "broken.dnnplan").write_bytes((files / "a.dnnplan").read_bytes()[:-1])
    before = sorted(files.iterdir())
    assert said in error_of(dnnc("bundle", "m.dnnplan", *arguments))
    assert sorted(files.iterdir()) == before


def test_a_bundle_is_a_plan_file(files):
    assert "suffix '.bin'" in error_of(dnnc("bundle", "m.bin", "a.dnnplan"))
    assert dnnc("bundle", "m.dnnplan").exit_code == 2


def test_run_takes_a_plan_of_it(here):
    (here / "scaled.py").write_text(SCALED)
    assert dnnc("compile", "scaled.py", "-t", "sm_80").exit_code == 0
    assert dnnc("bundle", "m.dnnplan", "one=scaled.dnnplan", "two=scaled.dnnplan").exit_code == 0
    run = ["run", "m.dnnplan", "--random", "--size", "M=3", "-d", "interpreter", "--check"]
    said = error_of(dnnc(*run))
    assert said == "BAD_PARAM: m.dnnplan: 2 plans, and no name; accepted: one of one, two"
    result = dnnc(*run, "--plan", "two")
    assert result.exit_code == 0, result.output
    assert "good" in result.stdout


def test_one_plan_is_counted_as_one(files):
    assert dnnc("bundle", "m.dnnplan", "a.dnnplan").stdout.startswith("m.dnnplan: 1 plan, ")
