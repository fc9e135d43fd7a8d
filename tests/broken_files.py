"""Graph files of every stage, changed in one or a few places, and what becomes of them."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import dnnc
from dnnc import compiler
from dnnc.cli import compile as compiling
from dnnc.cli import files, show_stage
from dnnc.cli.arguments import Stage
from dnnc.dialect import dnn
from dnnc.dialect.json_form import to_json
from dnnc.errors import DnncError
from dnnc.frontends.device_properties import target_rows

SECONDS, MEMORY = 60, 8 << 30
TEXT_STAGES = ("graph", "fused", "linalg", "kernel", "nvvm", "ptx")


def pointwise():
    g = dnnc.pygraph("points", io_data_type="f16", intermediate_data_type="f32")
    rows = dnnc.Dim("rows", max=64, multiple_of=2)
    x, b = g.tensor([rows, 48], name="x"), g.tensor([1, 48], data_type="i32", name="b")
    g.relu(g.add(g.swish(x), b, name="sum"), lower_clip=0.5).set_output().set_name("y")
    return g


def product():
    g = dnnc.pygraph("mm", io_data_type="f16", intermediate_data_type="f32")
    x, w, b = g.tensor([1, 64, 64]), g.tensor([1, 64, 64]), g.tensor([1, 1, 64])
    g.gelu(g.bias(g.matmul(x, w), b)).set_output()
    return g


def views():
    g = dnnc.pygraph("views", io_data_type="f16", intermediate_data_type="f32")
    x, y = g.tensor([4, 6]), g.tensor([4, 2])
    joined = g.concatenate([x, y], 1)
    part = g.slice(joined, [slice(0, 3), slice(1, 7, 2)])
    g.transpose(part, permutation=[1, 0]).set_output()
    return g


def norm():
    """Two fusions, each of which has a module of kernels."""
    g = dnnc.pygraph("norm", io_data_type="f16", intermediate_data_type="f32")
    x, scale, bias = g.tensor([16, 64]), g.tensor([1, 64]), g.tensor([1, 64])
    y, *stats = g.layernorm("TRAINING", x, scale, bias, 1e-5)
    for tensor in (y, *stats, g.matmul(y.set_data_type("f16"), g.tensor([64, 64]))):
        tensor.set_output()
    return g


GRAPHS = (pointwise, product, views, norm)


def originals():
    """(suffix, text) of each graph in each form and at each stage."""
    for made in GRAPHS:
        g = made()
        g.build_operation_graph()
        yield ".json", json.dumps(to_json(g.graph))
        with dnn.context():
            work = compiler.start(g.graph, target_rows("sm_80")[0])
            for stage in TEXT_STAGES:
                compiler.advance(work, stage)
                yield ".ptx" if stage == "ptx" else ".mlir", work.text()


# ---- JSON

VALUES = (
    None, True, False, [], {}, [[]], {"a": 1}, 0, 1, -1, 1 << 31, 1 << 63, 10**400, 1.5, -0.0,
    1e308, float("nan"), float("inf"), "", "x", "rows", "rows*rows", "rows//0", "\ud800", "\0",
    "é" * 300, "f16", "NONE", "(" * 300, "1" * 5000, [0] * 40, ["rows"],
)  # fmt: skip


def _places(data, path=()):
    yield path
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _places(value, (*path, key))


def broken_json(text, rng):
    """A JSON text with some values replaced, removed, repeated or exchanged."""
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = [path for path in _places(data) if path]
        if not places:
            break
        path = rng.choice(places)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        kind = rng.random()
        if kind < 0.6:
            holder[path[-1]] = copy.deepcopy(rng.choice(VALUES))
        elif kind < 0.75:
            del holder[path[-1]]
        elif kind < 0.85 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[path[-1]]))
        elif kind < 0.9 and isinstance(holder, dict):
            key = rng.choice(("name", "uid", "dims", "value", "x", "unknown"))
            holder[key] = rng.choice(VALUES)
        else:
            other = data
            for key in rng.choice(places):
                other = other[key]
            holder[path[-1]] = copy.deepcopy(other)
    made = json.dumps(data)
    return _broken_text(made, rng) if rng.random() < 0.15 else made


# ---- text

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|[%@#!^]?[A-Za-z_$.][\w$.]*|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|->|\s+|.'
)
NUMBERS = (
    "0", "-1", "1", "7", "4294967296", "9223372036854775807", "9223372036854775808", "9" * 40,
    "-9223372036854775808", "1.0e400", "0x7FF0000000000000", "1e-45",
)  # fmt: skip
STRINGS = ('""', '"x"', '"\\FF\\FE"', '"\\00"', '"anchor"', '"g2"', '"f32"', f'"{"a" * 3000}"')
WORDS = (
    "f32", "f16", "i64", "i8", "index", "none", "unit", "true", "array<i64: 1, 2>", "[]", "{}",
    "[1 : i32]", "dense<1> : tensor<2xi32>", "f64", "1 : i128", "affine_map<() -> ()>",
    '#dnn.symbol<"M", 1 : i64, 2 : i64, 1 : i64>', "tensor<*xf32>", "memref<4xf32>",
    "vector<4xf32>", "!dnn.nothing", "loc(unknown)", "array<i8: 1, 1>", "array<i32: 5>",
    "@nobody", "%nobody", "tensor<4x6xf16>", 'opaque<"a", "b">',
)  # fmt: skip


def broken_text(text, rng):
    """A text of which some tokens or lines were changed."""
    tokens = _TOKEN.findall(text)
    solid = [i for i, token in enumerate(tokens) if not token.isspace()]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        i = rng.choice(solid)
        token, kind = tokens[i], rng.random()
        if kind < 0.2:
            tokens[i] = tokens[rng.choice(solid)]
        elif kind < 0.35:
            j = rng.choice(solid)
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif kind < 0.45:
            tokens[i] = ""
        elif kind < 0.55:
            tokens[i] = f"{token} {token}"
        elif token[:1].isdigit():
            tokens[i] = rng.choice(NUMBERS)
        elif token.startswith('"'):
            tokens[i] = rng.choice(STRINGS)
        else:
            tokens[i] = rng.choice((*WORDS, *NUMBERS, *STRINGS))
    made = "".join(tokens)
    return _broken_text(made, rng) if rng.random() < 0.2 else made


def _broken_text(text, rng):
    lines = text.split("\n")
    kind, i = rng.randrange(6), rng.randrange(len(lines))
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:
        lines[i] = ""
    elif kind == 2:
        lines.insert(rng.randrange(len(lines)), lines[i])
    elif kind == 3:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(("\0", "\ufeff", "]", "[" * 100_000, "{" * 300)) + text[at:]
    elif kind == 4:
        j = rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
    else:
        at = rng.randrange(len(text))
        return text[:at] + text[at + rng.randrange(1, 40) :]
    return "\n".join(lines)


# ---- what becomes of a file


def treated(path):
    """Reads a file, shows it and goes on to PTX, as the commands do."""
    source = files.read_source(path)
    show_stage.show_source(source)
    rows = target_rows(source.target) if source.target else target_rows("sm_80")
    compiling._texts(source, rows, Stage.ptx, {})


def outcome(text, suffix):
    """Compiles a file in a process of its own; returns "done", "refused", "ended by SIGNAL", or a
    traceback."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"broken{suffix}")
        path.write_bytes(text.encode(errors="surrogatepass"))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _treat(str(path), writer)
        os.close(writer)
        with open(reader, "rb") as answer:
            said = answer.read().decode()
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        return "took too long" if number == signal.SIGALRM else f"ended by {number.name}"
    return said


def _treat(path, writer):
    said = "nothing was said"
    try:
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        try:
            treated(path)
            said = "done"
        except DnncError as error:
            str(error).encode()
            said = "refused"
    except BaseException:
        said = traceback.format_exc()
    finally:
        os.write(writer, said.encode(errors="replace")[-60_000:])
        os._exit(0)


def broken_files(seed, count):
    """(name, suffix, text) of files that a seed draws, each form and stage in turn."""
    forms = list(originals())
    for place in range(count):
        rng = random.Random(f"{seed} {place}")
        suffix, text = forms[place % len(forms)]
        change = broken_json if suffix == ".json" else broken_text
        yield f"{seed} {place}", suffix, change(text, rng)


def main(seed, count):
    """Treats files of a seed; prints what went wrong and how many there were of each outcome."""
    found = {}
    for name, suffix, text in broken_files(seed, count):
        said = outcome(text, suffix)
        known = said.startswith(("done", "refused", "ended", "took"))
        kind = said if known else said.strip().splitlines()[-1]
        found.setdefault(kind[:120], []).append(name)
        if kind not in ("done", "refused"):
            print(f"{name} {suffix}: {said[-1500:]}", flush=True)
    for kind, names in sorted(found.items()):
        print(f"{len(names):5} {kind} {names[0]}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
