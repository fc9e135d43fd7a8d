"""Random graphs, with random knobs, on the device; the seeds are those of the other tests."""

import pytest

from tests.random_graphs import draw, draw_inside
from tests.test_random_graphs import all_compute, draw_bits, draw_grouped, draw_hopper, in_chunks


@in_chunks(600, 20)
def test_drawn_graphs_compute_what_the_reference_computes(seeds):
    all_compute("draw", seeds, draw)


@in_chunks(600, 20)
def test_graphs_of_a_support_surface_compute_what_the_reference_computes(seeds):
    all_compute("inside", seeds, draw_inside)


@pytest.mark.sm90
@in_chunks(300, 20)
def test_graphs_of_matmul_sm90_compute_what_the_reference_computes(seeds):
    """Graphs are compiled for "sm_90a"."""
    all_compute("hopper", seeds, draw_hopper)


@pytest.mark.sm90
@pytest.mark.parametrize("make", [draw_grouped, draw_bits])
@in_chunks(200, 20)
def test_grouped_products_and_boolean_outputs_compute_what_the_reference_computes(make, seeds):
    """Graphs are compiled for "sm_90a"."""
    all_compute(make.__name__, seeds, make)
