"""Plan files with right checksums and wrong contents: drawn mutations of good ones.

    python -m tests.random_plans SEED [COUNT]     tries COUNT plans (default 1000) from a seed on

Each mutated plan goes through all that a user does with a file: it is read, shown, made a page,
written as C, bound with a stand-in for the driver and, where it is small, run in the interpreter.
Each of these gives a result or a DnncError, soon.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from hashlib import sha256

import numpy as np
import pytest

import dnnc
from dnnc import dtypes
from dnnc.cli.show_plan import show_plan
from dnnc.dialect.json_form import from_json
from dnnc.emit import c_text
from dnnc.errors import DnncError
from dnnc.interpreter import plans as interpreter
from dnnc.interpreter.launch import launch
from dnnc.plan import format
from dnnc.runtime.executor import ExecutionPlan
from dnnc.target import of as target_of
from dnnc.view.page import Section, page
from dnnc.view.parts import ProgramParts
from tests.plan.plans import WHOLE
from tests.runtime.fake_driver import FakeDriver
from tests.view.pages import Page

# Processor seconds that one plan may take, through all.
SECONDS = 5.0
# Characters that one change may add.
LARGEST = 1_000_000
# Bytes by which the process may grow meanwhile.
MEMORY = 1 << 30

NUMBERS = [
    *(0, 1, -1, 2, 3, 7, 16, 63, 64, 65, 1023, 1025, 65535, 65536, (1 << 31) - 1, 1 << 31),
    *(1 << 32, (1 << 63) - 1, 1 << 63, 1 << 64, -(1 << 63), -(1 << 64), 10**400, -(10**400)),
]
FLOATS = [0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), -float("inf")]
NAMES = [
    "", " ", "x", "M", "\x1b[31m", "a\nb", "\x00", "\ud800", "größe", "$load", "%s", "*/", "int",
    "x" * 5000, "../x", "NONE", "i1", "f16", "HALF", "tf32", "small", "main", "sm_80", "sm_90a",
    "input", "output", "pointer", "workspace", "peer", "scalar", "by_value", "bytes", "tensor_map",
    "i32", "i64", "128B", "im2col", "F16x16", "zz", "00",
]  # fmt: skip
TEXTS = [
    "", "1", "0", "-1", "M", "-M", "M*M*M*M*M*M*M*M", "N", "sm_count", "9" * 19, "9" * 400,
    "M//0", "M//(M - M)", "M % N", "0 - M*4294967296", "M*4294967296*4294967296", "1" + "+1" * 2047,
    "M" + "//3" * 1300, "(" * 400, "min(" * 40, "-" * 4000 + "M", "*".join(["(M + N + 1)"] * 300),
    "*".join("M" * 2000), "magic(M)", "magic_shift(0 - 5)", "ceildiv(M, N - N)", "M <", "M <= 64",
    "M and N", "max(max(max(M, 1), 2), 3) // 7", "+".join(f"M//{i}" for i in range(2, 600)),
    "9223372036854775807", "9223372036854775807 + M", "0 - 9223372036854775807", "é", "M" * 5000,
]  # fmt: skip
TOKENS = ["M", "N", "+", "-", "*", "//", "%", "(", ")", "min(", "max(", ",", "1", "0", "1024", "<="]


# ---- mutations


class Mutation:
    """Changes the parts of a plan file, and makes its checksums right again."""

    def __init__(self, data: bytes, draw: random.Random):
        length = int.from_bytes(data[16:24], "little")
        self.index = json.loads(data[56 : 56 + length])
        self.payload = data[56 + length :]
        self.draw = draw
        entry = self.index["plans"][0]
        self.manifest = json.loads(self._section(entry["manifest"]))
        self.blobs = [self._section(section) for section in entry["blobs"]]
        self.name = entry["name"]

    def _section(self, section):
        return self.payload[section["offset"] : section["offset"] + section["length"]]

    def change(self) -> bytes:
        """The file after one to four changes."""
        draw = self.draw
        kinds = [self._field] * 12 + [self._blob]
        for _ in range(draw.randint(1, 4)):
            draw.choice(kinds)()
        is_index = draw.random() < 0.08
        return self._file(self._index if is_index else lambda index: None)

    def _file(self, change_index) -> bytes:
        payload, sections = bytearray(), []
        if isinstance(self.manifest, dict) and isinstance(self.manifest.get("name"), str):
            self.name = self.manifest["name"]
        for data in (json.dumps(self.manifest).encode(), *self.blobs):
            digest = sha256(data).hexdigest()
            sections.append({"offset": len(payload), "length": len(data), "sha256": digest})
            payload += data
        index = {"plans": [{"name": self.name, "manifest": sections[0], "blobs": sections[1:]}]}
        change_index(index)
        text = json.dumps(index).encode()
        head = struct.pack("<8sIIQ32s", format.MAGIC, 1, 0, len(text), sha256(text).digest())
        return head + text + bytes(payload)

    def _index(self, index) -> None:
        draw = self.draw
        entry = index["plans"][0]
        choice = draw.randrange(6)
        if choice == 0:
            entry["blobs"] = entry["blobs"] * draw.choice([2, 400, 20000])
        elif choice == 1:
            index["plans"] = index["plans"] * draw.choice([2, 300, 20000])
        elif choice == 2:
            section = draw.choice([entry["manifest"], *entry["blobs"]])
            section[draw.choice(["offset", "length"])] = draw.choice(NUMBERS)
        elif choice == 3:
            entry["blobs"].append({**draw.choice([entry["manifest"], *entry["blobs"]])})
            entry["blobs"][-1]["length"] -= 1
        elif choice == 4:
            index["plans"] = self._other(index["plans"])
        else:
            entry["name"] = draw.choice(NAMES)

    def _blob(self) -> None:
        draw = self.draw
        place = draw.randrange(len(self.blobs)) if self.blobs else None
        if place is None:
            return
        data = bytearray(self.blobs[place])
        choice = draw.randrange(4)
        if choice == 0:
            data = data[: draw.randrange(len(data) + 1)]
        elif choice == 1 and data:
            for _ in range(draw.randint(1, 8)):
                data[draw.randrange(len(data))] = draw.randrange(256)
        elif choice == 2:
            lines = bytes(data).split(b"\n")
            draw.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            lines = bytes(data).split(b"\n")
            del lines[draw.randrange(len(lines))]
            data = bytearray(b"\n".join(lines))
        self.blobs[place] = bytes(data)

    def _field(self) -> None:
        """Changes one value of the records; those of launches oftener than others."""
        draw = self.draw
        at = self.manifest
        parent, key = None, None
        while isinstance(at, dict | list) and at:
            keys = list(at) if isinstance(at, dict) else range(len(at))
            if parent is not None and draw.random() < 0.12:
                break
            if "programs" in keys and draw.random() < 0.5:
                keys = ["programs"]
            parent, key = at, draw.choice(list(keys))
            at = at[key]
        if parent is not None:
            self._replace(parent, key)

    def _replace(self, parent, key) -> None:
        draw, value = self.draw, parent[key]
        if isinstance(value, list) and draw.random() < 0.8:
            self._change_list(value)
        elif isinstance(value, dict) and draw.random() < 0.8:
            self._change_object(value)
        elif draw.random() < 0.03 and isinstance(parent, dict):
            del parent[key]
        else:
            parent[key] = self._other(value)

    def _change_list(self, value) -> None:
        draw = self.draw
        choice = draw.randrange(5)
        if choice == 0 or not value:
            value.clear()
        elif choice == 1:
            value += [draw.choice(value) for _ in range(draw.choice([1, 2, 30]))]
        elif choice == 2:
            del value[draw.randrange(len(value))]
        elif choice == 3:
            draw.shuffle(value)
        else:
            item, count = draw.choice(value), draw.choice([2, 100, 20000])
            # The file is to be small: what was made many before is not made many times as many.
            value[:] = [item] * (count if count * len(json.dumps(item)) < LARGEST else 2)

    def _change_object(self, value) -> None:
        draw = self.draw
        if value and draw.random() < 0.5:
            del value[draw.choice(list(value))]
        elif draw.random() < 0.3:
            value["required"] = draw.choice([["colour"], 5, [], ["name", "name"]])
        else:
            value[draw.choice(["offset", "uid", "value", "kind", "colour"])] = draw.choice(NUMBERS)

    def _other(self, value):
        """Another value, most often of the same type."""
        draw = self.draw
        if draw.random() < 0.08:
            return self._any()
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return draw.choice([*NUMBERS, value + 1, value - 1, value * 2, -value])
        if isinstance(value, float):
            return draw.choice([*FLOATS, *NUMBERS])
        if isinstance(value, str):
            return self._text(value)
        return self._any()

    def _text(self, value) -> str:
        draw = self.draw
        choice = draw.randrange(4)
        if choice == 0:
            return draw.choice(NAMES)
        if choice == 1:
            return draw.choice(TEXTS)
        if choice == 2:
            return f"({value}){draw.choice(['+', '-', '*', '//', '%'])}{draw.choice(NUMBERS[:20])}"
        at = draw.randrange(len(value) + 1)
        return value[:at] + draw.choice(TOKENS) + value[at + draw.randrange(3) :]

    def _any(self):
        draw = self.draw
        choice = draw.randrange(8)
        if choice == 0:
            deep = []
            for _ in range(draw.choice([3, 70, 300])):
                deep = [deep]
            return deep
        if choice == 1:
            return {draw.choice(NAMES): draw.choice(NUMBERS)}
        return draw.choice(
            [None, True, draw.choice(NUMBERS), draw.choice(FLOATS), draw.choice(NAMES), [], {}]
        )


def mutated(data: bytes, seed: int) -> bytes:
    """A plan's file, mutated; equal seeds give equal bytes."""
    return Mutation(data, random.Random(seed)).change()


# ---- what is done with them


def sizes_of(plan, draw):
    """A value in each symbol's range, small where it can be."""
    found = {}
    for symbol in plan.symbols:
        dim = symbol.dim
        small = min(dim.greatest, dim.least + draw.randrange(4) * dim.multiple_of)
        found[symbol.name] = draw.choice([dim.least, small, small, dim.greatest])
    return found


class Trial:
    """All that is done with a file.

    outcomes: how often each step came to what.  seconds: of all times of a step.
    """

    def __init__(self, fake):
        self.fake = fake
        self.outcomes = Counter()
        self.seconds = Counter()

    def step(self, name, function):
        """The result of a step; None after a DnncError, which has to say what is wrong."""
        began = time.process_time()
        error = None
        try:
            return function()
        except DnncError as refusal:
            error = refusal
            return None
        finally:
            self.seconds[name] += time.process_time() - began
            self.outcomes[name, "refused" if error else "done"] += 1
            if error is not None:
                self._verify(name, error)

    @staticmethod
    def _verify(name, error):
        assert error.what, f"{name}: {error!r} says nothing"
        assert len(str(error)) < 20_000, f"{name}: an error of {len(str(error))} characters"
        assert name != "read" or error.where, error

    def run(self, data, draw):
        plan = self.step("read", lambda: format.read(data))
        if plan is None:
            return
        self.step("show", functools.partial(self._show, plan))
        self.step("page", functools.partial(self._page, plan))
        self.step("C", lambda: "".join(c_text(plan, "made")).encode())
        self.step("write", lambda: format.read(format.to_bytes(plan)))
        sizes = sizes_of(plan, draw)
        self.step("bind", functools.partial(self._bind, plan, sizes))
        self.step("interpreter", functools.partial(self._interpret, plan, sizes))

    @staticmethod
    def _show(plan):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            show_plan(plan, plan.programs)
        strange = [c for c in said.getvalue() if c not in "\n\t" and not c.isprintable()]
        assert not strange, strange
        return True

    @staticmethod
    def _page(plan):
        graph = from_json(plan.graph)
        sections = [
            Section(ProgramParts(plan, program, graph, target_of(program.target), {}), "", ())
            for program in plan.programs
        ]
        Page(page(plan, graph, sections, 0).encode().decode())
        return True

    def _bind(self, plan, sizes):
        capability = tuple(plan.programs[0].capability)
        self.fake.capability = capability
        dnnc.runtime.driver._devices.clear()
        executable = ExecutionPlan(plan)
        executable.workspace_size(sizes)
        pack = {
            tensor.uid: 1.0 if tensor.is_by_value else (place + 1) << 40
            for place, tensor in enumerate(plan.tensors)
        }
        peers = {rank: dict.fromkeys(pack, 1 << 50) for rank in range(3)}
        executable.bind(pack, 1 << 52, sizes=sizes, peers=peers)()
        self._verify_memsets(plan, executable, sizes)
        return True

    def _verify_memsets(self, plan, executable, sizes):
        """Nothing is set but outputs, what devices share, and the workspace."""
        for memset in self.fake.memsets:
            place = (memset.address >> 40) - 1
            if memset.address >= 1 << 52:
                most = executable.workspace_size(sizes)
                assert memset.address - (1 << 52) + memset.bytes <= most, memset
            else:
                assert plan.tensors[place].role == "output" or plan.tensors[place].is_peer, memset
        self.fake.memsets.clear()
        self.fake.launches.clear()
        self.fake.tensor_maps.clear()

    @staticmethod
    def _interpret(plan, sizes):
        inputs = {}
        for tensor in plan.tensors:
            dims = [plan.expression(text).evaluate(sizes) for text in tensor.dims]
            if all(0 <= n < 1 << 16 for n in dims) and np.prod(dims, dtype=float) < 1 << 20:
                inputs[tensor.uid] = np.ones(dims, dtypes.of(tensor.dtype).numpy)
        interpreter.run_plan(plan, inputs, sizes=sizes)
        return True


@contextlib.contextmanager
def trial(fake=None):
    """A trial with a stand-in for the driver, and an interpreter that stops soon."""
    with pytest.MonkeyPatch.context() as patch:
        fake = FakeDriver(argument_bytes={})
        fake.install(patch)
        patch.setattr(interpreter, "launch", functools.partial(launch, step_limit=300))
        yield Trial(fake)


def attempt(made: Trial, data: bytes, seed: int) -> None:
    """Tries a mutation; what is neither a result nor a DnncError, or takes long, is an error."""
    changed = mutated(data, seed)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    made.run(changed, random.Random(seed))
    took = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown) * 1024
    assert took < SECONDS, f"{took:.1f} s"
    assert grown < MEMORY, f"{grown >> 20} MiB more"


def compiled_plans() -> list[bytes]:
    """Files of plans that dnnc makes: elementwise, and two fusions with a workspace between."""
    n = dnnc.Dim("M", max=64)
    g = dnnc.pygraph("fuzz", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    x, y = g.tensor([n, 16], name="x"), g.tensor([1, 16], name="y")
    alpha = g.tensor([1, 1], is_pass_by_value=True, name="alpha")
    g.relu(g.add(g.mul(x, alpha), y)).set_output().set_name("z")
    h = dnnc.pygraph("twice", io_data_type="HALF", compute_data_type="FLOAT")
    a, b = h.tensor([8, 16], name="a"), h.tensor([16, 16], name="b")
    h.matmul(h.matmul(a, b), b).set_output().set_name("c")
    made = [dnnc.compile(graph, "sm_80", in_process=True) for graph in (g, h)]
    return [format.to_bytes(plan) for plan in made]


def main() -> None:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    files = [format.to_bytes(WHOLE), *compiled_plans()]
    failed, slowest, slowest_seed, began = 0, 0.0, 0, time.monotonic()
    with trial() as made:
        for each in range(seed, seed + count):
            start = time.process_time()
            try:
                attempt(made, files[each % len(files)], each)
            except Exception as error:
                failed += 1
                print(f"seed {each}: {type(error).__name__}: {str(error)[:300]}")
                print("".join(traceback.format_exception(error)[-4:])[:1500])
            took = time.process_time() - start
            if took > slowest:
                slowest, slowest_seed = took, each
    for (name, outcome), times in sorted(made.outcomes.items()):
        print(f"{name:12} {outcome:8} {times:6}  {made.seconds[name]:.1f} s in all")
    took = time.monotonic() - began
    print(
        f"{failed} of {count} failed; {took:.0f} s, slowest {slowest:.2f} s (seed {slowest_seed})"
    )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
