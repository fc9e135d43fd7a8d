"""Puts the blocks of a kernel into an order in which the lowest pc is the furthest behind.

The machine lets the lanes of a warp meet again at the lowest pc.  A compiler may lay a loop's
exit before its body; lanes that leave such a loop early would then run ahead of the others.  So
blocks are ordered as they depend on each other, and the blocks of a loop lie together, before
whatever follows the loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from .decode import Scope
from .failure import failure
from .ptx import Instruction, Operand, Symbol

Code = list[tuple[Instruction, Scope]]

_ENDS = ("bra", "brx", "ret", "exit", "trap")


def targets(instruction: Instruction, scope: Scope) -> list[int]:
    """Where a branch may go, apart from the next instruction."""
    opcode = instruction.opcode[0]
    if opcode == "bra":
        return [_label(instruction.operands[0], scope)]
    if opcode == "brx":
        table = instruction.operands[1]
        names = scope.tables.get(table.name, ()) if isinstance(table, Symbol) else ()
        return [scope.labels[name] for name in names]
    if opcode == "ret" and scope.inlined:
        return [scope.labels[Scope.END]]
    return []


def _label(operand: Operand, scope: Scope) -> int:
    if not isinstance(operand, Symbol) or operand.name not in scope.labels:
        raise failure(f"branch to {operand}, which is no label")
    return scope.labels[operand.name]


def blocks_of(code: Code) -> dict[int, int]:
    """First pc -> the pc behind it, of each basic block, in order."""
    starts = {0}
    for pc, (instruction, scope) in enumerate(code):
        starts.update(targets(instruction, scope))
        if instruction.opcode[0] in _ENDS:
            starts.add(pc + 1)
    ordered = sorted(pc for pc in starts if pc < len(code))
    return dict(zip(ordered, [*ordered[1:], len(code)], strict=True))


def successors_of(code: Code, blocks: Mapping[int, int]) -> dict[int, list[int]]:
    """First pc of a block -> those of the blocks that may follow, the next one last."""
    found: dict[int, list[int]] = {}
    for start, end in blocks.items():
        last, scope = code[end - 1]
        found[start] = targets(last, scope)
        if _falls_through(last) and end < len(code):
            found[start].append(end)
    return found


def _falls_through(last: Instruction) -> bool:
    return last.guard is not None or last.opcode[0] not in _ENDS


def reorder(code: Code) -> Code:
    """The code with its blocks in order and its labels, in their scopes, moved along."""
    blocks = blocks_of(code)
    successors = successors_of(code, blocks)
    order = _ordered(list(blocks), successors)
    if order == list(blocks):
        return code
    moved: Code = []
    places: dict[int, int] = {}
    falls: list[tuple[Scope, str, int]] = []
    for start, follows in zip(order, [*order[1:], -1], strict=True):
        places[start] = len(moved)
        end = blocks[start]
        moved += code[start:end]
        last, scope = code[end - 1]
        if _falls_through(last) and end != follows and end in blocks:
            label = f"falls to {end}"
            falls.append((scope, label, end))
            jump = Instruction(last.line, "bra.uni", None, ("bra", "uni"), (Symbol(label),))
            moved.append((jump, scope))
    for scope in {id(scope): scope for _, scope in code}.values():
        # A label that no branch names is no block's first pc, and stays unused.
        scope.labels = {name: places[pc] for name, pc in scope.labels.items() if pc in places}
    for scope, label, end in falls:
        scope.labels[label] = places[end]
    return moved


def _ordered(nodes: Sequence[int], successors: Mapping[int, Sequence[int]]) -> list[int]:
    """Nodes so that each comes after its predecessors, but for a loop's way back to its head.

    The nodes of a loop are neighbours; where nothing decides, the order given is kept.
    """
    loops = _components(nodes, successors)
    member = {node: i for i, loop in enumerate(loops) for node in loop}
    waiting = [0] * len(loops)
    entries: list[set[int]] = [set() for _ in loops]
    for node in nodes:
        for follow in successors[node]:
            if follow in member and member[follow] != member[node]:
                waiting[member[follow]] += 1
                entries[member[follow]].add(follow)
    ready = [(min(loop), i) for i, loop in enumerate(loops) if waiting[i] == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        loop = loops[i]
        order += loop if len(loop) == 1 else _ordered_loop(loop, entries[i], successors)
        for node in loop:
            for follow in successors[node]:
                j = member.get(follow, i)
                if j != i:
                    waiting[j] -= 1
                    if waiting[j] == 0:
                        heapq.heappush(ready, (min(loops[j]), j))
    return order


def _ordered_loop(
    loop: Sequence[int], entries: Collection[int], successors: Mapping[int, Sequence[int]]
) -> list[int]:
    head = min(entries, default=min(loop))
    inside = set(loop)
    without_back = {
        node: [follow for follow in successors[node] if follow in inside and follow != head]
        for node in loop
    }
    return _ordered(sorted(loop), without_back)


def _components(nodes: Sequence[int], successors: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan's algorithm, without recursion)."""
    known = set(nodes)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in number:
            continue
        work = [(root, iter(successors[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            follow = next((n for n in rest if n in known), None)
            if follow is None:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    found.append(stack[at:])
                    on_stack.difference_update(stack[at:])
                    del stack[at:]
            elif follow not in number:
                number[follow] = low[follow] = len(number)
                stack.append(follow)
                on_stack.add(follow)
                work.append((follow, iter(successors[follow])))
            elif follow in on_stack:
                low[node] = min(low[node], number[follow])
    return found
