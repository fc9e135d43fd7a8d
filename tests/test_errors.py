import pickle

import pytest

from dnnc import errors
from dnnc.errors import DnncError, Status
from dnnc.places import Place


def test_text_has_status_place_fault_and_what_is_accepted():
    error = DnncError(Status.NOT_SUPPORTED_SHAPE, "K = 72", "K % 16 == 0", "matmul 'qk'")
    assert str(error) == "NOT_SUPPORTED_SHAPE: matmul 'qk': K = 72; accepted: K % 16 == 0"


def test_text_of_several_lines_ends_in_what_is_accepted():
    error = DnncError(Status.NOT_SUPPORTED, "no engine:\n  one: reason", "others", "graph 'g'")
    assert str(error).splitlines() == [
        "NOT_SUPPORTED: graph 'g': no engine:",
        "  one: reason",
        "accepted: others",
    ]


def test_text_has_the_users_line_first_and_says_where_the_rest_is():
    place = Place("/models/ffn.py", 12)
    error = DnncError(Status.BAD_PARAM, "K = 72", "", "matmul", made_at=place, details="all of it")
    assert error.summary == "BAD_PARAM: ffn.py:12: matmul: K = 72"
    assert str(error).splitlines() == [error.summary, "hint: the error's `details` list the rest"]
    assert str(DnncError(Status.BAD_PARAM, "K", made_at=place)) == "BAD_PARAM: ffn.py:12: K"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), vars(again), str(again)) == (type(error), vars(error), str(error))


@pytest.mark.parametrize(
    ("status", "base"),
    [
        (Status.BAD_PARAM, ValueError),
        (Status.BAD_PARAM_SHAPE_MISMATCH, ValueError),
        (Status.BAD_PARAM_NOT_FINALIZED, RuntimeError),
        (Status.NOT_SUPPORTED_GRAPH_PATTERN, errors.cudnnGraphNotSupportedError),
        (Status.NOT_SUPPORTED_ARCH_MISMATCH, errors.cudnnGraphNotSupportedError),
        (Status.NOT_INITIALIZED, RuntimeError),
        (Status.EXECUTION_FAILED_CUDA_DRIVER, RuntimeError),
        (Status.INTERNAL_ERROR, RuntimeError),
    ],
)
def test_python_class_is_what_cudnn_frontend_raises(status, base):
    error = DnncError(status, "x")
    assert isinstance(error, base)
    assert isinstance(error, DnncError)
    assert error.status is status


def test_not_supported_is_neither_value_nor_runtime_error():
    error = DnncError(Status.NOT_SUPPORTED, "x")
    assert not isinstance(error, ValueError | RuntimeError)


def test_categories_are_the_thousands():
    assert Status.BAD_PARAM_SHAPE_MISMATCH.category is Status.BAD_PARAM
    assert Status.NOT_SUPPORTED_SHAPE.category is Status.NOT_SUPPORTED
    assert Status.NOT_INITIALIZED.category is Status.NOT_INITIALIZED


def test_every_status_of_the_8x_reference_has_one_of_9x():
    assert errors.STATUS_OF_CUDNN8["ARCH_MISMATCH"] is Status.NOT_SUPPORTED_ARCH_MISMATCH
    assert len(errors.STATUS_OF_CUDNN8) == 15
