# pyright: basic
"""The MLIR `dnn` dialect's class, its attributes and types; its operations are in `dnn`."""

from __future__ import annotations

from typing import ClassVar

from .. import dtypes, mlir
from ..mlir import ext, ir, irdl
from .define import define

mlir.declare_dialect("dnn")


class Dnn(ext.Dialect, name="dnn"):  # type: ignore[call-arg]
    """The dialect."""

    _definitions: ClassVar[bytes] = b""  # IRDL as bytecode; b"": they are yet to be made
    _defined: ClassVar[int] = 0  # how many operations, attributes and types are in it

    @classmethod
    def load(cls, *, reload: bool = False) -> None:
        """Loads the dialect in the context that is entered.

        The base class makes the definitions and registers the operations' classes for the whole
        process: it is called once, and again where a module that was imported since has more.
        Attributes and types belong to a context.
        """
        count = len(cls.operations) + len(cls.types) + len(cls.attributes)
        if not cls._definitions or count != cls._defined:
            super().load(reload=reload)
            cls._defined = count
            cls._definitions = mlir.bytecode_of(cls._mlir_module.operation)
            del cls._mlir_module  # it keeps its context alive
            return
        irdl.load_dialects(ir.Module.parse(cls._definitions))
        for operation in cls.operations:
            operation._attach_traits()
        for kind in cls.types:
            found = ir.DynamicType.lookup_typeid(kind.type_name)
            ir.register_type_caster(found, replace=reload)(kind)
        for kind in cls.attributes:
            found = ir.DynamicAttr.lookup_typeid(kind.attr_name)
            ir.register_type_caster(found, replace=reload)(kind)


Layout = define(Dnn.Attribute, "layout", {"map": ir.AffineMapAttr})
Symbol = define(
    Dnn.Attribute,
    "symbol",
    {"name": ir.StringAttr, "min": ir.IntegerAttr, "max": ir.IntegerAttr,
     "multiple_of": ir.IntegerAttr},
)  # fmt: skip

# Of a product of symbols, by their names, the largest value.
ProductBound = define(Dnn.Attribute, "bound", {"factors": ir.ArrayAttr, "max": ir.IntegerAttr})

# A compute type that no builtin type stands for.
FastFloatForFp8 = define(Dnn.Type, dtypes.fast_float_for_fp8.name, {})
