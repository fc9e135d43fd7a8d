"""Parts of example graphs: a new graph, its outputs, symbols."""

import dnnc
from dnnc import dtypes

M = dnnc.Dim("M", min=1, max=512)
B = dnnc.Dim("B", min=1, max=64, multiple_of=2)


def new_graph(**options):
    defaults = {
        "io_data_type": dtypes.f32,
        "intermediate_data_type": dtypes.f32,
        "compute_data_type": dtypes.f32,
        "target": "sm_90",
    }
    return dnnc.pygraph("example", **{**defaults, **options})


def finish(graph, *outputs):
    for tensor in outputs:
        tensor.set_output(True)
    return graph
