"""A small model of the rules of descriptors, for random sequences of calls.

Written from the rules alone (docs/backend.md), of a few kinds of descriptors.  A call's answer is
the set of statuses that it may have: where several things are wrong, any of them may be named.
"""

from dataclasses import dataclass, field

from dnnc import Status
from dnnc import backend as b

OK = Status.SUCCESS
BAD = Status.BAD_PARAM


@dataclass(frozen=True)
class Attribute:
    """type: of the elements.  low, high: how many.  nested: kind of descriptors."""

    type: int
    low: int = 1
    high: int = 1
    nested: str = ""
    required: bool = False
    default: tuple = ()
    is_read_only: bool = False


I64, TYPE, FLAG = b.CUDNN_TYPE_INT64, b.CUDNN_TYPE_DATA_TYPE, b.CUDNN_TYPE_BOOLEAN
DESCRIPTOR, POINTER = b.CUDNN_TYPE_BACKEND_DESCRIPTOR, b.CUDNN_TYPE_VOID_PTR
MANY = 1 << 31

RULES = {
    "TENSOR": {
        b.CUDNN_ATTR_TENSOR_UNIQUE_ID: Attribute(I64, required=True),
        b.CUDNN_ATTR_TENSOR_DATA_TYPE: Attribute(TYPE, required=True),
        b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: Attribute(I64, required=True),
        b.CUDNN_ATTR_TENSOR_DIMENSIONS: Attribute(I64, 1, 8, required=True),
        b.CUDNN_ATTR_TENSOR_STRIDES: Attribute(I64, 1, 8, required=True),
        b.CUDNN_ATTR_TENSOR_IS_VIRTUAL: Attribute(FLAG, default=(False,)),
    },
    "MATMUL": {b.CUDNN_ATTR_MATMUL_COMP_TYPE: Attribute(TYPE, required=True)},
    "OPERATION_MATMUL": {
        b.CUDNN_ATTR_OPERATION_MATMUL_ADESC: Attribute(DESCRIPTOR, nested="TENSOR", required=True),
        b.CUDNN_ATTR_OPERATION_MATMUL_BDESC: Attribute(DESCRIPTOR, nested="TENSOR", required=True),
        b.CUDNN_ATTR_OPERATION_MATMUL_CDESC: Attribute(DESCRIPTOR, nested="TENSOR", required=True),
        b.CUDNN_ATTR_OPERATION_MATMUL_DESC: Attribute(DESCRIPTOR, nested="MATMUL", required=True),
    },
    "OPERATIONGRAPH": {
        b.CUDNN_ATTR_OPERATIONGRAPH_OPS:
            Attribute(DESCRIPTOR, 1, MANY, nested="OPERATION_MATMUL", required=True),
        b.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: Attribute(I64, is_read_only=True),
        b.CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED: Attribute(FLAG, default=(False,)),
    },
    "VARIANT_PACK": {
        b.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: Attribute(I64, 0, MANY, required=True),
        b.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: Attribute(POINTER, 0, MANY, required=True),
        b.CUDNN_ATTR_VARIANT_PACK_WORKSPACE: Attribute(POINTER, required=True),
    },
    "KNOB_INFO": {b.CUDNN_ATTR_KNOB_INFO_STRIDE: Attribute(I64, is_read_only=True)},
}  # fmt: skip


@dataclass
class Model:
    """A descriptor as the rules see it.

    values: attribute -> elements; descriptors among them as models.
    """

    kind: str
    state: str = "open"
    values: dict = field(default_factory=dict)

    @property
    def rules(self):
        return RULES[self.kind]

    # ---- set

    def set(self, name, type_, count, array):
        """The statuses of the call; takes the values if it succeeds."""
        if self.state == "destroyed":
            return {BAD}
        if self.state == "final":
            return {Status.NOT_INITIALIZED}
        row = self.rules.get(name)
        if row is not None and self.kind == "KNOB_INFO":
            return {Status.NOT_SUPPORTED}
        if row is None or row.is_read_only:
            return {BAD}
        if type_ != row.type:
            return {Status.BAD_PARAM_ATTRIBUTE_TYPE}
        if not row.low <= count <= row.high:
            return {BAD}
        if array is None and (count == 0 or (count == 1 and type_ == POINTER)):
            array = [None]  # a null pointer is an element of its own
        if array is None:
            return {Status.BAD_PARAM_NULL_POINTER}
        if len(array) < count:
            return {Status.BAD_PARAM_SIZE_INSUFFICIENT}
        wrong = {self._element(row, item) for item in array[:count]} - {OK}
        if not wrong:
            self.values[name] = list(array[:count])
        return wrong or {OK}

    def _element(self, row, item):
        if row.nested:
            if item is None:
                return Status.BAD_PARAM_NULL_POINTER
            if not isinstance(item, Model):
                return BAD
            if item.kind != row.nested:
                return Status.BAD_PARAM_DESCRIPTOR_TYPE
            return BAD if item.state == "destroyed" else OK
        if row.type == I64:
            return OK if type(item) is int else BAD
        if row.type == FLAG:
            return OK if item in (True, False) and not isinstance(item, str) else BAD
        if row.type == TYPE:
            return OK if type(item) is int and 0 <= item <= 21 else BAD
        return OK

    # ---- finalize

    def finalize(self):
        if self.state != "open":
            return {BAD}
        if self.kind == "KNOB_INFO":
            return {Status.NOT_SUPPORTED}
        wrong = set(self._missing()) or {self._unfit()} - {OK}
        if not wrong:
            self.state = "final"
            frozen = {name: [self._kept(v) for v in values] for name, values in self.values.items()}
            self.values = frozen
        return wrong or {OK}

    def _kept(self, value):
        """A copy of a descriptor as it is now, which later calls on it do not reach."""
        if not isinstance(value, Model):
            return value
        return Model(value.kind, value.state, dict(value.values))

    def _missing(self):
        for name, row in self.rules.items():
            if row.required and name not in self.values:
                yield BAD
            for item in self.values.get(name, ()) if row.nested else ():
                if item.state == "destroyed":
                    yield BAD
                elif item.state == "open":
                    yield Status.BAD_PARAM_NOT_FINALIZED

    def _unfit(self):
        check = getattr(self, f"_unfit_{self.kind.lower()}", None)
        return OK if check is None else check()

    def one(self, name):
        return self.values[name][0]

    def _unfit_tensor(self):
        dims = self.values[b.CUDNN_ATTR_TENSOR_DIMENSIONS]
        strides = self.values[b.CUDNN_ATTR_TENSOR_STRIDES]
        if len(dims) != len(strides):
            return Status.BAD_PARAM_SHAPE_MISMATCH
        if min(*dims, *strides, 1) < 1:
            return BAD
        sizes = {0: 4, 2: 2}  # FLOAT, HALF: what sequences draw
        dtype = self.one(b.CUDNN_ATTR_TENSOR_DATA_TYPE)
        if dtype not in sizes:
            return Status.NOT_SUPPORTED_DATA_TYPE
        alignment = self.one(b.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)
        return OK if alignment > 0 and alignment % sizes[dtype] == 0 else BAD

    def _unfit_matmul(self):
        known = self.one(b.CUDNN_ATTR_MATMUL_COMP_TYPE) in (0, 2)
        return OK if known else Status.NOT_SUPPORTED_DATA_TYPE

    def _tensors(self):
        names = [
            b.CUDNN_ATTR_OPERATION_MATMUL_ADESC,
            b.CUDNN_ATTR_OPERATION_MATMUL_BDESC,
            b.CUDNN_ATTR_OPERATION_MATMUL_CDESC,
        ]
        return [self.one(name) for name in names]

    def _dims(self):
        return [t.values[b.CUDNN_ATTR_TENSOR_DIMENSIONS] for t in self._tensors()]

    def _unfit_operation_matmul(self):
        if _conflict(self._tensors()):
            return Status.BAD_PARAM_DUPLICATED_ENTRIES
        a, other, c = self._dims()
        fits = len(a) == len(other) == len(c) == 2 and a[1] == other[0] and c == [a[0], other[1]]
        return OK if fits else Status.BAD_PARAM_SHAPE_MISMATCH

    def _unfit_variant_pack(self):
        uids = self.values[b.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS]
        pointers = self.values[b.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS]
        if len(uids) != len(pointers):
            return BAD
        return OK if len(set(uids)) == len(uids) else Status.BAD_PARAM_DUPLICATED_ENTRIES

    def _unfit_operationgraph(self):
        """The status of an operation graph of one product; others are not modelled."""
        ops = self.values[b.CUDNN_ATTR_OPERATIONGRAPH_OPS]
        if len(ops) > 1:
            return Status.BAD_PARAM_DUPLICATED_ENTRIES  # the same product twice makes c twice
        a, other, c = ops[0]._tensors()
        virtual = b.CUDNN_ATTR_TENSOR_IS_VIRTUAL
        uids = [t.one(b.CUDNN_ATTR_TENSOR_UNIQUE_ID) for t in (a, other, c)]
        if min(uids) < 0:
            return BAD
        if any(t.values.get(virtual) == [True] for t in (a, other, c)):
            return BAD  # an input that nobody makes, or no output
        # An output that is its own input is a cycle.
        return Status.NOT_SUPPORTED_GRAPH_PATTERN if uids[2] in uids[:2] else OK

    # ---- get and destroy

    def get(self, name, type_, requested):
        """(statuses, count, elements)."""
        if self.state == "destroyed":
            return {BAD}, 0, []
        if self.state == "open":
            return {Status.NOT_INITIALIZED}, 0, []
        row = self.rules.get(name)
        if row is None:
            return {BAD}, 0, []
        if type_ != row.type:
            return {Status.BAD_PARAM_ATTRIBUTE_TYPE}, 0, []
        if requested is not None and requested < 0:
            return {BAD}, 0, []
        values = self.values.get(name, list(row.default))
        return {OK}, len(values), values[:requested]

    def destroy(self):
        if self.state == "destroyed":
            return {BAD}
        self.state = "destroyed"
        self.values = {}
        return {OK}


def _conflict(tensors):
    """Whether two tensors that differ have one uid."""
    defaults = {name: list(row.default) for name, row in RULES["TENSOR"].items() if row.default}
    known = {}
    for tensor in tensors:
        uid = tensor.one(b.CUDNN_ATTR_TENSOR_UNIQUE_ID)
        values = defaults | tensor.values
        if known.setdefault(uid, values) != values:
            return True
    return False
