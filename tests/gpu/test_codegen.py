"""The kernels of codegen's parts alone, on the device; they are code of sm_90a."""

import pytest

from tests.codegen.test_contraction import *  # noqa: F403
from tests.codegen.test_im2col_kernel import *  # noqa: F403
from tests.codegen.test_math import *  # noqa: F403
from tests.codegen.test_ops import *  # noqa: F403
from tests.codegen.test_wgmma_kernel import *  # noqa: F403

pytestmark = pytest.mark.sm90
