"""What all tests share."""

from tests.support import seeds


def pytest_report_header():
    return f"dnnc: inputs on a device start from DNNC_TEST_SEED={seeds.BASE}"
