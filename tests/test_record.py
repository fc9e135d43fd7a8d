"""Tuning records: what entries are known by, how records merge, and which of them are used."""

import json
import logging
from dataclasses import replace

import pytest

import dnnc
from dnnc import __version__, record
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.choosing.inputs import Inputs
from dnnc.record import (
    Entry,
    Record,
    structure,
    structure_key,
    symbol_names,
    to_structure,
    typical_entry,
)

from .tuning.fakes import ffn

SM80 = targets.of("sm_80")


def entry(**changes):
    made = Entry(
        graph=structure_key(ffn().graph.finalize()),
        name="ffn",
        sizes={"s0": 1024},
        target="sm_80",
        device="A100",
        driver="13.0",
        l2="warm",
        versions={"dnnc": __version__},
        partition="0 1",
        choices="fallback:LOAD_SIZE=8",
        seconds=2e-5,
    )
    return replace(made, **changes)


def product(names, uids, multiple_of=1):
    """A product of symbols, under other names."""
    graph, rows, columns, a, b = names
    g = dnnc.pygraph(graph, io_data_type="HALF", intermediate_data_type="FLOAT")
    m = dnnc.Dim(rows, max=512, multiple_of=multiple_of)
    n = dnnc.Dim(columns, max=256)
    x, w = g.tensor([m, 64], name=a, uid=uids[0]), g.tensor([64, n], name=b, uid=uids[1])
    g.relu(g.matmul(x, w, name=a), name=b).set_output().set_name(b + "out")
    return g.graph.finalize()


def test_a_structure_has_no_names():
    one = product(("one", "M", "N", "x", "w"), (1, 2))
    other = product(("other", "zz", "aa", "left", "right"), (77, 5))
    assert structure(one) == structure(other)
    assert structure_key(one) == structure_key(other)
    assert symbol_names(one) == {"M": "s0", "N": "s1"}
    assert symbol_names(other) == {"zz": "s0", "aa": "s1"}
    text = json.dumps(structure(other))
    assert not any(name in text for name in ("zz", "aa", "left", "right", "other", "77"))


def test_a_structure_has_everything_else():
    base = product(("one", "M", "N", "x", "w"), (1, 2))
    multiple = product(("one", "M", "N", "x", "w"), (1, 2), multiple_of=8)
    assert structure_key(base) != structure_key(multiple)
    assert structure_key(ffn(64).graph.finalize()) != structure_key(ffn(128).graph.finalize())


def test_of_entries_known_alike_the_faster_one_stays():
    slow, fast = entry(seconds=2e-5, choices="a"), entry(seconds=1e-5, choices="b", name="other")
    for merged in (
        Record((slow,)).merged(Record((fast,))),
        Record((fast,)).merged(Record((slow,))),
    ):
        assert [e.choices for e in merged.entries] == ["b"]
        assert merged.merged(merged) == merged


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": {"s0": 2048}}, {"device": "H100"}, {"driver": "12.9"}, {"l2": "cold"},
        {"target": "sm_90"}, {"versions": {"dnnc": __version__, "nvvm": "1"}}, {"graph": "0"},
    ],
    ids=str,
)  # fmt: skip
def test_entries_that_are_known_differently_stay_side_by_side(changes):
    merged = Record((entry(),)).merged(Record((entry(seconds=1.0, **changes),)))
    assert len(merged.entries) == 2


def test_files(tmp_path):
    path = tmp_path / "record.json"
    made = Record((entry(),)).merged(Record((entry(device="H100"),)))
    assert record.update(path, Record((entry(),))) == Record((entry(),))
    assert record.update(path, Record((entry(device="H100"),))) == made
    assert record.read(path) == made
    assert record.of_text(made.text()) == made
    assert record.of_text("") == Record()
    assert Record().text() == ""


def test_what_may_be_used(caplog):
    caplog.set_level(logging.INFO, "dnnc")
    graph = ffn().graph.finalize()
    cold = entry(l2="cold", seconds=1e-6, choices="cold")
    known = Record((entry(), cold, entry(device="H100", seconds=1e-5, choices="h100")))
    assert [e.choices for e in known.entries_for(graph, SM80)] == ["h100"]
    assert [e.choices for e in known.entries_for(graph, SM80, "A100")] == [entry().choices]
    assert "timed on H100, not on A100" in caplog.text
    assert [e.choices for e in Record((cold,)).entries_for(graph, SM80)] == ["cold"]
    assert known.entries_for(graph, targets.of("sm_90")) == ()
    assert "it is of sm_80, not sm_90" in caplog.text
    old = Record((entry(versions={"dnnc": "0.0.1"}),))
    assert old.entries_for(graph, SM80) == ()
    assert f"it is of dnnc 0.0.1, not {__version__}" in caplog.text
    assert known.entries_for(ffn(64).graph.finalize(), SM80) == ()


def two_works(*, product_first):
    """A product and a sum, which need nothing of each other."""
    g = dnnc.pygraph("two", io_data_type="HALF", intermediate_data_type="FLOAT")
    x, w, z = g.tensor([1, 64, 64]), g.tensor([1, 64, 64]), g.tensor([5, 1000])

    def product():
        g.relu(g.matmul(x, w)).set_output()

    def total():
        g.reduction(g.exp(z), "add").set_output().set_dim([5, 1])

    for make in (product, total) if product_first else (total, product):
        make()
    return g.graph.finalize()


def test_an_entry_serves_a_graph_whose_operations_were_added_in_another_order():
    one, other = two_works(product_first=True), two_works(product_first=False)
    assert [op.title for op in one.ops] != [op.title for op in other.ops]
    config = heuristics.best_config(one, SM80)
    assert len(config.choices) == 2
    known = entry(
        graph=structure_key(one), sizes={}, choices=config.choice_text,
        partition=to_structure(config.partition_text(one), one),
    )  # fmt: skip
    found = heuristics.best_config(other, SM80, inputs=Inputs(record=Record((known,))))
    assert found.measured == known

    def fusions(made):
        return [([op.title for op in c.fusion.ops], c.text) for c in made.choices]

    assert fusions(found) == fusions(config)


def test_the_entry_of_typical_sizes():
    graph = ffn().graph.finalize()
    entries = [entry(sizes={"s0": size}) for size in (16, 900, 4096)]
    assert typical_entry(graph, entries).sizes == {"s0": 900}
    assert typical_entry(graph, []) is None


def test_a_record_of_another_version_is_ignored_and_the_log_says_so(tmp_path, caplog):
    path = tmp_path / "later.json"
    path.write_text('{"dnnc_tuning": 2, "entries": "something new"}')
    assert record.read(path) == Record()
    assert "later.json is ignored: tuning record version 2, not 1" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not JSON"),
        ("[]", "dnnc_tuning"),
        ('{"dnnc_tuning": 1}', "entries = None"),
        ('{"dnnc_tuning": 1, "entries": [1]}', "entry 0"),
        ('{"dnnc_tuning": 1, "entries": [{"graph": 7}]}', "graph = 7"),
    ],
)
def test_what_is_no_record(text, said, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(dnnc.DnncError, match=r"BAD_PARAM.*record\.json") as error:
        record.read(path)
    assert said in str(error.value)
    with pytest.raises(dnnc.DnncError, match="can't be read"):
        record.read(tmp_path / "absent.json")


@pytest.mark.parametrize("changes", [{"l2": "hot"}, {"seconds": 0.0}, {"seconds": -1.0}], ids=str)
def test_entries_that_can_not_be(changes):
    text = Record((entry(**changes),)).text()
    with pytest.raises(dnnc.DnncError, match="warm or cold; a positive number"):
        record.of_text(text)
