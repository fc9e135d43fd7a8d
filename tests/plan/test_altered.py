"""A plan and a bundle with a byte altered, at a thousand random places each: never loaded."""

import dataclasses
import random

import pytest

import dnnc
from dnnc.plan import format

PLACES = 1000


@pytest.fixture(scope="module")
def plan():
    """A compiled plan, for two targets."""
    g = dnnc.pygraph("altered", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.add(g.tensor([4, 8]), g.tensor([4, 8]))).set_output()
    return dnnc.compile(g, "sm_80,sm_90", in_process=True)


def altered(data, draw):
    """The bytes with one of them changed, anywhere."""
    made = bytearray(data)
    made[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    return bytes(made)


def is_clear(error):
    """Whether an error says what is wrong with the file."""
    known = (dnnc.Status.BAD_PARAM, dnnc.Status.SERIALIZATION_VERSION_MISMATCH)
    return error.status in known and error.what and error.supported and error.where


@pytest.mark.parametrize("is_file", [False, True])
def test_an_altered_plan_is_never_loaded(plan, tmp_path, is_file):
    data, draw = format.to_bytes(plan), random.Random(1)
    path = tmp_path / "p.dnnplan"
    for _ in range(PLACES):
        source = altered(data, draw)
        if is_file:
            path.write_bytes(source)
            source = path
        with pytest.raises(dnnc.DnncError) as caught:
            dnnc.load(source)
        assert is_clear(caught.value), caught.value
        assert caught.value.where == (str(path) if is_file else "plan")


def test_several_altered_bytes_are_noticed_too(plan):
    data, draw = format.to_bytes(plan), random.Random(2)
    for _ in range(100):
        source = data
        for _ in range(draw.randrange(2, 20)):
            source = altered(source, draw)
        if source != data:
            with pytest.raises(dnnc.DnncError):
                dnnc.load(source)


def test_of_an_altered_bundle_no_altered_plan_is_loaded(plan):
    """A plan that loads is as it was, one that does not says so, and some do not."""
    plans = {
        name: dataclasses.replace(plan, name=name, blobs=blobs)
        for name, blobs in (("a", plan.blobs), ("b", plan.blobs), ("c", plan.blobs[::-1]))
    }
    data, draw = format.to_bytes(list(plans.values())), random.Random(3)
    at_once, later = [], []
    for _ in range(PLACES):
        bundle, error = attempt(lambda: dnnc.load_bundle(altered(data, draw)))
        if error is not None:
            at_once.append(error)
            continue
        found = {name: attempt(lambda b=bundle, n=name: b[n].plan) for name in bundle.names}
        errors = [error for _, error in found.values() if error is not None]
        assert errors
        later += errors
        assert all(plan in (None, plans[name]) for name, (plan, _) in found.items())
    assert all(map(is_clear, at_once + later))
    assert min(len(at_once), len(later)) > 10


def attempt(function):
    """(what a function gives, None), or (None, its error)."""
    try:
        return function(), None
    except dnnc.DnncError as error:
        return None, error
