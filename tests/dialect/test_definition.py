"""The dialect's definitions follow the modules that have been imported."""

import subprocess
import sys

CODE = """
from dnnc.dialect import dnn
for _ in range(2):
    with dnn.context():
        pass
from dnnc.dialect import structure
with dnn.context():
    dnn.ir.Module.parse('"dnn.program"() {steps = []} : () -> ()')
print("parsed")
"""


def test_a_context_before_the_program_is_defined():
    """Its operations would be attached to definitions that lack them, which ends the process."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.stdout == "parsed\n", done.stderr
