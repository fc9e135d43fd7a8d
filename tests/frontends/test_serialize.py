"""Graphs as bytes and as JSON, and graphs for devices that are not here."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import dnnc
from dnnc import target as targets
from dnnc.frontends.device_properties import target_rows
from dnnc.plan import format
from dnnc.plan.plan import Plan
from dnnc.runtime import driver
from tests.runtime.fake_driver import FakeDriver

M = dnnc.Dim("M", max=64)
NAMES = ("x", "z", "y")


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def new_graph(**options):
    return dnnc.pygraph(
        "sums",
        io_data_type="FLOAT",
        intermediate_data_type="FLOAT",
        **{"target": "sm_90", **options},
    )


@pytest.fixture(scope="module")
def built():
    """x + z of [M, 8], with its plan."""
    g = new_graph()
    x, z = g.tensor([M, 8], name="x", uid=11), g.tensor([M, 8], name="z", uid=12)
    g.add(x, z).set_output().set_name("y").set_uid(13)
    g.build()
    return g


PACK = {11: 0x10000, 12: 0x20000, 13: 0x30000}
SIZES = {"override_uids": [11], "override_shapes": [[4, 8]]}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, list])
def test_a_graph_is_executed_from_its_bytes(built, fake, kind):
    g = dnnc.pygraph()
    g.deserialize(kind(built.serialize()))
    g.execute(PACK, **SIZES)
    assert len(fake.launches) == 1
    assert g.serialize() == built.serialize()
    assert g.key() == built.key()
    assert repr(g) == repr(built)


def test_it_says_of_its_plan_what_the_first_one_said(built):
    g = dnnc.pygraph()
    g.deserialize(built.serialize())
    assert g.get_execution_plan_count() == 1
    assert g.get_plan_name_at_index(0) == built.get_plan_name_at_index(0)
    assert g.get_engine_and_knobs_at_index(0) == built.get_engine_and_knobs_at_index(0)
    assert g.get_workspace_size() == g.get_workspace_size_plan_at_index(0) == 0
    tensor = g.query_tensor_attributes_of_uid(13)
    assert (tensor.get_name(), tensor.get_is_virtual()) == ("y", False)
    g.check_support()
    g.build_plans()
    g.build_plan_at_index(0)


def test_the_handle_comes_first(built, fake):
    handle = dnnc.create_handle()
    dnnc.set_stream(handle, 77)
    g = dnnc.pygraph()
    g.deserialize(handle, built.serialize())
    g.execute(PACK, **SIZES)
    assert fake.launches[0].stream == 77
    dnnc.destroy_handle(handle)
    with pytest.raises(dnnc.DnncError, match="the handle was destroyed"):
        dnnc.pygraph().deserialize(handle, built.serialize())


def test_a_plan_in_two_parts_keeps_its_name():
    g = new_graph()
    x, w = g.tensor([8, 16], name="x"), g.tensor([16, 16], name="w")
    g.matmul(g.matmul(x, w), w).set_output()
    g.build()
    other = dnnc.pygraph()
    other.deserialize(g.serialize())
    assert "+" in other.get_plan_name_at_index(0)
    assert other.get_plan_name_at_index(0) == g.get_plan_name_at_index(0)
    assert other.get_engine_and_knobs_at_index(0)[1] == g.get_engine_and_knobs_at_index(0)[1]
    workspace = other.get_workspace_size()
    assert workspace == g.get_workspace_size() > 0
    other.deselect_workspace_greater_than(workspace)
    other.check_support()
    other.deselect_workspace_greater_than(workspace - 1)
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="filters bar the plan"):
        other.check_support()


def test_what_it_has_no_plans_for_is_an_error(built):
    g = dnnc.pygraph()
    g.deserialize(built.serialize())
    for use in (
        lambda: g.create_execution_plans(),
        lambda: g.create_execution_plan(0, {}),
        lambda: g.get_knobs_for_engine(0),
        lambda: g.tensor([2, 3]),
        lambda: g.query_tensor_attributes_of_uid(13).set_name("other"),
        lambda: g.deserialize(built.serialize()),
    ):
        with pytest.raises(dnnc.DnncError) as caught:
            use()
        assert caught.value.status is dnnc.Status.BAD_PARAM_NOT_FINALIZED
    with pytest.raises(IndexError):
        g.get_plan_name_at_index(1)
    g.deselect_engines(["eng"])
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="filters bar the plan"):
        g.execute(PACK, **SIZES)


@pytest.mark.parametrize("arguments", [(), (5,), (None,), (1, 2, b"")], ids=str)
def test_other_arguments_are_refused(arguments):
    with pytest.raises(TypeError):
        dnnc.pygraph().deserialize(*arguments)


def test_bytes_that_are_no_plan_are_refused(built):
    data = built.serialize()
    for broken in (b"", data[:-1], data[:80] + b"?" + data[81:], b"\0" * 100):
        with pytest.raises(dnnc.DnncError, match="truncated, altered or no plan"):
            dnnc.pygraph().deserialize(broken)


def test_a_graph_with_tensors_is_not_overwritten(built):
    g = new_graph()
    g.exp(g.tensor([2, 3])).set_output()
    with pytest.raises(dnnc.DnncError, match="accepted: a new graph"):
        g.deserialize(built.serialize())


def test_json_is_the_graph_alone(built, fake):
    g = new_graph()
    g.deserialize(repr(built))
    with pytest.raises(dnnc.DnncError, match="the graph has no plans"):
        g.check_support()
    g.build()
    assert g.serialize() == built.serialize()
    for broken in ("", "{", "[]", '{"dnnc_graph": 2}'):
        with pytest.raises(dnnc.DnncError):
            new_graph().deserialize(broken)


def test_plans_and_executables_are_bytes_too(built):
    data = built.serialize()
    plan = Plan.deserialize(data)
    assert plan == format.read(data)
    assert plan.serialize() == built.plan.serialize() == dnnc.load(data).serialize() == data
    with pytest.raises(dnnc.DnncError, match="altered"):
        Plan.deserialize(data[:-1])


def test_a_graph_is_executed_from_bytes_without_a_compiler(built, tmp_path):
    (tmp_path / "plan").write_bytes(built.serialize())
    code = (
        "import sys, dnnc\n"
        "g = dnnc.pygraph()\n"
        "g.deserialize(open('plan', 'rb').read())\n"
        "g.get_workspace_size()\n"
        "print(*[m for m in sys.modules if m.startswith(('numba_cuda_mlir', 'dnnc.mlir',"
        " 'dnnc.engines', 'dnnc.compiler'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


# ---- devices


def test_a_device_is_written_down_and_read_elsewhere(fake):
    there = dnnc.create_device_properties(0)
    assert (there.name, there.capability) == ("fake", (9, 0))
    assert there.variables == driver.device(0).variables
    text = there.serialize()
    assert dnnc.create_device_properties(text) == there
    assert dnnc.create_device_properties(text.encode()) == there
    assert there.target.name == "sm_90a"
    assert json.loads(text) == {
        "dnnc_device": 1, "name": "fake", "capability": [9, 0], "sm_count": 132,
        "max_dynamic_smem_bytes": 232448,
    }  # fmt: skip


def described(tmp_path=None, **changes):
    data = {"dnnc_device": 1, "name": "one", "capability": [8, 6], "sm_count": 46,
            "max_dynamic_smem_bytes": 101376, **changes}  # fmt: skip
    return json.dumps(data)


def test_files_are_read(tmp_path):
    (tmp_path / "device.json").write_text(described())
    found = dnnc.create_device_properties(tmp_path / "device.json")
    assert (found.name, found.target.name, found.target.sm_count) == ("one", "sm_86", 46)
    with pytest.raises(dnnc.DnncError, match=r"missing\.json: can't be read"):
        dnnc.create_device_properties(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not JSON"),
        ("[1]", "dnnc_device = None"),
        (described(dnnc_device=2), "dnnc_device = 2; accepted: 1"),
        (described(sm_count="46"), r"device properties\.sm_count"),
        (described(sm_count=0), "sm_count 0"),
        (described(capability=[8]), r"capability: 1 values; accepted: 2"),
        (described(required=["clusters"]), "a newer dnnc"),
        ('{"dnnc_device": 1, "target": 90}', "target = 90"),
        ('{"dnnc_device": 1, "target": "sm_81"}', "target 'sm_81'; accepted: sm_80, "),
        ('{"dnnc_device": 2, "target": "sm_90"}', "dnnc_device = 2; accepted: 1"),
        ('{"dnnc_device": 1, "target": "sm_90", "sm_count": 7}', "no name"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_other_texts_are_refused(text, what):
    with pytest.raises(dnnc.DnncError, match=what):
        dnnc.create_device_properties(text)


def test_an_architecture_that_is_not_known_is_refused_when_it_is_compiled_for():
    found = dnnc.create_device_properties(described(capability=[7, 5]))
    with pytest.raises(dnnc.DnncError, match=r"a device of compute capability 7\.5"):
        _ = found.target


def test_a_graph_is_compiled_for_a_device_that_is_not_here(monkeypatch):
    """With as many SMs as that one has, and no driver called."""
    from dnnc.runtime import driver

    monkeypatch.setattr(driver, "_api", None)
    device = dnnc.create_device_properties(described())
    g = dnnc.pygraph("far", io_data_type="HALF", compute_data_type="FLOAT", device_property=device)
    g.matmul(g.tensor([256, 64]), g.tensor([64, 256])).set_output()
    g.build_operation_graph()
    assert [(row.name, row.sm_count) for row in g._targets()] == [("sm_86", 46)]
    g.build()
    assert [p.target for p in Plan.deserialize(g.serialize()).programs] == ["sm_86"]


@pytest.mark.parametrize("name", ["sm_90", "sm_90a", "sm_120"])
def test_json_may_name_a_target(name):
    """It may name one that a device of its capability is not compiled for by default."""
    text = json.dumps({"dnnc_device": 1, "target": name})
    found = dnnc.create_device_properties(text)
    assert found.target == targets.of(name)
    assert found.serialize() == text
    other = replace(found, sm_count=7)
    assert dnnc.create_device_properties(other.serialize()) == other
    assert (other.target.name, other.target.sm_count) == (name, 7)


def test_whatever_takes_a_target_takes_a_device(tmp_path):
    text = described()
    (tmp_path / "device.json").write_text(text)
    device = dnnc.create_device_properties(text)
    ways = [device, text, tmp_path / "device.json", str(tmp_path / "device.json")]
    assert {target_rows(way) for way in ways} == {(device.target,)}
    assert target_rows("sm_80, sm_90a") == (targets.of("sm_80"), targets.of("sm_90a"))


@pytest.mark.parametrize("wrong", [5, ["sm_80"], 1.5])
def test_what_is_no_target_is_an_error(wrong):
    with pytest.raises(dnnc.DnncError, match=r"BAD_PARAM: target: a \w+; accepted: names"):
        dnnc.compile(two_dims(), wrong)


def test_what_is_no_device_is_an_error():
    with pytest.raises(dnnc.DnncError, match=r"a float; accepted: an ordinal, JSON"):
        dnnc.create_device_properties(1.5)


def test_a_graph_takes_what_makes_device_properties():
    text = described(sm_count=8)
    (row,) = new_graph(target=None, device_property=text)._targets()
    assert (row.name, row.sm_count) == ("sm_86", 8)
    with pytest.raises(dnnc.DnncError, match="not JSON"):
        new_graph(device_property="sm_86")


def test_a_plan_in_a_shell_is_one_line():
    made = dnnc.compile(two_dims(), "sm_86")
    assert repr(made).startswith("<plan of graph 'sums' for sm_86: matmul_sm80 ")
    assert len(repr(made)) < 200


def two_dims(rows=2048):
    g = new_graph()
    a = g.tensor([rows, 512], data_type="HALF")
    g.matmul(a, g.tensor([512, 2048], data_type="HALF")).set_output()
    return g


def test_a_plan_is_for_as_many_multiprocessors_as_the_device_has():
    """Neither plan is taken for the other; the worker finds what this process finds."""
    usual = dnnc.compile(two_dims(), "sm_86")
    small = dnnc.compile(two_dims(), described(sm_count=8))
    named = dnnc.compile(two_dims(), '{"dnnc_device": 1, "target": "sm_86"}')
    assert named.key == usual.key != small.key
    knobs = [plan.programs[0].fusions[0].knobs for plan in (usual, small)]
    assert knobs[0] != knobs[1]
    here = dnnc.compile(two_dims(), described(sm_count=8), in_process=True, cache=False)
    assert here == small


def test_multiprocessors_are_those_of_the_ranking():
    def best(count):
        g = new_graph(sm_count=count, target="sm_80")
        a = g.tensor([2048, 512], data_type="HALF")
        g.matmul(a, g.tensor([512, 2048], data_type="HALF")).set_output()
        g.create_execution_plans(["A"])
        return g.get_plan_name_at_index(0)

    assert best(None) == best(108)
    assert len({best(8), best(108), best(1000)}) > 1
    with pytest.raises(dnnc.DnncError, match="sm_count=0; accepted: 1 or more"):
        best(0)
