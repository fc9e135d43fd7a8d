"""The graph as a drawing: Graphviz places boxes of given sizes, and sees no name of the graph.

Operations are boxes, tensors of memory are pills, what stays inside a fusion is an arrow alone.
Operations of a fusion stand in its frame.  A composite operation (a norm, attention) is one box
where all of its steps are in one fusion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ..dialect.fusion import Fusion
from ..dialect.graph import OperationGraph
from ..dialect.op import Op
from ..dialect.tensor import Tensor, text

# Boxes that are drawn; of a larger graph only the fusions are, and of a still larger one nothing.
MOST_BOXES = 400

# Kinds of boxes that are tensors; the others are operations, by role, and fusions.
TENSORS = ("input", "scalar", "stored", "output")

# Pixels, which are Graphviz's points: a character of 12 px in a monospaced font, a line, margins.
_CHARACTER, _LINE, _PAD_X, _PAD_Y = 7.3, 17.0, 12.0, 7.0
_MOST_CHARACTERS = 34
_FRAME_PAD = 12.0
_EDGE = 8.0


@dataclass(frozen=True)
class Box:
    """A box or pill.  kind: a class of CSS.  x, y: its upper left corner.  whole: its tooltip."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[tuple[float, str], ...]
    whole: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def corner(self) -> float:
        """The radius of its corners: tensors are pills."""
        return self.height / 2 if self.kind in TENSORS else 6


@dataclass(frozen=True)
class Arrow:
    """A path of SVG.  whole: its tooltip."""

    path: str
    whole: str


@dataclass(frozen=True)
class Drawing:
    """The drawing, in pixels; frames are the fusions, behind the boxes."""

    width: float
    height: float
    frames: tuple[Box, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True)
class _Node:
    """A box without a place.  frame: the index of its fusion, -1 for none."""

    kind: str
    lines: tuple[str, ...]
    whole: str
    frame: int = -1

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _CHARACTER + 2 * _PAD_X

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD_Y


@dataclass
class _Network:
    """Nodes and edges by number.  frames: the lines at the head of each fusion's frame."""

    frames: Sequence[Sequence[str]]
    nodes: list[_Node] = field(default_factory=list)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)

    def node(self, made: _Node) -> int:
        self.nodes.append(made)
        return len(self.nodes) - 1

    def edge(self, source: int, target: int, whole: str) -> None:
        if source != target:
            self.edges.setdefault((source, target), whole)


def drawing_of(
    graph: OperationGraph, fusions: Sequence[Fusion], heads: Sequence[Sequence[str]]
) -> Drawing | None:
    """The drawing of a graph; None if it is too large.

    heads: lines at the head of each fusion's frame.  fusions: none to draw operations alone.
    """
    for network in _networks(graph, fusions, heads):
        if len(network.nodes) <= MOST_BOXES:
            return _placed(network)
    return None


def _networks(
    graph: OperationGraph, fusions: Sequence[Fusion], heads: Sequence[Sequence[str]]
) -> Iterator[_Network]:
    """The graph with all its operations, then with fusions as boxes."""
    if not fusions:
        yield _network(graph, (Fusion(-1, tuple(graph.live_ops), graph.outputs),), (), False)
        return
    if len(graph.live_ops) <= MOST_BOXES:
        yield _network(graph, fusions, heads, False)
    yield _network(graph, fusions, heads, True)


# ---- nodes and edges


def _network(
    graph: OperationGraph,
    fusions: Sequence[Fusion],
    heads: Sequence[Sequence[str]],
    is_closed: bool,
) -> _Network:
    """is_closed: fusions are boxes, without frames."""
    made = _Network(() if is_closed else heads)
    outputs = set(graph.outputs)
    in_memory: dict[Tensor, int] = {}

    def pill(tensor: Tensor) -> int:
        if tensor not in in_memory:
            in_memory[tensor] = made.node(_pill(tensor, outputs))
        return in_memory[tensor]

    for fusion in fusions:
        boxes = _closed(made, fusion, heads) if is_closed else _boxes(made, graph, fusion)
        for op in fusion.ops:
            for tensor in op.operands:
                if tensor.is_constant:
                    continue
                producer = fusion.producers.get(tensor)
                source = pill(tensor) if producer is None else boxes[producer]
                made.edge(source, boxes[op], _tensor_text(tensor))
            for tensor in op.results:
                if tensor in fusion.outputs:
                    made.edge(boxes[op], pill(tensor), _tensor_text(tensor))
    return made


def _closed(made: _Network, fusion: Fusion, heads: Sequence[Sequence[str]]) -> dict[Op, int]:
    lines = (*heads[fusion.index], f"{len(fusion.ops)} operations")
    whole = ", ".join(op.label for op in fusion.ops)
    node = made.node(_Node("fusion", tuple(map(_short, lines)), whole))
    return dict.fromkeys(fusion.ops, node)


def _boxes(made: _Network, graph: OperationGraph, fusion: Fusion) -> dict[Op, int]:
    """Operation -> its node; steps of a composite operation share one."""
    found: dict[Op, int] = {}
    inside = set(fusion.ops)
    for composite, parts in graph.composites:
        if len(parts) > 1 and inside.issuperset(parts):
            node = made.node(_box(composite, "composite", fusion.index))
            found |= dict.fromkeys((p for p in parts if p not in found), node)
    for op in fusion.ops:
        if op not in found:
            found[op] = made.node(_box(op, op.role, fusion.index))
    return found


def _box(op: Op, kind: str, frame: int) -> _Node:
    title = op.title.removeprefix("pointwise:")
    lines = [f"{title} '{op.name}'" if op.name else title]
    lines += [_type_text(tensor) for tensor in op.results[:1]]
    whole = "; ".join([op.label, *map(_tensor_text, op.results)])
    return _Node(kind, tuple(map(_short, lines)), whole, frame)


def _pill(tensor: Tensor, outputs: set[Tensor]) -> _Node:
    kind = "output" if tensor in outputs else "stored" if tensor.is_virtual else "input"
    name = tensor.name or f"uid {tensor.uid}"
    if tensor.prior_of is not None:
        name = f"uid {tensor.prior_of} before"
    kind = "scalar" if tensor.is_by_value else kind
    return _Node(kind, (_short(name), _short(_type_text(tensor))), _tensor_text(tensor))


def _type_text(tensor: Tensor) -> str:
    if tensor.is_by_value:
        return f"{tensor.type.name} by value"
    return f"{tensor.type.name} {text(tensor.shape)}"


def _tensor_text(tensor: Tensor) -> str:
    return f"{tensor.name or f'uid {tensor.uid}'}: {_type_text(tensor)}"


def _short(line: str) -> str:
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


# ---- places


def _placed(network: _Network) -> Drawing:
    found = _layout(network)
    _, _, width, height = _numbers(found["bb"])
    objects = {each["name"]: each for each in found["objects"]}
    boxes: list[Box] = []
    for number, node in enumerate(network.nodes):
        x, y = _numbers(objects[f"n{number}"]["pos"])
        left, top = x - node.width / 2, height - y - node.height / 2
        boxes.append(_at(node.kind, left, top, node.width, node.height, node.lines, node.whole))
    frames: list[Box] = []
    for index, lines in enumerate(network.frames):
        x0, y0, x1, y1 = _numbers(objects[f"cluster{index}"]["bb"])
        whole = ", ".join(lines)
        frames.append(_at("frame", x0, height - y1, x1 - x0, y1 - y0, lines, whole))
    number_of = {each["_gvid"]: each["name"].removeprefix("n") for each in found["objects"]}
    arrows = tuple(
        Arrow(
            _path(edge["pos"], height),
            network.edges[int(number_of[edge["tail"]]), int(number_of[edge["head"]])],
        )
        for edge in found.get("edges", ())
    )
    margin = 2 * _EDGE
    return Drawing(width + margin, height + margin, tuple(frames), tuple(boxes), arrows)


def _at(
    kind: str,
    x: float,
    y: float,
    width: float,
    height: float,
    lines: Sequence[str],
    whole: str,
) -> Box:
    first = y + _PAD_Y + 0.75 * _LINE
    placed = tuple((_rounded(first + i * _LINE), line) for i, line in enumerate(lines))
    return Box(kind, _rounded(x), _rounded(y), _rounded(width), _rounded(height), placed, whole)


def _rounded(number: float) -> float:
    return round(number, 1)


def _layout(network: _Network) -> dict[str, Any]:
    """Graphviz's JSON of the nodes' and frames' places."""
    import pygraphviz

    made = pygraphviz.AGraph(
        directed=True, strict=False, rankdir="TB", nodesep=0.25, ranksep=0.35, margin=0
    )
    made.node_attr.update(shape="box", fixedsize="true", label="")
    for number, node in enumerate(network.nodes):
        made.add_node(f"n{number}", width=node.width / 72, height=node.height / 72)
    for index, lines in enumerate(network.frames):
        inside = [f"n{i}" for i, node in enumerate(network.nodes) if node.frame == index]
        made.add_subgraph(
            inside, name=f"cluster{index}", label=_room(lines), labelloc="t", margin=_FRAME_PAD
        )
    for key, (source, target) in enumerate(network.edges):
        # What is computed goes straight down; inputs stand beside their readers.
        weight = 1 if network.nodes[source].kind in ("input", "scalar") else 20
        made.add_edge(f"n{source}", f"n{target}", key=f"e{key}", weight=weight)
    return json.loads(cast(str, made.draw(format="json", prog="dot")))


def _room(lines: Sequence[str]) -> str:
    """A label of Graphviz that is as large as the lines, and empty."""
    width = round(max(len(line) for line in lines) * _CHARACTER + _PAD_X)
    height = round(len(lines) * _LINE + _PAD_Y)
    return (
        f'<<TABLE BORDER="0" CELLBORDER="0" FIXEDSIZE="TRUE" WIDTH="{width}" HEIGHT="{height}">'
        "<TR><TD></TD></TR></TABLE>>"
    )


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _path(pos: str, height: float) -> str:
    """SVG's path of an edge's `e,x,y x,y x,y ...`: a Bezier curve, then a line to its end."""
    words = pos.split()
    end = next((word[2:] for word in words if word.startswith("e,")), "")
    points = [_numbers(word) for word in words if word[0] not in "es"]
    shown = [f"{x:.1f},{height - y:.1f}" for x, y in points]
    path = f"M{shown[0]} C{' '.join(shown[1:])}"
    if end:
        x, y = _numbers(end)
        path += f" L{x:.1f},{height - y:.1f}"
    return path
