"""The assembler's stand-in in tests can't hide what the assembler would say."""

import dataclasses

import pytest

import dnnc
from dnnc.codegen import nvptx
from dnnc.compiler import compile_graph
from dnnc.target import of

from .support import assembler, known_registers, rotation

SM80 = of("sm_80")


def compiled(columns):
    g = dnnc.pygraph(io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([4, columns])).set_output()
    return compile_graph(g.graph.finalize(), "sm_80")


@pytest.fixture(scope="module")
def ptx():
    return compiled(33).blobs[1].decode()


@pytest.fixture
def is_drawn(monkeypatch):
    def set_to(answer):
        monkeypatch.setattr(rotation, "is_drawn", lambda text, parts: answer)

    return set_to


def test_numbers_that_nobody_knows_are_not_compared():
    with assembler.replaced_by(assembler.unassembled):
        plan = compiled(35)
    (kernel,) = plan.programs[0].kernels
    with pytest.raises(AssertionError, match="mark the test `registers`"):
        assert kernel.spill_store_bytes == 0
    with pytest.raises(AssertionError, match="mark the test `registers`"):
        assert not kernel.registers
    assert nvptx.assemble(plan.blobs[1].decode(), SM80).cubin[:4] == b"\x7fELF"


def test_ptx_that_the_assembler_refuses_is_found_when_it_is_drawn(ptx, is_drawn):
    broken = ptx.replace("ret;", "retire;")
    assert broken != ptx
    is_drawn(False)
    assembler.unassembled(broken, SM80)
    is_drawn(True)
    with pytest.raises(dnnc.DnncError, match="refused the PTX"):
        assembler.unassembled(broken, SM80)


def test_known_registers_are_those_that_the_assembler_says(ptx, monkeypatch, is_drawn):
    made = nvptx.assemble(ptx, SM80)
    monkeypatch.setattr(known_registers, "found", {})
    known_registers.record(ptx, SM80, made)
    monkeypatch.setattr(known_registers, "_known", lambda: known_registers.found)
    is_drawn(False)
    known = assembler.with_registers(ptx, SM80)
    assert known.cubin == assembler.CUBIN
    assert known.resources == made.resources
    assert assembler.with_registers(ptx + "\n", SM80).cubin[:4] == b"\x7fELF"  # of another hash
    assert assembler.with_registers(ptx, of("sm_86")).cubin[:4] == b"\x7fELF"


def test_a_wrong_entry_is_found_when_it_is_drawn(ptx, monkeypatch, is_drawn):
    made = nvptx.assemble(ptx, SM80)
    monkeypatch.setattr(known_registers, "found", {})
    known_registers.record(ptx, SM80, made)
    wrong = {key: "200,0,0,0,0" for key in known_registers.found}
    monkeypatch.setattr(known_registers, "_known", lambda: wrong)
    is_drawn(True)
    with pytest.raises(AssertionError, match="make registers"):
        assembler.with_registers(ptx, SM80)


def test_what_the_assembler_warns_about_is_not_kept(ptx, monkeypatch):
    made = nvptx.assemble(ptx, SM80)
    monkeypatch.setattr(known_registers, "found", {})
    warned = dataclasses.replace(made, log=f"{made.log}ptxas info    : (C7510) Potential loss\n")
    known_registers.record(ptx, SM80, warned)
    assert known_registers.found == {}
    known_registers.record(ptx, SM80, made)
    assert len(known_registers.found) == 1


def test_other_commits_draw_others():
    texts = [f"kernel {number}" for number in range(800)]
    first, second = ([t for t in texts if rotation.is_drawn(t, 8, n)] for n in (1, 2))
    assert 50 < len(first) < 150
    assert first == [t for t in texts if rotation.is_drawn(t, 8, 1)]
    assert len(set(first) & set(second)) < 50
