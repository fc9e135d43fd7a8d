"""The tests of tiles of some columns of an image, on the device; they name sm_90a."""

import pytest

from tests.engines.conv.test_columns_sm90 import *  # noqa: F403

pytestmark = pytest.mark.sm90
