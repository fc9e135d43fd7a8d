"""The operation methods of `pygraph`, as a class that it derives from.

They are made of the operations' fields as this is imported.  `operations.pyi`, which
`docs/generate_stubs.py` writes, tells editors and type checkers what they are.
"""

from __future__ import annotations

from . import attention, attention_backward, attention_fp8, attention_fp8_backward
from .keywords import explain_keywords
from .methods import methods
from .signatures import describe


class Operations:
    """A method for each operation that a graph may have."""


_METHODS = {
    **methods(),
    **attention.methods(),
    **attention_backward.methods(),
    **attention_fp8.methods(),
    **attention_fp8_backward.methods(),
}
describe(_METHODS)
for _name, _method in _METHODS.items():
    setattr(Operations, _name, _method)
explain_keywords(Operations, shown="pygraph")
