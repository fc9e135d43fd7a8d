"""The golden net: what it hashes, and that every engine can have its entries.  Nothing compiles."""

import pytest

from dnnc.errors import DnncError
from tests import golden_ptx


def test_registers_and_comments_are_not_hashed():
    first = "add.f32 %f1, %f2, %f2; // a sum\nmov.u32 %r1, %tid.x;"
    second = "add.f32 %f7,  %f3, %f3;\n\nmov.u32 %r9, %tid.x;"
    other = "add.f32 %f1, %f1, %f2;\nmov.u32 %r1, %tid.x;"
    assert golden_ptx.digest_of(first) == golden_ptx.digest_of(second)
    assert golden_ptx.digest_of(first) != golden_ptx.digest_of(other)


def test_values_of_knobs_are_those_of_their_engine():
    choices = "rows:TILE_ROWS=2:STAGES=3|peers|pointwise:STAGES=1"
    values = {"rows TILE_ROWS=2", "rows STAGES=3", "pointwise STAGES=1"}
    assert golden_ptx.values_of(choices) == values


@pytest.mark.rotating
@pytest.mark.parametrize("engine", golden_ptx.GRAPHS_OF)
def test_a_rare_engine_has_graphs_for_its_entries(engine):
    found = 0
    for graph, target in golden_ptx.places_of(engine):
        try:
            found += len(golden_ptx.configs_of(graph, target, engine, golden_ptx.MORE_KNOBS))
        except DnncError:  # no engine takes the graph on this target
            continue
        if found >= golden_ptx.LEAST_OF_ENGINE:
            return
    pytest.fail(f"{engine}: {found} entries")
