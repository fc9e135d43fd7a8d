"""Launches as nodes of CUDA graphs, against a stand-in for the driver."""

import dataclasses
import struct

import pytest

import dnnc
from dnnc.errors import DnncError, Status
from dnnc.frontends.handle import destroy_handle
from dnnc.runtime import load
from tests.attention_plans import decode_plan, prefill_plan
from tests.emit.built import kernel_sizes
from tests.plan.plans import WHOLE

from .fake_driver import FakeDriver

X, Y, WORKSPACE = 0x10000, 0x800000, 0x1000000
LARGE, SMALL = {"M": 128, "N": 2}, {"M": 64, "N": 1}


@pytest.fixture
def fake(monkeypatch):
    made = FakeDriver()
    made.install(monkeypatch)
    return made


def without_peers(plan=WHOLE):
    """The hand-made plan, whose argument of a peer is a tensor's address here."""
    program = plan.programs[0]
    small, large = program.variants
    memset, step = large.steps
    args = tuple(
        dataclasses.replace(arg, kind="pointer") if arg.kind == "peer" else arg
        for arg in step.launch.args
    )
    step = dataclasses.replace(step, launch=dataclasses.replace(step.launch, args=args))
    large = dataclasses.replace(large, steps=(memset, step))
    return dataclasses.replace(
        plan, programs=(dataclasses.replace(program, variants=(small, large)),)
    )


@pytest.fixture
def plan(fake):
    return load(without_peers())


def pointer(data):
    return struct.unpack("<Q", data)[0]


def test_nodes_do_what_a_bound_plan_does(fake, plan):
    graph = fake.graph()
    nodes = plan.populate_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=LARGE)
    plan.bind({1: X, 2: Y}, WORKSPACE, sizes=LARGE, stream=9)()
    memset, kernel = fake.nodes(graph)
    assert memset._replace(stream=9) == fake.memsets[0]
    (launch,) = fake.launches
    # That a launch may start early is no attribute of a node: its edges say what it waits for.
    same = kernel._replace(stream=9, programmatic=True, addresses=launch.addresses)
    assert same == launch
    assert kernel.cluster == (2, 1, 1)
    assert kernel.cooperative
    first, second = fake.graphs[graph]
    assert [first.handle, second.handle] == [int(node) for node in nodes]
    assert (first.after, second.after) == ([], [first.handle])
    assert fake.calls["cuLaunchKernelEx"] == fake.calls["cuMemsetD8Async"] == 1  # of the bound one


def test_plans_follow_each_other_in_one_graph(fake, plan):
    graph = fake.graph()
    first = plan.populate_cuda_graph({1: X, 2: Y}, None, graph, sizes=SMALL)
    second = plan.populate_cuda_graph(
        {1: Y, 2: X}, None, graph, sizes=SMALL, dependencies=[int(node) for node in first]
    )
    one, other = fake.graphs[graph]
    assert (one.after, other.after) == ([], [int(first[0])])
    plan.update_cuda_graph({1: Y, 2: 2 * Y}, None, graph, sizes=SMALL, nodes=second)
    assert [pointer(node.args[0]) for node in fake.nodes(graph)] == [X, Y]
    plan.update_cuda_graph({1: 3 * Y, 2: 2 * Y}, None, graph, sizes=SMALL, nodes=first)
    assert [pointer(node.args[0]) for node in fake.nodes(graph)] == [3 * Y, Y]


def test_new_pointers_numbers_and_sizes(fake, plan):
    graph = fake.graph()
    plan.populate_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=LARGE)
    sizes = {"M": 256, "N": 2}
    plan.update_cuda_graph({1: X, 2: 2 * Y, 3: 2.0}, 2 * WORKSPACE, graph, sizes=sizes)
    memset, kernel = fake.nodes(graph)
    assert (memset.address, memset.bytes) == (2 * WORKSPACE + 256, 1024)
    assert kernel.grid == (264, 1, 2)
    assert pointer(kernel.args[2]) == 2 * Y + 512
    assert struct.unpack("<f", kernel.args[7])[0] == 2.0
    # Attributes are as they were.
    assert (kernel.cluster, kernel.cooperative) == ((2, 1, 1), True)


def test_an_instantiated_graph_is_changed_in_place_of_its_graph(fake, plan):
    graph, executable = fake.graph(), {}
    nodes = plan.populate_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=LARGE)
    before = fake.nodes(graph)
    plan.update_cuda_graph(
        {1: X, 2: 2 * Y}, 2 * WORKSPACE, graph, sizes=LARGE, executable=executable
    )
    assert fake.nodes(graph) == before
    assert executable[int(nodes[0])].address == 2 * WORKSPACE + 256
    assert pointer(executable[int(nodes[1])].args[2]) == 2 * Y + 256


def test_the_context_is_that_of_the_buffers(fake, plan):
    fake.home = 1
    graph = fake.graph()
    plan.populate_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=LARGE, device=1)
    assert fake.nodes(graph)[1].device == 1
    assert fake.current == 0x1000  # as it was


# ---- attention


def attention_on(monkeypatch, plan, capability):
    """(the stand-in, the loaded plan, name -> address)"""
    fake = FakeDriver(capability=capability, argument_bytes=kernel_sizes(plan))
    fake.install(monkeypatch)
    return fake, load(plan), {t.name: (1 + at) << 32 for at, t in enumerate(plan.tensors)}


def assert_nodes_are_of(fake, plan, graph, pack, workspace, sizes):
    """Nodes do what a bound plan launches."""
    done = len(fake.launches), len(fake.memsets)
    plan.bind(pack, workspace, sizes=sizes)()
    wanted = [*fake.memsets[done[1] :], *fake.launches[done[0] :]]
    nodes = fake.nodes(graph)
    assert [type(node) for node in nodes] == [type(step) for step in wanted]
    for node, step in zip(nodes, wanted, strict=True):
        same = {"stream": step.stream}
        if hasattr(step, "addresses"):
            same |= {"programmatic": step.programmatic, "addresses": step.addresses}
        assert node._replace(**same) == step


def test_prefill_is_bound_anew(monkeypatch):
    """Its tensor maps are made anew, and the counter of its tiles is another workspace's."""
    fake, plan, pack = attention_on(monkeypatch, prefill_plan(), (9, 0))
    graph = fake.graph()
    small, large = {"B": 1, "Sq": 65, "Skv": 65}, {"B": 3, "Sq": 900, "Skv": 1000}
    plan.populate_cuda_graph(pack, WORKSPACE, graph, sizes=small)
    assert_nodes_are_of(fake, plan, graph, pack, WORKSPACE, small)
    moved = {name: address + 4096 for name, address in pack.items()}
    fake.tensor_maps.clear()
    plan.update_cuda_graph(moved, 2 * WORKSPACE, graph, sizes=large)
    rows = {address: dims[1] for _, address, dims, _ in fake.tensor_maps}
    assert rows == {moved["q"]: 900, moved["k"]: 1000, moved["v"]: 1000, moved["o"]: 900}
    memset, kernel = fake.nodes(graph)
    assert (memset.address, memset.bytes) == (2 * WORKSPACE, 4)
    assert kernel.grid == (3 * 4 * 8, 1, 1)
    assert_nodes_are_of(fake, plan, graph, moved, 2 * WORKSPACE, large)


def test_decode_is_bound_anew(monkeypatch):
    """Two kernels, the second after the first, for another batch of other sequences."""
    fake, plan, pack = attention_on(monkeypatch, decode_plan(), (8, 0))
    graph = fake.graph()
    nodes = plan.populate_cuda_graph(pack, WORKSPACE, graph, sizes={"B": 2})
    assert_nodes_are_of(fake, plan, graph, pack, WORKSPACE, {"B": 2})
    assert [node.after for node in fake.graphs[graph]] == [[], [int(nodes[0])]]
    moved = {**pack, "k_table": pack["k_table"] + 4096, "lengths": pack["lengths"] + 4096}
    plan.update_cuda_graph(moved, 2 * WORKSPACE, graph, sizes={"B": 64})
    assert_nodes_are_of(fake, plan, graph, moved, 2 * WORKSPACE, {"B": 64})


# ---- refusals


def mismatch(plan, graph, message, sizes=LARGE, **options):
    with pytest.raises(DnncError, match=message) as caught:
        plan.update_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=sizes, **options)
    assert caught.value.status is Status.BAD_PARAM_CUDA_GRAPH_MISMATCH


def test_graphs_that_are_not_of_the_plan_are_refused(fake, plan):
    graph = fake.graph()
    mismatch(plan, graph, "0 nodes; accepted: 2, one a step of the plan")
    nodes = plan.populate_cuda_graph({1: X, 2: Y}, WORKSPACE, graph, sizes=LARGE)
    before = fake.nodes(graph)
    mismatch(plan, graph, "2 nodes; accepted: 1", SMALL)
    mismatch(plan, graph, "a memset", nodes=nodes[::-1])
    mismatch(plan, graph, "1 nodes", nodes=nodes[:1])
    other = load(without_peers())
    mismatch(other, graph, "another kernel; accepted: kernel main")
    elsewhere = fake.graph()
    plan.populate_cuda_graph({1: X, 2: Y}, None, elsewhere, sizes=SMALL)
    mismatch(plan, elsewhere, "a node that the graph does not have", nodes=nodes)
    plan.populate_cuda_graph({1: X, 2: Y}, None, elsewhere, sizes=SMALL)
    mismatch(plan, elsewhere, "no chain of nodes", SMALL)
    assert fake.nodes(graph) == before, "something was changed before all was looked at"
    swapped = fake.graph()
    plan.populate_cuda_graph({1: X, 2: Y}, None, swapped, sizes=SMALL)
    fake.graphs[swapped][0].kind = "MEMSET"
    mismatch(plan, swapped, "does not launch it; accepted: kernel small", SMALL)


def test_what_does_not_fit_adds_no_node(fake, plan):
    graph = fake.graph()
    with pytest.raises(DnncError, match="multiple of 32"):
        plan.populate_cuda_graph({1: X, 2: Y + 16}, WORKSPACE, graph, sizes=LARGE)
    with pytest.raises(DnncError, match="none is given"):
        plan.populate_cuda_graph({1: X, 2: Y}, None, graph, sizes=LARGE)
    assert not fake.nodes(graph)


def test_pygraphs_have_both_under_their_names(fake):
    m = dnnc.Dim("M")
    g = dnnc.pygraph("sum", io_data_type="FLOAT", intermediate_data_type="FLOAT", target="sm_90")
    x, z = g.tensor([m, 8], name="x"), g.tensor([m, 8], name="z")
    y = g.add(x, z).set_output()
    g.build()
    handle = dnnc.create_handle()
    shape = {"override_uids": [x.uid], "override_shapes": [[4, 8]]}
    graph = fake.graph()
    (node,) = g.populate_cuda_graph(handle, {x: X, z: Y, y: 3 * Y}, None, graph, **shape)
    (before,) = fake.nodes(graph)
    shape["override_shapes"] = [[4000, 8]]
    g.update_cuda_graph(handle, {x: X, z: Y, y: 3 * Y}, None, graph, **shape)
    (after,) = fake.nodes(graph)
    assert before.kernel == after.kernel
    assert before.grid != after.grid
    assert int(node) == fake.graphs[graph][0].handle
    destroy_handle(handle)
    with pytest.raises(DnncError, match="the handle was destroyed"):
        g.update_cuda_graph(handle, {x: X, z: Y, y: 3 * Y}, None, graph, **shape)
