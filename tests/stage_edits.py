"""Edits of the printed text of a stage: one operation or one attribute of it changed at a time."""

from __future__ import annotations

from dataclasses import dataclass

from dnnc import compiler
from dnnc.dialect import dnn
from dnnc.errors import DnncError
from dnnc.mlir import ir
from dnnc.passes.stages import inside_of

# Scalar operations that may stand in each other's place.
SWAPS = [
    ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf"),
    ("arith.addi", "arith.subi", "arith.muli"),
    ("arith.andi", "arith.ori", "arith.xori"),
    ("arith.maxsi", "arith.minsi"),
    ("math.exp", "math.sin", "math.tanh", "math.erf", "math.rsqrt", "math.sqrt", "math.absf"),
    ("arith.extsi", "arith.extui"),
    ("arith.sitofp", "arith.uitofp"),
]
OTHER_TEXTS = {
    "add": "mul", "gelu_fwd": "relu_fwd", "relu_fwd": "gelu_fwd", "sm_90a": "sm_90",
    "sm_80": "sm_86", "anchor": "g2", "g2": "g1", "max": "min", "private": "public",
}  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """place: of the operation in a walk of the module.  path: into its attribute."""

    place: int
    kind: str
    path: tuple = ()

    def __str__(self):
        return f"{self.kind} {self.place} {'.'.join(map(str, self.path))}"


def walked(module):
    """The operations of a module: itself, then those inside in order."""
    return [module.operation, *inside_of(module.operation)]


def edits_of(text):
    """Every edit of a text."""
    with dnn.context():
        module = ir.Module.parse(text)
        found = []
        for place, op in enumerate(walked(module)):
            for name in op.attributes:
                found.append(Edit(place, "remove", (name,)))
                found += [
                    Edit(place, "change", (name, *path)) for path in _leaves(op.attributes[name])
                ]
            found.append(Edit(place, "add", ("dnn.unknown",)))
            found += [Edit(place, "operand", (i,)) for i in range(len(op.operands))]
            if any(op.name in group for group in SWAPS):
                found.append(Edit(place, "rename"))
        return found


def edited(text, edit):
    """The text after an edit; None if there is nothing to put in the place."""
    with dnn.context():
        module = ir.Module.parse(text)
        op = walked(module)[edit.place]
        if edit.kind == "remove":
            del op.attributes[edit.path[0]]
        elif edit.kind == "add":
            op.attributes[edit.path[0]] = ir.StringAttr.get("x")
        elif edit.kind == "change":
            name, *path = edit.path
            made = _changed(op.attributes[name], path)
            if made is None or made == op.attributes[name]:
                return None
            op.attributes[name] = made
        elif edit.kind == "operand":
            other = _other_value(module, op, op.operands[edit.path[0]])
            if other is None:
                return None
            op.operands[edit.path[0]] = other
        else:
            group = next(group for group in SWAPS if op.name in group)
            name = group[(group.index(op.name) + 1) % len(group)]
            with ir.InsertionPoint(op), op.location:
                flags = {k: op.attributes[k] for k in op.attributes if k == "fastmath"}
                types = [result.type for result in op.results]
                made = ir.Operation.create(name, types, list(op.operands), flags)
            for result, other in zip(op.results, made.results, strict=True):
                result.replace_all_uses_with(other)
            op.erase()
        made = _generic(module)
        return None if _reads_as(made, text) else made


def _reads_as(made, text):
    """Whether it is the same module, as where a default is left out."""
    try:
        return _generic(ir.Module.parse(made)) == _generic(ir.Module.parse(text))
    except ir.MLIRError:
        return False


def _generic(module):
    return module.operation.get_asm(assume_verified=True, print_generic_op_form=True)


def _leaves(attribute):
    attribute = attribute.maybe_downcast()
    if isinstance(attribute, ir.DictAttr) and len(attribute):
        for entry in attribute:
            yield from ((entry.name, *path) for path in _leaves(entry.attr))
    elif isinstance(attribute, ir.ArrayAttr) and len(attribute):
        for i, item in enumerate(attribute):
            yield from ((i, *path) for path in _leaves(item))
    else:
        yield ()


def _changed(attribute, path):
    attribute = attribute.maybe_downcast()
    if path and isinstance(attribute, ir.DictAttr):
        entries = {entry.name: entry.attr for entry in attribute}
        made = _changed(entries[path[0]], path[1:])
        return made and ir.DictAttr.get({**entries, path[0]: made})
    if path:
        items = list(attribute)
        made = _changed(items[path[0]], path[1:])
        return made and ir.ArrayAttr.get([*items[: path[0]], made, *items[path[0] + 1 :]])
    if isinstance(attribute, ir.BoolAttr):
        return ir.Attribute(ir.BoolAttr.get(not attribute.value))
    if isinstance(attribute, ir.IntegerAttr):
        return ir.IntegerAttr.get(attribute.type, attribute.value + 1)
    if isinstance(attribute, ir.FloatAttr):
        return ir.FloatAttr.get(attribute.type, 2 * attribute.value + 1)
    if isinstance(attribute, ir.StringAttr):
        return ir.StringAttr.get(OTHER_TEXTS.get(attribute.value, f"{attribute.value}x"))
    text = str(attribute)
    for old, new in (
        ("f32", "f16"), ("f16", "f32"), ("i32", "i64"), ("parallel", "reduction"),
        ("<reduction", "<parallel"), ("(d0, d1) -> (d0, d1)", "(d0, d1) -> (d1, d0)"),
        ("-> (d0", "-> (d1"), ("fastmath<none", "fastmath<contract"),
        ("fastmath<", "fastmath<nnan,"), ("overflow<none", "overflow<nsw"), (": 1", ": 0"),
        (": 0", ": 1"), ("anchor0", "anchor1"), ("unit", '"x"'), ("[]", '["x"]'), ("{}", "{x}"),
        ("-> (s0", "-> (s0 * 2"),
    ):  # fmt: skip
        if old in text:
            return ir.Attribute.parse(text.replace(old, new, 1))
    return None


def _other_value(module, op, value):
    """Another value of its type that was made before, in the same block."""
    block = op.operation.block
    before = list(block.arguments)
    for view in block.operations:
        if view.operation == op:
            break
        before += list(view.operation.results)
    return next(
        (v for v in before if v.type == value.type and v != value and not _equal(v, value)), None
    )


def _equal(one, other):
    """Whether two values are equal though they are two: tensors without elements yet."""
    if all(isinstance(v.owner, ir.Block) for v in (one, other)):  # a tensor's that is read twice
        parent = one.owner.owner
        if parent.name != "linalg.generic":  # a function's arguments are no operands of it
            return False
        read = [parent.operands[ir.BlockArgument(v).arg_number] for v in (one, other)]
        return read[0] == read[1]
    owners = [getattr(v.owner, "name", None) for v in (one, other)]
    return owners == ["tensor.empty"] * 2


def outcome(text):
    """("ptx", its text) of a stage's text, or ("refused", what was said)."""
    try:
        with dnn.context():
            return "ptx", compiler.advance(compiler.resume(text), "ptx").ptx
    except DnncError as error:
        return "refused", str(error)
