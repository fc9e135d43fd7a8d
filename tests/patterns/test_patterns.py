"""`dnnc engines` on the graphs that cuDNN's guide describes: each fits, or says why not.

The guide's sections: "Examples of Supported Patterns" of its generic fusion engines, its
"Specialized Runtime Fusion Engines" and "Specialized Pre-Compiled Engines".  A graph is a file
beside this one.
"""

from pathlib import Path

import pytest

from dnnc.errors import Status
from dnnc.target import of
from tests.cli.commands import dnnc

GRAPHS = Path(__file__).parent / "graphs"
PARTS = {"images", "heads"}  # what graphs import

# The engine that takes the graph whole on sm_90a, or how many fusions it is split into.
FITS = {
    # Examples of Supported Patterns
    "conv": "conv_sm90",
    "conv_two_pointwise": "conv_sm90",
    "conv_three_pointwise": "conv_sm90",
    "conv_in_the_middle": "conv_sm90",
    "mixed_conv": "conv_sm90",
    "matmul_after_pointwise": "matmul_sm90",
    "mixed_matmul": "matmul_sm90",
    # Specialized Runtime Fusion Engines
    "bn_add_relu": "grid",
    "bn_add_relu_peers": 5,
    "drelu_fork_dbn": "grid",
    "drelu_fork_dbn_peers": 4,
    "mha_fprop": "sdpa_sm80",
    "mha_fprop_reordered": "sdpa_sm80",
    "mha_bprop": "sdpa_bwd_sm80",
    "flash_fprop": "sdpa_fwd_sm90",
    "flash_bprop": 6,
    "flash_paged": "sdpa_fwd_sm90",
    "flash_fp8_fprop": "sdpa_fwd_sm90",
    "flash_fp8_bprop": 4,
    "conv_bn_fprop": "conv_sm90",
    "dbarcs": "conv_sm90",
    # Specialized Pre-Compiled Engines
    "conv_bias_act": "conv_sm90",
    "conv_bn_wgrad": "conv_wgrad_sm90",
    "dgrad_drelu_bn_bwd_weight": "conv_sm90",
    "dbn_apply": "pointwise",
}

# The status of the error, and a part of it that names what is missing.
REFUSED = {
    "conv_scale_bias_act": (
        Status.NOT_SUPPORTED_LAYOUT,
        "is reordered as INT8x32 (also ",
    ),
}


def test_every_graph_is_expected_to_fit_or_not():
    names = {path.stem for path in GRAPHS.glob("*.py")} - PARTS
    assert names == FITS.keys() | REFUSED.keys()
    assert not FITS.keys() & REFUSED.keys()


@pytest.mark.rotating
@pytest.mark.parametrize("name", FITS)
def test_fits(name):
    result = dnnc("engines", GRAPHS / f"{name}.py", "-t", "sm_90a", "--explain")
    assert result.exit_code == 0, result.output
    engines = first_engines(result.stdout)
    is_split = isinstance(FITS[name], int)
    assert (len(engines) if is_split else engines) == (FITS[name] if is_split else [FITS[name]])
    # A later config is split.
    is_later = name in ("mha_bprop", "flash_fp8_fprop", "dgrad_drelu_bn_bwd_weight")
    assert ("\nsplit " in result.stdout) == (is_split or is_later)


def first_engines(text):
    """Returns the engines of config 0 in the text that `dnnc engines` prints."""
    lines = text[text.index("configs in the order of compile") :].splitlines()[2:]
    table = [line.split() for line in lines if not line.startswith(" " * 20)]
    found = [table[0][1]]
    for words in table[1:]:
        if not words or words[0].isdigit() or words[0] in ("split", "tuned"):
            break
        found.append(words[0])
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    result = dnnc("engines", GRAPHS / f"{name}.py", "-t", "sm_90a")
    status, said = REFUSED[name]
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {status.name}: "), result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("name", sorted([*FITS, *REFUSED]))
def test_every_clause_has_its_reason(name):
    """An engine that declines says what is wrong and what would be accepted."""
    from dnnc.choosing.info import info
    from dnnc.cli.files import read_source
    from dnnc.dialect.fusion import partition
    from dnnc.engines import ENGINES

    graph = read_source(str(GRAPHS / f"{name}.py")).graph
    (whole,) = partition(graph, [graph.live_ops])
    for engine in ENGINES:
        for reason in info(engine, whole, of("sm_90a")).reasons:
            assert reason.status.category is Status.NOT_SUPPORTED
            assert reason.clause
            assert reason.what
            assert reason.supported
