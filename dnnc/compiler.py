# pyright: basic
"""The compile driver: named stages from graph to plan.

    graph -> fused -> linalg -> kernel -> nvvm -> ptx -> cubin -> plan

Every stage up to ptx has a text form, from which a later process goes on to the same cubin.  A
compilation is a pure function of the graph, the target, the options and the tools' versions.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from . import __version__, keys, log, mlir, passes, tools
from . import target as targets
from .choosing import heuristics, hints, spills
from .choosing.inputs import Inputs, inputs_of
from .choosing.unspilled import Door, unspilled
from .choosing.variants import guarded_configs
from .codegen import kept, nvptx
from .codegen.nvptx import Assembled
from .codegen.stretch import marked, read_marks
from .dialect import dnn, structure
from .dialect.graph import OperationGraph
from .dialect.json_form import to_json
from .dialect.prior import priors_of
from .errors import DnncError, Status, cudnnGraphNotSupportedError
from .expr import bounds_of
from .mlir import ir
from .options import DEFAULTS, Options
from .passes import stages, unchanged
from .passes.fuse import target_of
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

Made = TypeVar("Made")

# In a PTX file of ours, what belongs to the kernels stands in comments with this mark, after the
# PTX of the modules, between which this line stands.
_HOST_MARK = "//! "
_NEXT_MODULE = "// ----- the next module\n"


@dataclass
class Compilation:
    """One graph on its way to one target.

    module: the MLIR module, up to nvvm; then only what belongs to the kernels.
    codes, assembled: PTX and cubin of each `gpu.module`.
    seconds: stage -> how long it took.
    """

    target: Target
    stage: str
    module: Any
    codes: list[str] = field(default_factory=list)
    assembled: list[Assembled] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    # ---- its text forms

    @property
    def ptx(self) -> str:
        """The PTX of all modules, a text that `resume` takes apart again."""
        return _NEXT_MODULE.join(self.codes)

    def text(self) -> str:
        """The text form of a stage before cubin."""
        if self.stage == "ptx":
            host = "".join(f"{_HOST_MARK}{line}\n" for line in str(self.module).splitlines())
            return f"{self.ptx}{host}"
        return marked(self.module)


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
    return Compilation(target, "graph", module)


def resume(text: str, file: str = "-") -> Compilation:
    """A compilation from the text form of a stage; inside a `dnn.context()`.

    file: the text's name, for errors and locations.  A graph that names no target is for sm_90,
    a later stage for sm_90a, for which passes make it then.
    What the stage does not hold, and what its graph and choices do not give, is BAD_PARAM.
    """
    codes: list[str] = []
    if _HOST_MARK in text:
        ptx, mark, host = text.partition(_HOST_MARK)
        codes = ptx.split(_NEXT_MODULE)
        # Lines and columns stay those of the file.
        blank = " " * len(mark)
        host = f"{mark}{host}".replace(f"\n{mark}", f"\n{blank}").replace(mark, blank, 1)
        text = "\n" * ptx.count("\n") + host
    module = mlir.parse(text, file)
    read_marks(module)
    attributes = module.operation.attributes
    stage = "ptx" if any(codes) else stages.stage_of(module)
    if "dnn.target" not in attributes:
        target = "sm_90" if stage == "graph" else target_of(module).name
        attributes["dnn.target"] = ir.StringAttr.get(target)
    unchanged.verify(module, stage)
    named = targets.of(ir.StringAttr(attributes["dnn.target"]).value)
    return Compilation(named, stage, module, codes)


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
        place = targets.with_sm_count(work.target, options.sm_count)
        config = _best_config(graph, place, options, inputs_of(options))
        partition, choices = config.partition_text(graph), config.choice_text
    given: dict[Any, Any] = {
        passes.Fuse: passes.Fuse(partition=partition),
        passes.SelectEngine: passes.SelectEngine(choices=choices),
    }
    steps = [given[kind] for kind in passes.PASSES_TO["fused"]]
    passes.run(work.module, steps, verifies_each=False)


def _by_passes(stage: str) -> Callable[[Compilation, Options, Store], None]:
    """A step that runs the passes to a stage, which have no options there."""

    def run(work: Compilation, options: Options, store: Store) -> None:
        steps = [kind() for kind in passes.PASSES_TO[stage]]
        passes.run(work.module, steps, verifies_each=False)

    return run


def _ptx(work: Compilation, options: Options, store: Store) -> None:
    kernels = _gpu_modules(work.module)
    work.codes = [nvptx.to_ptx(isolated(each)) for each in kernels]
    for each in kernels:
        each.erase()


def _cubin(work: Compilation, options: Options, store: Store) -> None:
    work.assembled = [kept.assembled(ptx, work.target, store) for ptx in work.codes]


_STEPS: dict[str, Callable[[Compilation, Options, Store], None]] = {
    "fused": _fused,
    "linalg": _by_passes("linalg"),
    "kernel": _by_passes("kernel"),
    "nvvm": _by_passes("nvvm"),
    "ptx": _ptx,
    "cubin": _cubin,
}


def _gpu_modules(module: Any) -> list[Any]:
    found = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if not found:
        raise DnncError(Status.BAD_PARAM, "no operation gpu.module", "one or more")
    return found


_store = MemoryStore()


def _through_kernels(work: Compilation, store: Store, report: Report) -> None:
    """kernel -> ptx, of modules alone that differ and whose PTX the store does not have."""
    kernels = _gpu_modules(work.module)
    found = [kept.key_of(each, work.target) for each in kernels]
    known: dict[str, str] = {}
    missing: list[str] = []
    for key, each in zip(found, kernels, strict=True):
        if key not in known and key not in missing:
            ptx = kept.ptx(key, work.target, store)
            if ptx is None:
                missing.append(key)
                continue
            known[key] = ptx
        each.erase()
    if missing:
        advance(work, "ptx", store=store, report=report)
    for key, ptx in zip(missing, work.codes, strict=True):
        known[key] = ptx
        kept.put_ptx(key, ptx, store)
    work.codes = [known[key] for key in found]
    work.stage = "ptx"


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
    waiting: dict[str, Future[tuple[Assembled, float]]] = {}
    with dnn.context(), ThreadPoolExecutor(os.cpu_count()) as assembler:
        for variant, choices in enumerate(texts):
            work = start(graph, target, variant)
            chosen = replace(explicit, choices=choices)
            advance(work, "kernel", chosen, store, report)
            _through_kernels(work, store, report)
            # Assemblers have threads of their own, beside the next config's lowering.
            for ptx in work.codes:
                if ptx not in waiting:
                    waiting[ptx] = assembler.submit(_timed, kept.assembled, ptx, target, store)
            works.append(work)
        seconds = sum(future.result()[1] for future in waiting.values())
        report("cubin", seconds)
        _log.debug("%s: cubin in %.0f ms", target, 1e3 * seconds)
        for work in works:
            work.assembled = [waiting[ptx].result()[0] for ptx in work.codes]
            work.stage = "cubin"
        parts = {c: to_plan(w, graph) for c, w in zip(texts, works, strict=True)}
    return _guarded(parts, explicit.guards)


def _timed(call: Callable[..., Made], *args: Any) -> tuple[Made, float]:
    """(what a call gives, how many seconds it took)."""
    began = time.perf_counter()
    made = call(*args)
    return made, time.perf_counter() - began


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
    programs = [program for shifted in _shifted(plans) for program in shifted]
    variants = [replace(parts[c].programs[0].variants[0], guard=guard) for guard, c in guards]
    firsts = accumulate((len(p.modules) for p in programs), initial=0)
    placed = [(i, first, p) for i, (p, first) in enumerate(zip(programs, firsts, strict=False))]
    made = replace(
        programs[0],
        modules=tuple(module for p in programs for module in p.modules),
        kernels=tuple(
            replace(k, module=first + k.module) for _, first, p in placed for k in p.kernels
        ),
        fusions=tuple(
            replace(f, module=first + f.module, config=i)
            for i, first, p in placed
            for f in p.fusions
        ),
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
    made = _merged([to_plan(work, graph)], _plan_key(graph, [work.target], options))
    consistency.verify(made, f"module of {work.target}")
    return made


def to_plan(work: Compilation, graph: OperationGraph) -> Plan:
    """The plan of one target, from stage cubin."""
    program = structure.read_program(work.module)
    if "workspace_bytes" not in program:
        raise DnncError(
            Status.BAD_PARAM, "dnn.program has no workspace_bytes", "assign-workspace first"
        )
    steps = tuple(codec.decode(Step, step, "dnn.program") for step in program["steps"])
    records = (codec.decode(FusionRecord, f, "dnn.program") for f in program["fusions"])
    fusions = tuple(replace(fusion, config=0) for fusion in records)
    attributes = work.module.operation.attributes
    reason = attributes["dnn.split_reason"] if "dnn.split_reason" in attributes else ""
    made = Program(
        target=work.target.name,
        capability=work.target.capability,
        exact=work.target.arch_specific,
        modules=tuple(
            Module(2 * i, 2 * i + 1, work.target.is_forward_compatible)
            for i in range(len(work.codes))
        ),
        kernels=tuple(_kernels(work, fusions, steps)),
        variants=(Variant("1", program["workspace_bytes"], steps),),
        fusions=fusions,
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
        blobs=tuple(
            blob
            for assembled, ptx in zip(work.assembled, work.codes, strict=True)
            for blob in (assembled.cubin, ptx.encode())
        ),
    )
    arguments.verify_ranges(plan)
    return plan


def _kernels(
    work: Compilation, fusions: Sequence[FusionRecord], steps: Sequence[Step]
) -> Iterator[Kernel]:
    """The kernels of all modules that steps launch, by the names that they have in the graph."""
    suffix = structure.variant_suffix(work.module)
    threads: dict[str, int] = {}
    for step in steps:
        if step.launch is not None:
            name = step.launch.kernel
            threads[name] = max(threads.get(name, 0), math.prod(step.launch.block))
    for place, assembled in enumerate(work.assembled):
        index = next((i for i, f in enumerate(fusions) if f.module == place), 0)
        for symbol, found in sorted(assembled.resources.items()):
            name = structure.name_in_graph(symbol, index, suffix)
            if name in threads:
                other = "" if symbol == name else symbol
                yield Kernel(name, place, threads[name], symbol=other, **vars(found))


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
