"""Kernels without one wait or barrier: some schedule of 20 must go wrong then, and none else."""

import functools
from unittest import mock

from dnnc.compiler import compile_graph
from dnnc.dialect.reference import reference
from dnnc.interpreter import InterpreterError, parse, plans
from dnnc.interpreter.launch import launch
from dnnc.interpreter.plans import run_plan
from dnnc.options import Options
from tests.support.checked import random_inputs
from tests.support.compare import assert_close

SEEDS = 20
STEPS = 150_000  # of a launch
SPIN = "mbarrier.try_wait"  # inline assembly: a loop around it
WAITS = ("bar.sync", "cp.async.wait_group", "cp.async.commit_group")

# The last wait drains groups that are empty by then.  It stands so that no later change of the
# loop can leave a copy under way when the epilogue writes over the stages.
DRAINED = "every group has been waited for when the loop ends"
HOPPER_WAITS = (
    SPIN,
    "mbarrier.arrive",
    "fence",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "bar",
    "barrier",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "setmaxnreg",
)

# The interpreter takes the lanes of a warp as ordered; on a device lane 0 might release the buffer
# while another lane has yet to read it.
ONE_WARP = "orders lanes of one warp, which the interpreter does by itself"
MORE_REGISTERS = "registers that a thread may have are no register that it uses"


def goes_wrong(plan, module, inputs, expected, seed):
    """Whether a schedule of the kernel fails or gives another result.

    expected: uid -> (values, type).
    """
    few_steps = functools.partial(launch, step_limit=STEPS)  # a spin that never ends is found soon
    try:
        with mock.patch.object(plans, "launch", few_steps):
            actual = run_plan(plan, inputs, seed=seed, module=module)
        for uid, (wanted, dtype) in expected.items():
            assert_close(actual[uid], wanted, dtype, slack=16.0)
    except (InterpreterError, AssertionError):
        return True
    return False


def first_wrong(*of):
    """The first schedule that goes wrong, None if all are right."""
    return next((seed for seed in range(SEEDS) if goes_wrong(*of, seed)), None)


def survivors(build, engine, target, removals, suffix=""):
    """The removals, and those of them that nothing shows.

    The unchanged kernel is right on every schedule that shows one.
    removals: of a function, (what, changed module) one at a time.  suffix: of the kernel's name.
    """
    g, knobs = build()
    graph = g.graph.finalize()
    options = Options(engine=engine, knobs=tuple(knobs.items()))
    plan = compile_graph(graph, target, options)
    inputs = random_inputs(graph, {}, low=0.25)
    wanted = reference(graph, inputs, exact_outputs=True)
    expected = {t.uid: (wanted[t.uid], t.type) for t in graph.outputs}
    module = parse(plan.blobs[1].decode())
    kernel = next(k.name for k in plan.programs[0].kernels if k.name.endswith(suffix))
    found = list(removals(module, kernel))
    shown = {what: first_wrong(plan, changed, inputs, expected) for what, changed in found}
    for seed in {0, *shown.values()} - {None}:
        assert not goes_wrong(plan, module, inputs, expected, seed), seed
    return found, {what for what, seed in shown.items() if seed is None}


def removed(module, kernel, opcodes):
    """((opcode, place from the end), module without it) of each instruction."""
    for opcode in opcodes:
        places = module.function(kernel).indices(opcode)
        for number, place in enumerate(places):
            changed = module.without(kernel, place)
            if opcode == SPIN:
                # With the two branches of the loop around it.
                for _ in range(2):
                    assert changed.function(kernel).instructions[place].opcode[0] == "bra"
                    changed = changed.without(kernel, place)
            yield (opcode, number - len(places)), changed
