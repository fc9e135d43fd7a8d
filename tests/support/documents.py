"""The examples in the documents."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def examples(name):
    """The Python code of a document, block by block."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.M | re.S)
