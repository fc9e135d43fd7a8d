"""A kernel as one list of instructions, with its calls inlined and its names given places.

Calls are inlined where they stand (a device function is copied once a call), because the
machine lets the lanes of a warp meet again at the lowest pc: code that lies between the call
and what follows it keeps that order right.  Recursion and indirect calls are refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .decode import Place, Scope, Slot
from .failure import InterpreterError, failure
from .ptx import Function, Guard, Instruction, Module, Operand, Symbol, Variable, Vector, walk
from .shared import SHARED_BASE


@dataclass
class Layout:
    """Where everything of a kernel lies.

    code: instructions with the scope of their names.  registers: how many of each width.
    params: places of the kernel's parameters, in `param_bytes` bytes.  frame_bytes: private
    memory of a thread.  static_smem_bytes: of its shared variables.  dynamic_smem_base: offset
    of the `extern` ones behind them, None when the kernel uses none.
    """

    code: list[tuple[Instruction, Scope]]
    registers: dict[int, int]
    params: tuple[Place, ...]
    param_bytes: int
    frame_bytes: int
    static_smem_bytes: int
    dynamic_smem_base: int | None


def lay_out(module: Module, kernel: Function) -> Layout:
    """Inline the calls of a kernel and place its variables."""
    return _Inliner(module, kernel).layout()


class _Inliner:
    def __init__(self, module: Module, kernel: Function):
        self.module = module
        self.kernel = kernel
        self.code: list[tuple[Instruction, Scope]] = []
        self.registers = {1: 0, 8: 0, 16: 0, 32: 0, 64: 0}
        self.keys = 0
        self.frame_bytes = 0
        self.static_smem_bytes = 0
        self.dynamic_smem_base: int | None = None
        self.calls = 0

    def layout(self) -> Layout:
        scope = Scope(inlined=False)
        params = self.kernel_params(scope)
        self.expand(self.kernel, scope, ())
        # Running off the end of a kernel ends the thread.
        self.code.append((Instruction(self.kernel.line, "exit", None, ("exit",), ()), scope))
        self.place_variables()
        return Layout(
            self.code,
            self.registers,
            params,
            params[-1].offset + self.kernel.params[-1].nbytes if params else 0,
            self.frame_bytes,
            self.static_smem_bytes,
            self.dynamic_smem_base,
        )

    # Code ---------------------------------------------------------------------------------

    def expand(self, function: Function, scope: Scope, callers: tuple[str, ...]) -> None:
        """Append a function's instructions, those of its calls among them."""
        if function.name in callers:
            raise failure(f"recursive call of {function.name!r}", f"kernel {self.kernel.name!r}")
        self.declare(function, scope)
        scope.tables.update(function.tables)
        marks: dict[int, list[str]] = {}
        for name, index in function.labels.items():
            marks.setdefault(index, []).append(name)
        for index, instruction in enumerate(function.instructions):
            for name in marks.get(index, ()):
                scope.labels[name] = len(self.code)
            if instruction.opcode[0] == "call":
                self.call(instruction, scope, (*callers, function.name))
            else:
                self.code.append((instruction, scope))
        for name in marks.get(len(function.instructions), ()):
            scope.labels[name] = len(self.code)

    def call(self, instruction: Instruction, scope: Scope, callers: tuple[str, ...]) -> None:
        """`call (results), function, (arguments);`, arguments and results in `.param` variables."""
        callee, results, arguments = self.call_operands(instruction)
        formals = (*callee.results, *callee.params)
        actuals = (*results, *arguments)
        if len(formals) != len(actuals):
            raise self.error(instruction, f"{callee.name!r} has {len(formals)} parameters")
        inner = Scope(inlined=True)
        for formal, actual in zip(formals, actuals, strict=True):
            if not isinstance(actual, Symbol) or actual.name not in scope.places:
                raise self.error(instruction, f"argument {actual} is no variable of the caller")
            inner.places[formal.name] = scope.places[actual.name]
        self.calls += 1
        after = f"after call {self.calls}"
        if instruction.guard is not None:
            around = Guard(instruction.guard.register, not instruction.guard.negated)
            jump = replace(instruction, guard=around, opcode=("bra",), operands=(Symbol(after),))
            self.code.append((jump, scope))
        self.expand(callee, inner, callers)
        scope.labels[after] = inner.labels[Scope.END] = len(self.code)

    def call_operands(
        self, instruction: Instruction
    ) -> tuple[Function, tuple[Operand, ...], tuple[Operand, ...]]:
        """The callee, its results and its arguments."""
        operands = list(instruction.operands)
        results = operands.pop(0) if isinstance(operands[0], Vector) else Vector(())
        name = operands.pop(0)
        arguments = operands.pop(0) if operands else Vector(())
        if operands or not (isinstance(name, Symbol) and isinstance(arguments, Vector)):
            raise self.error(instruction, "only direct calls are modelled")
        assert isinstance(results, Vector)
        callee = self.module.functions.get(name.name)
        if callee is None or not callee.defined:
            raise self.error(instruction, f"{name.name!r} has no body in the module")
        return callee, results.items, arguments.items

    def error(self, instruction: Instruction, what: str) -> InterpreterError:
        where = f"kernel {self.kernel.name!r}, PTX line {instruction.line}"
        return failure(f"`{instruction.text}`: {what}", where)

    # Names --------------------------------------------------------------------------------

    def declare(self, function: Function, scope: Scope) -> None:
        """Give a function's registers slots, and its private variables places in the frame."""
        scope.slots[Scope.CARRY] = self.new_slot(1)
        for register in function.registers:
            if register.count is None:
                scope.slots[register.name] = self.new_slot(register.width)
                continue
            for index in range(register.count):
                scope.slots[f"{register.name}{index}"] = self.new_slot(register.width)
        for variable in function.variables:
            if variable.space in ("local", "param"):
                offset = _up(self.frame_bytes, variable.align)
                self.frame_bytes = offset + variable.nbytes
                scope.places[variable.name] = Place("frame", offset, variable.name)

    def new_slot(self, width: int) -> Slot:
        # A 128-bit register is two 64-bit ones in a row, the low half first.
        if width == 128:
            low = self.new_slot(64)
            self.new_slot(64)
            return Slot(128, low.number, low.key)
        index, key = self.registers[width], self.keys
        self.registers[width] += 1
        self.keys += 1
        return Slot(width, index, key)

    def kernel_params(self, scope: Scope) -> tuple[Place, ...]:
        """Parameters, each at the next multiple of its alignment."""
        offset = 0
        places: list[Place] = []
        for param in self.kernel.params:
            offset = _up(offset, param.align)
            places.append(Place("param", offset, param.name))
            scope.places[param.name] = places[-1]
            offset += param.nbytes
        return tuple(places)

    def place_variables(self) -> None:
        """Place the global, constant and shared variables that the code names."""
        declared = {**self.module.variables}
        for function in self.module.functions.values():
            declared.update({v.name: v for v in function.variables if v.space == "shared"})
        # The parser shares equal operand lists, so each is looked through once.
        lists = {id(instruction.operands): instruction.operands for instruction, _ in self.code}
        used = {
            inner.name
            for operands in lists.values()
            for operand in operands
            for inner in walk(operand)
            if isinstance(inner, Symbol)
        }
        variables = [variable for name, variable in declared.items() if name in used]
        places = {v.name: Place(v.space, 0, v.name) for v in variables if v.space != "shared"}
        shared = [variable for variable in variables if variable.space == "shared"]
        places.update(self.shared_places(shared))
        for scope in {id(scope): scope for _, scope in self.code}.values():
            scope.places = places | scope.places

    def shared_places(self, shared: list[Variable]) -> dict[str, Place]:
        """Sized variables one after the other; the open ones all begin where those end."""
        places: dict[str, Place] = {}
        for variable in shared:
            if not variable.extern:
                offset = _up(self.static_smem_bytes, variable.align)
                self.static_smem_bytes = offset + variable.nbytes
                places[variable.name] = Place("shared", SHARED_BASE + offset, variable.name)
        dynamic = [variable for variable in shared if variable.extern]
        if dynamic:
            align = max(variable.align for variable in dynamic)
            self.dynamic_smem_base = _up(self.static_smem_bytes, align)
            base = SHARED_BASE + self.dynamic_smem_base
            places.update({v.name: Place("shared", base, v.name) for v in dynamic})
        return places


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
