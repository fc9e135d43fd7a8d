"""Errata: what a rule bars, what is said of it, and which files are rules."""

import json
import re

import pytest

import dnnc
from dnnc import __version__, errata
from dnnc import target as targets
from dnnc.choosing import heuristics
from dnnc.choosing.inputs import Inputs, inputs_of
from dnnc.dialect.fusion import partition
from dnnc.errors import Status
from dnnc.options import Options

from .tuning.fakes import choice_of, ffn

SM80 = targets.of("sm_80")
RULE = {"id": "no-64", "why": "wrong sums", "engine": "matmul_sm80", "knobs": {"TILE_M": 32}}


def text(*rules):
    return json.dumps({"dnnc_errata": 1, "rules": list(rules)})


def barred(rule, driver="", target=SM80, graph=None):
    """The candidates that a rule bars."""
    graph = graph or ffn(64).graph.finalize()
    (whole,) = partition(graph, [graph.live_ops])
    inputs = inputs_of(Options(errata=text({**RULE, **rule}), driver=driver))
    every = heuristics.choices(whole, target, inputs=Inputs(errata.Errata(())))
    left = {choice.text for choice in heuristics.choices(whole, target, inputs=inputs)}
    return [choice for choice in every if choice.text not in left]


def test_the_package_has_rules_that_can_be_read():
    assert isinstance(errata.packaged(), tuple)


def test_a_rule_bars_the_knobs_that_it_names():
    found = barred({})
    assert found
    assert {(c.engine.name, c.knobs["TILE_M"]) for c in found} == {("matmul_sm80", 32)}
    found = barred({"knobs": {"TILE_M": [32, 64], "STAGES": [3]}})
    assert {(c.knobs["TILE_M"], c.knobs["STAGES"]) for c in found} == {(32, 3), (64, 3)}
    assert {c.engine.name for c in barred({"knobs": {}})} == {"matmul_sm80"}


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ({"ops": ["matmul"]}, True),
        ({"ops": ["matmul", "pointwise:relu_fwd"]}, True),
        ({"ops": ["pointwise"]}, True),
        ({"ops": ["matmul", "reduction"]}, False),
        ({"ops": ["pointwise:exp"]}, False),
        ({"dtypes": ["f16"]}, True),
        ({"dtypes": ["f16", "bf16"]}, False),
        ({"targets": ["sm_90", "sm_80"]}, True),
        ({"targets": ["sm_90"]}, False),
        ({"dnnc": f"=={__version__}"}, True),
        ({"dnnc": ">=0.0.1,<99"}, True),
        ({"dnnc": "<0.0.1"}, False),
        ({"driver": "<580"}, True),
        ({"driver": ">=580"}, True),
    ],
    ids=str,
)
def test_every_condition_has_to_hold(rule, holds):
    assert bool(barred(rule)) == holds


@pytest.mark.parametrize(
    ("condition", "driver", "holds"),
    [
        ("<580", "575.51.03", True), ("<580", "580", False), ("==580", "580.0", True),
        (">=12.4,<13", "12.8", True), (">=12.4,<13", "13.0", False), ("!=13", "13.0", False),
    ],
)  # fmt: skip
def test_a_driver_that_is_known_is_compared(condition, driver, holds):
    assert bool(barred({"driver": condition}, driver)) == holds


def test_a_norm_is_its_steps():
    g = dnnc.pygraph("norm", io_data_type="HALF", intermediate_data_type="FLOAT")
    x, scale = g.tensor([8, 64, 1, 1]), g.tensor([1, 64, 1, 1])
    y, _ = g.rmsnorm("INFERENCE", x, scale, epsilon=1e-5)
    y.set_output()
    graph = g.graph.finalize()
    rule = {"engine": "rows", "knobs": {}}
    assert barred({**rule, "ops": ["reduction"]}, graph=graph)
    with pytest.raises(dnnc.DnncError, match=r"'rmsnorm'; accepted: matmul, .*pointwise"):
        barred({**rule, "ops": ["rmsnorm"]}, graph=graph)


def test_a_choice_that_is_asked_for_says_which_rule_bars_it():
    graph = ffn(64).graph.finalize()
    inputs = inputs_of(Options(errata=text(RULE)))

    def asked(knobs):
        heuristics.best_config(graph, SM80, engine="matmul_sm80", knobs=knobs, inputs=inputs)

    asked({"TILE_M": 64})
    with pytest.raises(dnnc.DnncError, match=r"TILE_M=32.* is barred by errata rule 'no-64': wron"):
        asked({"TILE_M": 32, "TILE_N": 64, "TILEK": 64, "STAGES": 3})
    inputs = inputs_of(Options(errata=text({**RULE, "knobs": {}})))
    with pytest.raises(dnnc.DnncError, match="every config of engine matmul_sm80 is barred by"):
        asked({})


def test_a_graph_all_of_whose_configs_are_barred():
    rules = [
        {**RULE, "id": name, "engine": name, "knobs": {}} for name in ("matmul_sm80", "fallback")
    ]
    with pytest.raises(dnnc.DnncError, match=r"(?s)by errata rule 'matmul_sm80': .*'fallback'"):
        heuristics.best_config(
            ffn(64).graph.finalize(), SM80, inputs=inputs_of(Options(errata=text(*rules)))
        )


def test_a_compilation_takes_the_file_of_the_user(tmp_path, monkeypatch):
    path = tmp_path / "errata.json"
    path.write_text(text({**RULE, "knobs": {}}))
    plain = dnnc.compile(ffn(64), "sm_80", in_process=True)
    given = dnnc.compile(ffn(64), "sm_80", errata=path, in_process=True)
    monkeypatch.setenv("DNNC_ERRATA_FILE", str(path))
    found = dnnc.compile(ffn(64), "sm_80", in_process=True)
    assert choice_of(plain).startswith("matmul_sm80")
    assert choice_of(given) == choice_of(found)
    assert choice_of(given).startswith("fallback")
    assert plain.key != given.key == found.key
    assert plain.tools["errata"]  # the package's own


def test_a_pygraph_takes_it_too(tmp_path):
    path = tmp_path / "errata.json"
    path.write_text(text({**RULE, "knobs": {}}))
    g = ffn(64)
    g._target = "sm_80"
    g.build_operation_graph()
    g.create_execution_plans(["A"], errata=path)
    names = [g.get_plan_name_at_index(i) for i in range(g.get_execution_plan_count())]
    assert {name.split("_")[0] for name in names} == {"eng2"}
    with pytest.raises(dnnc.cudnnGraphNotSupportedError, match="barred by errata rule 'no-64'"):
        g.create_execution_plan(4, {"TILE_M": 64})


def test_configs_for_other_sizes_are_barred_too():
    """Each of a plan's variants."""
    graph = ffn().graph.finalize()
    inputs = inputs_of(Options(errata=text(RULE)))
    from dnnc.choosing.variants import guarded_configs

    base = heuristics.best_config(graph, SM80, inputs=inputs)
    found = guarded_configs(graph, SM80, base, inputs=inputs)
    tiles = {c.knobs.get("TILE_M") for entry in found for c in entry.config.choices}
    assert 32 not in tiles


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "dnnc_errata"),
        ('{"dnnc_errata": 2, "rules": []}', "dnnc_errata"),
        ('{"dnnc_errata": 1}', "rules = None"),
        (text(7), "rule 0"),
        (text({"id": "a", "why": "b"}), "engine = ''"),
        (text({**RULE, "knbos": {}}), "knbos"),
        (text({**RULE, "knobs": {"TILE_M": "64"}}), "knob TILE_M"),
        (text({**RULE, "knobs": {"TILE_M": []}}), "knob TILE_M = []"),
        (text({**RULE, "knobs": {"TILE_M": [64, True]}}), "knob TILE_M = [64, True]"),
        (text({**RULE, "knobs": 3}), "knobs = 3"),
        (text({**RULE, "ops": "matmul"}), "ops = 'matmul'"),
        (text({**RULE, "dnnc": "0.1"}), "versions '0.1'"),
        (text({**RULE, "targets": ["sm_1"]}), "target 'sm_1'"),
    ],
)
def test_what_is_no_rule(content, said, tmp_path):
    path = tmp_path / "errata.json"
    path.write_text(content)
    with pytest.raises(dnnc.DnncError) as error:
        errata.text_of(path)
    assert said in str(error.value)


def test_a_file_that_is_not_there():
    with pytest.raises(dnnc.DnncError, match="can't be read"):
        errata.text_of("absent.json")


def test_engines_that_there_are_not():
    """A rule for another version of dnnc may be on an engine of that version."""
    with pytest.raises(dnnc.DnncError, match="rule 'no-64' is on engine 'conv'"):
        inputs_of(Options(errata=text({**RULE, "engine": "conv"})))
    inputs_of(Options(errata=text({**RULE, "engine": "conv", "dnnc": ">99"})))


@pytest.mark.parametrize(
    ("engine", "knobs", "said"),
    [
        ("matmul_sm80", {"TILE_MM": 32}, "knob 'TILE_MM' of engine matmul_sm80; accepted: TILE_M,"),
        ("matmul_sm80", {"tile_m": 32}, "knob 'tile_m' of engine matmul_sm80"),
        ("matmul_sm80", {"SWIZZLE": 1}, "knob 'SWIZZLE' of engine matmul_sm80"),
        ("peers", {"STAGES": 1}, "knob 'STAGES' of engine peers; accepted: none"),
        ("matmul_sm80", {"STAGES": 4, "TILE_M": [32, 65, 7]},
         "TILE_M = 65, 7 of engine matmul_sm80; accepted: 32, 64, 128, 256"),
    ],
)  # fmt: skip
def test_knobs_that_an_engine_has_not(engine, knobs, said):
    rule = {**RULE, "engine": engine, "knobs": knobs}
    with pytest.raises(dnnc.DnncError, match=re.escape(f"rule 'no-64' is on {said}")) as error:
        inputs_of(Options(errata=text(rule)))
    assert error.value.status is Status.BAD_PARAM
    inputs_of(Options(errata=text({**rule, "dnnc": ">99"})))


def test_knobs_of_some_operand_types_alone():
    """A rule may name what an engine has for other fusions."""
    assert not barred({"knobs": {"TF32": 1}})
    assert not barred({"knobs": {"TILEK": 128}})


def test_misspelt_knobs_are_found_before_there_are_plans(tmp_path, monkeypatch):
    path = tmp_path / "errata.json"
    path.write_text(text({**RULE, "knobs": {"TILE_MM": 32}}))
    with pytest.raises(dnnc.DnncError, match="knob 'TILE_MM'"):
        dnnc.compile(ffn(64), "sm_80", errata=path)
    g = ffn(64)
    g._target = "sm_80"
    monkeypatch.setenv("DNNC_ERRATA_FILE", str(path))
    with pytest.raises(dnnc.DnncError, match="knob 'TILE_MM'"):
        g.create_execution_plans(["A"])


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("ops", "matmull"), ("ops", "pointwise:gelu"), ("ops", "reduction:most"),
        ("ops", "resample:maxpool"), ("ops", "rng:NORMA"), ("ops", "matmul:f16"), ("ops", "rng:"),
        ("dtypes", "HALF"),
    ],
)  # fmt: skip
def test_misspelt_conditions_are_errors(field, name):
    """They would never hold, and the rule bar nothing."""
    rule = {"id": "a", "why": "b", "engine": "matmul_sm80", field: [name]}
    with pytest.raises(dnnc.DnncError, match=re.escape(name)):
        errata.parsed(json.dumps({"dnnc_errata": 1, "rules": [rule]}), "test")
    good = {**rule, "ops": ["resample:MAXPOOL", "rng:NORMAL", "reduction:add"], "dtypes": ["f16"]}
    assert errata.parsed(text(good), "test")
    other = {**rule, "dnnc": "<0.0.1"}  # of a version that may have known it
    assert errata.parsed(json.dumps({"dnnc_errata": 1, "rules": [other]}), "test")
