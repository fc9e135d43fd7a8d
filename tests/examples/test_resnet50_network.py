"""ResNet-50 as data: sizes that are known, layers that fit, an arena that keeps values apart."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import __main__ as benchmarks
from examples.resnet50 import __main__ as example
from examples.resnet50 import tensors
from examples.resnet50.arena import ALIGNMENT, Tenant, planned, tenants_of, workspace_name
from examples.resnet50.graphs import ANY_BATCH, graph_of, plan_name
from examples.resnet50.network import (
    IMAGE,
    NETWORKS,
    Conv,
    bytes_of,
    elements,
    flops_of,
    network_of,
)

RESNET50 = NETWORKS["resnet50"]

every_network = pytest.mark.parametrize("name", NETWORKS)


def convolutions(network):
    return [layer.op for layer in network.layers if isinstance(layer.op, Conv)]


# ---- the network


def test_layers_of_resnet50():
    found = convolutions(RESNET50)
    assert len(found) == 53
    assert len(RESNET50.layers) == 53 + 3
    assert len(set(found)) == 24
    assert sum(RESNET50.operations.values()) == len(RESNET50.layers)
    assert RESNET50.layers[-2].op.x_shape == (7, 7, 2048)


def test_what_resnet50_is_known_for():
    """4.1 billion multiply-adds, 25.6 million parameters where batch norms have a scale too."""
    assert RESNET50.flops(1) == 2 * 4_089_184_256
    scales = sum(op.filters for op in convolutions(RESNET50))
    assert RESNET50.parameters + scales == 25_557_032


def test_the_stride_is_on_the_3x3():
    strided = [layer for layer in RESNET50.layers[1:] if getattr(layer.op, "stride", 1) == 2]
    kinds = {layer.name.rpartition(".")[2] for layer in strided}
    assert kinds == {"pool", "spatial", "project"}


@every_network
def test_layers_fit_each_other(name):
    network = NETWORKS[name]
    shapes = {IMAGE: (network.size, network.size, 3)}
    for layer in network.layers:
        assert shapes[layer.x] == layer.op.x_shape
        assert bool(layer.residual) == layer.op.has_residual
        if layer.residual:
            assert shapes[layer.residual] == layer.op.y_shape
        assert layer.y not in shapes
        shapes[layer.y] = layer.op.y_shape
    assert shapes[network.logits] == (1, 1, network.classes)


@every_network
@pytest.mark.parametrize("n", [3, ANY_BATCH], ids=str)
def test_graphs_have_the_shapes_of_their_layers(name, n):
    for op in NETWORKS[name].operations:
        made = graph_of(op, n)
        made.validate()  # among others, that Y's dims are those that follow from X's
        made.build_operation_graph()
        assert made.graph.name == plan_name(op, n)
        sizes = {"N": 3}
        counts = {t.name: t.elements().evaluate(sizes) for t in made.graph.tensors if t.name}
        assert counts["x"] == 3 * elements(op.x_shape)
        assert counts["y"] == 3 * elements(op.y_shape)
        assert counts.get("w", 0) == elements(op.w_shape)
        assert counts.get("bias", 0) == op.bias_elements


def test_what_is_counted():
    op = Conv(56, 64, 256, taps=1, has_residual=True)
    pixels = 2 * 56 * 56
    assert flops_of(op, 2) == 2 * pixels * 64 * 256
    assert bytes_of(op, 2) == 2 * (pixels * (64 + 2 * 256) + 64 * 256 + 256)
    # Of a 1x1 filter with a stride, every other pixel is read in both directions.
    assert Conv(56, 256, 512, taps=1, stride=2).read_elements == 28 * 28 * 256
    assert Conv(56, 128, 128, taps=3, stride=2).read_elements == 56 * 56 * 128


def test_other_names_are_errors():
    with pytest.raises(ValueError, match="'resnet5'; accepted: resnet50, small"):
        network_of("resnet5")


# ---- filters and images


def test_parameters_come_from_the_seed():
    small = NETWORKS["small"]
    first, again, other = (tensors.parameters(small, seed) for seed in (1, 1, 2))
    assert first.keys() == {layer.name for layer in small.layers if layer.op.w_shape}
    for layer in small.layers:
        if layer.op.w_shape:
            w, bias = first[layer.name]
            assert w.shape == layer.op.w_shape
            assert bias.shape == (layer.op.bias_elements,)
            assert np.array_equal(w, again[layer.name].w)
            assert not np.array_equal(w, other[layer.name].w)
    image = tensors.images(small, 2, 1)
    assert image.shape == (2, 40, 40, 3)
    assert np.array_equal(image, tensors.images(small, 2, 1))


def test_filters_are_scaled_after_he():
    found = tensors.parameters(RESNET50, 0)
    assert np.std(found["stage3.block2.spatial"].w) == pytest.approx((2 / 2304) ** 0.5, rel=0.01)
    assert np.std(found["stage3.block2.expand"].w) == pytest.approx((1 / 256) ** 0.5, rel=0.01)


# ---- the arena

tenants = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(1, 5000)), max_size=24
).map(
    lambda rows: [
        Tenant(str(i), first, first + length, bytes_)
        for i, (first, length, bytes_) in enumerate(rows)
    ]
)


@settings(max_examples=200, deadline=None)
@given(tenants)
def test_no_two_live_buffers_overlap(found):
    arena = planned(found)
    for i, one in enumerate(found):
        start = arena.offsets[one.name]
        assert start % ALIGNMENT == 0
        assert start + one.bytes <= arena.bytes
        for other in found[:i]:
            at = arena.offsets[other.name]
            is_apart = start + one.bytes <= at or at + other.bytes <= start
            has_no_common_step = one.last < other.first or other.last < one.first
            assert is_apart or has_no_common_step
    assert arena.bytes <= sum(-(-t.bytes // ALIGNMENT) * ALIGNMENT for t in found)


@every_network
@pytest.mark.parametrize("n", [1, 32])
def test_values_last_until_they_are_read(name, n):
    """Runs the layers on a memory of names; every third layer has a workspace."""
    network = NETWORKS[name]
    workspaces = {layer.name: 10_000 * i % 30_000 for i, layer in enumerate(network.layers)}
    arena = planned(tenants_of(network.layers, n, workspaces, (network.logits,)))
    memory = np.full(arena.bytes // ALIGNMENT, "", dtype=object)

    def place(name, bytes_):
        first = arena.offsets[name] // ALIGNMENT
        return memory[first : first - (-bytes_ // ALIGNMENT)]

    def value(name, op_shape):
        return place(name, 2 * n * elements(op_shape))

    for layer in network.layers:
        if workspaces[layer.name]:
            place(workspace_name(layer), workspaces[layer.name])[:] = "workspace"
        if layer.y in arena.offsets:
            value(layer.y, layer.op.y_shape)[:] = layer.y
        if workspaces[layer.name]:
            assert (place(workspace_name(layer), workspaces[layer.name]) == "workspace").all()
        if layer.x != IMAGE:
            assert (value(layer.x, layer.op.x_shape) == layer.x).all()
        if layer.residual:
            assert (value(layer.residual, layer.op.y_shape) == layer.residual).all()
    assert network.logits not in arena.offsets


def test_the_arena_is_as_small_as_it_can_be():
    found = tenants_of(RESNET50.layers, 32, {}, (RESNET50.logits,))
    steps = range(len(RESNET50.layers))
    most = max(sum(t.bytes for t in found if t.first <= step <= t.last) for step in steps)
    assert planned(found).bytes == most
    assert most < 0.2 * sum(t.bytes for t in found)


def test_values_end_with_their_last_reader():
    small = NETWORKS["small"]
    ended = [name for layer in small.layers for name in small.ends[layer.name]]
    assert sorted(ended) == sorted([IMAGE, *(layer.y for layer in small.layers[:-1])])
    assert "pool" in small.ends["stage1.block1.reduce"]


# ---- the page


def test_commands_of_the_page_are_commands():
    page = (Path(__file__).parents[2] / "docs" / "resnet50.md").read_text().replace("\\\n", " ")
    lines = [line.partition("#")[0].split() for line in page.splitlines() if "python -m" in line]
    parsers = {"examples.resnet50": example.parser(), "benchmarks": benchmarks.parser()}
    assert len(lines) == 14
    for words in lines:
        assert words[:2] == ["python", "-m"]
        parsers[words[2]].parse_args(words[3:])


def test_links_of_the_page():
    docs = Path(__file__).parents[2] / "docs"
    found = re.findall(r"\]\(([\w./-]+)\)", (docs / "resnet50.md").read_text())
    assert found
    assert all((docs / link).exists() for link in found)
