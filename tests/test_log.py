"""DNNC_LOG, each case in a process of its own: it is read once."""

import os
import subprocess
import sys

CODE = """
import dnnc
g = dnnc.pygraph("sums", io_data_type="f32", intermediate_data_type="f32")
total = g.exp(g.add(g.tensor([4, 8], name="x"), g.tensor([4, 8], name="z")))
total.set_output()
dnnc.compile(g, "sm_80", in_process={in_process})
"""


# Nothing is compiled.
LOADED = "import dnnc.log; dnnc.log.logger('dnnc.compiler')"


def messages(value, in_process=True, code=CODE):
    """The text that a compilation writes to stderr under a value of DNNC_LOG."""
    environment = {**os.environ, "DNNC_LOG": value}
    code = code.format(in_process=in_process)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert not done.stdout
    return done.stderr


def test_silent_by_default():
    assert messages("") == ""


def test_info_names_engine_and_knobs():
    text = messages("info", in_process=False)
    assert "graph 'sums' for sm_80: pointwise ARRAY_SIZE_PER_THREAD=" in text
    assert "started the compile worker" in text


def test_debug_has_every_stage():
    text = messages("debug")
    for stage in ("fused", "linalg", "kernel", "nvvm", "ptx", "cubin"):
        assert f"sm_80: {stage} in " in text


def test_a_file(tmp_path):
    path = tmp_path / "dnnc.log"
    assert messages(f"info:{path}") == ""
    text = path.read_text()
    assert "graph 'sums' for sm_80: pointwise ARRAY_SIZE_PER_THREAD=" in text
    assert "started the compile worker" not in text


def test_an_unknown_level_is_said():
    assert "DNNC_LOG=loud: the level is none of debug, info" in messages("loud", code=LOADED)
