"""The samples that run on a device are valid, and have plans for Hopper, without one."""

import pytest

import dnnc.cudnn as cudnn
from tests.gpu.cudnn_samples import SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_has_plans(name):
    graph, tensors = SAMPLES[name].build(cudnn, target="sm_90a")
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    for tensor in tensors.values():
        assert tensor.get_dim()
        assert len(tensor.get_stride()) == len(tensor.get_dim())
        assert not tensor.get_is_virtual()
