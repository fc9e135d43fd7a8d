"""`pytest --sass`: SASS of every kernel that tests assemble is looked at (see `sass`).

Kernels with products of Hopper's tensor cores, that the test's process has assembled: workers that
compile have their own.  One that an earlier test has assembled is not looked at again.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Generator

import pytest

from dnnc.codegen import nvptx
from dnnc.codegen.nvptx import Assembled
from dnnc.target import Target

from . import sass, sass_listing


class SassPlugin:
    """From its making on, until the end of the session."""

    def __init__(self) -> None:
        sass_listing.nvdisasm_path()  # or says what to install
        self._new = list[tuple[str, bytes]]()
        self._known = set[bytes]()
        self._assemble = nvptx.assemble
        nvptx.assemble = self._recording(nvptx.assemble)

    def _recording(
        self, assemble: Callable[[str, Target], Assembled]
    ) -> Callable[[str, Target], Assembled]:
        @functools.wraps(assemble)
        def recorded(ptx: str, target: Target) -> Assembled:
            made = assemble(ptx, target)
            digest = hashlib.sha256(made.cubin).digest()
            if "wgmma" in ptx and digest not in self._known:
                self._known.add(digest)
                self._new.append((os.environ.get("PYTEST_CURRENT_TEST", "no test"), made.cubin))
            return made

        return recorded

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Check what the test and its fixtures have assembled, even if the test fails."""
        try:
            return (yield)
        finally:
            self.check()

    def check(self) -> None:
        """Fails if one of the kernels since the last look does not wait for its products."""
        new, self._new = self._new, []
        early = [
            f"{touch}, assembled in {test}"
            for test, cubin in new
            for touch in sass.early_touches(cubin)
        ]
        if early:
            pytest.fail("\n".join(("products are not waited for:", *early)), pytrace=False)

    def pytest_unconfigure(self) -> None:
        nvptx.assemble = self._assemble
