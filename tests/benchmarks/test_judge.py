"""`python -m benchmarks judge`: what it says of timed configurations, without torch."""

import json
import sys

import pytest

from benchmarks import SET_NAMES, compilers
from benchmarks.__main__ import main
from benchmarks.cases import lists

CASE = "matmul/fp16/none/512x512x512"


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.nn.functional", None)


def timed(tile_m, tile_n, microseconds):
    knobs = {"TILE_M": tile_m, "TILE_N": tile_n, "TILEK": 64, "STAGES": 3}
    return {"engine": "matmul_sm80", "knobs": knobs, "seconds": microseconds * 1e-6}


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize(("fast", "share"), [((64, 64), "1.000"), ((256, 128), "0.500")])
def test_shares_of_the_fastest(tmp_path, capsys, fast, share):
    """Small tiles are chosen of a small product: of what was timed, the fastest or not."""
    tiles = ((64, 64), (128, 256), (256, 128))
    configs = [timed(*tile, 5.0 if tile == fast else 10.0) for tile in tiles]
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"kind": "sweep", "rows": {CASE: {"configs": configs}}}))
    assert main(["judge", str(path), "--target", "sm_90a"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"{share}  {CASE}"
    assert last == f"1 shapes: {share} of the fastest (geometric mean), {share} at least"


@pytest.mark.usefixtures("no_torch")
def test_cases_have_sizes_and_graphs_without_torch():
    kinds = set()
    for name in SET_NAMES:
        for case in lists.SETS[name]():
            again = lists.case_of(case.id)
            assert (again.id, again.p, again.bytes) == (case.id, case.p, case.bytes)
            if case.kind not in kinds:
                kinds.add(case.kind)
                graph, tensors = compilers.our_graph(case)
                assert graph.live_ops, case.id
                assert tensors, case.id
    assert {"matmul", "conv", "attention", "batchnorm"} <= kinds


@pytest.mark.usefixtures("no_torch")
def test_buffers_ask_for_torch():
    case = lists.case_of(CASE)
    with pytest.raises(ImportError):
        case.make()
