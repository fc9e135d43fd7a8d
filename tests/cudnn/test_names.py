"""Names that a program finds: enumerations, functions, signatures, and `import cudnn`."""

import inspect
import subprocess
import sys
from enum import Enum

import pytest

import dnnc
import dnnc.cudnn as cudnn
from dnnc import dtypes
from dnnc.cudnn import enums
from dnnc.cudnn.operations import OPERATIONS
from dnnc.frontends import enums as own

# As `dir(cudnn)` of nvidia-cudnn-frontend 1.32.0 has them, but for its own kernels.
EXPORTED = """
    DeviceInfo Graph GraphContext Handle Node NodeType Tensor attention_implementation
    backend_version backend_version_string behavior_note build_plan_policy
    create_device_properties create_handle create_kernel_cache cuda_graph_retention
    cudnnGraphNotSupportedError data_type datatypes destroy_handle diagonal_alignment
    get_last_error_string get_stream graph graph_cache handle heur_mode jit knob knob_type
    moe_grouped_matmul_mode norm_forward_phase numerical_note pygraph reduction_mode reshape_mode
    scalar_type sdpa_capabilities set_stream tensor tensor_reordering wrapper
""".split()

# Member -> value, of 1.32.
VALUES = {
    "data_type": {
        "NOT_SET": 0, "FLOAT": 1, "DOUBLE": 2, "HALF": 3, "INT8": 4, "INT32": 5, "INT8x4": 6,
        "UINT8": 7, "UINT8x4": 8, "INT8x32": 9, "BFLOAT16": 10, "INT64": 11, "BOOLEAN": 12,
        "FP8_E4M3": 14, "FP8_E5M2": 15, "FAST_FLOAT_FOR_FP8": 16, "FP8_E8M0": 17, "FP8_E5M3": 18,
        "FP4_E2M1": 19, "INT4": 20,
    },
    "heur_mode": {"A": 0, "B": 1, "FALLBACK": 2, "OPENSOURCE": 3},
    "norm_forward_phase": {"NOT_SET": 0, "INFERENCE": 1, "TRAINING": 2},
    "reshape_mode": {"VIEW_ONLY": 1, "LOGICAL": 2},
    "moe_grouped_matmul_mode": {"NONE": 1, "GATHER": 2, "SCATTER": 3, "COMBINE": 4},
    "cuda_graph_retention": {"PER_GRAPH": 0, "NONE": 1},
    "scalar_type": {"RUNTIME_PARAM": 0, "COMPILE_TIME_CONST": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTED)
def test_the_module_has_the_names(name):
    assert getattr(cudnn, name) is not None
    assert name in cudnn.__all__


def test_packages_are_attributes_of_the_module():
    code = "import dnnc.cudnn as cudnn; assert cudnn.experimental.ops"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match=r"'dnnc\.cudnn' has no attribute 'none'"):
        _ = cudnn.none


@pytest.mark.parametrize("name", VALUES)
def test_enumerations_have_the_members_and_values(name):
    kind = getattr(cudnn, name)
    assert issubclass(kind, Enum)
    assert {member.name: member.value for member in kind} == VALUES[name]
    for member, value in VALUES[name].items():
        assert kind(value) is kind[member]


def test_knobs_beyond_those_of_dnnc_are_there():
    assert cudnn.knob_type.MMA_TILE_M.value == 1004
    assert cudnn.knob_type(1009) is cudnn.knob_type.WARPS_N
    assert {name.name for name in own.knob_type} <= set(cudnn.knob_type.__members__)


@pytest.mark.parametrize("name", ["numerical_note", "behavior_note"])
def test_every_note_of_a_plan_has_a_member(name):
    assert {note.name for note in getattr(own, name)} == set(getattr(cudnn, name).__members__)


@pytest.mark.parametrize("row", dtypes.COMPUTE, ids=str)
def test_every_type_of_dnnc_has_a_member(row):
    member = enums.type_of_own(row)
    assert member.name == row.cudnn
    assert enums.own_type(member) is row
    assert enums.type_of(row) is enums.type_of(row.name) is member


def test_every_other_type_says_what_to_take():
    known = {row.cudnn for row in dtypes.COMPUTE} | {"NOT_SET"}
    others = {member for member in cudnn.data_type if member.name not in known}
    assert others == set(enums.ABSENT_TYPES)
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match="INT8 with set_vector_count"):
        enums.own_type(cudnn.data_type.INT8x4)


def test_versions_are_numbers_that_programs_compare():
    major, minor, patch = map(int, cudnn.backend_version_string().split("."))
    assert cudnn.backend_version() == major * 10000 + minor * 100 + patch >= 91200
    assert cudnn.__version__ == "1.32.0"
    assert cudnn.get_last_error_string() == ""


def test_a_handle_is_a_key_and_no_number():
    handle, other = cudnn.create_handle(), cudnn.create_handle()
    assert {handle: 1, other: 2}[handle] == 1
    cudnn.set_stream(handle=handle, stream=7)
    assert (cudnn.get_stream(handle), handle.stream, cudnn.get_stream(other)) == (7, 7, 0)
    cudnn.destroy_handle(handle)
    assert handle.backend_handle is None
    with pytest.raises(ValueError, match="destroyed"):
        cudnn.get_stream(handle)
    with pytest.raises(TypeError, match="no handle"):
        cudnn.set_stream(3, 4)
    assert {dnnc.create_handle(): 1}


def test_a_device_is_read_from_what_cudnn_writes():
    text = (
        '{"deviceVer": 900, "multiProcessorCount": 78, "deviceName": "H100 PCIe",'
        ' "maxSharedMemoryPerBlockOptin": 232448}'
    )
    device = cudnn.create_device_properties(text)
    assert (device.capability, device.sm_count, device.name) == ((9, 0), 78, "H100 PCIe")
    assert cudnn.create_device_properties(device.serialize()) == device
    with pytest.raises(ValueError, match="multiProcessorCount"):
        cudnn.create_device_properties('{"deviceVer": 900}')


def test_a_kernel_cache_is_taken_and_given_back():
    cache = cudnn.create_kernel_cache()
    cache.deserialize(cache.serialize())
    assert cudnn.pygraph(kernel_cache=cache, is_dynamic_shape_enabled=True).nodes == []


# Method -> its first positional parameters in 1.32.
ORDERS = {
    "matmul": "A B compute_data_type padding name",
    "relu": "input negative_slope lower_clip upper_clip name compute_data_type",
    "swish_backward": "loss input swish_beta name compute_data_type",
    "gen_index": "input axis name compute_data_type",
    "layernorm": "input scale bias epsilon norm_forward_phase",
    "batchnorm": "input scale bias in_running_mean in_running_var epsilon momentum",
    "rmsnorm_backward": "grad input scale inv_variance has_dbias",
    "conv_fprop": "image weight padding pre_padding post_padding stride dilation convolution_mode",
    "moe_grouped_matmul": "token weight first_token_offset token_index token_ks mode top_k",
    "slice": "input slices",
    "transpose": "input permutation",
    "sdpa": "q k v is_inference attn_scale bias block_mask use_alibi_mask use_padding_mask",
}


@pytest.mark.parametrize("method", ORDERS)
def test_methods_take_arguments_in_this_order(method):
    names = list(inspect.signature(getattr(cudnn.pygraph, method)).parameters)
    wanted = ORDERS[method].split()
    assert names[1 : len(wanted) + 1] == wanted


@pytest.mark.parametrize("method", OPERATIONS)
def test_methods_say_what_they_do(method):
    assert OPERATIONS[method].results[0] in getattr(cudnn.pygraph, method).__doc__


@pytest.mark.usefixtures("no_cudnn")
def test_install_makes_import_cudnn_find_it():
    dnnc.cudnn.install()
    import cudnn as installed
    from cudnn.datatypes import is_torch_available
    from cudnn.experimental import ops
    from cudnn.wrapper import Graph

    assert installed is sys.modules["dnnc.cudnn"]
    assert Graph is installed.Graph
    assert is_torch_available is installed.datatypes.is_torch_available
    assert set(ops.__all__) == {"layer_norm", "moe_grouped_matmul", "rms_norm", "swiglu_mlp"}
    installed.install()


def test_install_leaves_another_cudnn_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", inspect)
    with pytest.raises(RuntimeError, match="imported already"):
        cudnn.install()
    assert sys.modules["cudnn"] is inspect


def test_types_of_torch_are_found_by_name():
    class bfloat16:
        def __str__(self):
            return "torch.bfloat16"

    assert cudnn.datatypes._torch_to_cudnn_data_type(bfloat16()) is cudnn.data_type.BFLOAT16
    assert cudnn.datatypes.torch_to_cudnn_data_type("torch.complex64") is None
