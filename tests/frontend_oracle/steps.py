"""A graph as a list of steps, which `cudnn` and `dnnc` both can build.

A case is {"types": "@HALF @FLOAT @FLOAT", "steps": [...]}; types are the graph's for inputs and
outputs, for virtual tensors and for computing, "-" where it has none.  A step that makes tensors is
[names, method, keywords], names separated by spaces; one that sets something is [name, setter,
list of arguments].  In values, "$x" is a tensor, "@HALF" a data type, "@enum.MEMBER" a member of
another enumeration, ":1:5:2" a Python slice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEVICE = HERE / "h100.json"
RECORDED = HERE / "recorded.json"

TYPES = ("io_data_type", "intermediate_data_type", "compute_data_type")
STAGES = ("validate", "build_operation_graph")

_UNEXPORTED = ("convolution_mode",)  # by the names of enumerations that `cudnn` has inside only


class Module:
    """`cudnn`, or what stands for it, with what makes a graph of it.

    options: further ones of every graph.  layout: gives (dims, strides, data type's name) of a
    tensor of a graph that was validated.
    """

    def __init__(
        self,
        module: Any,
        options: Mapping[str, Any],
        layout: Callable[[Any, Any], tuple[Any, Any, Any]],
    ):
        self.module = module
        self.options = options
        self.layout = layout

    def value(self, given: Any, made: Mapping[str, Any]) -> Any:
        """A step's value as the module takes it."""
        if isinstance(given, list):
            return [self.value(item, made) for item in given]
        if not isinstance(given, str) or given[:1] not in "$@:":
            return given
        rest = given[1:]
        if given[0] == "$":
            return made[rest]
        if given[0] == ":":
            return slice(*(int(part) if part else None for part in rest.split(":")))
        enum, _, member = rest.rpartition(".")
        enum = enum or "data_type"
        inside = enum in _UNEXPORTED and not hasattr(self.module, enum)
        owner = self.module._compiled_module if inside else self.module
        return getattr(getattr(owner, enum), member)

    def build(self, case: Mapping[str, Any], made: dict[str, Any]) -> Any:
        """The graph of a case, its tensors put into `made`."""
        types = zip(TYPES, case["types"].split(), strict=True)
        options = {name: self.value(given, made) for name, given in types if given != "-"}
        graph = self.module.pygraph(**options, **self.options)
        for names, method, arguments in case["steps"]:
            if isinstance(arguments, list):
                getattr(made[names], method)(*self.value(arguments, made))
                continue
            keywords = {name: self.value(given, made) for name, given in arguments.items()}
            found = getattr(graph, method)(**keywords)
            results = found if isinstance(found, list | tuple) else [found]
            made.update(zip(names.split(), results, strict=True))
        return graph

    def outcome(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Builds a case with the module and returns its outcome.

        "results": tensor -> [name, dims, strides, data type] of what operations give, where the
        graph is valid.  "error": [step, kind of error], where it is refused.
        """
        made: dict[str, Any] = {}
        stage, outcome = "method", {}
        try:
            graph = self.build(case, made)
            for stage in STAGES:
                getattr(graph, stage)()
                if stage == "validate":
                    outcome["results"] = {
                        name: [made[name].get_name(), *self.layout(graph, made[name])]
                        for name in results_of(case)
                        if made[name] is not None
                    }
        except Exception as error:
            outcome["error"] = [stage, kind_of(error)]
        return outcome


def results_of(case: Mapping[str, Any]) -> list[str]:
    """The names of tensors that operations give, in order."""
    found: list[str] = []
    for names, method, arguments in case["steps"]:
        if isinstance(arguments, dict) and not method.startswith("tensor"):
            found += names.split()
    return found


def kind_of(error: Exception) -> str:
    """The error's class as a caller would catch it: dnnc's own are subclasses."""
    if any(kind.__name__ == "cudnnGraphNotSupportedError" for kind in type(error).__mro__):
        return "cudnnGraphNotSupportedError"
    kinds = (AttributeError, IndexError, TypeError, ValueError, RuntimeError)
    return next((k.__name__ for k in kinds if isinstance(error, k)), type(error).__name__)


def frontend() -> Module:
    """cudnn-frontend itself, with what its C++ graph infers; for a device that is not here."""
    import cudnn

    def layout(graph: Any, tensor: Any) -> tuple[Any, Any, Any]:
        # A graph with attention is lowered by other means, and its tensors know themselves.
        lowered = graph._cpp_tensors.get(tensor.get_uid(), tensor)
        kind = lowered.get_data_type()
        return list(lowered.get_dim()), list(lowered.get_stride()), kind.name

    device = cudnn.create_device_properties(DEVICE.read_text())
    return Module(cudnn, {"device_property": device}, layout)


def inner_graph() -> Module:
    """The frontend's C++ graph alone, which infers dims that `cudnn.pygraph` wants to be set."""
    import cudnn

    class Inner:
        pygraph = cudnn._pybind_module.backend_graph

        def __getattr__(self, name: str) -> Any:
            return getattr(cudnn, name)

    def layout(_: Any, tensor: Any) -> tuple[Any, Any, Any]:
        return list(tensor.get_dim()), list(tensor.get_stride()), tensor.get_data_type().name

    return Module(Inner(), {"device_property": frontend().options["device_property"]}, layout)


def ours(module: Any, **options: Any) -> Module:
    """dnnc, or its module that stands for `cudnn`."""

    def layout(_: Any, tensor: Any) -> tuple[Any, Any, Any]:
        kind = tensor.get_data_type()
        return list(tensor.get_dim()), list(tensor.get_stride()), getattr(kind, "cudnn", None)

    return Module(module, options, layout)


def recorded(path: Path = RECORDED) -> dict[str, Any]:
    """The recorded file: its "cases" are by name, each with its steps and its outcome."""
    found = json.loads(path.read_text())
    for case in found["cases"].values():
        expand(case, found["cases"])
    return found


def expand(case: dict[str, Any], cases: Mapping[str, Any]) -> None:
    """Gives a case that changes another one its steps.

    "of" is that case's name, "change" a list [place, name, value]: the keyword of the step at a
    place that has another value there; None takes it away.
    """
    if "steps" in case:
        return
    base = cases[case["of"]]
    expand(base, cases)
    place, name, value = case["change"]
    steps = [list(step) for step in base["steps"]]
    keywords = {**steps[place][2], name: value}
    steps[place][2] = {name: value for name, value in keywords.items() if value is not None}
    case["types"], case["steps"] = base["types"], steps


def compact(cases: Mapping[str, Any]) -> str:
    """Cases as JSON, a line each."""
    lines = (f"{json.dumps(name)}:{_dumped(_stored(case))}" for name, case in cases.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def _stored(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case as the file has it: without the steps that follow from another's."""
    return {k: v for k, v in case.items() if "of" not in case or k not in ("types", "steps")}


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def text_of(versions: Mapping[str, Any], cases: Mapping[str, Any]) -> str:
    """The recorded file's text."""
    return f'{{"versions":{_dumped(versions)},\n"cases":{compact(cases)}}}\n'
