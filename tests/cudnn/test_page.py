"""docs/cudnn.md: its examples run, and its section of differences is what the code says."""

import sys

import pytest

from dnnc.cudnn import differences
from tests.support.documents import DOCS, examples

PAGE = "cudnn.md"


@pytest.mark.usefixtures("no_cudnn")
def test_examples_run():
    names = {}
    for text in examples(PAGE):
        exec(compile(text, PAGE, "exec"), names)
    assert names["cudnn"] is sys.modules["dnnc.cudnn"]
    assert names["workspace_bytes"] == 0
    assert "error" not in names


def test_the_page_says_what_differs():
    text = (DOCS / PAGE).read_text()
    assert differences.markdown() in text, "python -m dnnc.cudnn.differences"
