"""Machine code that overwrites its stack pointer is found, assembled another way, or refused."""

import struct
from dataclasses import replace

import pytest

from dnnc import target
from dnnc.codegen import nvptx, stack_pointer
from dnnc.errors import DnncError, Status

pytestmark = pytest.mark.assembled

# A stack that no optimisation removes: where it is read is known at run time alone.
PTX = """
.version 8.7
.target {target}
.address_size 64
.visible .entry stacked(.param .u64 out, .param .u32 at)
{{
  .local .align 4 .b8 room[64];
  .reg .b32 %r<8>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [at];
  mov.u32 %r2, %tid.x;
  mov.u64 %rd2, room;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd4, %rd2, %rd3;
  st.local.u32 [room], %r2;
  st.local.u32 [room+4], %r1;
  ld.local.u32 %r3, [%rd4];
  mad.lo.u32 %r4, %r3, %r2, %r1;
  mul.wide.u32 %rd5, %r2, 4;
  add.u64 %rd6, %rd1, %rd5;
  st.global.u32 [%rd6], %r4;
  ret;
}}
"""
IMAD = 0x24  # the lowest bits of the opcode of `mad`


def made_of(name):
    row = target.of(name)
    return nvptx._assemble(PTX.format(target=row.chip), row)


def spoiled(made):
    """Changes the code so that its first multiplication writes R1."""
    code = dict(stack_pointer._sections(made.cubin))[".text.stacked"]
    for at in range(0, len(code), 16):
        (low,) = struct.unpack_from("<I", code, at)
        if low & 0xFF == IMAD and low >> 16 & 0xFF != 1:
            wrong = struct.pack("<I", low & ~(0xFF << 16) | 1 << 16)
            whole = made.cubin.index(code) + at
            return replace(made, cubin=made.cubin[:whole] + wrong + made.cubin[whole + 4 :])
    raise AssertionError("no multiplication in the code")


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_what_writes_the_stack_pointer_is_found(name):
    made = made_of(name)
    assert made.resources["stacked"].local_bytes == 64
    assert stack_pointer.overwritten(made.cubin, ["stacked"]) == []
    assert stack_pointer.overwritten(spoiled(made).cubin, ["stacked"]) == ["stacked"]


def test_it_is_assembled_sparing_registers(monkeypatch):
    wrong = spoiled(made_of("sm_90a"))
    monkeypatch.setattr(nvptx, "_assemble", lambda ptx, row: wrong)
    row, seen = target.of("sm_90a"), []
    assemble = nvptx._with_ptxas
    monkeypatch.setattr(
        nvptx, "_with_ptxas", lambda *given: seen.append(given[2]) or assemble(*given)
    )
    made = nvptx.assemble(PTX.format(target="sm_90a"), row)
    assert seen == [nvptx.SPARING]
    assert stack_pointer.overwritten(made.cubin, ["stacked"]) == []


def test_code_that_stays_wrong_is_refused(monkeypatch):
    wrong = spoiled(made_of("sm_90a"))
    monkeypatch.setattr(nvptx, "_assemble", lambda ptx, row: wrong)
    monkeypatch.setattr(nvptx, "_with_ptxas", lambda *given: wrong)
    with pytest.raises(DnncError, match="stack pointer in stacked") as refused:
        nvptx.assemble(PTX.format(target="sm_90a"), target.of("sm_90a"))
    assert refused.value.status == Status.INTERNAL_ERROR_COMPILATION_FAILED
