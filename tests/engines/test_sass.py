"""SASS of kernels of each main loop, which has to wait for its products; and what sees to that.

As code of "sm_90a", on no device.  `pytest --sass` looks at the kernels of all other tests.
"""

import types

import pytest

from dnnc import dtypes
from dnnc.codegen import nvptx
from dnnc.compiler import compile_graph
from dnnc.options import Options
from tests.support import sass, sass_listing
from tests.support.sass_listing import parse
from tests.support.sass_plugin import SassPlugin

from .. import attention_graphs, fp8_attention
from .attention import test_fp8_sm90 as test_sdpa_fp8_sm90
from .attention import test_fwd_sm90 as test_sdpa_fwd_sm90
from .conv import test_before_sm90 as test_conv_before_sm90
from .conv import test_ping_pong_sm90 as test_conv_ping_pong_sm90
from .conv.convs import around, convolved, image
from .conv.test_before_sm90 import scaled
from .conv.test_exits_sm90 import genstats, reduced
from .conv.test_halo_sm90 import with_halo
from .conv.test_sm90 import SMALL
from .product import test_fragments_sm90, test_ping_pong_sm90
from .product.test_matmul_sm90 import SMALL as PRODUCT
from .product.test_matmul_sm90 import new_graph as product_graph
from .product.test_matmul_sm90 import product

pytestmark = pytest.mark.assembled

slow = pytest.mark.slow

# ---- the checker, on code written by hand


def listed(text):
    """The function of some instructions and labels, a line each."""
    lines, address = [".text.kernel:"], 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            lines.append(line)
        else:
            lines.append(f"        /*{address:04x}*/                   {line} ;")
            address += 16
    (function,) = parse("\n".join(lines))
    return function


def early(text):
    """{instruction without its address: the registers that it touches too early}."""
    found = sass.touches(listed(text))
    return {str(touch.instruction).split(": ")[1].strip(): touch.registers for touch in found}


PRODUCTS = """
    HGMMA.64x16x16.F32 R24, gdesc[UR8], RZ, !UPT
    HGMMA.64x16x16.F32 R24, gdesc[UR12], R24, gsb0
"""
WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0\n"
READ = "F2FP.F16.F32.PACK_AB R9, R27, R26\n"
EARLY = {READ.strip(): (26, 27)}


def test_sums_are_read_before_the_wait():
    assert early(PRODUCTS + READ + WAIT + "EXIT") == EARLY


def test_sums_are_read_after_the_wait():
    assert early(PRODUCTS + WAIT + READ + "EXIT") == {}


def test_registers_beside_the_sums_are_free():
    assert early(PRODUCTS + "FADD R32, R23, R33\n" + WAIT + "EXIT") == {}


def test_sums_are_written_before_the_wait():
    assert early(PRODUCTS + "MOV R31, RZ\n" + WAIT + "EXIT") == {"MOV R31, RZ": (31,)}


@pytest.mark.parametrize(
    ("left", "found"), [(0, ()), (1, (32,)), (2, (24, 32)), (3, (24, 32)), (4, (24, 32))]
)
def test_a_wait_leaves_the_newest_groups(left, found):
    others = "HGMMA.64x16x16.F32 R32, gdesc[UR8], RZ, !UPT, gsb0\n"
    wait, read = WAIT.replace("0x0", hex(left)), "FADD R2, R24, R32"
    touched = early(f"{PRODUCTS} {others} {wait} {read}\n EXIT")
    assert touched == ({read: found} if found else {})


def test_products_that_no_group_has_are_not_waited_for():
    opened = PRODUCTS.replace(", gsb0", "")
    assert early(opened + WAIT + READ + "EXIT") == EARLY


def test_sums_of_f16_are_half_as_many():
    text = "HGMMA.64x16x16.F16 R24, gdesc[UR8], RZ, !UPT, gsb0\nFADD R2, R27, R28\n"
    assert early(text + "EXIT") == {"FADD R2, R27, R28": (27,)}


@pytest.mark.parametrize(("waits", "found"), [("", EARLY), (WAIT, {})], ids=["one", "both"])
def test_branches_that_join(waits, found):
    """A read that two branches reach is early unless both wait."""
    first = f"{PRODUCTS} @P0 BRA `(.L_x_1)\n {WAIT} BRA `(.L_x_2)\n"
    assert early(f"{first} .L_x_1:\n {waits} .L_x_2:\n {READ} EXIT") == found


def test_a_loop_that_reads_sums_of_the_round_before():
    """Which a wait for all but one does not end."""
    back = "@P0 BRA `(.L_x_1)\n"
    for wait, found in ((WAIT, {}), (WAIT.replace("0x0", "0x1"), EARLY)):
        assert early(f".L_x_1:\n {READ} {PRODUCTS} {wait} {back} {WAIT} EXIT") == found


def test_two_groups_in_a_round_as_ptxas_13_0_had_them():
    """The wait for all is behind the reads: a wait for all but one group was the last before."""
    text = """
        HGMMA.64x64x16.F32 R24, gdesc[UR20], RZ, !UPT, gsb0
        WARPGROUP.DEPBAR.LE gsb0, 0x1
        .L_x_17:
        SYNCS.PHASECHK.TRANS64.TRYWAIT P2, [R5+URZ+0x8008], R8
        @!P2 BRA `(.L_x_17)
        WARPGROUP.ARRIVE
        HGMMA.64x64x16.F32 R24, gdesc[UR24], R24, UP0, gsb0
        WARPGROUP.DEPBAR.LE gsb0, 0x1
        @!P1 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R103+URZ+0xc010], RZ
        F2FP.F16.F32.PACK_AB R21, R27, R26
        WARPGROUP.DEPBAR.LE gsb0, 0x0
        F2FP.F16.F32.PACK_AB R18, R25, R24
        EXIT
    """
    assert early(text) == {"F2FP.F16.F32.PACK_AB R21, R27, R26": (26, 27)}


OF_REGISTERS = "HGMMA.64x16x16.F32.BF16 R24, R40, gdesc[UR8], R24, UP0, gsb0\n"


def test_a_of_registers_may_be_read_but_not_written():
    reads = "STS [R2], R43\n ISETP.GT.AND P1, PT, R41, R3, PT\n BAR.SYNC R40, R41\n"
    assert early(OF_REGISTERS + reads + WAIT + "MOV R40, RZ\n EXIT") == {}
    writes = "LDS.64 R42, [R2]\n @P0 IADD3 R44, P1, R43, R2, RZ\n"
    assert early(OF_REGISTERS + writes + WAIT + "EXIT") == {"LDS.64 R42, [R2]": (42, 43)}


def test_a_product_takes_no_sums_that_are_under_way_for_a():
    taking = "HGMMA.64x16x16.F32 R48, R28, gdesc[UR8], RZ, !UPT, gsb0\n"
    assert list(early(PRODUCTS + taking + WAIT + "EXIT").values()) == [(28, 29, 30, 31)]
    assert early(PRODUCTS + WAIT + taking + WAIT + "EXIT") == {}


def test_a_product_adds_to_all_of_the_sums_or_to_others():
    partly = "HGMMA.64x8x16.F32 R28, gdesc[UR8], R28, gsb0\n"
    beside = "HGMMA.64x8x16.F32 R32, gdesc[UR8], R32, gsb0\n"
    assert list(early(PRODUCTS + partly + WAIT + "EXIT").values()) == [(28, 29, 30, 31)]
    assert early(PRODUCTS + beside + WAIT + "EXIT") == {}


def test_a_subroutine_returns_to_where_it_was_called():
    """A read in a subroutine is early only if the caller called it ahead of the wait."""
    called = "CALL.REL.NOINC `($slowpath)\n"
    after = "$slowpath:\n MUFU.RCP R9, R24\n RET.REL.NODEC R2 `(kernel)"
    assert early(f"{PRODUCTS} {WAIT} {called} {READ} EXIT\n {after}") == {}
    found = early(f"{PRODUCTS} {called} {WAIT} {READ} EXIT\n {after}")
    assert found == {"MUFU.RCP R9, R24": (24,)}
    quiet = after.replace("R24", "R9")
    assert early(f"{PRODUCTS} {called} {READ} EXIT\n {quiet}") == EARLY


@pytest.mark.parametrize(
    ("instruction", "touched", "written"),
    [
        ("STS.128 [R2], R24", {2, *range(24, 28)}, set()),
        ("STSM.16.MT88.2 [R2], R24", {2, 24, 25}, set()),
        ("LDSM.16.M88.4 R24, [R2]", {2, *range(24, 28)}, set(range(24, 28))),
        ("LDG.E.128.CONSTANT R12, desc[UR22][R4.64]", {4, 5, *range(12, 16)}, set(range(12, 16))),
        ("STG.E.64 desc[UR28][R4.64+0x8], R20", {4, 5, 20, 21}, set()),
        ("LD.E.128 R8, [R4]", {4, 5, *range(8, 12)}, set(range(8, 12))),
        ("LDC.64 R14, c[0x0][0x3d8]", {14, 15}, {14, 15}),
        ("CS2R R4, SRZ", {4, 5}, {4, 5}),
        ("CS2R.32 R4, SR_CLOCKLO", {4}, {4}),
        ("IMAD.WIDE.U32 R14, P0, R7, 0x2, R16", {7, 14, 15, 16, 17}, {14, 15}),
        ("IMAD.HI.U32 R12, R3, R9, R20", {3, 9, 12, 20, 21}, {12}),
        ("SHF.R.U64 R18, R20, UR38, R23", {18, 20, 23}, {18}),
        ("I2F.F64.U32 R2, R4", {2, 3, 4, 5}, {2, 3}),  # of R5 to be on the safe side
        ("DFMA R2, R4, R6, R8", set(range(2, 10)), {2, 3}),
        ("SHFL.BFLY PT, R15, R110.reuse, 0x1, 0x1f", {15, 110}, {15}),
        ("ATOMG.E.ADD.STRONG.GPU PT, R22, desc[UR50][R2.64], R5", {2, 3, 5, 22}, {22}),
        ("FMUL R10, |R20|, -R7", {7, 10, 20}, {10}),
        ("@!PT LDS R24, [R25]", set(), {24}),
    ],
)
def test_registers_of_instructions(instruction, touched, written):
    (found,) = listed(instruction).code
    assert found.touched == touched
    assert found.written == written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PRODUCTS + "BRX R2 -0x10\n EXIT", "a jump of another form"),
        (PRODUCTS + "BRA `(.L_x_9)\n", "labels that are not there"),
        (PRODUCTS + "@P0 WARPGROUP.DEPBAR.LE gsb0, 0x0\n EXIT", "a wait of another form"),
        ("@P0 " + PRODUCTS.strip() + "\n EXIT", "a product of another form"),
        (PRODUCTS.replace("R24, gsb0", "R40, gsb0") + "EXIT", "adds to other registers"),
        (PRODUCTS + WAIT, "ends without EXIT"),
        (PRODUCTS + "RET.REL.NODEC R2 `(kernel)", "a return from no subroutine"),
        (f".L_x_1:\n {PRODUCTS} @P0 BRA `(.L_x_1)\n EXIT", "more than 8 groups"),
    ],
)
def test_what_cannot_be_followed_is_an_error(text, why):
    with pytest.raises(sass.Unclear, match=why):
        early(text)


def test_too_many_states_are_an_error(monkeypatch):
    monkeypatch.setattr(sass, "_MOST_STATES", 3)
    with pytest.raises(sass.Unclear, match="more than 3 places and states"):
        early(PRODUCTS + WAIT + READ + "EXIT")


def test_a_line_that_is_no_instruction_is_an_error():
    with pytest.raises(ValueError, match="not an instruction"):
        listed("???")


# ---- real kernels


def compiled(engine, g, knobs):
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    return compile_graph(g.graph.finalize(), "sm_90a", options)


def assert_waited_for(plan):
    """Checks every kernel; one has products."""
    (module,) = plan.programs[0].modules
    found = sass.functions(plan.blobs[module.cubin])
    assert any("GMMA" in instruction.name for f in found for instruction in f.code)
    early = [str(touch) for function in found for touch in sass.touches(function)]
    assert not early, "\n".join(early)


def convolution(channels, *, statistics, computed=False, filters=136, taps=3):
    """A convolution in panels of 64 channels, the last of which is multiplied in part."""
    g = test_conv_before_sm90.new_graph()
    x = image(g, [3, channels, 9, 9])
    x = scaled(g, x, channels) if computed else x
    y = g.conv_fprop(x, image(g, [filters, channels, taps, taps]), **around(taps // 2))
    y.set_data_type(dtypes.f16).set_output()
    if statistics:
        genstats(g, y)
    return g


WAYS = {
    "4 stages": {"STAGES": 4},
    "6 stages": {"STAGES": 6},
    "cluster": {"STAGES": 6, "TILE_CGA_M": 2},
    "swapped": {"STAGES": 6, "SWAP_AB": 1, "TILE_M": 128},
}
QUICK = [
    (72, 3, "4 stages", True, False), (72, 3, "swapped", True, True),
    (160, 3, "6 stages", True, False), (160, 3, "6 stages", False, False),
    (72, 3, "4 stages", True, True), (96, 3, "cluster", False, True),
]  # fmt: skip
SWEEP = [
    (channels, taps, way, statistics, computed)
    for channels in (72, 96, 160)
    for taps in (1, 3)
    for way in WAYS
    for statistics in (False, True)
    for computed in (False, True)
]


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("channels", "taps", "way", "statistics", "computed"),
    [pytest.param(*case, marks=() if case in QUICK else slow) for case in SWEEP],
)
def test_convolutions(channels, taps, way, statistics, computed):
    g = convolution(channels, taps=taps, statistics=statistics, computed=computed)
    assert_waited_for(compiled("conv_sm90", g, {**SMALL, **WAYS[way]}))


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize(
    ("statistics", "computed", "rows", "filters"),
    [
        (True, False, 4, 64),
        (True, True, 3, 128),
        *(pytest.param(*case, marks=slow) for case in [
            (False, False, 4, 64), (False, True, 4, 64), (True, True, 4, 64),
            (False, False, 3, 128), (False, True, 3, 128), (True, False, 3, 128)]),
    ],
)  # fmt: skip
def test_convolutions_whose_pixels_come_with_a_halo(statistics, computed, rows, filters):
    def build():
        return convolution(72, statistics=statistics, computed=computed)

    knobs = with_halo(build(), rows, filters)
    assert_waited_for(compiled("conv_sm90", build(), knobs))


@pytest.mark.in_turn
def test_a_convolution_in_ping_pong():
    g = test_conv_ping_pong_sm90.new_graph()
    y = convolved(g, [2, 72, 9, 9], [72, 72, 1, 1], **around(0)).set_output()
    reduced(g, y, "add", [1, 72, 1, 1])
    assert_waited_for(compiled("conv_sm90", g, {**test_conv_ping_pong_sm90.PING_PONG, "STAGES": 4}))


def with_exits():
    g, c = product(dtypes.f16, 150, 200, 264)
    reduced(g, c, "add", [1, 1, 200])
    reduced(g, c, "amax", [1, 1, 1])
    return g


def promoted():
    g = product_graph(dtypes.f8e4m3)
    b = g.tensor([1, 256, 64], [64 * 256, 1, 256])
    g.matmul(g.tensor([1, 64, 256]), b).set_output().set_data_type(dtypes.f32)
    return g


def of_8_bits():
    return test_fragments_sm90.weights_of_8_bits(dtypes.i8, 72, 200, 192)


MATMULS = {
    "exits": (with_exits, PRODUCT),
    "fragments": (of_8_bits, {**test_fragments_sm90.SWAPPED, "TILE_N": 128}),
    "ping-pong": (with_exits, test_ping_pong_sm90.PING_PONG),
    "fp8 promoted": (promoted, PRODUCT),
}


@pytest.mark.in_turn
@pytest.mark.rotating
@pytest.mark.parametrize("name", MATMULS)
def test_matmuls(name):
    build, knobs = MATMULS[name]
    assert_waited_for(compiled("matmul_sm90", build(), knobs))


@pytest.mark.in_turn
@pytest.mark.parametrize("depth", [64, pytest.param(128, marks=slow)])
def test_causal_attention(depth):
    pattern = attention_graphs.Pattern(
        depth=depth, dtype="HALF", queries=200, keys=200, scores=attention_graphs.causal
    )
    assert_waited_for(compiled("sdpa_fwd_sm90", pattern.g, test_sdpa_fwd_sm90.SMALL))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "compute", ["FLOAT", pytest.param(fp8_attention.FAST, marks=slow)], ids=str
)
def test_attention_of_fp8(compute):
    g = fp8_attention.attention(depth=128, compute=compute, arguments={"use_causal_mask": True})
    assert_waited_for(compiled("sdpa_fwd_sm90", g, test_sdpa_fp8_sm90.SMALL))


# ---- the option --sass


@pytest.fixture
def plugin(monkeypatch):
    """One for which "early" in PTX makes a kernel that touches its sums too early."""
    monkeypatch.setattr(
        nvptx, "assemble", lambda ptx, target: types.SimpleNamespace(cubin=ptx.encode())
    )
    monkeypatch.setattr(
        sass, "early_touches", lambda cubin: ["it is early"] if b"early" in cubin else []
    )
    made = SassPlugin()
    yield made
    made.pytest_unconfigure()


def end_of_a_test(plugin, *ptx):
    """Runs what the plugin does at the end of a test that assembles some PTX."""
    call = plugin.pytest_runtest_call()
    next(call)
    for text in ptx:
        nvptx.assemble(text, None)
    with pytest.raises(StopIteration):
        call.send(None)


def test_a_test_whose_kernel_is_early_fails(plugin):
    end_of_a_test(plugin, "wgmma", "early, but without products")
    with pytest.raises(pytest.fail.Exception, match=r"it is early, assembled in .*early_fails"):
        end_of_a_test(plugin, "wgmma", "wgmma, early")
    end_of_a_test(plugin)


def test_the_assembler_is_as_before_when_tests_have_ended():
    assemble = nvptx.assemble
    made = SassPlugin()
    assert nvptx.assemble is not assemble
    made.pytest_unconfigure()
    assert nvptx.assemble is assemble


def test_without_nvdisasm_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(sass_listing.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="nvidia-cuda-nvdisasm"):
        SassPlugin()
