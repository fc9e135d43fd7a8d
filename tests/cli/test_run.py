"""`dnnc run`: arrays in and out, the three devices, --check, and what it refuses."""

import json

import ml_dtypes
import numpy as np
import pytest

from dnnc.cli import check
from dnnc.compiler import compile_graph
from dnnc.dialect.json_form import from_json
from dnnc.dialect.reference import reference
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from dnnc.plan import format
from tests.demo.interpreted_driver import InterpretedDriver

from .commands import SCALED, dnnc, error_of


@pytest.fixture
def arrays(here):
    """Inputs of ffn for M = 5, in inputs.npz and as .npy files."""
    rng = np.random.default_rng(0)
    found = {
        "x": rng.uniform(-1, 1, (1, 5, 64)).astype(np.float16),
        "w": rng.uniform(-1, 1, (1, 64, 128)).astype(np.float16),
        "b": rng.uniform(-1, 1, (1, 1, 128)).astype(np.float16),
    }
    np.savez(here / "inputs.npz", **found)
    for name, array in found.items():
        np.save(here / f"{name}.npy", array)
    return found


@pytest.fixture
def gpu(monkeypatch):
    """A CUDA driver whose kernels run in the interpreter."""
    made = InterpretedDriver()
    made.install(monkeypatch)
    return made


@pytest.fixture
def no_gpu(monkeypatch):
    """No CUDA driver, whatever this machine has."""
    from dnnc.errors import DnncError, Status
    from dnnc.runtime import driver

    def absent():
        raise DnncError(Status.NOT_INITIALIZED, "no CUDA driver", "a machine with one", "cuInit")

    monkeypatch.setattr(driver, "_api", absent)


def wanted(plan, arrays):
    graph = from_json(format.read(plan).graph)
    return reference(graph, arrays)[6]


# ---- devices


def test_the_reference(plan, arrays):
    result = dnnc("run", plan, "inputs.npz", "--device", "cpu", "-o", "out.npz")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("device     cpu (NumPy reference; no kernel ran)\n")
    assert "y        f16    [1, 5, 128]" in result.stdout
    assert result.stdout.endswith("wrote      out.npz\n")
    out = np.load("out.npz")
    assert out.files == ["y"]
    np.testing.assert_array_equal(out["y"], wanted(plan, arrays))


def test_the_reference_is_the_default_where_there_is_no_gpu(plan, arrays, no_gpu):
    assert "device     cpu" in dnnc("run", plan, "inputs.npz").stdout


def test_the_interpreter(plan, arrays):
    result = dnnc("run", plan, "inputs.npz", "-d", "interpreter", "--check", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    said = "device     interpreter (the plan's PTX for sm_80 on NumPy, seed 0)\n"
    assert result.stdout.startswith(said)
    assert "good" in result.stdout
    np.testing.assert_allclose(np.load("y.npy"), wanted(plan, arrays), rtol=2e-2, atol=2e-2)


def test_a_gpu(plan, arrays, gpu):
    result = dnnc("run", plan, "inputs.npz", "--check", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    said = "device     cuda (an interpreted device, compute capability 13.0)\n"
    assert result.stdout.startswith(said)
    assert gpu.launches == 1
    np.testing.assert_allclose(np.load("y.npy"), wanted(plan, arrays), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("device", ["cpu", "interpreter", "cuda"])
def test_strides_types_and_numbers(device, here, gpu):
    """Gaps, another order of the axes, a by-value number, bf16 in and out."""
    (here / "scaled.py").write_text(SCALED)
    x = np.arange(18).reshape(3, 6).astype(ml_dtypes.bfloat16)
    np.save("x.npy", x)  # NumPy keeps the bytes and forgets the type
    assert dnnc("compile", "scaled.py", "-t", "sm_80").exit_code == 0
    result = dnnc(
        "run", "scaled.dnnplan", "x=x.npy", "alpha=0.5", "-d", device, "-o", "y.npy", "--check"
    )
    assert result.exit_code == 0, result.output
    y = np.load("y.npy")
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, np.arange(18).reshape(3, 6) / 2)


# ---- inputs


def test_inputs_by_name_and_by_uid(plan, arrays):
    result = dnnc("run", plan, "x=x.npy", "2=w.npy", "b=b.npy", "-d", "cpu", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("y.npy"), wanted(plan, arrays))


def test_random_inputs_follow_the_seed(plan, here):
    outputs = []
    for seed in (1, 1, 2):
        result = dnnc(
            "run", plan, "--random", "-s", "M=2", "--seed", seed, "-d", "cpu", "-o", "y.npy"
        )
        assert result.exit_code == 0, result.output
        outputs.append(np.load("y.npy"))
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_given_inputs_stay_among_random_ones(plan, arrays):
    result = dnnc("run", plan, "x=x.npy", "--random", "-d", "cpu")
    assert "[1, 5, 128]" in result.stdout


def test_a_graph_is_compiled(ffn, arrays):
    result = dnnc("run", ffn, "inputs.npz", "-d", "interpreter", "-t", "sm_86", "--check")
    assert result.exit_code == 0, result.output
    assert "PTX for sm_86" in result.stdout


def test_errata_of_the_users_file_bar_configs(ffn, arrays, tmp_path, monkeypatch):
    path = tmp_path / "errata.json"
    rule = {"id": "r", "why": "a test", "engine": "matmul_sm80", "knobs": {"TILE_M": 31}}
    path.write_text(json.dumps({"dnnc_errata": 1, "rules": [rule]}))
    monkeypatch.setenv("DNNC_ERRATA_FILE", str(path))
    result = dnnc("run", ffn, "inputs.npz", "-d", "interpreter", "-t", "sm_80")
    assert result.exit_code == 1
    assert "TILE_M = 31" in result.stderr


def test_a_text_goes_on_from_its_stage(ffn, arrays):
    text = dnnc("compile", ffn, "-t", "sm_80", "--emit", "nvvm").stdout
    result = dnnc("run", "-", "inputs.npz", "-d", "interpreter", "--check", stdin=text)
    assert result.exit_code == 0, result.output


def test_rounded_inputs_are_noted(plan, arrays):
    np.save("x.npy", arrays["x"].astype(np.float64) + 1e-9)
    result = dnnc("run", plan, "x=x.npy", "--random", "-d", "cpu")
    assert result.stderr == "note: x=x.npy: float64 values are rounded to f16\n"
    np.save("x.npy", arrays["x"].astype(np.float64))
    assert dnnc("run", plan, "x=x.npy", "--random", "-d", "cpu").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "graph 'ffn': the size M is not given; accepted: --size M=N, 1 to 4096, or"),
        (["-s", "M=3"], "tensor 'x' (uid 1): no array is given for it; accepted: x=FILE.npy,"),
        (["x=x.npy"], "tensor 'w' (uid 2): no array is given for it"),
        (["z=x.npy"], "BAD_PARAM: z=x.npy: no input is called 'z'; accepted: x, w, b"),
        (["y=x.npy"], "BAD_PARAM: y=x.npy: no input is called 'y'; accepted: x, w, b"),
        (["x=w.npy"], "tensor 'x' (uid 1): an array of dims [1, 64, 128]; accepted: [1, 64, 64]"),
        (["x=x.npy", "1=x.npy"], "DUPLICATED_ENTRIES: 1=x.npy: tensor 'x' (uid 1) twice"),
        (["inputs.npz", "-s", "M=4"], "an array of dims [1, 5, 64]; accepted: [1, 4, 64]"),
        (["--random", "-s", "M=5000"], "SHAPE_MISMATCH: graph 'ffn': M = 5000; accepted: 1 to"),
        (["--random", "-s", "N=5"], "BAD_PARAM: --size: no size is called 'N'; accepted: M"),
        (["x=no.npy"], "BAD_PARAM: no.npy: can't be read: No such file or directory"),
        (["x=inputs.npz"], "BAD_PARAM: inputs.npz: suffix '.npz'; accepted: .npy"),
        (["x.npy"], "BAD_PARAM: x.npy: suffix '.npy'; accepted: .npz"),
        (["bad.npz"], "BAD_PARAM: bad.npz: no NumPy array: "),
        (["x=text.npy"], "x=text.npy: data type <U1; accepted: floats, integers, booleans"),
        (["inputs.npz", "-o", "out.txt"], "suffix '.txt'; accepted: .npz, .npy"),
        (["inputs.npz", "-o", "no/out.npz"], "no/out.npz: can't be written: No such file"),
        (["inputs.npz", "--plan", "other"], "no plan 'other'; accepted: one of ffn"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_can_not_be_is_an_error(arguments, said, plan, arrays, here):
    (here / "bad.npz").write_bytes((here / "inputs.npz").read_bytes()[:100])
    np.save(here / "text.npy", np.array(["a"]))
    before = sorted(here.iterdir())
    result = dnnc("run", plan, *arguments, "-d", "cpu")
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [["-d", "tpu"], ["-s", "M"], ["-d", "cpu", "-t", "sm_80"]],
    ids=" ".join,
)
def test_wrong_use_exits_with_2(arguments, plan, arrays):
    assert dnnc("run", plan, "inputs.npz", *arguments).exit_code == 2


# ---- plans and machines that do not fit


def test_no_driver(plan, arrays, no_gpu):
    said = error_of(dnnc("run", plan, "inputs.npz", "--device", "cuda"))
    assert said == "NOT_INITIALIZED: cuInit: no CUDA driver; accepted: a machine with one"


def test_a_target_that_the_plan_lacks(plan, arrays):
    said = error_of(dnnc("run", plan, "inputs.npz", "-d", "interpreter", "-t", "sm_120"))
    assert said.startswith(
        "NOT_SUPPORTED_ARCH_MISMATCH: plan 'ffn': the plan has no code for sm_120"
    )


def test_a_plan_for_another_architecture(plan, arrays, gpu):
    """sm_90a code runs on that architecture alone; the device is of a later one."""
    result = dnnc("run", plan, "inputs.npz", "-d", "cuda", "-t", "sm_90a")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: NOT_SUPPORTED_ARCH_MISMATCH: plan 'ffn': plan 'ffn' has no code for compute "
        "capability 13.0; accepted: sm_90a\n"
    )


def test_a_truncated_and_an_altered_plan(plan, arrays, here):
    data = plan.read_bytes()
    for broken in (data[:-1], data[:-9] + b"\0" + data[-8:]):
        (here / "bad.dnnplan").write_bytes(broken)
        for device in ("cpu", "interpreter"):
            said = error_of(dnnc("run", "bad.dnnplan", "inputs.npz", "-d", device))
            assert "truncated, altered or no plan" in said


# ---- checking


def verdict_of(plan, arrays, change):
    graph = from_json(format.read(plan).graph)
    inputs = {graph.tensor(name).uid: array for name, array in arrays.items()}
    outputs = {6: change(reference(graph, inputs)[6].copy())}
    (verdict,) = check.compare(graph, inputs, {"M": 5}, outputs)
    return verdict


def altered(value):
    def change(y):
        y[0, 2, 3] = value
        return y

    return change


def test_a_good_output_is_good(plan, arrays):
    verdict = verdict_of(plan, arrays, lambda y: y)
    assert verdict.is_good
    assert 0 < verdict.error < verdict.bound < 2e-3


@pytest.mark.parametrize(
    "change", [lambda y: y * np.float16(1.01), altered(9), altered(np.nan), altered(np.inf)]
)
def test_a_bad_output_is_not(plan, arrays, change):
    assert not verdict_of(plan, arrays, change).is_good


@pytest.mark.parametrize(("depth", "steps"), [(1, 1), (32, 1), (33, 2), (4096, 128)])
def test_sums_in_the_accumulators_have_a_wider_bound(here, depth, steps):
    import dnnc as package

    bounds: dict[str, float] = {}
    for compute in ("FLOAT", "FAST_FLOAT_FOR_FP8"):
        g = package.pygraph("fp8", io_data_type="FP8_E4M3", compute_data_type=compute)
        a, b = g.tensor([4, depth]), g.tensor([depth, 4])
        g.matmul(a, b).set_output().set_data_type("FLOAT")
        graph = g.graph.finalize()
        bounds[compute] = check.bound_of(graph, graph.outputs[0], {})
    # Sums of FLOAT are promoted after four steps.
    more = (steps - min(4, steps)) * 2.0**-10
    assert bounds["FAST_FLOAT_FOR_FP8"] - bounds["FLOAT"] == pytest.approx(more, abs=1e-12)


def test_sums_of_convolutions_have_the_same_bound(here):
    import dnnc as package

    def bound(compute, add):
        g = package.pygraph("fp8", io_data_type="FP8_E4M3", compute_data_type=compute)
        add(g).set_output().set_data_type("FLOAT")
        graph = g.graph.finalize()
        return check.bound_of(graph, graph.outputs[0], {})

    for compute in ("FLOAT", "FAST_FLOAT_FOR_FP8"):
        conv = bound(compute, lambda g: g.conv_fprop(g.tensor([1, 64, 9]), g.tensor([8, 64, 3])))
        assert conv == bound(compute, lambda g: g.matmul(g.tensor([4, 192]), g.tensor([192, 4])))


def attention_of(io, out, keys=70):
    """One sdpa or sdpa_fp8, with its statistics; and inputs by uid."""
    import dnnc as package

    g = package.pygraph(
        "attention", io_data_type=io, intermediate_data_type="FLOAT", compute_data_type="FLOAT"
    )
    q, k, v = (g.tensor([1, 1, n, 32], name=m) for m, n in (("q", 20), ("k", keys), ("v", keys)))
    options = {"attn_scale": 0.2, "generate_stats": True, "use_causal_mask": True}
    if io.startswith("FP8"):
        names = ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o")
        ones = {n: g.tensor([1, 1, 1, 1], data_type="FLOAT", name=n) for n in names}
        o, stats, *_ = g.sdpa_fp8(q, k, v, **ones, **options)
    else:
        o, stats = g.sdpa(q, k, v, **options)
    o.set_output().set_name("o").set_data_type(out)
    stats.set_output().set_name("stats").set_data_type("FLOAT")
    rng = np.random.default_rng(3)
    graph = g.graph.finalize()
    inputs = {}
    for tensor in graph.inputs:
        dims = [extent.evaluate({}) for extent in tensor.shape]
        given = np.ones(dims) if np.prod(dims) == 1 else rng.normal(size=dims)
        inputs[tensor.uid] = given.astype(tensor.type.numpy)
    return graph, inputs


@pytest.mark.parametrize(
    ("io", "engine", "target"),
    [
        ("HALF", "sdpa_sm80", "sm_80"),
        ("BFLOAT16", "sdpa_sm80", "sm_80"),
        ("FP8_E4M3", "sdpa_fwd_sm90", "sm_90a"),
    ],
)
def test_weights_that_are_rounded_have_a_wider_bound(io, engine, target):
    """Rounding widens the bound of O, not of the statistics; shifted rows are still found."""
    graph, inputs = attention_of(io, "FLOAT")
    outputs = run_plan(compile_graph(graph, target, Options(engine=engine)), inputs)
    o, stats = check.compare(graph, inputs, {}, outputs)
    assert o.is_good
    assert stats.is_good
    assert o.error > check.bound_of(graph, o.tensor, {})
    assert stats.bound == check.bound_of(graph, stats.tensor, {})
    shifted = {**outputs, o.tensor.uid: np.roll(outputs[o.tensor.uid], 1, axis=2)}
    larger = {**outputs, o.tensor.uid: outputs[o.tensor.uid] * 1.15}
    for wrong in (shifted, larger):
        o, stats = check.compare(graph, inputs, {}, wrong)
        assert not o.is_good
        assert stats.is_good


@pytest.mark.parametrize(("dtype", "share"), [("HALF", 0.0), ("FLOAT", 2**0.5)])
def test_operands_that_a_graph_rounds_itself_have_none(dtype, share):
    """`reference` rounds them, too."""
    import dnnc as package

    g = package.pygraph("chain", io_data_type="HALF", compute_data_type="FLOAT")
    x, w, v = (g.tensor([8, 8], name=name) for name in "xwv")
    p = g.identity(g.matmul(x, w)).set_data_type(dtype)
    g.matmul(p, v).set_output()
    graph = g.graph.finalize()
    inputs = {tensor.uid: np.eye(8) for tensor in graph.inputs}
    found = check.rounded_operands(graph, inputs, {})
    assert found.get(graph.outputs[0], 0.0) == pytest.approx(2.0**-11 * share)


def test_over_the_bound_exits_with_1(plan, arrays, monkeypatch):
    monkeypatch.setattr(check, "bound_of", lambda graph, tensor, sizes: 1e-9)
    result = dnnc("run", plan, "inputs.npz", "-d", "interpreter", "--check")
    assert result.exit_code == 1
    assert "OVER THE BOUND" in result.stdout


def test_integers_must_be_equal(here):
    import dnnc as package

    g = package.pygraph("sum", io_data_type="INT32", compute_data_type="INT32")
    g.add(g.tensor([4], name="x"), g.tensor([4], name="y")).set_output(True)
    g.build_operation_graph()
    inputs = {1: np.arange(4), 2: np.arange(4)}
    for actual, is_good in ((np.arange(4) * 2, True), (np.array([0, 2, 4, 7]), False)):
        (verdict,) = check.compare(g.graph, inputs, {}, {3: actual})
        assert verdict.is_good == is_good


def test_a_graph_in_json_runs(plan, arrays, here):
    (here / "g.json").write_text(json.dumps(format.read(plan).graph))
    assert dnnc("run", "g.json", "inputs.npz", "-d", "cpu").exit_code == 0


def test_a_file_that_can_not_hold_the_outputs_is_refused_before_it_runs(plan, here):
    run = ["run", plan, "--random", "-s", "M=2", "-d", "cpu"]
    result = dnnc(*run, "-o", "y.txt")
    assert "suffix '.txt'; accepted: .npz, .npy" in error_of(result)
    assert result.stdout == ""
