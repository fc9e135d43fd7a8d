"""The tests of dropout beside norms, on the device; they name sm_90a."""

import pytest

from tests.engines.rows.test_dropout_norms import *  # noqa: F403

pytestmark = pytest.mark.sm90
