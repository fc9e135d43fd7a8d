"""Graphs that several tests build."""

import dnnc.cudnn as cudnn

D = cudnn.data_type


def new(**options):
    given = {
        "io_data_type": D.HALF,
        "intermediate_data_type": D.FLOAT,
        "compute_data_type": D.FLOAT,
        "target": "sm_90a",
    }
    return cudnn.pygraph(**{**given, **options})


def image(graph, **options):
    """[2, 8, 4, 6], channels last."""
    return graph.tensor([2, 8, 4, 6], [192, 1, 48, 8], **options)


def channel(graph, **options):
    return graph.tensor([1, 8, 1, 1], data_type=D.FLOAT, **options)


def output(tensor, data_type=None):
    tensor.set_output(True)
    return tensor if data_type is None else tensor.set_data_type(data_type)
