"""Memory spaces: addresses, bounds, alignment, poison, vectors, conflicting stores."""

from __future__ import annotations

import numpy as np
import pytest

from dnnc.errors import DnncError, Status
from dnnc.interpreter import InterpreterError, Memory, launch, parse

from .lanes import module_text, run

U32 = np.arange(64, dtype=np.uint32)


def test_allocations_are_aligned_and_far_apart():
    memory = Memory()
    first, second = memory.allocate(10, name="x"), memory.allocate(10)
    odd = memory.allocate(10, offset=2)
    assert first % 256 == second % 256 == 0
    assert odd % 256 == 2
    assert abs(second - first) > 1 << 32


def test_upload_and_download():
    memory = Memory()
    x = memory.allocate(16, name="x")
    memory.upload(x, np.array([1, 2], np.int32))
    memory.upload(x + 8, b"abcd")
    assert memory.download(x, 12).tobytes() == b"\1\0\0\0\2\0\0\0abcd"
    with pytest.raises(InterpreterError, match=r"byte 12 of 16 was never written \(4 such"):
        memory.download(x, 16)
    assert memory.download(x, 16, allow_poison=True).size == 16
    memory.poison(x, 4)
    with pytest.raises(InterpreterError, match=r"byte 0 of 8"):
        memory.download(x, 8)


def test_hosts_accesses_are_checked():
    memory = Memory()
    x = memory.allocate(16, name="x")
    with pytest.raises(InterpreterError, match=r"leave 'x'"):
        memory.upload(x + 12, b"abcde")
    with pytest.raises(InterpreterError, match=r"leave 'x'"):
        memory.download(x - 1, 4)
    with pytest.raises(InterpreterError, match=r"in no allocation"):
        memory.download(12, 4)


def test_the_error_is_ours_and_names_the_place():
    with pytest.raises(InterpreterError) as error:
        run(
            "mad.wide.u32 %rd1, %thread, 4, %ptr0;\nst.global.b32 [%rd1+4], %thread;",
            (36, np.uint32),
            block=36,
        )
    assert isinstance(error.value, DnncError)
    assert error.value.status is Status.EXECUTION_FAILED
    text = str(error.value)
    assert "kernel 'k'" in text
    assert "CTA (0, 0, 0) warp 1 lane 3" in text
    assert "`st.global.b32 [%rd1+4], %thread`" in text
    assert "is outside 'allocation 0'" in text


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.b32 %r1, [%ptr0+-4];",
        "ld.global.b32 %r1, [%ptr0+256];",
        "ld.global.b64 %rd1, [%ptr0+252];",
        "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%ptr0+248];",
        "mov.b16 %h1, 0; st.global.b8 [%ptr0+256], %h1;",
        "atom.global.add.u32 %r1, [%ptr0+256], 1;",
        "mov.b64 %rd1, 0; ld.global.b32 %r1, [%rd1];",
    ],
)
def test_out_of_bounds(body: str):
    with pytest.raises(InterpreterError, match=r"is outside|in no allocation|multiple of"):
        run(body, U32)


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("ld.global.b32 %r1, [%ptr0+2];", 4),
        ("ld.global.v2.b32 {%r1, %r2}, [%ptr0+4];", 8),
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%ptr0+8];", 16),
        ("mov.b32 %r1, 0; st.global.b32 [%ptr0+1], %r1;", 4),
        ("red.global.add.u32 [%ptr0+2], 1;", 4),
        ("st.shared.b32 [s+2], 1;", 4),
    ],
)
def test_misaligned(body: str, size: int):
    with pytest.raises(InterpreterError, match=f"not a multiple of the access size, {size} bytes"):
        run(body, U32, globals_=".shared .align 16 .b8 s[64];")


def test_vectors_and_narrow_accesses():
    body = """
    mad.wide.u32 %rd1, %thread, 16, %ptr0;
    mad.wide.u32 %rd2, %thread, 16, %ptr1;
    ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
    st.global.cs.v2.b32 [%rd2], {%r2, %r1};
    ld.global.s8 %r5, [%rd1+8];
    ld.global.u8 %h1, [%rd1+9];
    st.global.v2.b16 [%rd2+8], {%h1, %h1};
    cvt.u16.u32 %h2, %r5;
    st.volatile.global.b8 [%rd2+12], %h2;
    st.global.b8 [%rd2+13], %r5;
    shr.s32 %r6, %r5, 8;
    st.global.b16 [%rd2+14], %r6;
    """
    x = np.random.default_rng(0).integers(0, 256, (32, 16), dtype=np.uint8)
    (y,) = run(body, x, (512, np.uint8))
    y = y.reshape(32, 16)
    assert (y[:, :4] == x[:, 4:8]).all()
    assert (y[:, 4:8] == x[:, :4]).all()
    assert (y[:, 8] == x[:, 9]).all()
    assert (y[:, 9] == 0).all()
    assert (y[:, 12] == x[:, 8]).all()
    assert (y[:, 13] == x[:, 8]).all()
    assert (y[:, 14] == np.where(x[:, 8] >= 128, 255, 0)).all()


def test_128_bit_and_256_bit_accesses():
    body = """
    mad.wide.u32 %rd1, %thread, 32, %ptr0;
    mad.wide.u32 %rd2, %thread, 32, %ptr1;
    ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];
    ld.global.b128 %q1, [%rd1+16];
    st.global.b128 [%rd2], %q1;
    st.global.v4.b32 [%rd2+16], {%r4, %r3, %r2, %r1};
    """
    x = np.arange(256, dtype=np.uint32).reshape(32, 8)
    (y,) = run(body, x, (256, np.uint32), declarations=".reg .b128 %q<2>;")
    assert (y.reshape(32, 8)[:, :4] == x[:, 4:]).all()
    assert (y.reshape(32, 8)[:, 4:] == x[:, 3::-1]).all()


def test_pointers_of_several_buffers_in_one_access():
    body = """
    and.b32 %r1, %thread, 1;
    setp.eq.u32 %p1, %r1, 0;
    selp.b64 %rd1, %ptr0, %ptr1, %p1;
    mad.wide.u32 %rd1, %thread, 4, %rd1;
    ld.global.b32 %r2, [%rd1];
    mad.wide.u32 %rd2, %thread, 4, %ptr2;
    st.global.b32 [%rd2], %r2;
    """
    (y,) = run(body, U32, U32 + 100, (32, np.uint32))
    assert y.tolist() == [k if k % 2 == 0 else k + 100 for k in range(32)]


def test_parameters_by_value_and_by_register():
    text = module_text("", 0).replace(
        ".visible .entry k()",
        ".visible .entry k(.param .u64 out, .param .b8 small, .param .align 8 .b8 block[24])",
    )
    text = text.replace(
        "ret;",
        """
        ld.param.u64 %rd1, [out];
        ld.param.u8 %r1, [small];
        ld.param.v2.b32 {%r2, %r3}, [block+8];
        mov.b64 %rd2, block;
        ld.param.b32 %r4, [%rd2+20];
        st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};
        ret;""",
    )
    memory = Memory()
    out = memory.allocate(16)
    params = [out.to_bytes(8, "little"), b"\xfe", np.arange(6, dtype=np.uint32).tobytes()]
    module = parse(text)
    shape = {"grid": (1, 1, 1), "block": (1, 1, 1), "memory": memory}
    launch(module, "k", params=params, **shape)
    assert memory.download(out, 16).view(np.uint32).tolist() == [254, 2, 3, 5]
    with pytest.raises(InterpreterError, match=r"parameters of \[8, 1\] bytes"):
        launch(module, "k", params=params[:2], **shape)


def test_module_variables_are_initialised_once():
    body = """
    mad.wide.u32 %rd1, %thread, 4, %ptr0;
    mul.lo.u32 %r1, %thread, 4;
    cvt.u64.u32 %rd2, %r1;
    mov.b64 %rd3, table;
    add.s64 %rd3, %rd3, %rd2;
    ld.global.b32 %r2, [%rd3];
    ld.const.b32 %r3, [c+4];
    atom.global.add.u32 %r4, [counter], 1;
    add.u32 %r2, %r2, %r3;
    st.global.b32 [%rd1], %r2;
    """
    variables = (
        ".global .align 4 .b32 table[4] = {10, 20, 30, 40};\n"
        ".const .align 4 .b32 c[2] = {0, 7};\n.global .b32 counter;"
    )
    (y,) = run(body, (4, np.uint32), block=4, globals_=variables)
    assert y.tolist() == [17, 27, 37, 47]
    module = parse(module_text("atom.global.add.u32 %r1, [n], 1;\nst.global.b32 [%ptr0], %r1;", 1,
                               globals_=".global .b32 n;"))  # fmt: skip
    memory = Memory()
    out = memory.allocate(4)
    for expected in (0, 1, 2):
        launch(module, "k", grid=(1, 1, 1), block=(1, 1, 1),
               params=[out.to_bytes(8, "little")], memory=memory)  # fmt: skip
        assert memory.download(out, 4).view(np.uint32)[0] == expected
    with pytest.raises(InterpreterError, match=r"constant memory"):
        run("mov.b64 %rd1, c;\nst.global.b32 [%rd1], 0;", globals_=".const .b32 c[1] = {1};")


def test_generic_addresses_reach_every_space():
    body = """
    mov.b64 %rd1, s;
    cvta.shared.u64 %rd1, %rd1;
    mov.b64 %rd2, depot;
    cvta.local.u64 %rd2, %rd2;
    and.b32 %r1, %thread, 3;
    mad.wide.u32 %rd3, %thread, 4, %ptr0;
    mad.wide.u32 %rd4, %thread, 4, %rd1;
    setp.eq.u32 %p1, %r1, 1;
    setp.eq.u32 %p2, %r1, 2;
    selp.b64 %rd5, %rd4, %rd3, %p1;
    selp.b64 %rd5, %rd2, %rd5, %p2;
    st.b32 [%rd5], %thread;
    ld.b32 %r2, [%rd5];
    mad.wide.u32 %rd6, %thread, 4, %ptr1;
    isspacep.shared %p3, %rd5;
    selp.u32 %r3, 1000, 0, %p3;
    add.u32 %r2, %r2, %r3;
    st.global.b32 [%rd6], %r2;
    """
    declarations = ".local .align 8 .b8 depot[16];"
    (_, y) = run(
        body,
        (32, np.uint32),
        (32, np.uint32),
        declarations=declarations,
        globals_=".shared .align 4 .b8 s[128];",
        allow_poison=True,
    )
    assert y.tolist() == [k + 1000 * (k % 4 == 1) for k in range(32)]


def test_generic_addresses_of_nothing():
    with pytest.raises(InterpreterError, match=r"is nowhere"):
        run("mov.b64 %rd1, -8; ld.b32 %r1, [%rd1];")


def test_local_memory_belongs_to_one_thread():
    body = """
    mov.b64 %rd1, depot;
    st.local.b32 [%rd1+4], %thread;
    bar.sync 0;
    ld.local.b32 %r1, [depot+4];
    mad.wide.u32 %rd2, %thread, 4, %ptr0;
    st.global.b32 [%rd2], %r1;
    """
    declarations = ".local .align 8 .b8 depot[8];"
    (y,) = run(body, (64, np.uint32), block=64, declarations=declarations)
    assert y.tolist() == list(range(64))
    with pytest.raises(InterpreterError, match=r"outside the 8 bytes of the frame"):
        run("ld.local.b32 %r1, [depot+8];", declarations=declarations)


def test_shared_memory_ends_where_it_was_asked_to():
    body = "mov.b32 %r1, smem; st.shared.b32 [%r1+{at}], 0;"
    globals_ = ".extern .shared .align 128 .b8 smem[];"
    run(body.format(at=60), globals_=globals_, smem=64, block=1)
    with pytest.raises(InterpreterError, match=r"outside the 64 bytes of shared memory"):
        run(body.format(at=64), globals_=globals_, smem=64, block=1)
    with pytest.raises(InterpreterError, match=r"outside"):
        run("mov.b32 %r1, 0; ld.shared.b32 %r2, [%r1];", globals_=globals_, smem=64, block=1)


def test_dynamic_shared_memory_follows_the_static():
    globals_ = ".shared .align 4 .b8 a[20];\n.extern .shared .align 128 .b8 smem[];"
    body = """
    mov.b32 %r1, a;
    mov.b32 %r2, smem;
    sub.u32 %r3, %r2, %r1;
    and.b32 %r4, %r2, 127;
    st.global.v2.b32 [%ptr0], {%r3, %r4};
    """
    (y,) = run(body, (2, np.uint32), globals_=globals_, smem=256, block=1)
    assert y.tolist() == [128, 0]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_lanes_that_disagree(space: str):
    target = "[%ptr0]" if space == "global" else "[s]"
    globals_ = ".shared .align 4 .b8 s[4];"
    with pytest.raises(InterpreterError, match=r"different values from several lanes"):
        run(f"st.{space}.b32 {target}, %thread;", U32.copy(), globals_=globals_)
    run(f"st.{space}.b32 {target}, 7;", U32.copy(), globals_=globals_)


def test_launch_limits():
    text = module_text("", 0).replace("k()", "k() .reqntid 64, 1, 1")
    with pytest.raises(InterpreterError, match=r"\.reqntid is \(64, 1, 1\)"):
        launch(parse(text), "k", grid=(1, 1, 1), block=(32, 1, 1), params=[], memory=Memory())
    text = module_text("", 0).replace("k()", "k() .maxntid 64")
    with pytest.raises(InterpreterError, match=r"\.maxntid"):
        launch(parse(text), "k", grid=(1, 1, 1), block=(65, 1, 1), params=[], memory=Memory())
    with pytest.raises(InterpreterError, match=r"at most 1024 threads"):
        launch(parse(module_text("", 0)), "k", grid=(1, 1, 1), block=(1025, 1, 1), params=[],
               memory=Memory())  # fmt: skip


def test_cache_policies_and_prefetches_change_nothing():
    body = """
    createpolicy.fractional.L2::evict_first.b64 %rd5, 1.0;
    mad.wide.u32 %rd1, %thread, 4, %ptr0;
    mad.wide.u32 %rd2, %thread, 4, %ptr1;
    prefetch.global.L2 [%rd1];
    griddepcontrol.wait;
    ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd5;
    st.global.L2::cache_hint.b32 [%rd2], %r1, %rd5;
    griddepcontrol.launch_dependents;
    """
    (y,) = run(body, U32, (32, np.uint32))
    assert y.tolist() == list(range(32))


def test_shared_memory_of_the_target():
    text = module_text("mov.b32 %r1, s;", 0, globals_=".extern .shared .align 16 .b8 s[];")
    shape = {"grid": (1, 1, 1), "block": (32, 1, 1), "params": [], "memory": Memory()}
    launch(parse(text), "k", dynamic_smem_bytes=227 << 10, **shape)
    with pytest.raises(InterpreterError, match=r"sm_90 allows 49152 static, 232448 in all"):
        launch(parse(text), "k", dynamic_smem_bytes=(227 << 10) + 1, **shape)
    ampere = parse(text.replace("sm_90", "sm_86"))
    with pytest.raises(InterpreterError, match=r"sm_86 allows"):
        launch(ampere, "k", dynamic_smem_bytes=100 << 10, **shape)
    static = text.replace(".extern .shared .align 16 .b8 s[]", ".shared .b8 s[49153]")
    with pytest.raises(InterpreterError, match=r"49153 bytes of static"):
        launch(parse(static), "k", **shape)


def test_clusters_have_their_registers():
    names = ["cluster_ctaid.x", "cluster_nctaid.x", "clusterid.x", "nclusterid.x",
             "cluster_ctarank", "cluster_nctarank"]  # fmt: skip
    body = "mad.wide.u32 %rd1, %cta, 24, %ptr0;" + "".join(
        f"mov.u32 %r1, %{name}; st.global.b32 [%rd1+{4 * at}], %r1;"
        for at, name in enumerate(names)
    )
    memory = Memory()
    out = memory.allocate(24 * 6)
    text = module_text(body, 1).replace("u64 q0)", "u64 q0) .reqnctapercluster 2, 1, 1")
    params = [out.to_bytes(8, "little")]
    launch(parse(text), "k", grid=(6, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1), params=params,
           memory=memory)  # fmt: skip
    got = memory.download(out, 24 * 6).view(np.uint32).reshape(6, 6)
    assert got.tolist() == [[k % 2, 2, k // 2, 3, k % 2, 2] for k in range(6)]
    with pytest.raises(InterpreterError, match=r"reqnctapercluster"):
        launch(parse(text), "k", grid=(6, 1, 1), block=(1, 1, 1), params=params, memory=memory)
    with pytest.raises(InterpreterError, match=r"whole clusters"):
        launch(parse(text), "k", grid=(5, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1),
               params=params, memory=memory)  # fmt: skip


def test_parameters_through_generic_addresses():
    text = module_text("", 1).replace("u64 q0)", "u64 q0, .param .align 4 .b8 block[16])")
    text = text.replace(
        "ret;",
        """
        mov.b64 %rd1, block;
        cvta.param.u64 %rd1, %rd1;
        mad.wide.u32 %rd2, %thread, 4, %rd1;
        ld.b32 %r1, [%rd2];
        mad.wide.u32 %rd3, %thread, 4, %ptr0;
        LAST
        ret;""",
    )
    memory = Memory()
    out = memory.allocate(16)
    block = np.array([5, 6, 7, 8], np.uint32).tobytes()
    params = [out.to_bytes(8, "little"), block]
    shape = {"grid": (1, 1, 1), "params": params, "memory": memory}
    launch(parse(text.replace("LAST", "st.global.b32 [%rd3], %r1;")), "k", block=(4, 1, 1), **shape)
    assert memory.download(out, 16).tobytes() == block
    with pytest.raises(InterpreterError, match=r"outside the 24 bytes of parameters"):
        launch(parse(text.replace("LAST", "")), "k", block=(5, 1, 1), **shape)
    with pytest.raises(InterpreterError, match=r"is read only"):
        launch(parse(text.replace("LAST", "st.b32 [%rd1], 0;")), "k", block=(1, 1, 1), **shape)
