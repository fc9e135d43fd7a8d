"""How lit runs these files: `lit test/lit`, or through pytest by tests/test_lit.py.

`dnnc` and `filecheck` in RUN lines are this checkout's and this Python's.  Parameters:
filecheck=PATH uses LLVM's FileCheck; exec_root=FOLDER is where outputs go.
"""

# ruff: noqa: F821  (lit defines config and lit_config)

import os
import re
import sys

import lit.formats

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

config.name = "dnnc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = lit_config.params.get("exec_root", os.path.join(ROOT, "build", "lit"))
os.makedirs(config.test_exec_root, exist_ok=True)
config.environment["PYTHONPATH"] = ROOT
config.environment["DNNC_CACHE"] = "0"

filecheck = lit_config.params.get("filecheck", f"{sys.executable} -m filecheck")


def command(name):
    """The name where it is a word of its own, and no part of a path."""
    return rf"(?<![\w/.-]){re.escape(name)}(?![\w/.-])"


config.substitutions += [
    (command("dnnc"), f"{sys.executable} -m dnnc"),
    (command("filecheck"), filecheck),
]
