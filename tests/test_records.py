"""Records of the package have at most a dozen fields: more are parts that have names of their own.

Counted are the fields of dataclasses and named tuples, those that they inherit too.
"""

import dataclasses
import importlib
import inspect
import pkgutil

import dnnc

MOST = 12

# Records that have what others define, field by field.
OF_OTHERS = {
    "dnnc.dialect.tensor.Tensor": "cuDNN's tensor descriptor, an attribute each",
    "dnnc.frontends.graph_tensor.GraphTensor": "such a tensor, as pygraph makes it",
    "dnnc.plan.plan.TensorMap": "the arguments of cuTensorMapEncode*, as plan files have them",
}
APART = ("dnnc.__main__", "dnnc.torch")  # what runs when imported, and what needs more installed


def records():
    """(name, number of fields) of every record."""
    for found in pkgutil.walk_packages(dnnc.__path__, "dnnc.", onerror=lambda name: None):
        if found.name.startswith(APART):
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if not inspect.isclass(value) or value.__module__ != module.__name__:
                continue
            name = f"{module.__name__}.{value.__qualname__}"
            if dataclasses.is_dataclass(value):
                yield name, len(dataclasses.fields(value))
            elif issubclass(value, tuple):
                yield name, len(getattr(value, "_fields", ()))


def test_records_have_a_dozen_fields_at_most():
    found = dict(records())
    assert len(found) > 500
    assert {name for name, fields in found.items() if fields > MOST} == set(OF_OTHERS)
