"""`dnnc engines`: what takes a graph, what refuses it and why, what would be tried."""

import json
import re

import pytest

from dnnc.engines import ENGINES

from .commands import REFUSED, SPLIT, dnnc, error_of


def rows(result):
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_what_takes_a_graph_and_what_refuses_it(ffn):
    lines = rows(dnnc("engines", ffn, "-t", "sm_80"))
    assert lines[0] == "graph 'ffn' on sm_80, as one fusion"
    assert lines[1] == "operations matmul 'mm', pointwise:add, pointwise:relu_fwd"
    (takes,) = (line for line in lines if line.startswith("matmul_sm80 (4) "))
    assert "us latency" in takes  # one tile does not fill a device
    assert "TILE_M=" in takes
    assert "matmul_sm90 (5) architecture sm_80 sm_90a" in lines  # which nearly takes it
    assert not any(line.startswith("pointwise (1)") for line in lines)
    others = len(ENGINES) - 3  # which take it, nearly or in full
    assert f"{others} engines are made for other operations (--all lists them)" in lines
    refuses = (
        "pointwise (1) operations matmul 'mm' pointwise, transpose, slice, reshape, concatenate"
    )
    for option in ("--all", "--explain"):
        assert refuses in rows(dnnc("engines", ffn, "-t", "sm_80", option))
    assert "configs in the order of compile (modes A, FALLBACK)" in lines
    assert any(line.startswith("0 matmul_sm80 ") and line.endswith(" all") for line in lines)


def test_the_first_config_is_what_compile_takes(plan, ffn):
    from dnnc.plan import format

    made = format.read(plan).programs[0].fusions[0]
    knobs = " ".join(f"{name}={value}" for name, value in sorted(made.knobs.items()))
    assert any(
        f"0 {made.engine} {knobs}" in line for line in rows(dnnc("engines", ffn, "-t", "sm_80"))
    )


def test_explained(ffn):
    short, long = dnnc("engines", ffn).stdout, dnnc("engines", ffn, "--explain").stdout
    assert "more (--explain lists them)" in short
    assert "more (--explain" not in long
    assert "TILE_M   32, 64, 128, 256" in long
    assert "default   what it is" in long
    assert "behavior   RUNTIME_COMPILATION SUPPORTS_CUDA_GRAPH_NATIVE_API" in long
    assert "numerics   TENSOR_CORE" in long
    for engine in ENGINES:
        assert f"engine {engine.name} ({engine.index})" in long
        assert all(line in long for line in engine.support)


def test_a_split_graph(here):
    (here / "twice.py").write_text(SPLIT)
    lines = rows(dnnc("engines", "twice.py"))
    assert any(line.startswith("0 ") and line.endswith("matmul 'first'") for line in lines)
    assert any(line.endswith("us latency matmul 'second'") for line in lines)
    assert any(line.startswith("split no engine takes the graph as one fusion: ") for line in lines)


def test_modes(here):
    (here / "twice.py").write_text(SPLIT)
    assert any(row.startswith("split ") for row in rows(dnnc("engines", "twice.py", "--mode", "a")))
    assert dnnc("engines", "twice.py", "--mode", "C").exit_code == 2


def test_every_config_has_its_time_and_what_bounds_it(ffn):
    lines = rows(dnnc("engines", ffn, "-t", "sm_80", "--explain"))
    start = lines.index("configs in the order of compile (modes A, FALLBACK)")
    assert lines[start + 1] == "engine knobs predicted bound by operations"
    ranked = lines[start + 2 :]
    assert len(ranked) > 8
    bounds = ("latency", "memory", "tensor cores", "arithmetic in single threads")
    for place, line in enumerate(ranked):
        assert line.startswith(f"{place} ")
        assert line.endswith(tuple(f" us {bound} all" for bound in bounds)), line


def test_what_errata_bar(ffn, here):
    rule = {"id": "few-rows", "why": "slow", "engine": "matmul_sm80", "knobs": {"TILE_M": [32, 64]}}
    (here / "rules.json").write_text(json.dumps({"dnnc_errata": 1, "rules": [rule]}))
    lines = rows(dnnc("engines", ffn, "-t", "sm_80", "--errata", "rules.json", "--explain"))
    assert any(re.fullmatch(r"matmul_sm80 \d+ few-rows slow", line) for line in lines)
    start = lines.index("configs in the order of compile (modes A, FALLBACK)")
    assert not any("TILE_M=32" in line or "TILE_M=64" in line for line in lines[start:])


def test_several_targets(ffn):
    lines = rows(dnnc("engines", ffn, "-t", "sm_80,sm_120a"))
    assert "graph 'ffn' on sm_80, as one fusion" in lines
    assert "graph 'ffn' on sm_120a, as one fusion" in lines


def test_a_graph_that_nothing_takes(here):
    (here / "refused.py").write_text(REFUSED)
    result = dnnc("engines", "refused.py")
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "nearly takes it clause what is wrong accepted" in lines
    near = [line.split()[0] for line in lines if re.match(r"\w+ \(\d+\)", line)]
    assert near == ["pointwise", "transpose"]
    assert "takes it predicted" not in result.stdout
    said = "error: NOT_SUPPORTED_LAYOUT: refused.py:6: graph 'refused': no engine for sm_90a takes"
    assert result.stderr.startswith(said)
    result = dnnc("engines", "refused.py", "--all")
    for engine in ENGINES:
        assert f"{engine.name} ({engine.index})" in result.stdout


@pytest.mark.parametrize("target", ["sm_1", "sm_80,,sm_90"])
def test_unknown_targets(target, ffn):
    assert error_of(dnnc("engines", ffn, "-t", target)).startswith("NOT_SUPPORTED_ARCH_MISMATCH")


WITHOUT_A_CONFIG = """
import dnnc


def build():
    g = dnnc.pygraph("gated", io_data_type="f16", intermediate_data_type="bf16", target="sm_90a")
    a = g.identity(g.tensor([1, 64, 64], [4096, 1, 64]))
    b, d = (g.identity(g.tensor([1, 64, 256])) for _ in range(2))
    c = g.mul(g.matmul(a, b), g.matmul(a, d))
    g.mul(c, g.rsqrt(g.reduction(g.mul(c, c), "add").set_dim([1, 64, 1]))).set_output()
    return g
"""


def test_an_engine_that_takes_a_graph_without_a_config_for_it_is_listed(here):
    (here / "gated.py").write_text(WITHOUT_A_CONFIG)
    lines = rows(dnnc("engines", "gated.py", "-t", "sm_90a"))
    (said,) = (
        line for line in lines if line.startswith("matmul_sm90 (") and "configurations" in line
    )
    assert "fail knobs: 512 sums in two rows of a thread" in said
    assert said.endswith("up to 256")
