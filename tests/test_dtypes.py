import pickle

import numpy as np
import pytest

from dnnc import dtypes
from dnnc.errors import DnncError, Status


@pytest.mark.parametrize("row", dtypes.ALL, ids=str)
def test_every_name_leads_to_the_row(row):
    assert dtypes.of(row.name) is row
    assert dtypes.of(row.cudnn) is row
    assert dtypes.of(row.numpy) is row
    if row.dlpack:
        assert dtypes.of_dlpack(*row.dlpack) is row


@pytest.mark.parametrize("row", [r for r in dtypes.COMPUTE if r not in dtypes.ALL], ids=str)
def test_a_type_without_storage_computes_only(row):
    assert dtypes.of(row.name) is dtypes.of(row.cudnn) is row
    assert pickle.loads(pickle.dumps(row)) is row
    assert not row.has_storage
    assert row.dlpack is None
    for stored in (lambda: row.numpy, lambda: dtypes.of_storage(row.cudnn)):
        with pytest.raises(DnncError, match=f"{row.cudnn} is a compute type") as caught:
            stored()
        assert caught.value.status is Status.BAD_PARAM_ATTRIBUTE_TYPE
        assert caught.value.supported.split(", ") == [stored.name for stored in dtypes.ALL]


@pytest.mark.parametrize("row", dtypes.ALL, ids=str)
def test_other_types_are_stored(row):
    assert dtypes.of_storage(row.name) is row


def test_values_are_those_of_cudnn():
    values = {row.cudnn: row.value for row in dtypes.COMPUTE}
    assert values["FP8_E5M2"] == 13
    assert values["FAST_FLOAT_FOR_FP8"] == 14
    assert len(set(values.values())) == len(values)


@pytest.mark.parametrize("row", [r for r in dtypes.ALL if r.bits >= 8], ids=str)
def test_numpy_elements_have_the_storage_size(row):
    assert row.numpy.itemsize * 8 == row.bits


def test_booleans_are_packed():
    assert dtypes.i1.storage_bytes(9) == 2
    assert dtypes.f16.storage_bytes(9) == 18


class TorchDtype:
    def __str__(self):
        return "torch.bfloat16"


def test_torch_dtypes_are_known_by_their_text():
    assert dtypes.of(TorchDtype()) is dtypes.bf16


@pytest.mark.parametrize(
    ("row", "names"),
    [
        (dtypes.f8e4m3, "e4m3 E4M3 e4m3fn f8e4m3 f8e4m3fn fp8_e4m3 fp8_e4m3fn float8_e4m3fn"),
        (dtypes.f8e5m2, "e5m2 f8e5m2 fp8_e5m2 fp8e5m2 float8_e5m2 torch.float8_e5m2"),
        (dtypes.f16, "half f16 fp16 float16"),
        (dtypes.f32, "float f32 fp32 float32"),
    ],
)
def test_names_that_the_field_uses_are_known(row, names):
    for name in names.split():
        assert dtypes.of(name) is row


@pytest.mark.parametrize("name", ["f8E4M3", "f8E4M3FNUZ", "HALF"])
def test_types_of_mlir_have_one_name(name):
    with pytest.raises(DnncError, match="is not a data type"):
        dtypes.of_mlir(name)
    assert dtypes.of_mlir("f8E4M3FN") is dtypes.f8e4m3


# ml_dtypes' float8_e4m3 has infinities, as MLIR's f8E4M3.
@pytest.mark.parametrize("value", ["float12", 3, None, np.complex64, "float8_e4m3"])
def test_other_values_are_refused(value):
    with pytest.raises(DnncError, match="is not a data type"):
        dtypes.of(value)


def test_unknown_dlpack_type_is_refused():
    with pytest.raises(DnncError, match="DLPack type code 5"):
        dtypes.of_dlpack(5, 64)
