"""The tables of descriptors: complete, of cuDNN's names, and made of the operations' fields."""

import hashlib

import pytest

from dnnc import backend as b
from dnnc.backend import enums
from dnnc.backend.engines import knob_name, knob_type
from dnnc.backend.kinds import KINDS
from dnnc.dialect.fusion import partition
from dnnc.dialect.ops import BY_NAME, OPS, pointwise
from dnnc.dialect.ops.reduction import REDUCTION_MODES
from dnnc.engines import ENGINES
from dnnc.target import TARGETS
from tests.dialect.examples import ALL_EXAMPLES

from .building import PARAMETERS, SPELLED, name_of

# SHA-256 of every enumerator of cudnn_graph.h of cuDNN 9.19.1 that these enumerations have.
HEADER = "7d5aa80360157a71a47283b780407237006574f247bc1716149fc4306800963c"


def test_names_and_values_are_those_of_the_header():
    ours = [
        f"{kind.__name__}.{name}={int(value)}"
        for kind in enums.ENUMERATIONS
        for name, value in kind.__members__.items()
        if not name.startswith("DNNC_")
    ]
    assert hashlib.sha256("\n".join(sorted(ours)).encode()).hexdigest() == HEADER


def test_some_values_as_they_are_written_down():
    assert b.CUDNN_BACKEND_TENSOR_DESCRIPTOR == 17
    assert b.CUDNN_ATTR_OPERATION_MATMUL_ADESC == 1520
    assert b.CUDNN_TYPE_BACKEND_DESCRIPTOR == 15
    assert b.CUDNN_POINTWISE_GELU_FWD == 104
    assert b.CUDNN_HEUR_MODE_A == 3
    assert b.CUDNN_RESAMPLE_AVGPOOL == b.CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING == 2


def test_every_type_of_descriptor_has_a_kind_and_every_attribute_one_descriptor():
    assert set(KINDS) == set(b.cudnnBackendDescriptorType_t)
    names = [name for kind in KINDS.values() for name in kind.attributes]
    assert len(names) == len(set(names))
    assert set(names) == set(b.cudnnBackendAttributeName_t)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.type.name)
def test_attributes_of_descriptors_name_their_kinds_and_others_do_not(kind):
    for attribute in kind.attributes.values():
        assert attribute.types
        assert bool(attribute.of) == (b.CUDNN_TYPE_BACKEND_DESCRIPTOR in attribute.types)
        assert not (attribute.is_required and attribute.default is not None)
        assert (attribute.access == "unsupported") == bool(attribute.why)
        is_read = attribute.access in ("read-only", "input")
        assert not is_read or kind.build is None or attribute.name in kind.read


@pytest.mark.parametrize("op", SPELLED)
def test_the_tables_have_the_fields_under_cudnn_s_names(op):
    fields = {field.name: field for field in BY_NAME[op].fields}
    descriptor, prefix, names = SPELLED[op]
    tables = [(descriptor, prefix, names)]
    if op in PARAMETERS:
        parameters, link, more = PARAMETERS[op]
        tables.append((parameters, parameters, more))
        assert (
            name_of(prefix, link)
            in KINDS[enums.CONSTANTS[f"CUDNN_BACKEND_{descriptor}_DESCRIPTOR"]].attributes
        )
    for owner, start, ends in tables:
        kind = KINDS[enums.CONSTANTS[f"CUDNN_BACKEND_{owner}_DESCRIPTOR"]]
        for field, end in ends.items():
            if field not in fields:
                continue  # of another norm
            attribute = kind.attributes[name_of(start, end)]
            is_tensor = fields[field].kind != "attribute"
            assert is_tensor == (b.CUDNN_TYPE_BACKEND_DESCRIPTOR in attribute.types)
            assert attribute.high > 1 or not (fields[field].variadic or fields[field].type is tuple)


def test_modes_have_the_values_that_the_dialect_gives_them():
    for mode in pointwise.BY_NAME.values():
        assert enums.CONSTANTS[mode.cudnn] == mode.value
    assert len(pointwise.BY_NAME) == len(b.cudnnPointwiseMode_t)
    for mode in REDUCTION_MODES:
        assert enums.CONSTANTS[f"CUDNN_REDUCE_TENSOR_{mode.name.upper()}"] == mode.value
    assert len(REDUCTION_MODES) == len(b.cudnnReduceTensorOp_t)


def test_every_operation_that_cudnn_has_is_derived():
    for op in OPS:
        kind = enums.CONSTANTS.get(f"CUDNN_BACKEND_{op.backend}_DESCRIPTOR")
        if kind is None:
            continue
        assert KINDS[kind].build.func.__name__ == "build"


def test_every_knob_of_an_engine_has_a_type():
    """Over the graphs of all operations: what engines call a knob, users can set."""
    names = set()
    for _, _, build in ALL_EXAMPLES[::3]:
        graph = build().graph.finalize()
        (whole,) = partition(graph, [graph.live_ops])
        for target in (row for row in TARGETS if row.name in ("sm_80", "sm_90a")):
            taking = [e for e in ENGINES if not e.supports(whole, target)]
            names |= {knob.name for e in taking for knob in e.knobs(whole, target)}
    assert {"TILE_M", "LOAD_SIZE", "STAGES"} <= names
    for name in names:
        assert knob_name(knob_type(name)) == name
