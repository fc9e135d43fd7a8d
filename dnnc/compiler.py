# pyright: basic
"""The compile driver: named stages from graph to plan.

    graph -> fused -> linalg -> kernel -> nvvm -> ptx -> cubin -> plan

Every stage up to ptx has a text form, from which a later process goes on to the same cubin.  A
compilation is a pure function of the graph, the target, the options and the tools' versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from . import __version__, keys, log, mlir, passes, tools
from . import target as targets
from .choosing import heuristics, hints, spills
from .choosing.inputs import Inputs, inputs_of
from .choosing.unspilled import Door, unspilled
from .choosing.variants import guarded_configs
from .codegen import nvptx
from .codegen.nvptx import Assembled
from .dialect import dnn, structure
from .dialect.graph import OperationGraph
from .dialect.json_form import to_json
from .dialect.prior import priors_of
from .errors import DnncError, Status, cudnnGraphNotSupportedError
from .expr import bounds_of
from .mlir import ir
from .options import DEFAULTS, Options
from .passes import unchanged
from .passes.lower_to_nvvm import isolated
from .plan import arguments, codec, consistency
from .plan.plan import (
    FusionRecord,
    Kernel,
    Module,
    Plan,
    ProductBound,
    Program,
    Step,
    Symbol,
    TensorRecord,
    Variant,
)
from .progress import BEGIN
from .store import MemoryStore, Store
from .target import Target

STAGES = ("graph", "fused", "linalg", "kernel", "nvvm", "ptx", "cubin", "plan")
TEXT_STAGES = STAGES[: STAGES.index("cubin")]

_log = log.logger(__name__)

# In a PTX file of ours, what belongs to the kernels stands in comments with this mark.
_HOST_MARK = "//! "


@dataclass
class Compilation:
    """One graph on its way to one target.

    module: the MLIR module, up to nvvm; then only what belongs to the kernels.
    seconds: stage -> how long it took.  places: where the graph's operations and tensors were made
    (`OperationGraph.places`), None of one that was read from text.
    """

    target: Target
    stage: str
    module: Any
    ptx: str = ""
    assembled: Assembled | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    places: dict[str, Any] | None = None

    # ---- its text forms

    def text(self) -> str:
        """The text form of a stage before cubin."""
        if self.stage == "ptx":
            host = "".join(f"{_HOST_MARK}{line}\n" for line in str(self.module).splitlines())
            return f"{self.ptx}{host}"
        return str(self.module)


Report = Callable[[str, float], None]


def start(graph: OperationGraph, target: Target, variant: int = 0) -> Compilation:
    """A compilation at stage graph; inside a `dnn.context()`.

    variant: place of the config among those of the plan.
    """
    module = dnn.to_mlir(graph)
    module.operation.attributes["dnn.target"] = ir.StringAttr.get(target.name)
    if variant:
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), variant)
        module.operation.attributes[structure.VARIANT] = number
    return Compilation(target, "graph", module, places=graph.places())


def resume(text: str, target: Target | None = None) -> Compilation:
    """A compilation from the text form of a stage; inside a `dnn.context()`.

    target: needed (and used) at stage graph only, where the text does not name one.  What the
    stage does not hold, and what its graph and choices do not give, is BAD_PARAM.
    """
    ptx = ""
    if _HOST_MARK in text:
        ptx = text[: text.index(_HOST_MARK)]
        host = text[len(ptx) :].splitlines()
        text = "\n".join(line.removeprefix(_HOST_MARK) for line in host)
    module = mlir.parse(text)
    attributes = module.operation.attributes
    if "dnn.target" not in attributes:
        attributes["dnn.target"] = ir.StringAttr.get((target or targets.of("sm_90")).name)
    stage = "ptx" if ptx else stage_of(module)
    unchanged.verify(module, stage)
    named = targets.of(ir.StringAttr(attributes["dnn.target"]).value)
    return Compilation(named, stage, module, ptx)


def stage_of(module: Any) -> str:
    """Which stage a module is at, by what it holds."""
    operations = [op.operation for op in module.body.operations]
    names = {op.name for op in operations}
    if "gpu.module" in names:
        kernels = next(op for op in operations if op.name == "gpu.module")
        dialects = {name.split(".")[0] for name in _names_inside(kernels)}
        return "nvvm" if dialects <= {"llvm", "nvvm", "gpu"} else "kernel"
    fusions = list(structure.fusion_functions(module))
    if not fusions:
        return "graph"
    inside = {name for function in fusions for name in _names_inside(function.operation)}
    has_ops = any(name.startswith("dnn.") and name != "dnn.size" for name in inside)
    return "fused" if has_ops else "linalg"


def _names_inside(operation: Any) -> set[str]:
    found: set[str] = set()
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                found.add(op.operation.name)
                found |= _names_inside(op.operation)
    return found


def advance(
    work: Compilation,
    stop: str,
    options: Options = DEFAULTS,
    store: Store | None = None,
    report: Report = lambda stage, seconds: None,
) -> Compilation:
    """Runs stages up to `stop` (at most cubin)."""
    while work.stage != stop:
        following = STAGES[STAGES.index(work.stage) + 1]
        began = time.perf_counter()
        _STEPS[following](work, options, store or _store)
        work.stage = following
        work.seconds[following] = time.perf_counter() - began
        report(following, work.seconds[following])
        _log.debug("%s: %s in %.0f ms", work.target, following, 1e3 * work.seconds[following])
    return work


def _fused(work: Compilation, options: Options, store: Store) -> None:
    partition, choices = options.partition, options.choices
    if not partition:
        graph = dnn.from_mlir(work.module)
        if work.places is not None:
            graph.set_places(work.places)
        place = targets.with_sm_count(work.target, options.sm_count)
        config = _best_config(graph, place, options, inputs_of(options))
        partition, choices = config.partition_text(graph), config.choice_text
    passes.run(
        work.module,
        [passes.Verify(), passes.Fuse(partition=partition), passes.SelectEngine(choices=choices)],
    )


def _linalg(work: Compilation, options: Options, store: Store) -> None:
    passes.run(work.module, [passes.LowerToLinalg(), passes.Tile()], is_verified=True)


def _kernel(work: Compilation, options: Options, store: Store) -> None:
    steps = [passes.LowerToKernels(), passes.AssignWorkspace()]
    passes.run(work.module, steps, is_verified=True)


def _nvvm(work: Compilation, options: Options, store: Store) -> None:
    passes.run(work.module, [passes.LowerToNvvm()], is_verified=True)


def _ptx(work: Compilation, options: Options, store: Store) -> None:
    kernels = _gpu_module(work.module)
    work.ptx = nvptx.to_ptx(isolated(kernels))
    kernels.erase()


def _cubin(work: Compilation, options: Options, store: Store) -> None:
    work.assembled = _assembled(work.ptx, work.target, store)


_STEPS: dict[str, Callable[[Compilation, Options, Store], None]] = {
    "fused": _fused,
    "linalg": _linalg,
    "kernel": _kernel,
    "nvvm": _nvvm,
    "ptx": _ptx,
    "cubin": _cubin,
}


def _gpu_module(module: Any) -> Any:
    found = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if len(found) != 1:
        raise DnncError(Status.BAD_PARAM, f"{len(found)} operations gpu.module", "one")
    return found[0]


# ---- code, from the store where it was made before

_store = MemoryStore()


def _assembled(ptx: str, target: Target, store: Store) -> Assembled:
    key = _store_key("cubin", ptx, target.name, tools.versions(), nvptx.OPTIONS)
    known = store.get(key)
    if known is not None:
        try:
            return _read_assembled(known, ptx)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            _made_again(store, key)
    made = nvptx.assemble(ptx, target)
    head = {"resources": {n: vars(r) for n, r in made.resources.items()}, "log": made.log}
    text = json.dumps(head).encode()
    store.put(key, len(text).to_bytes(8, "little") + text + made.cubin)
    return made


def _read_assembled(data: bytes, ptx: str) -> Assembled:
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    resources = {str(n): nvptx.Resources(**r) for n, r in head["resources"].items()}
    cubin = data[8 + length :]
    numbers = [number for found in resources.values() for number in vars(found).values()]
    is_whole = cubin.startswith(b"\x7fELF") and set(resources) == nvptx.entries(ptx)
    if not is_whole or not all(type(number) is int for number in numbers):
        raise ValueError("no cubin of these kernels")
    return Assembled(cubin, resources, str(head["log"]))


def _made_again(store: Store, key: str) -> None:
    _log.warning("cache entry %s holds something else; it is made again", key)
    store.drop(key)


def _kernel_text_key(work: Compilation) -> str:
    text = _gpu_module(work.module).get_asm(assume_verified=True)
    return _store_key("ptx", text, work.target.name, tools.versions())


def _through_kernels(work: Compilation, store: Store, report: Report) -> None:
    """kernel -> ptx, skipped when the store has the PTX of the same kernels."""
    key = _kernel_text_key(work)
    known = store.get(key)
    if known is not None and not nvptx.is_ptx(known, work.target):
        _made_again(store, key)
        known = None
    if known is None:
        advance(work, "ptx", store=store, report=report)
        store.put(key, work.ptx.encode())
        return
    work.ptx = known.decode()
    _gpu_module(work.module).erase()
    work.stage = "ptx"


def _store_key(kind: str, *parts: Any) -> str:
    return f"{kind}-{keys.hash_of(kind, *parts)}"


# ---- the whole way


def compile_graph(
    graph: OperationGraph,
    target: str | Target | Sequence[Target] = "sm_90",
    options: Options = DEFAULTS,
    *,
    store: Store | None = None,
    report: Report = lambda stage, seconds: None,
) -> Plan:
    """Compiles a graph for one or more targets, in this process.

    target: `sm_90`, `sm_80,sm_90a`, or rows of `dnnc.target`.  store: keeps PTX and cubins
    (default: this process's memory).  report: called with (stage, seconds) after each stage,
    and before the stages of each target with `progress.BEGIN`.
    A graph that no engine takes is a cudnnGraphNotSupportedError with the nearest engine's reason;
    its `details` have every engine's.
    """
    rows = [targets.with_sm_count(row, options.sm_count) for row in targets.rows_of(target)]
    graph.finalize()
    plans = []
    for row in rows:
        report(BEGIN, 0.0)
        plans.append(_for_target(graph, row, options, store or _store, report))
    return _merged(plans, _plan_key(graph, rows, options))


def _for_target(
    graph: OperationGraph, target: Target, options: Options, store: Store, report: Report
) -> Plan:
    """The plan of one target; of what the heuristics choose, one that does not spill registers."""
    began = time.perf_counter()
    if options.partition or options.guards:
        made = _of_choices(graph, target, _explicit(options), store, report)
    else:
        made = _chosen(graph, target, options, store, report)
    for program in made.programs:
        hints.warned(program.warnings)
    _log.info("%s in %.0f ms", made.summary, 1e3 * (time.perf_counter() - began))
    return made


def _explicit(options: Options) -> Options:
    """Options of a partition, with choices for each guard."""
    if not options.guards:
        return replace(options, guards=(("1", options.choices),))
    if not options.partition or options.guards[-1][0] != "1":
        raise DnncError(
            Status.BAD_PARAM,
            f"guards {[guard for guard, _ in options.guards]} of partition {options.partition!r}",
            "a partition, and guards of which the last is 1",
        )
    return options


def _chosen(
    graph: OperationGraph, target: Target, options: Options, store: Store, report: Report
) -> Plan:
    """The plan of what the heuristics choose, as far as the options leave it open."""
    began = time.perf_counter()
    inputs = inputs_of(options)
    first = _best_config(graph, target, options, inputs)

    def whole(config: heuristics.EngineConfig, inputs: Inputs) -> Plan:
        nonlocal began
        warnings, explicit = _decided(graph, target, options, inputs, config)
        report("choose", time.perf_counter() - began)
        plan = _of_choices(graph, target, explicit, store, report)
        began = time.perf_counter()
        (program,) = plan.programs
        return replace(plan, programs=(replace(program, warnings=warnings),))

    def others(inputs: Inputs) -> Iterator[heuristics.EngineConfig]:
        with contextlib.suppress(cudnnGraphNotSupportedError):  # nothing else takes the graph
            yield _best_config(graph, target, options, inputs)

    door = Door(
        target,
        whole,
        lambda part, config: _of_choices(
            part, target, _explicit(config.options(part)), store, lambda *_: None
        ),
        others,
    )
    found = unspilled(first, inputs, door, 0 if options.knobs else spills.MOST_TRIES)
    assert found is not None, "it is to be had"
    return found[1]


def _of_choices(
    graph: OperationGraph, target: Target, explicit: Options, store: Store, report: Report
) -> Plan:
    """A module for each config of explicit choices."""
    texts = list(dict.fromkeys(choices for _, choices in explicit.guards))
    works: list[Compilation] = []
    assemblers = min(len(texts), os.cpu_count() or 1)
    with dnn.context(), ThreadPoolExecutor(assemblers) as assembler:
        waiting = []
        for variant, choices in enumerate(texts):
            work = start(graph, target, variant)
            chosen = replace(explicit, choices=choices)
            advance(work, "kernel", chosen, store, report)
            _through_kernels(work, store, report)
            # Assemblers have threads of their own, beside the next config's lowering.
            waiting.append(assembler.submit(advance, work, "cubin", chosen, store))
            works.append(work)
        for future in waiting:
            report("cubin", future.result().seconds["cubin"])
        parts = {c: to_plan(w, graph, explicit) for c, w in zip(texts, works, strict=True)}
    return _guarded(parts, explicit.guards)


def _decided(
    graph: OperationGraph,
    target: Target,
    options: Options,
    inputs: Inputs,
    config: heuristics.EngineConfig,
) -> tuple[tuple[str, ...], Options]:
    """(what is to be said of a config, explicit options of it with configs for other sizes)"""
    is_free = options.engine is None and not options.knobs
    warnings = (
        hints.hints(graph, config, target, options.modes, inputs)
        if is_free
        else hints.slow_products(config, target)
    )
    most = options.most_variants if is_free else 1
    guarded = guarded_configs(graph, target, config, most=most, inputs=inputs)
    guards = tuple((g.guard, g.config.choice_text) for g in guarded)
    return warnings, replace(options, partition=config.partition_text(graph), guards=guards)


def _best_config(
    graph: OperationGraph, target: Target, options: Options, inputs: Inputs
) -> heuristics.EngineConfig:
    return heuristics.best_config(
        graph, target, options.modes, engine=options.engine, knobs=dict(options.knobs),
        inputs=inputs,
    )  # fmt: skip


def _guarded(parts: Mapping[str, Plan], guards: Sequence[tuple[str, str]]) -> Plan:
    """One plan for one target, of the plans of its configs by their choices."""
    plans = list(parts.values())
    programs = [plan.programs[0] for plan in plans]
    modules = [module for p in _shifted(plans) for program in p for module in program.modules]
    variants = [replace(parts[c].programs[0].variants[0], guard=guard) for guard, c in guards]
    made = replace(
        programs[0],
        modules=tuple(modules),
        kernels=tuple(replace(k, module=i) for i, p in enumerate(programs) for k in p.kernels),
        fusions=tuple(replace(f, module=i) for i, p in enumerate(programs) for f in p.fusions),
        variants=tuple(variants),
    )
    blobs = tuple(blob for plan in plans for blob in plan.blobs)
    return replace(plans[0], programs=(made,), blobs=blobs)


def _plan_key(graph: OperationGraph, rows: Sequence[Target], options: Options) -> str:
    """The hash of everything that a plan depends on."""
    return keys.plan_key(graph.canonical_text(), [row.name for row in rows], options)


def finish(work: Compilation, options: Options = DEFAULTS) -> Plan:
    """The plan of a compilation that was resumed from text; the graph is read from the module."""
    advance(work, "cubin", options)
    graph = dnn.from_mlir(work.module)
    made = _merged([to_plan(work, graph, options)], _plan_key(graph, [work.target], options))
    consistency.verify(made, f"module of {work.target}")
    return made


def to_plan(work: Compilation, graph: OperationGraph, options: Options) -> Plan:
    """The plan of one target, from stage cubin."""
    assert work.assembled is not None
    program = structure.read_program(work.module)
    if "workspace_bytes" not in program:
        raise DnncError(
            Status.BAD_PARAM, "dnn.program has no workspace_bytes", "assign-workspace first"
        )
    steps = tuple(codec.decode(Step, step, "dnn.program") for step in program["steps"])
    launches = [step.launch for step in steps if step.launch is not None]
    kernels = tuple(
        Kernel(name, 0, max(_threads(x.block) for x in launches if x.kernel == name), **vars(found))
        for name, found in sorted(work.assembled.resources.items())
        if any(x.kernel == name for x in launches)
    )
    attributes = work.module.operation.attributes
    reason = attributes["dnn.split_reason"] if "dnn.split_reason" in attributes else ""
    made = Program(
        target=work.target.name,
        capability=work.target.capability,
        exact=work.target.arch_specific,
        modules=(Module(0, 1, work.target.is_forward_compatible),),
        kernels=kernels,
        variants=(Variant("1", program["workspace_bytes"], steps),),
        fusions=tuple(codec.decode(FusionRecord, f, "dnn.program") for f in program["fusions"]),
        split_reason=ir.StringAttr(reason).value if reason else "",
    )
    plan = Plan(
        name=graph.name,
        graph=to_json(graph),
        symbols=tuple(Symbol(d.name, d.min, d.max, d.multiple_of) for d in graph.symbols.values()),
        bounds=tuple(ProductBound(str(b), b.max) for b in bounds_of(graph.symbols.values())),
        tensors=_tensor_records(graph),
        programs=(made,),
        may_alias=_aliases(graph),
        tools={"dnnc": __version__, **tools.versions()},
        blobs=(work.assembled.cubin, work.ptx.encode()),
    )
    arguments.verify_ranges(plan)
    return plan


def _aliases(graph: OperationGraph) -> tuple[tuple[int, int], ...]:
    """(output, input) uids that may be one buffer: in a graph of one pointwise operation, those
    of equal layout, since each element is read before it is written, by the same thread.  What an
    output held before is its buffer anyway."""
    if len(graph.ops) != 1 or graph.ops[0].role != "pointwise":
        return ()
    return tuple(
        (out.uid or 0, source.uid or 0)
        for out in graph.outputs
        for source in graph.inputs
        if source.prior_of is None
        and (out.shape, out.layout, out.type.bits)
        == (source.shape, source.layout, source.type.bits)
    )


def _threads(block: Sequence[int]) -> int:
    x, y, z = block
    return x * y * z


def _tensor_records(graph: OperationGraph) -> tuple[TensorRecord, ...]:
    peers = {t for op in graph.ops for field, t in op.tensors("operand") if field.is_peer}
    priors = {output: prior.uid for output, prior in priors_of(graph.inputs).items()}
    return tuple(
        TensorRecord(
            uid=t.uid or 0,
            name=t.name,
            dims=tuple(map(str, t.shape)),
            strides=tuple(map(str, t.layout)),
            dtype=t.type.name,
            role=role,
            alignment=t.alignment,
            is_by_value=t.is_by_value,
            value=None if t.value is None else float(t.value),
            is_peer=t in peers,
            prior=priors.get(t.uid or 0),
            reordering=t.reordering,
        )
        for role, tensors in (("input", graph.inputs), ("output", graph.outputs))
        for t in tensors
        if t.prior_of is None
    )


def _merged(plans: Sequence[Plan], key: str) -> Plan:
    """One plan with the programs of several, each for its own target."""
    programs = tuple(program for shifted in _shifted(plans) for program in shifted)
    blobs = tuple(blob for plan in plans for blob in plan.blobs)
    return replace(plans[0], programs=programs, blobs=blobs, key=key)


def _shifted(plans: Sequence[Plan]) -> Iterator[list[Program]]:
    """The programs of each plan, for one list of all blobs."""
    shift = 0
    for plan in plans:
        found = []
        for program in plan.programs:
            modules = (
                replace(m, cubin=m.cubin + shift, ptx=m.ptx + shift) for m in program.modules
            )
            found.append(replace(program, modules=tuple(modules)))
        yield found
        shift += len(plan.blobs)
