"""Operands that repeat, and tensors of rank 0, on the device."""

from tests.dialect.test_plain_operands import (  # noqa: F401
    test_rank_0_through_every_form,
    test_scalars_of_operations_may_have_no_dims,
)
from tests.engines.elementwise.test_broadcasts import *  # noqa: F403
