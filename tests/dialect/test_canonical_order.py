"""Graphs that are the same but for names, uids and the order of adding have one structure."""

import random

import pytest

import dnnc
from dnnc.choosing import heuristics
from dnnc.dialect.json_form import from_json, ops_to_json, to_json
from dnnc.record import of_structure, structure_key, symbol_names, to_structure


def new_graph(name="g"):
    return dnnc.pygraph(name, io_data_type="HALF", intermediate_data_type="FLOAT")


def outputs_of_one_input():
    g = new_graph()
    x = g.tensor([8, 64])
    for make in (g.relu, g.exp, g.log, g.exp):
        make(x).set_output()
    return g


def neighbours():
    """a + b, b + c: what is shared tells them apart."""
    g = new_graph()
    a, b, c = (g.tensor([8, 64]) for _ in range(3))
    g.add(a, b).set_output()
    g.add(b, c).set_output()
    return g


def ring():
    """Nothing tells the sums apart, but one that is first tells which is next."""
    g = new_graph()
    every = [g.tensor([8, 64]) for _ in range(5)]
    for a, b in zip(every, every[1:] + every[:1], strict=True):
        g.add(a, b).set_output()
    return g


def crossed():
    g = new_graph()
    a1, a2 = (g.relu(g.tensor([8, 64])) for _ in range(2))
    b1, b2 = (g.exp(g.tensor([8, 64])) for _ in range(2))
    g.add(a1, b2).set_output()
    g.add(a2, b1).set_output()
    return g


def symbols():
    """Symbols of one range, told apart by what else has them."""
    g = new_graph()
    m, n = dnnc.Dim("M", max=512), dnnc.Dim("N", max=512)
    for size in (m, n):
        g.relu(g.tensor([size, 64])).set_output()
    g.exp(g.relu(g.tensor([n, 64]))).set_output()
    return g


def two_norms():
    g = new_graph()
    for _ in range(2):
        y, mean, inv = g.layernorm(
            "TRAINING", g.tensor([32, 64]), g.tensor([1, 64]), g.tensor([1, 64]), epsilon=1e-5
        )
        for tensor in (g.relu(y), mean, inv):
            tensor.set_output()
    return g


def drawn(seed):
    """Sums of products and of what came before, at random."""
    draw, g = random.Random(seed), new_graph()
    known = [g.tensor([8, 64]) for _ in range(3)]
    for _ in range(14):
        made = getattr(g, draw.choice(["add", "mul"]))(*draw.choices(known, k=2))
        known.append(made.set_output() if draw.random() < 0.3 else made)
    made.set_output()
    return g


CASES = {
    build.__name__: build
    for build in (outputs_of_one_input, neighbours, ring, crossed, symbols, two_norms)
} | {f"drawn{seed}": lambda seed=seed: drawn(seed) for seed in range(12)}


def shuffled(graph, draw):
    """Returns an equal graph: operations in any order, other uids, other names."""
    data = to_json(graph)
    uids = [tensor["uid"] for tensor in data["tensors"]]
    other = dict(zip(uids, draw.sample(range(1, 10_000), len(uids)), strict=True))
    draw.shuffle(data["ops"])
    draw.shuffle(data["tensors"])
    for tensor in data["tensors"]:
        tensor |= {"uid": other[tensor["uid"]], "name": f"t{draw.random()}"}
    for op in data["ops"]:
        op["name"] = f"op{draw.random()}"
        for ends in (op["operands"], op["results"]):
            for name, uid in ends.items():
                ends[name] = [other[u] for u in uid] if isinstance(uid, list) else other[uid]
    return from_json(data)


@pytest.mark.parametrize("name", CASES)
def test_one_structure_whatever_the_order(name):
    graph = CASES[name]().graph.finalize()
    for seed in range(8):
        other = shuffled(graph, random.Random(seed))
        assert structure_key(other) == structure_key(graph)


def test_shuffling_adds_operations_in_another_order():
    graph = drawn(0).graph.finalize()
    orders = {tuple(op.title for op in shuffled(graph, random.Random(s)).ops) for s in range(8)}
    assert len(orders) > 1


def test_other_work_has_another_structure():
    """Which of two equal ends reads what."""
    keys = set()
    for pairs in ([(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 2), (0, 2)], [(0, 1), (1, 2), (1, 0)]):
        g = new_graph()
        every = [g.tensor([8, 64]) for _ in range(3)]
        for a, b in pairs:
            g.add(every[a], every[b]).set_output()
        keys.add(structure_key(g.graph.finalize()))
    assert len(keys) == 3


def test_a_norm_is_its_steps():
    g = new_graph()
    y, _ = g.rmsnorm("INFERENCE", g.tensor([8, 64]), g.tensor([1, 64]), epsilon=1e-5)
    y.set_output()
    graph = g.graph.finalize()
    written = from_json({**to_json(graph), **ops_to_json(graph.live_ops)})
    assert [op.title for op in written.ops] != [op.title for op in graph.ops]
    assert structure_key(written) == structure_key(graph)


@pytest.mark.parametrize("name", ["two_norms", "crossed", "drawn3"])
def test_partitions_go_from_one_order_to_the_other(name):
    """Partitions agree as a set of kinds, and come back from the other order as they were."""
    graph = CASES[name]().graph.finalize()
    count = len(graph.live_ops)
    text = f"{' '.join(map(str, range(count // 2)))}|{' '.join(map(str, range(count // 2, count)))}"
    plain = to_structure(text, graph)
    assert of_structure(plain, graph) == text
    for seed in range(4):
        other = shuffled(graph, random.Random(seed))
        groups = heuristics.parsed_partition(of_structure(plain, other), other)
        assert [sorted(op.title for op in group) for group in groups] == [
            sorted(op.title for op in group) for group in heuristics.parsed_partition(text, graph)
        ]


def test_a_partition_of_no_such_graph():
    graph = neighbours().graph.finalize()
    for text in ("0 2", "0 x", ""):
        with pytest.raises(dnnc.DnncError, match=r"BAD_PARAM: .*partition"):
            heuristics.parsed_partition(of_structure(text, graph), graph)


def test_symbols_of_nothing_that_is_run_have_names_too():
    g = new_graph()
    g.relu(g.tensor([dnnc.Dim("A", max=64), 8]))  # nobody wants it
    g.relu(g.tensor([dnnc.Dim("B", max=64), 8])).set_output()
    assert symbol_names(g.graph.finalize()) == {"B": "s0", "A": "s1"}


def test_a_graph_of_many_equal_ends_takes_no_time():
    g = new_graph()
    x = g.tensor([8])
    for _ in range(1500):
        g.relu(x).set_output()
    graph = g.graph.finalize()
    assert structure_key(graph) == structure_key(shuffled(graph, random.Random(0)))
