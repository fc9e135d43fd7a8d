# pyright: basic
"""The methods of a pygraph that launch its plans, at once or in CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dialect.graph import OperationGraph
from .handle import Handle, get_stream
from .keywords import explain_keywords
from .overrides import Overrides


class RunMethods:
    """Calls of the selected plan, or of one by its place, on the handle's stream."""

    if TYPE_CHECKING:  # what a pygraph has
        graph: OperationGraph
        handle: Handle | None
        plan: Any
        _plans: Any
        _overrides: Overrides | None

        def _planned(self) -> Any: ...
        def build(self) -> None: ...

    def __call__(self, /, *inputs: Any, **options: Any) -> Any:
        """Calls the selected plan with arrays and returns its output, as `ExecutionPlan.__call__`.

        The graph is built where it is not.  Without `stream`, a graph with a handle launches on the
        handle's stream.
        """
        if self._plans is None:
            self.build()
        if self.handle is not None:
            options.setdefault("stream", get_stream(self.handle))
        return self.plan(*inputs, **options)

    def execute(
        self,
        variant_pack: Mapping[Any, Any],
        workspace: Any = None,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Launches the selected plan on the handle's stream; never allocates or waits.

        variant_pack: tensor, uid or unique name -> device array or address, number for by-value
        tensors.  override_uids, override_shapes: sizes of symbols, by the dims of tensors that
        have them.
        """
        if self._plans is None:
            self.build()
        sizes = self._overridden(override_uids, override_shapes, override_strides)
        self._execute(self.plan, variant_pack, workspace, handle, sizes)

    def execute_plan_at_index(
        self,
        variant_pack: Mapping[Any, Any],
        workspace: Any,
        index: int,
        handle: Handle | None = None,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Launches one of the built plans."""
        plan = self._planned().executable(index)
        sizes = self._overridden(override_uids, override_shapes, override_strides)
        self._execute(plan, variant_pack, workspace, handle, sizes)

    def _execute(
        self,
        plan: Any,
        pack: Mapping[Any, Any],
        workspace: Any,
        handle: Handle | None,
        sizes: Mapping[str, int] | None,
    ) -> None:
        chosen = self.handle if handle is None else handle
        stream = 0 if chosen is None else get_stream(chosen)
        plan.execute(pack, workspace, stream=stream, sizes=sizes)

    def _overridden(
        self,
        uids: Sequence[int] | None,
        shapes: Sequence[Sequence[int]] | None,
        strides: Sequence[Sequence[int]] | None,
    ) -> Mapping[str, int] | None:
        """The sizes of symbols that overrides give; fixed sizes and strides can't change."""
        if uids is None and shapes is None and strides is None:
            return None
        if self._overrides is None or self._overrides.graph is not self.graph:
            self._overrides = Overrides(self.graph)
        return self._overrides.sizes(uids or (), shapes, strides)

    # ---- CUDA graphs

    def populate_cuda_graph(
        self,
        handle: Handle | None,
        variant_pack: Mapping[Any, Any],
        workspace: Any,
        cuda_graph: Any,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        *,
        dependencies: Sequence[Any] = (),
    ) -> tuple[Any, ...]:
        """Adds the selected plan's launches to a CUDA graph, a node each, and gives the nodes.

        handle: the device of addresses; its stream is not used.  variant_pack, workspace,
        override_*: as those of `execute`.  cuda_graph: a CUgraph (cudaGraph_t) or its integer
        handle.  dependencies: nodes of it that the first one waits for.
        """
        return self.plan.populate_cuda_graph(
            variant_pack, workspace, cuda_graph,
            dependencies=dependencies, device=self._device_of(handle),
            sizes=self._overridden(override_uids, override_shapes, override_strides),
        )  # fmt: skip

    def update_cuda_graph(
        self,
        handle: Handle | None,
        variant_pack: Mapping[Any, Any],
        workspace: Any,
        cuda_graph: Any,
        override_uids: Sequence[int] | None = None,
        override_shapes: Sequence[Sequence[int]] | None = None,
        override_strides: Sequence[Sequence[int]] | None = None,
        *,
        nodes: Sequence[Any] | None = None,
        executable: Any = None,
    ) -> None:
        """Gives a CUDA graph that the selected plan populated other buffers, numbers or sizes.

        nodes: those that `populate_cuda_graph` gave; None where the graph has no others.
        executable: a CUgraphExec made of the graph, which is changed in place of the graph.
        Nodes of another plan, or sizes that take other kernels, are BAD_PARAM_CUDA_GRAPH_MISMATCH.
        """
        self.plan.update_cuda_graph(
            variant_pack, workspace, cuda_graph,
            nodes=nodes, executable=executable, device=self._device_of(handle),
            sizes=self._overridden(override_uids, override_shapes, override_strides),
        )  # fmt: skip

    def _device_of(self, handle: Handle | None) -> int | None:
        chosen = self.handle if handle is None else handle
        if chosen is None:
            return None
        get_stream(chosen)  # which refuses a handle that was destroyed
        return chosen.device


explain_keywords(RunMethods, but=("execute", "execute_plan_at_index"), shown="pygraph")
