"""A hand-made plan that uses every part of format version 1."""

from dnnc.plan.plan import (
    Arg,
    FusionRecord,
    Kernel,
    Launch,
    Memset,
    Module,
    Plan,
    Program,
    Step,
    Symbol,
    TensorMap,
    TensorRecord,
    Variant,
)

TILED = TensorMap(
    mode="tiled",
    uid=1,
    offset="0",
    dtype="bf16",
    dims=("64", "M"),
    strides=("128",),
    element_strides=(1, 1),
    box=(64, 128),
    swizzle="128B",
    l2_promotion="L2_256B",
)
IM2COL = TensorMap(
    mode="im2col",
    uid=-1,
    offset="M*128",
    dtype="f16",
    dims=("64", "56", "56", "N"),
    strides=("128", "7168", "401408"),
    element_strides=(1, 1, 1, 1),
    lower=(-1, -1),
    upper=(-1, -1),
    channels_per_pixel=64,
    pixels_per_column=128,
)
MAIN = Launch(
    kernel="main",
    grid=("ceildiv(M, 128)*sm_count", "1", "2"),
    block=(384, 1, 1),
    cluster=(2, 1, 1),
    cooperative=True,
    programmatic=True,
    dynamic_smem_bytes="min(max_dynamic_smem_bytes, 229440)",
    args=(
        Arg("tensor_map", tensor_map=TILED),
        Arg("tensor_map", tensor_map=IM2COL),
        Arg.pointer(2, "M*2"),
        Arg("workspace", offset="256"),
        Arg("peer", uid=2, rank=1),
        Arg.scalar("M*64", "i32"),
        Arg.scalar("magic(M)", "i64"),
        Arg.by_value(3, "f32"),
        Arg("bytes", data="00ff10"),
    ),
)
SMALL = Launch(kernel="small", grid=("M", "1", "1"), block=(32, 1, 1), args=(Arg.pointer(1),))
WHOLE = Plan(
    name="whole",
    graph={"dnnc_graph": 1, "name": "whole"},
    symbols=(Symbol("M", 1, 4096, 8), Symbol("N", 1, 64, 1)),
    tensors=(
        TensorRecord(1, "x", ("M", "64"), ("64", "1"), "bf16", "input"),
        TensorRecord(2, "y", ("M", "64"), ("64", "1"), "bf16", "output", alignment=32),
        TensorRecord(3, "s", ("1",), ("1",), "f32", "input", is_by_value=True, value=0.5),
    ),
    programs=(
        Program(
            target="sm_90a",
            capability=(9, 0),
            exact=True,
            modules=(Module(0, 1, False),),
            kernels=(Kernel("main", 0, 384, 168, 0, 0, 0, 16), Kernel("small", 0, 32, 20)),
            variants=(
                Variant("M <= 64", "0", (Step(launch=SMALL),)),
                Variant(
                    "1",
                    "M*256 + N*401408 + 512",
                    (Step(memset=Memset(-1, "256", "M*4")), Step(launch=MAIN)),
                ),
            ),
            fusions=(
                FusionRecord(
                    ("matmul 'fc'",),
                    "matmul_sm90",
                    7,
                    {"TILE_M": 128},
                    ("TENSOR_CORE",),
                    0,
                    (0,),
                    2,
                ),
            ),
        ),
        Program(
            target="sm_80",
            capability=(8, 0),
            exact=False,
            modules=(Module(2, 3, True),),
            kernels=(Kernel("small", 0, 32, 20, spill_store_bytes=4, spill_load_bytes=8),),
            variants=(Variant("1", "0", (Step(launch=SMALL),)),),
            split_reason="no engine takes the graph as one fusion",
        ),
    ),
    may_alias=((2, 1),),
    key="0123",
    tools={"dnnc": "0.1.0"},
    blobs=(b"cubin of sm_90a", b"ptx of sm_90a", b"cubin of sm_80", b"ptx of sm_80"),
)
