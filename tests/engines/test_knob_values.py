"""Engines read the knobs of a choice as named fields, and in one way."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

import pytest

import dnnc.engines
from dnnc.engines.attention.choice_sm90 import SdpaChoice
from dnnc.engines.knob_values import KnobValues
from dnnc.knobs import KNOBS


@dataclass(frozen=True)
class Tile(KnobValues):
    rows: Annotated[int, "TILE_M"]
    swaps: Annotated[bool, "SWAP_AB"] = False


@dataclass(frozen=True)
class Made(KnobValues):
    tile: Tile
    rescales: Annotated[bool, "KERNEL_CFG", 1]
    pins: Annotated[bool, "KERNEL_CFG", 2]
    packs: Annotated[bool | None, "PACK_GQA"] = None
    parts: Annotated[int, "SPLIT_KV"] = 1


def test_fields_are_read_and_written():
    knobs = {"TILE_M": 64, "KERNEL_CFG": 2, "STAGES": 4}
    made = Made.of(knobs)
    assert made == Made(Tile(64), rescales=False, pins=True)
    assert made.knobs == {"TILE_M": 64, "SWAP_AB": 0, "KERNEL_CFG": 2, "SPLIT_KV": 1}
    whole = Made(Tile(32, True), rescales=True, pins=True, packs=False, parts=8)
    assert whole.knobs["KERNEL_CFG"] == 3
    assert whole.knobs["PACK_GQA"] == 0
    assert Made.of(whole.knobs) == whole
    with pytest.raises(KeyError, match="TILE_M"):
        Made.of({"KERNEL_CFG": 0})


def test_values_unlike_others_are_named():
    tile = Tile(64, True)
    assert dict(tile.different_from({"TILE_M": 64, "SWAP_AB": 0})) == {"SWAP_AB": 1}


def test_knobs_of_few_queries_are_written_together():
    plain = SdpaChoice(128, 64, 2, rescales=True, pins=False, is_dynamic=False)
    assert not {"PACK_GQA", "SPLIT_KV"} & plain.knobs.keys()
    few = SdpaChoice.of({**plain.knobs, "PACK_GQA": 0, "SPLIT_KV": 4})
    assert (few.packs, few.parts) == (False, 4)


def raw_lookups(source):
    """Lines that read a knob from a dictionary by its name, or any entry of `knobs`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            read, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr not in ("get", "pop"):
                continue
            read, key = node.func.value, node.args[0]
        else:
            continue
        is_named = isinstance(key, ast.Constant) and key.value in KNOBS
        if is_named or ast.unparse(read).rpartition(".")[2] == "knobs":
            yield node.lineno


@pytest.mark.parametrize(
    "line", ['knobs["TILE_M"]', 'x = whole.get("TF32", 1)', "choice.knobs[name]", "knobs.get(name)"]
)
def test_a_raw_lookup_is_found(line):
    assert list(raw_lookups(line)) == [1]


@pytest.mark.in_turn
def test_engines_look_no_knob_up():
    folder = Path(dnnc.engines.__file__).parent
    files = set(folder.rglob("*.py")) - {folder / "knob_values.py"}
    found = {str(path.relative_to(folder)): [*raw_lookups(path.read_text())] for path in files}
    assert len(found) > 100
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_every_field_is_of_a_knob():
    """A misspelt name would be found by the first choice only."""
    kinds = [kind for kind in derived(KnobValues) if kind.__module__.startswith("dnnc")]
    assert len(kinds) > 15
    hints = {f"{kind.__module__}.{name}": hint for kind in kinds for name, hint in hints_of(kind)}
    named = {name: hint.__metadata__[0] for name, hint in hints.items() if get_args(hint)}
    assert {name: knob for name, knob in named.items() if knob not in KNOBS} == {}
    assert all(issubclass(hints[name], KnobValues) for name in hints.keys() - named.keys())


def derived(kind):
    """The classes that derive from one, directly or through others."""
    for own in kind.__subclasses__():
        yield own
        yield from derived(own)


def hints_of(kind):
    return get_type_hints(kind, include_extras=True).items()
