"""The reference of rng: Philox's known answers, what each distribution makes of its words."""

import math

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.dialect import philox
from dnnc.dialect.reference import reference

from .example_parts import finish, new_graph

ALL = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ALL,) * 4, (ALL,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "wanted"), KNOWN)
def test_known_answers(counter, key, wanted):
    assert tuple(int(word) for word in philox.words(counter, key)) == wanted


def one_by_one(counter, key):
    """Philox on plain Python numbers."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k, second & ALL, (first >> 32) ^ d ^ m, first & ALL
        k, m = (k + 0x9E3779B9) & ALL, (m + 0xBB67AE85) & ALL
    return a, b, c, d


def drawn(dims, distribution, seed, offset, data_type=dtypes.f64, strides=None, **parameters):
    g = new_graph()
    y = g.rng(seed, offset, distribution, **parameters, dim=dims, stride=strides)
    graph = finish(g, y.set_data_type(data_type)).graph.finalize()
    return reference(graph, {})[y.uid]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**40 + 7, -(2**63)])
@pytest.mark.parametrize("offset", [0, 3, 2**33])
def test_elements_follow_the_definition(seed, offset):
    found = drawn([3, 2, 5], "UNIFORM", seed, offset).ravel()
    for i, value in enumerate(found):
        counter = (i // 4, 0, offset & ALL, offset >> 32)
        word = one_by_one(counter, (seed & ALL, seed >> 32 & ALL))[i % 4]
        assert value == (word >> 8) / 2**24


def test_places_are_counted_over_the_dims_whatever_the_layout():
    plain = drawn([4, 6], "UNIFORM", 9, 0)
    np.testing.assert_array_equal(drawn([4, 6], "UNIFORM", 9, 0, strides=[1, 4]), plain)
    np.testing.assert_array_equal(drawn([24], "UNIFORM", 9, 0), plain.ravel())


def test_bernoulli_has_a_1_where_the_uniform_number_is_below_the_probability():
    uniform = drawn([1000], "UNIFORM", 5, 0)
    for probability in (0.0, 0.25, 1 / 3, 1.0):
        ones = drawn([1000], "BERNOULLI", 5, 0, bernoulli_probability=probability)
        np.testing.assert_array_equal(ones, uniform < probability)


def test_uniform_lies_between_its_limits():
    found = drawn([4000], "UNIFORM", 11, 0, uniform_minimum=-3.0, uniform_maximum=5.0)
    assert found.min() >= -3
    assert found.max() < 5
    assert abs(found.mean() - 1) < 4 * (8 / math.sqrt(12)) / math.sqrt(4000)


def test_normal_has_its_moments():
    found = drawn([100_000], "NORMAL", 13, 0, normal_mean=2.0, normal_standard_deviation=3.0)
    normal = (found - 2) / 3
    assert np.isfinite(found).all()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs(np.mean(normal**power) - moment) < 0.06
    pairs = normal.reshape(-1, 4)
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3)):
        assert abs(np.mean(pairs[:, a] * pairs[:, b])) < 0.03


def test_calls():
    g = new_graph()
    seed = g.tensor([1, 1, 1, 1], data_type=dtypes.i64)
    y = g.rng(seed, 3, dnnc.rng_distribution.BERNOULLI, 0.5, name="mask")
    assert y.set_dim([2, 3]).get_stride() == [3, 1]
    op = g.graph.ops[0]
    assert (op.title, op.offset.value, op.offset.dtype) == ("rng:BERNOULLI", 3, dtypes.i64)
    assert op.role == "pointwise"


def test_dims_must_be_set():
    g = new_graph()
    with pytest.raises(dnnc.DnncError, match="dims are not set"):
        finish(g, g.rng(1, 0, "UNIFORM")).validate()


@pytest.mark.parametrize(
    ("distribution", "parameters", "message"),
    [
        ("BERNOULLI", {}, "finite parameters"),
        ("BERNOULLI", {"bernoulli_probability": -0.5}, "a probability from 0 to 1"),
        ("BERNOULLI", {"bernoulli_probability": 0.5, "normal_mean": 0.0}, "normal_mean"),
        ("UNIFORM", {"uniform_minimum": 2.0}, "not above the maximum"),
        ("UNIFORM", {"uniform_maximum": math.inf}, "finite"),
        ("NORMAL", {"normal_standard_deviation": -1.0}, "not negative"),
        ("CAUCHY", {}, "BERNOULLI, UNIFORM, NORMAL"),
    ],
)
def test_refusals(distribution, parameters, message):
    g = new_graph()
    y = g.rng(1, 0, distribution, **parameters, dim=[4])
    with pytest.raises(dnnc.DnncError, match=message):
        finish(g, y).validate()
