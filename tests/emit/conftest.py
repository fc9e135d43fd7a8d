"""The stand-in for the driver, compiled once."""

import pytest

from . import c_compiler


@pytest.fixture(scope="session")
def fake_object(tmp_path_factory):
    made = tmp_path_factory.mktemp("driver") / "fake_driver.o"
    options = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
    source = c_compiler.HERE / "fake_driver.c"
    c_compiler.c("-fPIC", "-c", source, "-o", made, options=options)
    return made
