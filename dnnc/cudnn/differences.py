"""Differences of `dnnc.cudnn` from cudnn-frontend 1.32: a section of docs/cudnn.md.

`python -m dnnc.cudnn.differences` prints the section.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .enums import ABSENT_TYPES
from .operations import OPERATIONS


class Difference(NamedTuple):
    """A difference.

    what: of which cudnn-frontend has another behaviour.  here: what dnnc.cudnn does.
    """

    what: str
    here: str


_STEPS = {
    "validate": "`validate`",
    "build_operation_graph": "`build_operation_graph`",
    "create_execution_plans": "`create_execution_plans`",
}

REFUSED = (
    Difference("`reduction(group_offset=)`, `sdpa_fp8(sf_o=)`, `softmax_precision`, "
               "`attn_scale_prefolded`, `kv_mask`",
               "refused: only cudnn-frontend's own kernels for sm_100 have them"),
    Difference("a buffer with fewer bytes than its tensor takes, memory of the host",
               "a ValueError; cudnn-frontend lets kernels read past the end"),
    Difference("two outputs in one place", "a ValueError"),
    Difference("an output on an input in `populate_cuda_graph` and `update_cuda_graph`",
               "refused, where the plan would need a copy of the input"),
    Difference("`create_execution_plan` of a plan of several kernels",
               "refused: it has one engine"),
    Difference("blobs of cudnn-frontend's `serialize`", "refused: `serialize` gives dnnc's format"),
    Difference("`cudnn.ops`, `cudnn.torch`, `cudnn.jax`, `cudnn.fla`, kernels outside graphs",
               "not there; of `experimental.ops`, `swiglu_mlp` is refused and the others have no "
               "gradients"),
)  # fmt: skip

OTHERWISE = (
    Difference("`override_shapes`",
               "sizes are compiled for when they are first seen; they may need another workspace: "
               "`get_workspace_size(handle, uids, shapes, strides)`"),
    Difference("an output on an input",
               "an input that would be overwritten ahead of time is copied, to memory that is "
               "allocated in the order of the stream"),
    Difference("a compute type that neither the graph nor the call has", "FLOAT, not the io type"),
    Difference("an int for a by-value tensor", "the address of a number of the host, as there; "
               "a float is taken as the number"),
    Difference("`backend_version()`", "9.25.0, whichever cuDNN is installed, if any is"),
    Difference("`selected_engine`, `sdpa_capabilities()`", "None and empty: no engine is the "
               "frontend's own"),
    Difference("`heur_mode.OPENSOURCE`", "ranks as `A` does"),
    Difference("kernel caches, `is_dynamic_shape_enabled`, `cuda_graph_retention`",
               "accepted, and change nothing: kernels are shared always, CUDA graphs never kept"),
    Difference("the type of a virtual result of `rope`, where none is set",
               "its input's, as attention reads it, not the intermediate type"),
    Difference("`populate_cuda_graph`", "adds a node for each launch, not a child graph"),
    Difference("`get_dim` and `get_stride` before `validate`", "what can be inferred by then"),
    Difference("plan names, engine indices, knobs, notes, workspace sizes", "those of dnnc"),
)  # fmt: skip

MORE = (
    Difference("operands that both broadcast, `concatenate` without dims, batches that divide",
               "taken; `validate` of cudnn-frontend refuses them"),
    Difference("graphs that a version of cuDNN's library refuses",
               "taken where dnnc has an engine"),
    Difference("a number in place of a tensor, texts in place of members, `dnnc.Dim` in sizes",
               "taken"),
    Difference("`pygraph(target=)`", "compiles for a target by name, as in `dnnc.pygraph`"),
)  # fmt: skip


def operations() -> Iterator[Difference]:
    """Operations that are refused, those of one reason and step together."""
    found: dict[tuple[str, str], list[str]] = {}
    for method, row in OPERATIONS.items():
        if row.missing is not None:
            found.setdefault((row.missing.reason, row.missing.step), []).append(f"`{method}`")
    for (reason, step), methods in found.items():
        yield Difference(", ".join(methods), f"refused by {_STEPS[step]}: {reason}")
    types = ", ".join(f"`{kind.name}`" for kind in ABSENT_TYPES)
    yield Difference(f"data types {types}", f"refused by {_STEPS['create_execution_plans']}")


def markdown() -> str:
    """The section."""
    parts = (
        ("Refused", (*operations(), *REFUSED)),
        ("Otherwise", OTHERWISE),
        ("Taken here only", MORE),
    )
    lines = ["## What differs"]
    for title, rows in parts:
        lines += ["", f"### {title}", "", "| of cudnn-frontend | here |", "|---|---|"]
        lines += [f"| {row.what} | {row.here} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
