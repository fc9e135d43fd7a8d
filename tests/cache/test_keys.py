"""Keys hold everything: each option, the graph, the targets, the tools, the sources."""

import dataclasses
import typing
from collections.abc import Mapping

import pytest

import dnnc
from dnnc import keys, tools
from dnnc.cache import files
from dnnc.options import Options
from dnnc.plan import codec


def graph(name="g", n=8):
    g = dnnc.pygraph(name, io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([3, n])).set_output()
    return g.graph.finalize()


def other_value(hint):
    """A value of a type that is no field's default."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in arguments:
        return other_value(next(a for a in arguments if a is not type(None)))
    if origin is tuple and arguments[-1] is Ellipsis:
        return (other_value(arguments[0]),)
    if origin is tuple:
        return tuple(map(other_value, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return {"other": other_value(arguments[1])}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: other_value(hints[f.name]) for f in dataclasses.fields(hint)})
    return {str: "other", int: 7, float: 0.75, bool: True, bytes: b"other"}[hint]


HINTS = typing.get_type_hints(Options)
FIELDS = [field.name for field in dataclasses.fields(Options)]


@pytest.mark.parametrize("field", FIELDS)
def test_every_option_is_in_the_key(field):
    text = graph().canonical_text()
    changed = dataclasses.replace(Options(), **{field: other_value(HINTS[field])})
    assert changed != Options()
    plain, other = (keys.plan_key(text, ["sm_80"], options) for options in (Options(), changed))
    assert plain != other
    by_file = [files.file_key(b"x", ".json", None, "sm_90", o) for o in (Options(), changed)]
    assert by_file[0] != by_file[1]


@pytest.mark.parametrize("field", FIELDS)
def test_every_option_comes_to_the_worker_as_it_is(field):
    changed = dataclasses.replace(Options(), **{field: other_value(HINTS[field])})
    assert codec.decode(Options, codec.encode(changed)) == changed


def test_graph_targets_and_tools_are_in_the_key(monkeypatch):
    text = graph().canonical_text()
    found = [
        keys.plan_key(text, ["sm_80"], Options()),
        keys.plan_key(graph(n=9).canonical_text(), ["sm_80"], Options()),
        keys.plan_key(graph("h").canonical_text(), ["sm_80"], Options()),
        keys.plan_key(text, ["sm_90"], Options()),
        keys.plan_key(text, ["sm_80", "sm_90"], Options()),
        keys.plan_key(text, ["sm_90", "sm_80"], Options()),
    ]
    monkeypatch.setattr(tools, "versions", lambda: {"numba-cuda-mlir": "0.0"})
    found.append(keys.plan_key(text, ["sm_80"], Options()))
    monkeypatch.setattr(keys, "__version__", "0.0")
    found.append(keys.plan_key(text, ["sm_80"], Options()))
    assert len(set(found)) == len(found)


def test_a_file_s_key_has_its_bytes_its_suffix_and_the_targets():
    found = {
        files.file_key(data, suffix, targets, default, Options())
        for data in (b"a", b"b")
        for suffix in (".json", ".mlir")
        for targets in (None, ["sm_80"], ["sm_90"])
        for default in ("sm_80", "sm_90")
    }
    assert len(found) == 24


def test_values_that_look_alike_have_keys_of_their_own():
    values = [None, "None", 1, "1", 1.5, True, "true", b"1", [], [[]], {}, {"a": 1}, {"a": "1"}]
    assert len({keys.hash_of(value) for value in values}) == len(values)
    assert keys.hash_of((1, 2)) == keys.hash_of([1, 2])
    assert keys.hash_of({"a": 1, "b": 2}) == keys.hash_of({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [{1, 2}, object(), {1: 2}, Options, [{"a": {3}}]])
def test_what_has_no_canonical_form_has_no_key(value):
    with pytest.raises(TypeError, match="no key of"):
        keys.hash_of(value)


def test_sources_are_told_apart_by_their_bytes(tmp_path, monkeypatch):
    package = tmp_path / "dnnc"
    for name in ("engines/rows/engine.py", "errata.json", "cli/run.py", "keys.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("1\n")
    monkeypatch.setattr(keys, "__file__", str(package / "keys.py"))
    found = [keys._sources()]
    (package / "cli" / "run.py").write_text("2\n")
    assert keys._sources() == found[0]
    (package / "engines" / "rows.py").write_text("2\n")
    found.append(keys._sources())
    (package / "engines" / "rows.py").rename(package / "engines" / "columns.py")
    found.append(keys._sources())
    (package / "engines" / "more.py").write_text("")
    found.append(keys._sources())
    (package / "errata.json").write_text("[]\n")
    found.append(keys._sources())
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("version", ["absent", "13.0"])
def test_an_assembler_without_a_version_is_told_apart_by_its_file(tmp_path, monkeypatch, version):
    ptxas = tmp_path / "ptxas"
    monkeypatch.setattr(tools, "versions", lambda: {"nvidia-cuda-nvcc": version})
    monkeypatch.setenv("PATH", str(tmp_path))
    found = [keys._unversioned_assembler()]
    for text in ("#!/bin/sh\n", "#!/bin/sh\ntrue\n"):
        ptxas.write_text(text)
        ptxas.chmod(0o755)
        found.append(keys._unversioned_assembler())
    assert len(set(map(str, found))) == (3 if version == "absent" else 1)
