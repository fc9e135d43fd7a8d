"""A shell is given candidates when it completes a command line."""

import pytest
from typer.testing import CliRunner

from dnnc.cli.app import app
from dnnc.engines import ENGINES, engine_named


def completed(line):
    """The completions of the last word of a line; none: the shell completes files."""
    words = line.split(" ")
    asked = {
        "_DNNC_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return CliRunner().invoke(app, [], prog_name="dnnc", env=asked).stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("dnnc inspe", ["inspect"]),
        ("dnnc compile --knob", ["--knob"]),
        ("dnnc compile ff", []),
        ("dnnc compile ffn.py --target sm_9", ["sm_90", "sm_90a"]),
        ("dnnc compile ffn.py --target sm_90,sm_9", ["sm_90,sm_90a"]),
        ("dnnc compile ffn.py -t h1", ["h100"]),
        ("dnnc run ffn.dnnplan --target bl", ["blackwell"]),
        ("dnnc inspect ffn.dnnplan --target port", ["portable"]),
        ("dnnc view ffn.py --engine matmul_sm9", ["matmul_sm90"]),
        ("dnnc tune ffn.py --target rtxp", ["rtxpro6000"]),
        ("dnnc compile ffn.py --emit p", ["ptx", "plan"]),
        ("dnnc run ffn.dnnplan --device i", ["interpreter"]),
        ("dnnc engines ffn.py --mode A,F", ["A,FALLBACK"]),
        ("dnnc opt ffn.py -p fuse,assign", ["fuse,assign-workspace"]),
        ("dnnc compile ffn.py --engine ", [engine.name for engine in ENGINES]),
    ],
)
def test_values_are_completed(line, found):
    assert completed(line) == found


def test_knobs_are_those_of_the_engine():
    first, *others = engine_named("matmul_sm80").all_knobs
    line = "dnnc compile ffn.py --engine matmul_sm80 --knob"
    settings = [f"{first.name}={value}" for value in sorted(first.values)]
    assert completed(f"{line} {first.name}=") == settings
    assert completed(f"{line} {first.name[:-1]}")[: len(settings)] == settings
    # One that is set is no completion of the next.
    after = {setting.partition("=")[0] for setting in completed(f"{line} {settings[0]} --knob ")}
    assert after == {knob.name for knob in others}
    everywhere = {f"{k.name}={v}" for e in ENGINES for k in e.all_knobs for v in k.values}
    assert set(completed("dnnc compile ffn.py --knob ")) == everywhere
