"""PTX text to records."""

from __future__ import annotations

import pytest

from dnnc.interpreter import InterpreterError, parse
from dnnc.interpreter.ptx import (
    Address,
    FloatBits,
    Guard,
    Immediate,
    Negated,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

from .lanes import HEADER, module_text


def instructions(body: str, declarations: str = ""):
    return parse(module_text(body, 0, declarations)).function("k").instructions[2:-1]


def operands(text: str):
    return instructions(text)[0].operands


def test_header_and_limits():
    module = parse(
        ".version 8.6\n.target sm_90a, debug\n.address_size 64\n"
        ".visible .entry a(\n.param .u64 .ptr .global .align 1 a_0,\n"
        ".param .align 64 .b8 a_1[128]\n)\n.maxntid 256, 1, 1\n.minnctapersm 2\n{\nret;\n}\n"
        ".func (.param .b32 r) f(.param .b32 x);\n"
    )
    assert (module.version, module.target, module.kernels) == (86, "sm_90a", ("a",))
    function = module.function("a")
    assert [(p.name, p.align, p.nbytes) for p in function.params] == [
        ("a_0", 8, 8),
        ("a_1", 64, 128),
    ]
    assert function.limits == {"maxntid": (256, 1, 1), "minnctapersm": (2,)}
    with pytest.raises(InterpreterError, match=r"'f' has no body"):
        module.function("f")


def test_variables():
    module = parse(
        HEADER + ".extern .shared .align 1024 .b8 smem[];\n"
        ".shared .align 16 .b8 tile[64];\n"
        ".global .align 4 .b8 table[6] = {1, 255, 0x3};\n"
        ".const .align 8 .f64 c[2] = {0d3FF0000000000000, 2.0};\n"
        ".visible .global .v4 .b32 x;\n"
    )
    found = {v.name: (v.space, v.align, v.nbytes, v.data) for v in module.variables.values()}
    assert found["smem"] == ("shared", 1024, 0, None)
    assert found["tile"] == ("shared", 16, 64, None)
    assert found["table"] == ("global", 4, 6, b"\x01\xff\x03\0\0\0")
    assert found["c"] == ("const", 8, 16, bytes.fromhex("000000000000f03f0000000000000040"))
    assert found["x"][2] == 16
    assert module.variables["smem"].extern


def test_operands():
    assert operands("mov.u32 %r1, %tid.y;") == (Register("%r1"), Special("tid.y"))
    assert operands("mov.f32 %f1, 0f3F800000;")[1] == FloatBits(0x3F800000, 32)
    assert operands("add.s32 %r1, %r2, -0x10;")[2] == Immediate(-16)
    assert operands("ld.global.v2.b32 {%r1, _}, [%rd1+-8];") == (
        Vector((Register("%r1"), Sink())),
        Address(Register("%rd1"), -8),
    )
    assert operands("ld.shared.b32 %r1, [tile];")[1] == Address(Symbol("tile"), 0)
    assert operands("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;")[0] == Pair(
        Register("%r1"), Register("%p1")
    )
    assert operands("setp.eq.and.s32 %p1, %r1, 0, !%p2;")[3] == Negated(Register("%p2"))
    assert operands("cp.async.bulk.x [%r1], [%rd1, {%r2, %r3}];")[1] == Address(
        Register("%rd1"), 0, (Vector((Register("%r2"), Register("%r3"))),)
    )


def test_guards_labels_and_lines():
    text = module_text("L1:\n@!%p1 bra L2; // over\nadd.s32 %r1, %r1, 1; /* two\nlines */\nL2:", 0)
    function = parse(text).function("k")
    jump, add = function.instructions[2:4]
    assert jump.guard == Guard(Register("%p1"), True)
    assert (jump.text, add.opcode) == ("@!%p1 bra L2", ("add", "s32"))
    lines = text.split("\n")
    assert lines[jump.line - 1].startswith("@!%p1")
    assert lines[add.line - 1].startswith("add.s32")
    assert function.labels == {"L1": 2, "L2": 4}


def test_blocks_rename_what_they_declare():
    first, second, last = instructions(
        "{ .reg .b32 t, %r<2>; mov.b32 t, %r1; { .reg .b32 t; mov.b32 t, %r2; } }\nmov.b32 %r1, 0;"
    )
    assert first.operands == (Register("t#1"), Register("%r1#1"))
    assert second.operands == (Register("t#2"), Register("%r2"))
    assert last.operands == (Register("%r1"), Immediate(0))


def test_registers_without_a_percent_sign():
    assert instructions("mov.b32 x, y1;", ".reg .b32 x; .reg .b32 y<3>;")[0].operands == (
        Register("x"),
        Register("y1"),
    )


def test_branch_tables_and_debug_lines():
    text = (
        '.pragma "nounroll";\nT: .branchtargets A, B;\n'
        ".loc 1 5 3, function_name $i, inlined_at 1 2 3\n"
    )
    function = parse(module_text(text + "brx.idx %r1, T;\nA:\nB:\n", 0)).function("k")
    assert function.tables == {"T": ("A", "B")}


def test_without_removes_one_instruction():
    module = parse(module_text("L0:\nmov.b32 %r1, 1;\nL1:\nmov.b32 %r2, 2;\nL2:", 0))
    index = module.function("k").indices("mov.b32")[0]
    shorter = module.without("k", index).function("k")
    assert len(shorter.instructions) == len(module.function("k").instructions) - 1
    assert shorter.labels == {"L0": index, "L1": index, "L2": index + 1}
    with pytest.raises(InterpreterError, match=r"instruction 99"):
        module.without("k", 99)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".version 8.0\n.target sm_90\n.address_size 32\n", "PTX line 3: address size 32"),
        (HEADER + "nonsense\n", "PTX line 4: expected a directive"),
        (HEADER + ".visible .entry k() { add.s32 %r1 %r2", "PTX line 4: expected a statement"),
        (HEADER + ".visible .entry k() { .reg .b99 %r1; }", "unknown register declaration"),
        (HEADER + ".global .b32 x[1] = {other};", "initial value 'other'"),
        (HEADER + ".visible .entry k() { mov.b32 %r1, 0q3; }", "unknown constant '0q3'"),
    ],
)
def test_errors_name_the_line(text: str, message: str):
    with pytest.raises(InterpreterError) as error:
        parse(text)
    assert message in str(error.value)
